//! Clients that hold more of a server than their share: regions, bytes, handlers, priority.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kumihimo::gate::{ErrorKind, Gate, Options, Quotas, Region};
use kumihimo::resource::{Kind, table};
use kumihimo::thread;

use crate::hostile::{links, send};
use crate::parts::{Part, hear, play, tell, until};
use kumihimo_tests::process::has_vps;
use kumihimo_tests::user::become_user;

/// A record that passes memory.
fn region_record(id: u64, length: u64) -> Vec<u8> {
    [&[0x11][..], &id.to_le_bytes(), &length.to_le_bytes()].concat()
}

/// The state of the only gate of this process.
fn gate_state() -> String {
    let mut state = String::new();
    table().usage(Some(Kind::GATE), &mut |_, usage| state = usage.state.to_string());
    state
}

fn echo() -> kumihimo::gate::Serving {
    let regions = |(): (), context: &kumihimo::gate::Context<'_>| Ok(context.regions()?.len());
    Gate::<(), usize>::serve_with("regions", &Options::new(), regions).expect("it serves")
}

#[test]
fn client_beyond_its_quota_of_regions_is_cut() {
    let server = || {
        let _serving = echo();
        let mut neighbour = Part::start("neighbour");
        neighbour.expect("calls");
        let mut client = Part::start("client");
        client.expect("cut");
        assert!(
            gate_state().contains("1 cut") && gate_state().contains("Quotas"),
            "{}",
            gate_state()
        );
        neighbour.say("end");
        neighbour.expect("not cut");
        client.end();
        neighbour.end();
    };
    let neighbour = || {
        let gate = Gate::<(), usize>::connect("regions").expect("it is there");
        let region = Region::copy_of(b"x").expect("memory");
        assert_eq!(gate.call_with(&(), std::slice::from_ref(&region)).expect("a reply").0, 1);
        tell("calls");
        hear();
        // The same link: a new one would have to be told of the region again.
        assert_eq!(gate.call_with(&(), &[region]).expect("a reply").0, 1);
        tell("not cut");
        hear();
    };
    let client = || {
        let gate = Gate::<(), usize>::connect("regions").expect("it is there");
        let region = Region::copy_of(&[1; 4096]).expect("memory");
        let link = links()[0];
        let fd = std::os::fd::AsFd::as_fd(&region).as_raw_fd();
        let error = (1..).find_map(|id| {
            assert!(id < 1 << 20, "it may pass any number");
            send(link, &region_record(id, 4096), Some(fd));
            gate.call(&()).err()
        });
        let error = error.expect("it is cut");
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        assert!(
            error.to_string().contains("Quotas::link_regions")
                || error.to_string().contains("half of its descriptors"),
            "{error}"
        );
        tell("cut");
        hear();
    };
    let parts: [(&str, &dyn Fn()); 3] =
        [("server", &server), ("neighbour", &neighbour), ("client", &client)];
    play("quotas::client_beyond_its_quota_of_regions_is_cut", &parts);
}

/// Half a million of these took 98 MB of the server.
#[test]
fn first_invalid_region_record_cuts_the_link() {
    let server = || {
        let _serving = echo();
        let mut client = Part::start("client");
        client.expect("cut");
        assert!(gate_state().contains("1 cut, the last of process"), "{}", gate_state());
        client.end();
    };
    let client = || {
        let gate = Gate::<(), usize>::connect("regions").expect("it is there");
        // SAFETY: a terminated name. The new descriptor is owned here.
        let unsealed = unsafe {
            OwnedFd::from_raw_fd(libc::memfd_create(c"unsealed".as_ptr(), libc::MFD_ALLOW_SEALING))
        };
        let link = links()[0];
        send(link, &region_record(1, 0), Some(unsealed.as_raw_fd()));
        let error = loop {
            if let Err(error) = gate.call(&()) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
        tell("cut");
        hear();
    };
    play(
        "quotas::first_invalid_region_record_cuts_the_link",
        &[("server", &server), ("client", &client)],
    );
}

/// Each request held a handler for ten seconds.
#[test]
fn request_for_memory_that_was_not_passed_cuts_the_link() {
    let server = || {
        let _serving = echo();
        let before = Gate::<(), usize>::connect("regions").expect("it is there");
        let mut client = Part::start("client");
        client.expect("cut");
        assert_eq!(before.call(&()).expect("another link"), 0);
        assert!(gate_state().contains("has not passed it"), "{}", gate_state());
        client.end();
    };
    let client = || {
        let gate = Gate::<(), usize>::connect("regions").expect("it is there");
        let region = Region::copy_of(b"x").expect("memory");
        let one = std::slice::from_ref(&region);
        assert_eq!(gate.call_with(&(), one).expect("a reply").0, 1);
        // Forgotten behind the back of the client, which names it again.
        send(links()[0], &[&[0x12][..], &1_u64.to_le_bytes()].concat(), None);
        let error = loop {
            if let Err(error) = gate.call_with(&(), one) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
        assert!(error.to_string().contains("has not passed it"), "{error}");
        tell("cut");
        hear();
    };
    play(
        "quotas::request_for_memory_that_was_not_passed_cuts_the_link",
        &[("server", &server), ("client", &client)],
    );
}

#[test]
fn one_client_does_not_occupy_all_handlers() {
    let server = || {
        static BLOCKED: AtomicUsize = AtomicUsize::new(0);
        let mut quotas = Quotas::default();
        quotas.link_handlers = Some(2);
        let options = Options::new().handlers(3).quotas(quotas);
        let _serving = Gate::<bool, ()>::serve_with("slow", &options, |blocks, context| {
            if blocks {
                BLOCKED.fetch_add(1, Ordering::SeqCst);
                while !context.is_cancelled() {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        })
        .expect("it serves");
        let greedy = Part::start("greedy");
        until("it has its share", || BLOCKED.load(Ordering::SeqCst) == 2);
        let other = Gate::<bool, ()>::connect("slow").expect("it is there");
        for _ in 0..100 {
            other.call(&false).expect("a handler is free");
        }
        assert_eq!(BLOCKED.load(Ordering::SeqCst), 2);
        // What was held back is dropped with the link.
        greedy.kill();
        until("nothing waits", || gate_state().contains(" 0 wait"));
    };
    let greedy = || {
        let gate = Gate::<bool, ()>::connect("slow").expect("it is there");
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| gate.call(&true));
            }
        });
    };
    let parts: [(&str, &dyn Fn()); 2] = [("server", &server), ("greedy", &greedy)];
    play("quotas::one_client_does_not_occupy_all_handlers", &parts);
}

/// A stranger's highest priority starved the server's own work.
#[test]
fn priorities_of_other_users_have_a_ceiling() {
    const NAME: &str = "quotas::priorities_of_other_users_have_a_ceiling";
    const USER: u32 = 54322;
    // Kernel threads do not inherit the priorities of requests.
    if !has_vps(NAME) {
        return;
    }
    let server = || {
        // SAFETY: reads an integer.
        if unsafe { libc::geteuid() } != 0 {
            return kumihimo_tests::skip(NAME, "needs root to change the user");
        }
        let options = Options::new().allow(USER);
        let _serving = Gate::<(), (u8, u8)>::serve_with("level", &options, |(), context| {
            Ok((context.priority(), thread::current().priority().get()))
        })
        .expect("it serves");
        let mut stranger = Part::start("stranger");
        stranger.expect("(32, 32)");
        stranger.end();
        let options = Options::new().priority(63);
        let own = Gate::<(), (u8, u8)>::connect_with("level", &options).expect("it is there");
        assert_eq!(own.call(&()).expect("a reply"), (63, 63));
    };
    let stranger = || {
        let folder = std::env::var_os("KUMI_DIR").expect("it is set");
        let options = Options::new().directory(folder).priority(63);
        assert!(become_user(USER));
        let gate = Gate::<(), (u8, u8)>::connect_with("level", &options).expect("it is allowed");
        tell(&format!("{:?}", gate.call(&()).expect("a reply")));
        hear();
    };
    play(NAME, &[("server", &server), ("stranger", &stranger)]);
}
