//! Helpers for tests that run without privileges.

/// Changes this process from root to user `id`, without any capability. Returns false if the
/// process is not root's. For a test in its own child process.
///
/// The process then joins no other address spaces of the machine, unless its settings were read
/// before, because the user could not remove the remains.
///
/// # Panics
/// If the change fails.
pub fn become_user(id: u32) -> bool {
    // SAFETY: integers, and an empty list. glibc changes the IDs of all kernel threads.
    unsafe {
        if libc::geteuid() != 0 {
            return false;
        }
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setresgid(id, id, id), 0);
        assert_eq!(libc::setresuid(id, id, id), 0);
        // A change of user clears the dumpable flag, which gives the process's /proc files to root.
        assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1u64), 0);
    }
    // SAFETY: no other thread reads the environment at this moment, because the process runs only
    // one test, which is here.
    unsafe { std::env::set_var("KUMI_DIR", "off") };
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    assert!(status.lines().any(|line| line == "CapEff:\t0000000000000000"), "{status}");
    true
}

/// Returns the number of a user that no other process has. The kernel counts processes, locked
/// memory and pending signals per user, and a test that exhausts them must not share the account.
#[must_use]
pub fn own_user() -> u32 {
    1_000_000 + std::process::id()
}
