//! The object of a microprocess's wait: for reports, in two words of the record.

use kumihimo_resource::id::Printed;

/// The object that a parked microprocess waits for, for the deadlock report.
///
/// The `usize` is the address of the object, the `u64` the ID of a microprocess, the `i32` a
/// descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Wait {
    Park,
    Sleep,
    Join(u64),
    Mutex(usize),
    RwLock(usize),
    Condvar(usize),
    Barrier(usize),
    Once(usize),
    Semaphore(usize),
    Channel(usize),
    Select,
    Message(usize),
    Io(i32),
    /// As `Io`, but for so long that the unused part of the stack was given back.
    Idle(i32),
    /// The address of the scope, or 0 where the children are the connections of a server.
    Scope(usize),
    Blocking,
    Batch,
    Future,
    /// The address of a futex, under `kumi run`.
    Futex(usize),
    /// One of several descriptors.
    Descriptors,
    /// A signal, under `kumi run`.
    Signal,
    /// The number of the peer's address space, or 0.
    Gate(u16),
    /// The address of a mutex of the C library, under `kumi run`.
    PthreadMutex(usize),
    /// The address of a readers-writer lock of the C library, under `kumi run`.
    PthreadRwLock(usize),
    /// The address of a spinlock of the C library, under `kumi run`.
    Spinlock(usize),
}

impl Wait {
    /// Flag in the encoded kind: the wait has a deadline. Cleared by the next wait.
    pub(crate) const TIMED: u8 = 0x80;
    /// Flag in the encoded kind: an idle VP has seen the wait before (see
    /// [`crate::memory::stack_trim`]).
    pub(crate) const LONG: u8 = 0x40;
    /// Flag in the encoded kind: [`Wait::Idle`].
    pub(crate) const TRIMMED: u8 = 0x20;
    /// The bits of the encoded kind that are not flags.
    pub(crate) const KIND: u8 = !(Wait::TIMED | Wait::LONG | Wait::TRIMMED);
    /// Encoded kind of a wait for a descriptor, with the stack untrimmed.
    pub(crate) const IO: u8 = 13;

    #[inline(always)]
    pub(crate) fn encode(self) -> (u8, usize) {
        match self {
            Wait::Park => (1, 0),
            Wait::Sleep => (2, 0),
            Wait::Join(id) => (3, id as usize),
            Wait::Mutex(a) => (4, a),
            Wait::RwLock(a) => (5, a),
            Wait::Condvar(a) => (6, a),
            Wait::Barrier(a) => (7, a),
            Wait::Once(a) => (8, a),
            Wait::Semaphore(a) => (9, a),
            Wait::Channel(a) => (10, a),
            Wait::Select => (11, 0),
            Wait::Message(a) => (12, a),
            Wait::Io(fd) => (Wait::IO, fd as usize),
            Wait::Idle(fd) => (Wait::IO | Wait::TRIMMED, fd as usize),
            Wait::Scope(a) => (14, a),
            Wait::Blocking => (15, 0),
            Wait::Batch => (16, 0),
            Wait::Future => (17, 0),
            Wait::Futex(a) => (18, a),
            Wait::Descriptors => (19, 0),
            Wait::Signal => (21, 0),
            Wait::Gate(space) => (20, usize::from(space)),
            Wait::PthreadMutex(a) => (22, a),
            Wait::PthreadRwLock(a) => (23, a),
            Wait::Spinlock(a) => (24, a),
        }
    }

    pub(crate) fn decode(kind: u8, object: usize) -> Option<Wait> {
        Some(match kind & Wait::KIND {
            1 => Wait::Park,
            2 => Wait::Sleep,
            3 => Wait::Join(object as u64),
            4 => Wait::Mutex(object),
            5 => Wait::RwLock(object),
            6 => Wait::Condvar(object),
            7 => Wait::Barrier(object),
            8 => Wait::Once(object),
            9 => Wait::Semaphore(object),
            10 => Wait::Channel(object),
            11 => Wait::Select,
            12 => Wait::Message(object),
            Wait::IO => Wait::Io(object as i32),
            14 => Wait::Scope(object),
            15 => Wait::Blocking,
            16 => Wait::Batch,
            17 => Wait::Future,
            18 => Wait::Futex(object),
            19 => Wait::Descriptors,
            20 => Wait::Gate(object as u16),
            21 => Wait::Signal,
            22 => Wait::PthreadMutex(object),
            23 => Wait::PthreadRwLock(object),
            24 => Wait::Spinlock(object),
            _ => return None,
        })
    }
}

/// Returns the name of an encoded kind, for counters.
pub(crate) fn kind_name(kind: u8) -> &'static str {
    match Wait::decode(kind, 0) {
        Some(Wait::Park) => "unpark",
        Some(Wait::Sleep) => "clock",
        Some(Wait::Join(_)) => "join",
        Some(Wait::Mutex(_) | Wait::PthreadMutex(_)) => "mutex",
        Some(Wait::RwLock(_) | Wait::PthreadRwLock(_)) => "rwlock",
        Some(Wait::Condvar(_)) => "condvar",
        Some(Wait::Barrier(_)) => "barrier",
        Some(Wait::Once(_)) => "once",
        Some(Wait::Semaphore(_)) => "semaphore",
        Some(Wait::Channel(_)) => "channel",
        Some(Wait::Select) => "select",
        Some(Wait::Message(_)) => "message",
        Some(Wait::Io(_) | Wait::Idle(_)) => "descriptor",
        Some(Wait::Scope(_)) => "scope",
        Some(Wait::Blocking) => "blocking",
        Some(Wait::Batch) => "batch",
        Some(Wait::Future) => "future",
        Some(Wait::Futex(_)) => "futex",
        Some(Wait::Descriptors) => "descriptors",
        Some(Wait::Signal) => "signal",
        Some(Wait::Gate(_)) => "gate",
        Some(Wait::Spinlock(_)) => "spinlock",
        None => "unknown",
    }
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wait::Park => write!(f, "an unpark"),
            Wait::Sleep => write!(f, "the clock"),
            Wait::Join(id) => write!(f, "the end of microprocess {}", Printed(*id)),
            Wait::Mutex(a) | Wait::PthreadMutex(a) => write!(f, "the mutex at {a:#x}"),
            Wait::RwLock(a) | Wait::PthreadRwLock(a) => write!(f, "the rwlock at {a:#x}"),
            Wait::Spinlock(a) => write!(f, "the spinlock at {a:#x}"),
            Wait::Condvar(a) => write!(f, "the condition variable at {a:#x}"),
            Wait::Barrier(a) => write!(f, "the barrier at {a:#x}"),
            Wait::Once(a) => write!(f, "the initialisation at {a:#x}"),
            Wait::Semaphore(a) => write!(f, "the semaphore at {a:#x}"),
            Wait::Channel(a) => write!(f, "the channel at {a:#x}"),
            Wait::Select => write!(f, "one of several channels"),
            Wait::Message(a) => write!(f, "a message at {a:#x}"),
            Wait::Io(fd) | Wait::Idle(fd) => write!(f, "descriptor {fd}"),
            Wait::Scope(_) => write!(f, "the end of its scope's children"),
            Wait::Blocking => write!(f, "a blocking call"),
            Wait::Batch => write!(f, "its batch of system calls"),
            Wait::Future => write!(f, "a future"),
            Wait::Futex(a) => write!(f, "the futex at {a:#x}"),
            Wait::Descriptors => write!(f, "one of several descriptors"),
            Wait::Signal => write!(f, "a signal"),
            Wait::Gate(0) => write!(f, "a call from another address space"),
            Wait::Gate(space) => write!(f, "address space {space}, through a gate"),
        }
    }
}
