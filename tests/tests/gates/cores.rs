//! Virtual processors are bound to cores while links exist. Threads and processes started from them
//! are not.

use std::os::unix::process::CommandExt;

use kumihimo::gate::Gate;
use kumihimo::process::Command;
use kumihimo::thread;
use kumihimo_tests::process::one_to_one;
use kumihimo_tests::skip;

use crate::pair::{pair, serve_on};
use crate::parts::until;

const NAME: &str = "cores::threads_started_beside_links_may_run_on_any_core";

/// The allowed cores in a `status` file of procfs.
fn cores(status: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_else(|| panic!("no cores in {status:?}")).trim().to_owned()
}

#[test]
fn threads_started_beside_links_may_run_on_any_core() {
    let server = || {
        let _serving = Gate::serve("next", |n: u32| n + 1).expect("it serves");
        serve_on();
    };
    pair(NAME, server, || {
        thread::spawn(client).join().expect("no panic");
    });
}

fn own() -> String {
    cores(&std::fs::read_to_string("/proc/thread-self/status").expect("/proc"))
}

fn client() {
    // Before a link exists.
    let all = own();
    if one_to_one() || !all.contains(['-', ',']) {
        return skip(NAME, "needs virtual processors and two cores");
    }
    let next = Gate::<u32, u32>::connect("next").expect("it is there");
    let keep_to_a_core = || {
        until("the virtual processor is bound to its core", || {
            assert_eq!(next.call(&1).expect("a reply"), 2);
            !own().contains(['-', ','])
        });
    };
    keep_to_a_core();
    let said =
        Command::new("cat").arg("/proc/self/status").output().expect("there is a cat").stdout;
    assert_eq!(cores(&String::from_utf8_lossy(&said)), all);
    keep_to_a_core();
    // By fork(2), because a pre_exec closure is set.
    let mut forked = std::process::Command::new("cat");
    // SAFETY: the closure does nothing.
    unsafe { forked.pre_exec(|| Ok(())) };
    let said = forked.arg("/proc/self/status").output().expect("there is a cat").stdout;
    assert_eq!(cores(&String::from_utf8_lossy(&said)), all);
    keep_to_a_core();
    let begun = thread::blocking(|| std::thread::spawn(own));
    assert_eq!(begun.join().expect("no panic"), all);
    keep_to_a_core();
    assert_eq!(thread::blocking(own), all, "the virtual processor stays bound to its core");
}
