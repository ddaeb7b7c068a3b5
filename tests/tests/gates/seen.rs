//! Gates and links as seen from other processes: in the usage table, and ended from outside.

use std::time::Duration;

use kumihimo::gate::{ErrorKind, Gate};
use kumihimo::machine::{Action, Done, Machine, Resource};
use kumihimo::resource::Kind;
use kumihimo::thread;

use crate::parts::{Part, hear, play, serve_on, tell, until};

/// A time limit that a busy machine keeps, because no test measures speed.
fn machine() -> Machine {
    Machine::mine().expect("a directory").time_limit(Duration::from_secs(60))
}

/// All resources of a kind in all visible address spaces.
fn all(kind: Kind) -> Vec<Resource> {
    thread::blocking(|| {
        let spaces = machine().spaces().expect("a directory");
        spaces
            .into_iter()
            .flat_map(|mut space| space.resources(Some(kind)).expect("an answer"))
            .collect()
    })
}

fn end(one: &Resource) {
    let ended = thread::blocking(|| {
        let mut space = machine().neighbour(one.id.location().space())?;
        space.act(one.id, Action::Cancel)
    });
    assert_eq!(ended.expect("it is there"), Done::Asked);
}

#[test]
fn third_process_can_list_and_end_gates_and_links() {
    let third = || {
        let server = Part::serving("server");
        let mut client = Part::start("client");
        client.expect("connected");
        let (server_pid, client_pid) = (server.child.id(), client.child.id());
        let gates = all(Kind::GATE);
        assert_eq!(gates.len(), 1, "{gates:?}");
        assert_eq!(gates[0].names, ["/gate/holds"]);
        // SAFETY: returns an integer.
        let uid = unsafe { libc::geteuid() };
        let serves =
            format!("serves gate holds to process {client_pid} of user {uid}: 3 under way");
        let calls = format!("calls gate holds of process {server_pid} of user {uid}: 3 under way");
        until("both ends are seen", || {
            let mut states: Vec<_> = all(Kind::LINK).into_iter().map(|link| link.state).collect();
            states.sort();
            states == [calls.as_str(), serves.as_str()]
        });
        until("the gate tells", || all(Kind::GATE)[0].state == "1 links, 3 handled, 0 wait");
        let links = all(Kind::LINK);
        end(links.iter().find(|link| link.state.starts_with("serves")).expect("it is there"));
        client.expect("Gone Gone Gone");
        until("both ends are gone", || all(Kind::LINK).is_empty());
        // The next link is ended from the client's side.
        client.say("again");
        client.expect("connected");
        let links = all(Kind::LINK);
        let calls = links.iter().find(|link| link.state.starts_with("calls"));
        end(calls.unwrap_or_else(|| panic!("the client's side is not among {links:?}")));
        client.expect("Gone Gone Gone");
        client.say("again");
        client.expect("connected");
        // End the gate itself.
        end(&all(Kind::GATE)[0]);
        client.expect("Gone Gone Gone");
        until("the gate is not found", || {
            Gate::<u32, u32>::connect("holds")
                .is_err_and(|error| error.kind() == ErrorKind::NotFound)
        });
        drop((client, server));
    };
    let server = || {
        let handler = |n: u32| {
            thread::sleep(Duration::from_secs(3600));
            n
        };
        let _serving = Gate::serve("holds", handler).expect("it serves");
        serve_on();
    };
    let client = || {
        let holds = Gate::<u32, u32>::connect("holds").expect("it is there");
        loop {
            let calls: Vec<_> = (0..3)
                .map(|n| {
                    let holds = holds.clone();
                    thread::spawn(move || holds.call(&n))
                })
                .collect();
            until("they are under way", || holds.under_way() == 3);
            tell("connected");
            let kinds: Vec<_> = calls
                .into_iter()
                .map(|call| {
                    format!("{:?}", call.join().expect("no panic").expect_err("it is cut").kind())
                })
                .collect();
            tell(&kinds.join(" "));
            if hear().is_empty() {
                return;
            }
        }
    };
    let parts: [(&str, &dyn Fn()); 3] =
        [("third", &third), ("server", &server), ("client", &client)];
    play("seen::third_process_can_list_and_end_gates_and_links", &parts);
}

#[test]
fn waiter_for_a_gates_end_is_notified() {
    let third = || {
        let mut server = Part::serving("server");
        end(&all(Kind::GATE)[0]);
        server.expect("Gone: gate \"holds\" was ended from outside, by its id");
        assert_eq!(
            Gate::<u32, u32>::connect("holds").expect_err("it is not").kind(),
            ErrorKind::NotFound
        );
        server.say("again");
        server.expect("it serves");
        server.end();
    };
    let server = || {
        let serving = Gate::serve("holds", |n: u32| n).expect("it serves");
        tell("serving");
        let why = serving.wait();
        tell(&format!("{:?}: {why}", why.kind()));
        hear();
        let _again = Gate::serve("holds", |n: u32| n).expect("its name is free");
        tell("it serves");
        hear();
    };
    let parts: [(&str, &dyn Fn()); 2] = [("third", &third), ("server", &server)];
    play("seen::waiter_for_a_gates_end_is_notified", &parts);
}

/// The permit of a cancellation may be taken by a wait that is no cancellation point.
#[test]
fn cancelled_waiter_for_a_gates_end_leaves() {
    let waiter = || {
        let serving = Gate::serve("lasts", |n: u32| n).expect("it serves");
        let waits = thread::spawn(move || {
            thread::without_cancellation(|| {
                thread::current().cancel();
                thread::sleep(Duration::from_millis(1));
            });
            serving.wait()
        });
        assert!(waits.join().expect_err("cancelled").is::<thread::Cancelled>());
    };
    let parts: [(&str, &dyn Fn()); 1] = [("waiter", &waiter)];
    play("seen::cancelled_waiter_for_a_gates_end_leaves", &parts);
}
