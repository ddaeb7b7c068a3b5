//! Tests that run as somebody without privileges.

/// Makes this process, which must be root's, that of user `id`, without any capability. False if it
/// is not root's. For a process of the test's own.
///
/// It joins no other processes of the machine, unless its settings were read before: nobody would
/// remove what that leaves behind.
///
/// # Panics
/// If it cannot be done.
pub fn become_user(id: u32) -> bool {
    // SAFETY: integers, and an empty list. glibc does it for all kernel threads.
    unsafe {
        if libc::geteuid() != 0 {
            return false;
        }
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setresgid(id, id, id), 0);
        assert_eq!(libc::setresuid(id, id, id), 0);
        // Lost with the user: whether the process's own /proc files belong to it.
        assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1u64), 0);
    }
    // SAFETY: nobody else in this process reads the environment at this moment: it runs one test,
    // which is here.
    unsafe { std::env::set_var("KUMI_DIR", "off") };
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    assert!(status.lines().any(|line| line == "CapEff:\t0000000000000000"), "{status}");
    true
}
