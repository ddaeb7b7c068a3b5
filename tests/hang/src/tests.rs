use std::process::{Child, Command, Stdio};
use std::thread::sleep;

use super::*;

const LOOK: Duration = Duration::from_millis(200);

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn shell(script: &str) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null());
    Ended(command.spawn().expect("a shell"))
}

#[test]
fn sleeping_process_is_idle_in_every_look() {
    let child = shell("read line");
    // The shell makes progress until it waits for its input.
    let mut watch = Watch::new(child.0.id());
    while watch.look() < 5 {
        sleep(LOOK);
    }
}

#[test]
fn looping_process_is_never_idle() {
    let child = shell("while :; do :; done");
    let mut watch = Watch::new(child.0.id());
    for _ in 0..5 {
        sleep(LOOK);
        assert_eq!(watch.look(), 0);
    }
    assert!(watch.cpu() > Duration::ZERO);
}

#[test]
fn descendants_progress_counts() {
    let child = shell("(while :; do :; done) & read line; kill $!");
    let mut watch = Watch::new(child.0.id());
    for _ in 0..5 {
        sleep(LOOK);
        assert_eq!(watch.look(), 0);
    }
    let all = family(child.0.id());
    assert!(all.len() >= 2 && all.contains(&child.0.id()), "{all:?}");
    for process in all.into_iter().filter(|&process| process != child.0.id()) {
        let _ = Command::new("kill").arg(process.to_string()).status();
    }
}

/// Neither before it is waited for nor afterwards.
#[test]
fn process_that_has_ended_does_not_hang() {
    let mut child = shell("read line");
    let mut watch = Watch::new(child.0.id());
    drop(child.0.stdin.take());
    let stat = format!("/proc/{}/stat", child.0.id());
    while !std::fs::read_to_string(&stat).expect("a process").contains(") Z ") {
        sleep(LOOK);
    }
    assert!((0..5).all(|_| watch.look() == 0), "a zombie");
    child.0.wait().expect("it ended");
    assert!((0..5).all(|_| watch.look() == 0), "gone");
}

#[test]
fn report_lists_kernel_threads() {
    let child = shell("read line");
    let report = report(child.0.id());
    let id = format!("{}, ", child.0.id());
    assert!(report.lines().any(|line| line.starts_with(&id)), "{report}");
}

#[test]
fn report_of_a_missing_process_says_so() {
    // An ID above the largest process ID of Linux (4,194,304).
    assert!(report(u32::MAX / 2).starts_with("no kernel threads of process"));
}
