//! Waits on stacks that the runtime did not make, by swapcontext(3).

use std::cell::Cell;
use std::io::{Read, Write};
use std::time::Duration;

use kumihimo::net::UnixStream;
use kumihimo::thread::{self, Builder};
use kumihimo_tests::process::alone;

use super::with_vps;

/// An idle virtual processor visits a wait twice, a second apart, before the wait counts as long.
const LONG: Duration = Duration::from_millis(3500);

thread_local! {
    static BODY: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
    static MARK: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn body() {
    BODY.take().expect("set by the caller")();
}

/// Runs `f` on the stack `stack`, and returns when it has returned.
fn on_stack(stack: &mut [u8], f: impl FnOnce() + 'static) {
    BODY.set(Some(Box::new(f)));
    // SAFETY: two live contexts; the stack outlives the call, since `body` returns to `here`.
    unsafe {
        let (mut here, mut there): (libc::ucontext_t, libc::ucontext_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        assert_eq!(libc::getcontext(&mut there), 0);
        there.uc_stack.ss_sp = stack.as_mut_ptr().cast();
        there.uc_stack.ss_size = stack.len();
        there.uc_link = &mut here;
        libc::makecontext(&mut there, body, 0);
        assert_eq!(libc::swapcontext(&mut here, &there), 0);
    }
}

/// Waits for a byte on `stack`.
fn wait_on(stack: &mut [u8], mut from: UnixStream) {
    MARK.set(9);
    on_stack(stack, move || {
        let mut byte = [0];
        from.read_exact(&mut byte).expect("a byte");
        assert_eq!(byte, [42]);
    });
    assert_eq!(MARK.get(), 9, "the microprocess's own thread-locals");
}

/// Sends a byte after a long wait.
fn send_late(mut to: UnixStream) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        std::thread::sleep(LONG);
        to.write_all(&[42]).expect("sent");
    })
}

#[test]
fn wait_on_another_stack_keeps_all_memory() {
    alone("other_stacks::wait_on_another_stack_keeps_all_memory", || {
        // Made before the first stack of a microprocess, so that it lies above all of them.
        let mut above = vec![7u8; 4 << 20];
        let (a, b) = UnixStream::pair().expect("a pair");
        let late = send_late(a);
        with_vps(2, || {
            let mut below = vec![7u8; 4 << 20];
            let (c, d) = UnixStream::pair().expect("a pair");
            let late = send_late(c);
            thread::scope(|scope| {
                scope.spawn(|| wait_on(&mut above[2 << 20..], b));
                scope.spawn(|| wait_on(&mut below[2 << 20..], d));
            });
            assert!(below[..2 << 20].iter().all(|byte| *byte == 7));
            late.join().expect("no panic");
        });
        late.join().expect("no panic");
        assert!(above[..2 << 20].iter().all(|byte| *byte == 7));
    });
}

#[test]
fn wait_on_a_stack_inside_the_own_stack_keeps_all_memory() {
    alone("other_stacks::wait_on_a_stack_inside_the_own_stack_keeps_all_memory", || {
        with_vps(2, || {
            let (a, b) = UnixStream::pair().expect("a pair");
            let late = send_late(a);
            let waits = move || {
                let mut room = [7u8; 256 << 10];
                let (kept, stack) = room.split_at_mut(128 << 10);
                wait_on(stack, b);
                // Below the stack pointer of the wait, and in use.
                assert!(kept.iter().all(|byte| *byte == 7));
            };
            let waits = Builder::new().stack_size(1 << 20).spawn(waits).expect("begun");
            waits.join().expect("nothing was overwritten");
            late.join().expect("no panic");
        });
    });
}
