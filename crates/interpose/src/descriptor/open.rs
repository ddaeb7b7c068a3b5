//! Calls that make, copy and close descriptors.

use std::ffi::{c_int, c_uint};

use crate::descriptor::{kept, returned, table, transfer};
use crate::failed;
use crate::real::libc;
use crate::signal::process;
use crate::start::phase;

pub(crate) use kept::note_inherited;

/// Size of the kernel's table of descriptors from the start, 64 KB of its memory.
const ROOM: libc::rlim_t = 8_192;

/// Makes the kernel enlarge the process's table of descriptors. `expand_fdtable` (fs/file.c) waits
/// for a grace period of RCU where the process has several threads, and so do all calls meanwhile
/// that make a descriptor: each of them would keep a kernel thread for that time.
pub(crate) fn make_room() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live structure, and descriptors of this function. A failure only means less room.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return;
        }
        let last = limit.rlim_cur.min(ROOM).saturating_sub(1) as c_int;
        let one = libc::eventfd(0, libc::EFD_CLOEXEC);
        let copy = libc::fcntl(one, libc::F_DUPFD_CLOEXEC, last);
        for fd in [one, copy] {
            if fd >= 0 {
                libc::close(fd);
            }
        }
    }
}

/// Notes a descriptor that a call has returned, and returns it.
pub(super) fn made(fd: c_int) -> c_int {
    if fd >= 0 {
        table::made(fd);
    }
    fd
}

/// Notes a duplicate of `source`, and returns it.
pub(super) fn derived(source: c_int, fd: c_int) -> c_int {
    note_source(source, fd);
    made(fd)
}

/// Notes a connection that `listener` has accepted, and returns it.
pub(super) fn accepted(listener: c_int, fd: c_int) -> c_int {
    note_source(listener, fd);
    if fd >= 0 {
        table::made_connection(listener, fd);
    }
    fd
}

fn note_source(source: c_int, fd: c_int) {
    if fd >= 0 && !table::is_programs(source) {
        transfer::note_foreign(fd);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: integers.
    let fd = unsafe { libc::socket(domain, kind, protocol) };
    if fd >= 0 {
        table::made_socket(fd, domain, kind);
    }
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let done = libc::socketpair(domain, kind, protocol, pair);
        if done == 0 {
            table::made_socket(*pair, domain, kind);
            table::made_socket(*pair.add(1), domain, kind);
        }
        done
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_eventfd(count: c_uint, flags: c_int) -> c_int {
    // SAFETY: integers.
    made(unsafe { libc::eventfd(count, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_epoll_create(size: c_int) -> c_int {
    // SAFETY: integers.
    made(unsafe { libc::epoll_create(size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_epoll_create1(flags: c_int) -> c_int {
    // SAFETY: integers.
    made(unsafe { libc::epoll_create1(flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_timerfd_create(clock: c_int, flags: c_int) -> c_int {
    // SAFETY: integers.
    made(unsafe { libc::timerfd_create(clock, flags) })
}

/// Replaces pipe2(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pipe2(pair: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let done = libc::pipe2(pair, flags);
        if done == 0 {
            made(*pair);
            made(*pair.add(1));
        }
        done
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pipe(pair: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose_pipe2(pair, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_dup(fd: c_int) -> c_int {
    // SAFETY: integers.
    derived(fd, unsafe { libc::dup(fd) })
}

/// Replaces dup3(2). The number of a descriptor of the runtime is busy.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if from != to && to >= 0 {
        if kept::is_kept(to) {
            return failed(libc::EBUSY);
        }
        table::closing(to);
    }
    // SAFETY: integers.
    let done = unsafe { libc::dup3(from, to, flags) };
    if from == to { done } else { derived(from, done) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_dup2(from: c_int, to: c_int) -> c_int {
    if from == to {
        // SAFETY: integers.
        return unsafe { libc::dup2(from, to) };
    }
    // SAFETY: as above.
    unsafe { kumi_interpose_dup3(from, to, 0) }
}

/// Replaces fcntl(2). Variadic in C: one argument more, which is an integer or a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::fcntl(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => derived(fd, done),
        _ => done,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's promise. The same function on this architecture.
    unsafe { kumi_interpose_fcntl(fd, command, argument) }
}

/// Replaces close(2). A descriptor of the runtime counts as closed.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_close(fd: c_int) -> c_int {
    // In the program itself, the runtime's own calls come here as well.
    if !phase::is_linked() && kept::is_kept(fd) {
        return failed(libc::EBADF);
    }
    table::closing(fd);
    // SAFETY: the caller's promise.
    unsafe { libc::close(fd) }
}

/// Closes a range without the runtime's descriptors, as close_range(2).
pub(crate) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // Only these close anything in this table: with CLOEXEC nothing closes, and a table of its own
    // for the caller is no table of the runtime's.
    if flags != 0 || first > last {
        // SAFETY: integers.
        return unsafe { real_range(first, last, flags) };
    }
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return failed(libc::ENOSYS);
    };
    // All first: the folder's own descriptor is among them, and is closed by then.
    let numbers: Vec<c_uint> =
        open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for fd in numbers.into_iter().filter(|fd| (first..=last).contains(fd)) {
        if kept::is_kept(fd.cast_signed()) {
            continue;
        }
        // A number that was closed meanwhile fails, as it should.
        // SAFETY: the caller closes this descriptor.
        unsafe { kumi_interpose_close(fd.cast_signed()) };
    }
    0
}

unsafe fn real_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let arguments = [first as usize, last as usize, flags as usize, 0, 0, 0];
    // SAFETY: integers.
    returned(unsafe { kumihimo_arch::system_call(libc::SYS_close_range, arguments) }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_close_range(
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    if !phase::has_started() {
        // SAFETY: integers.
        return unsafe { real_range(first, last, flags) };
    }
    close_range(first, last, flags)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_closefrom(first: c_int) {
    // SAFETY: integers.
    unsafe { kumi_interpose_close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0) };
}

/// Replaces signalfd(2): what it reads, the kernel keeps.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_signalfd(
    fd: c_int,
    set: *const libc::sigset_t,
    flags: c_int,
) -> c_int {
    process::leave_to_descriptor(set);
    // SAFETY: the caller's promise.
    let done = unsafe { libc::signalfd(fd, set, flags) };
    if fd == -1 { made(done) } else { done }
}
