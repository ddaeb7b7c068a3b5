//! Children of a microprocess that has restricted its kernel thread.

use kumihimo::process::Command;
use kumihimo::thread;
use kumihimo_tests::process::alone;

use super::with_vps;

/// The line `NoNewPrivs` of a child's status (proc_pid_status(5)).
fn no_new_privileges_of_a_child() -> String {
    let child = Command::new("cat").arg("/proc/self/status").output().expect("cat").stdout;
    let status = String::from_utf8(child).expect("text");
    let line = status.lines().find_map(|line| line.strip_prefix("NoNewPrivs:"));
    line.expect("a line").trim().to_owned()
}

#[test]
fn sandbox_of_the_caller_holds_for_its_children() {
    alone("sandbox::sandbox_of_the_caller_holds_for_its_children", || {
        with_vps(2, || {
            let before = no_new_privileges_of_a_child();
            // The microprocess stays on its kernel thread inside `blocking`.
            let inside = thread::blocking(|| {
                // SAFETY: integers only.
                assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
                no_new_privileges_of_a_child()
            });
            assert!(matches!(&*before, "0" | "1") && inside == "1", "{before}, then {inside}");
        });
    });
}
