// The functions of the C library that `kumi run` replaces, one list for two crates: `preload`
// defines each name and jumps to `kumi_interpose_NAME`; `interpose` defines that function, and the
// linker directs its own calls of the name, and those of all crates in it, to the next definition
// (`real.rs`).
//
// Not here, because `arch` defines them for every program with microprocesses, and `interpose`
// exports its definitions: `preload/src/lib.rs` lists those that need more under `kumi run`.

macro_rules! names {
    ($use:ident) => {
        $use! {
            // Threads.
            pthread_join
            pthread_tryjoin_np
            pthread_timedjoin_np
            pthread_clockjoin_np
            pthread_detach
            pthread_exit
            pthread_getschedparam
            pthread_setschedprio
            getrusage
            gettid
            sched_yield
            thrd_create
            thrd_join
            thrd_detach
            thrd_exit
            thrd_sleep
            thrd_yield
            // Processes.
            __register_atfork
            // Locks.
            pthread_mutex_lock
            pthread_mutex_trylock
            pthread_mutex_timedlock
            pthread_mutex_clocklock
            pthread_mutex_unlock
            pthread_cond_wait
            pthread_cond_timedwait
            pthread_cond_clockwait
            pthread_cond_signal
            pthread_cond_broadcast
            pthread_cond_destroy
            pthread_rwlock_rdlock
            pthread_rwlock_timedrdlock
            pthread_rwlock_clockrdlock
            pthread_rwlock_wrlock
            pthread_rwlock_timedwrlock
            pthread_rwlock_clockwrlock
            pthread_rwlock_tryrdlock
            pthread_rwlock_trywrlock
            pthread_rwlock_unlock
            pthread_barrier_wait
            pthread_barrier_destroy
            pthread_spin_lock
            pthread_spin_unlock
            sem_wait
            sem_timedwait
            sem_clockwait
            sem_post
            mtx_lock
            mtx_timedlock
            mtx_trylock
            mtx_unlock
            cnd_wait
            cnd_timedwait
            cnd_signal
            cnd_broadcast
            cnd_destroy
            // Descriptors.
            close
            close_range
            closefrom
            dup
            dup2
            dup3
            fcntl
            fcntl64
            socket
            socketpair
            connect
            accept
            accept4
            eventfd
            epoll_create
            epoll_create1
            setsockopt
            read
            readv
            __read_chk
            recv
            recvfrom
            recvmsg
            __recv_chk
            __recvfrom_chk
            write
            writev
            send
            sendto
            sendmsg
            poll
            ppoll
            __poll_chk
            __ppoll_chk
            select
            epoll_wait
            pipe
            pipe2
            timerfd_create
            // Signals and cancellation.
            sigaction
            signal
            ssignal
            sysv_signal
            __sysv_signal
            siginterrupt
            pthread_kill
            pthread_sigqueue
            tgkill
            raise
            sigpending
            sigwait
            sigwaitinfo
            sigtimedwait
            sigsuspend
            sigpause
            __xpg_sigpause
            sigset
            sighold
            sigrelse
            sigignore
            pause
            signalfd
            timer_create
            timer_delete
            longjmp
            _longjmp
            siglongjmp
            __longjmp_chk
            setcontext
            swapcontext
            pthread_cancel
            pthread_setcancelstate
            pthread_testcancel
            pthread_setcanceltype
            // Sleeps.
            nanosleep
            clock_nanosleep
            usleep
            sleep
        }
    };
}
