use super::*;

/// Copies from `memory`, which is at address `AT`.
fn copy_of(memory: &[u8]) -> impl Fn(usize, &mut [u8]) -> usize {
    move |at, out| match memory.get(at.wrapping_sub(AT)..) {
        Some(rest) => {
            let n = rest.len().min(out.len());
            out[..n].copy_from_slice(&rest[..n]);
            n
        }
        None => 0,
    }
}

const AT: usize = 0x1000;

#[test]
fn holder_is_read_from_each_kind_of_lock() {
    let mut memory = [0; 64];
    let read_at = |memory: &[u8; 64], wait: fn(usize) -> Wait| read(wait(AT), copy_of(memory));
    for wait in [Wait::Mutex, Wait::RwLock, Wait::Once, Wait::PthreadMutex, Wait::PthreadRwLock] {
        assert_eq!(read_at(&memory, wait), Some(HolderWord::Free), "{}", wait(AT));
    }
    memory[48..56].copy_from_slice(&(77 | MUTEX_WAITERS).to_ne_bytes());
    assert_eq!(read_at(&memory, Wait::Mutex), Some(HolderWord::Mark(77)));
    memory[8..12].copy_from_slice(&(3_u32 | 1 << 31).to_ne_bytes());
    assert_eq!(read_at(&memory, Wait::RwLock), Some(HolderWord::Readers(3)));
    memory[..8].copy_from_slice(&99_u64.to_ne_bytes());
    assert_eq!(read_at(&memory, Wait::RwLock), Some(HolderWord::Mark(99)));
    assert_eq!(read_at(&memory, Wait::Once), Some(HolderWord::Mark(99)));
    let mut memory = [0; 64];
    memory[8..12].copy_from_slice(&4711_u32.to_ne_bytes());
    assert_eq!(read_at(&memory, Wait::PthreadMutex), Some(HolderWord::ThreadNumber(4711)));
    memory[..4].copy_from_slice(&(5_u32 << PTHREAD_RWLOCK_SHIFT | 3).to_ne_bytes());
    assert_eq!(read_at(&memory, Wait::PthreadRwLock), Some(HolderWord::Readers(5)));
    memory[24..28].copy_from_slice(&12_u32.to_ne_bytes());
    assert_eq!(read_at(&memory, Wait::PthreadRwLock), Some(HolderWord::ThreadNumber(12)));
}

#[test]
fn lock_without_a_record_or_without_memory_has_no_holder() {
    let memory = [1; 64];
    for wait in [Wait::Semaphore(AT), Wait::Futex(AT), Wait::Spinlock(AT), Wait::Condvar(AT)] {
        assert_eq!(read(wait, copy_of(&memory)), None, "{wait}");
    }
    for at in [0, AT - 49, AT + 9, AT + 17, usize::MAX - 7, usize::MAX] {
        assert_eq!(read(Wait::Mutex(at), copy_of(&memory)), None, "{at:#x}");
    }
    assert_eq!(read(Wait::RwLock(AT), copy_of(&memory[..11])), None);
}
