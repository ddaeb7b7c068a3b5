//! The C library, as the code of this crate calls it: the names of the crate `libc`, of which those
//! in `names.rs` are the C library's own definitions, and those that `arch` replaces are the
//! definitions of `arch`.

use std::ffi::{c_int, c_uint, c_void};

pub(crate) use ::libc::*;
pub(crate) use kumihimo_arch::program::{
    clock_gettime, pthread_create, pthread_getaffinity_np, pthread_getattr_np,
    pthread_getcpuclockid, pthread_setaffinity_np, pthread_setschedparam, pthread_sigmask,
    sigaltstack,
};

/// Makes a system call of futex(2) by the definition of `arch`.
///
/// # Safety
/// The requirements of the system call.
pub(crate) unsafe fn syscall(
    number: c_long,
    word: usize,
    operation: c_int,
    value: usize,
    time: usize,
    other: usize,
    bits: u32,
) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { kumihimo_arch::call!(number, word, operation, value, time, other, bits) }
}

unsafe extern "C" {
    #[link_name = "__wrap___register_atfork"]
    pub(crate) fn __register_atfork(
        before: Option<unsafe extern "C" fn()>,
        after: Option<unsafe extern "C" fn()>,
        in_child: Option<unsafe extern "C" fn()>,
        library: *mut c_void,
    ) -> c_int;
    #[link_name = "__wrap_pthread_join"]
    pub(crate) fn pthread_join(thread: pthread_t, value: *mut *mut c_void) -> c_int;
    #[link_name = "__wrap_pthread_tryjoin_np"]
    pub(crate) fn pthread_tryjoin_np(thread: pthread_t, value: *mut *mut c_void) -> c_int;
    #[link_name = "__wrap_pthread_timedjoin_np"]
    pub(crate) fn pthread_timedjoin_np(
        thread: pthread_t,
        value: *mut *mut c_void,
        at: *const timespec,
    ) -> c_int;
    #[link_name = "__wrap_pthread_clockjoin_np"]
    pub(crate) fn pthread_clockjoin_np(
        thread: pthread_t,
        value: *mut *mut c_void,
        clock: clockid_t,
        at: *const timespec,
    ) -> c_int;
    #[link_name = "__wrap_pthread_detach"]
    pub(crate) fn pthread_detach(thread: pthread_t) -> c_int;
    #[link_name = "__wrap_pthread_getschedparam"]
    pub(crate) fn pthread_getschedparam(
        thread: pthread_t,
        policy: *mut c_int,
        parameters: *mut sched_param,
    ) -> c_int;
    #[link_name = "__wrap_pthread_setschedprio"]
    pub(crate) fn pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int;
    #[link_name = "__wrap_getrusage"]
    pub(crate) fn getrusage(of: c_int, to: *mut rusage) -> c_int;
    #[link_name = "__wrap_gettid"]
    pub(crate) fn gettid() -> pid_t;
    #[link_name = "__wrap_sched_yield"]
    pub(crate) fn sched_yield() -> c_int;
    #[link_name = "__wrap_pthread_mutex_lock"]
    pub(crate) fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int;
    #[link_name = "__wrap_pthread_mutex_trylock"]
    pub(crate) fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int;
    #[link_name = "__wrap_pthread_mutex_timedlock"]
    pub(crate) fn pthread_mutex_timedlock(
        mutex: *mut pthread_mutex_t,
        at: *const timespec,
    ) -> c_int;
    #[link_name = "__wrap_pthread_mutex_unlock"]
    pub(crate) fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int;
    #[link_name = "__wrap_pthread_cond_wait"]
    pub(crate) fn pthread_cond_wait(
        condition: *mut pthread_cond_t,
        mutex: *mut pthread_mutex_t,
    ) -> c_int;
    #[link_name = "__wrap_pthread_cond_timedwait"]
    pub(crate) fn pthread_cond_timedwait(
        condition: *mut pthread_cond_t,
        mutex: *mut pthread_mutex_t,
        at: *const timespec,
    ) -> c_int;
    #[link_name = "__wrap_pthread_cond_signal"]
    pub(crate) fn pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int;
    #[link_name = "__wrap_pthread_cond_broadcast"]
    pub(crate) fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int;
    #[link_name = "__wrap_pthread_cond_destroy"]
    pub(crate) fn pthread_cond_destroy(condition: *mut pthread_cond_t) -> c_int;
    #[link_name = "__wrap_pthread_rwlock_rdlock"]
    pub(crate) fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int;
    #[link_name = "__wrap_pthread_rwlock_wrlock"]
    pub(crate) fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int;
    #[link_name = "__wrap_pthread_rwlock_tryrdlock"]
    pub(crate) fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int;
    #[link_name = "__wrap_pthread_rwlock_trywrlock"]
    pub(crate) fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int;
    #[link_name = "__wrap_pthread_rwlock_unlock"]
    pub(crate) fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int;
    #[link_name = "__wrap_pthread_barrier_wait"]
    pub(crate) fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int;
    #[link_name = "__wrap_pthread_barrier_destroy"]
    pub(crate) fn pthread_barrier_destroy(barrier: *mut pthread_barrier_t) -> c_int;
    #[link_name = "__wrap_pthread_spin_lock"]
    pub(crate) fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int;
    #[link_name = "__wrap_pthread_spin_unlock"]
    pub(crate) fn pthread_spin_unlock(lock: *mut pthread_spinlock_t) -> c_int;
    #[link_name = "__wrap_sem_wait"]
    pub(crate) fn sem_wait(semaphore: *mut sem_t) -> c_int;
    #[link_name = "__wrap_sem_post"]
    pub(crate) fn sem_post(semaphore: *mut sem_t) -> c_int;
    #[link_name = "__wrap_close"]
    pub(crate) fn close(fd: c_int) -> c_int;
    #[link_name = "__wrap_dup"]
    pub(crate) fn dup(fd: c_int) -> c_int;
    #[link_name = "__wrap_dup2"]
    pub(crate) fn dup2(from: c_int, to: c_int) -> c_int;
    #[link_name = "__wrap_dup3"]
    pub(crate) fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    #[link_name = "__wrap_fcntl"]
    pub(crate) fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    #[link_name = "__wrap_socket"]
    pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    #[link_name = "__wrap_socketpair"]
    pub(crate) fn socketpair(
        domain: c_int,
        kind: c_int,
        protocol: c_int,
        pair: *mut c_int,
    ) -> c_int;
    #[link_name = "__wrap_connect"]
    pub(crate) fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    #[link_name = "__wrap_accept4"]
    pub(crate) fn accept4(
        fd: c_int,
        address: *mut sockaddr,
        length: *mut socklen_t,
        flags: c_int,
    ) -> c_int;
    #[link_name = "__wrap_eventfd"]
    pub(crate) fn eventfd(count: c_uint, flags: c_int) -> c_int;
    #[link_name = "__wrap_epoll_create"]
    pub(crate) fn epoll_create(size: c_int) -> c_int;
    #[link_name = "__wrap_epoll_create1"]
    pub(crate) fn epoll_create1(flags: c_int) -> c_int;
    #[link_name = "__wrap_setsockopt"]
    pub(crate) fn setsockopt(
        fd: c_int,
        level: c_int,
        option: c_int,
        value: *const c_void,
        length: socklen_t,
    ) -> c_int;
    #[link_name = "__wrap_read"]
    pub(crate) fn read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t;
    #[link_name = "__wrap_readv"]
    pub(crate) fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    #[link_name = "__wrap_recvfrom"]
    pub(crate) fn recvfrom(
        fd: c_int,
        to: *mut c_void,
        bytes: size_t,
        flags: c_int,
        from: *mut sockaddr,
        length: *mut socklen_t,
    ) -> ssize_t;
    #[link_name = "__wrap_recvmsg"]
    pub(crate) fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    #[link_name = "__wrap_write"]
    pub(crate) fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t;
    #[link_name = "__wrap_writev"]
    pub(crate) fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    #[link_name = "__wrap_sendto"]
    pub(crate) fn sendto(
        fd: c_int,
        from: *const c_void,
        bytes: size_t,
        flags: c_int,
        to: *const sockaddr,
        length: socklen_t,
    ) -> ssize_t;
    #[link_name = "__wrap_sendmsg"]
    pub(crate) fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    #[link_name = "__wrap_poll"]
    pub(crate) fn poll(all: *mut pollfd, count: nfds_t, time: c_int) -> c_int;
    #[link_name = "__wrap_ppoll"]
    pub(crate) fn ppoll(
        all: *mut pollfd,
        count: nfds_t,
        time: *const timespec,
        mask: *const sigset_t,
    ) -> c_int;
    #[link_name = "__wrap_select"]
    pub(crate) fn select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        special: *mut fd_set,
        time: *mut timeval,
    ) -> c_int;
    #[link_name = "__wrap_epoll_wait"]
    pub(crate) fn epoll_wait(set: c_int, to: *mut epoll_event, room: c_int, time: c_int) -> c_int;
    #[link_name = "__wrap_pipe2"]
    pub(crate) fn pipe2(pair: *mut c_int, flags: c_int) -> c_int;
    #[link_name = "__wrap_timerfd_create"]
    pub(crate) fn timerfd_create(clock: clockid_t, flags: c_int) -> c_int;
    #[link_name = "__wrap_sigaction"]
    pub(crate) fn sigaction(signal: c_int, new: *const sigaction, before: *mut sigaction) -> c_int;
    #[link_name = "__wrap_signal"]
    pub(crate) fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    #[link_name = "__wrap_pthread_kill"]
    pub(crate) fn pthread_kill(thread: pthread_t, signal: c_int) -> c_int;
    #[link_name = "__wrap_pthread_sigqueue"]
    pub(crate) fn pthread_sigqueue(thread: pthread_t, signal: c_int, value: *mut c_void) -> c_int;
    #[link_name = "__wrap_raise"]
    pub(crate) fn raise(signal: c_int) -> c_int;
    #[link_name = "__wrap_sigpending"]
    pub(crate) fn sigpending(to: *mut sigset_t) -> c_int;
    #[link_name = "__wrap_sigtimedwait"]
    pub(crate) fn sigtimedwait(
        set: *const sigset_t,
        to: *mut siginfo_t,
        time: *const timespec,
    ) -> c_int;
    #[link_name = "__wrap_sigsuspend"]
    pub(crate) fn sigsuspend(set: *const sigset_t) -> c_int;
    #[link_name = "__wrap_pause"]
    pub(crate) fn pause() -> c_int;
    #[link_name = "__wrap_signalfd"]
    pub(crate) fn signalfd(fd: c_int, set: *const sigset_t, flags: c_int) -> c_int;
    #[link_name = "__wrap_timer_create"]
    pub(crate) fn timer_create(clock: clockid_t, event: *mut sigevent, to: *mut timer_t) -> c_int;
    #[link_name = "__wrap_timer_delete"]
    pub(crate) fn timer_delete(timer: timer_t) -> c_int;
    #[link_name = "__wrap_nanosleep"]
    pub(crate) fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int;
    #[link_name = "__wrap_clock_nanosleep"]
    pub(crate) fn clock_nanosleep(
        clock: clockid_t,
        flags: c_int,
        time: *const timespec,
        left: *mut timespec,
    ) -> c_int;
    #[link_name = "__wrap_usleep"]
    pub(crate) fn usleep(time: c_uint) -> c_int;
    #[link_name = "__wrap_sleep"]
    pub(crate) fn sleep(time: c_uint) -> c_uint;
}

unsafe extern "C-unwind" {
    #[link_name = "__wrap_pthread_exit"]
    pub(crate) fn pthread_exit(value: *mut c_void) -> !;
    #[link_name = "__wrap_pthread_cancel"]
    pub(crate) fn pthread_cancel(thread: pthread_t) -> c_int;
    #[link_name = "__wrap_pthread_setcancelstate"]
    pub(crate) fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    #[link_name = "__wrap_pthread_testcancel"]
    pub(crate) fn pthread_testcancel();
    #[link_name = "__wrap_pthread_setcanceltype"]
    pub(crate) fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}
