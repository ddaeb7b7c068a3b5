//! Observing and steering microprocesses from another process.

use std::collections::HashMap;
use std::process::Child;
use std::time::Duration;

use kumihimo::machine::{Action, Done, Error, Machine, Microprocess, Neighbour, Refused, State};
use kumihimo::policy::Priority;
use kumihimo::resource::{Id, Kind};
use kumihimo::runtime::Runtime;
use kumihimo::thread::{self, Builder};
use kumihimo_tests::place::Place;
use kumihimo_tests::process::{
    again, has_vps, is_child, is_preempted, may_tell_returns, start, tells_returns,
};

/// A child process that the test observes. Killed when dropped.
struct Other {
    child: Child,
    place: Place,
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Other {
    /// Starts a child process that runs `body`, and waits until it is ready.
    fn run(name: &str, body: impl FnOnce() + Send) -> Option<Other> {
        if is_child(name) {
            Runtime::builder().vps(2).build().expect("a runtime").run(body);
            return None;
        }
        let place = Place::new(name);
        let child = start(name, &[("KUMI_DIR", place.path())]);
        let other = Other { child, place };
        while other.of("ready").is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(other)
    }

    fn neighbour(&self) -> Option<Neighbour> {
        Machine::at(&self.place.0)
            .expect("a run-time directory")
            .spaces()
            .expect("the directory is read")
            .pop()
    }

    fn all(&self) -> HashMap<String, Microprocess> {
        let all =
            self.neighbour().and_then(|mut space| space.microprocesses().ok()).unwrap_or_default();
        all.into_iter().filter_map(|one| Some((one.name.clone()?, one))).collect()
    }

    fn of(&self, name: &str) -> Option<Microprocess> {
        self.all().remove(name)
    }

    fn id(&self, name: &str) -> Id {
        self.of(name).expect("it is there").id
    }

    fn act(&self, id: Id, action: Action) -> Result<Done, Error> {
        self.neighbour().expect("it is there").act(id, action)
    }

    /// Waits until the microprocess meets a condition.
    fn comes_to(&self, name: &str, wanted: impl Fn(&Microprocess) -> bool) {
        while !self.of(name).is_some_and(|one| wanted(&one)) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn named(name: &str, priority: u8, f: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    let priority = Priority::new(priority).expect("0 to 63");
    Builder::new().name(name.into()).priority(priority).spawn(f).expect("it begins")
}

/// Reports that everything is set up, and waits.
fn stay() {
    let _ = named("ready", 63, thread::park).join();
}

#[test]
fn states_of_microprocesses_are_visible() {
    const NAME: &str = "states_of_microprocesses_are_visible";
    if !has_vps(NAME) {
        return;
    }
    let Some(other) = Other::run(NAME, || {
        let parked = named("parked", 7, thread::park);
        let sleeps = named("sleeps", 32, || thread::sleep(Duration::from_secs(3600)));
        let _blocked = named("blocked", 32, || {
            thread::blocking(|| std::thread::sleep(Duration::from_secs(3600)));
        });
        let joins = named("joins", 32, move || drop(parked.join()));
        stay();
        drop((sleeps, joins));
    }) else {
        return;
    };
    other.comes_to("blocked", |one| one.state == State::Blocked && one.kernel_thread.is_some());
    for name in ["parked", "sleeps", "joins"] {
        other.comes_to(name, |one| one.state == State::Waiting);
    }
    let all = other.all();
    let (parked, sleeps, joins) = (&all["parked"], &all["sleeps"], &all["joins"]);
    assert_eq!(
        (parked.state, parked.priority, parked.waits_for.as_deref()),
        (State::Waiting, 7, Some("an unpark"))
    );
    assert_eq!((sleeps.state, sleeps.waits_for.as_deref()), (State::Waiting, Some("the clock")));
    assert_eq!(joins.waits_for, Some(format!("the end of microprocess {}", parked.id)));
    let mut space = other.neighbour().expect("it is there");
    let it = space.space().expect("it answers");
    assert_eq!((it.pid, it.vps, it.id.kind()), (other.child.id(), 2, Kind::SPACE));
    assert_eq!(it.id.location().space(), space.number());
    assert_eq!(parked.id.location(), it.id.location());
    let text = space.backtrace(parked.id).expect("a backtrace");
    assert!(text.contains("parked") && text.contains("park"), "{text}");
    // Each microprocess's stack and timer, with their owners.
    let resources = space.resources(None).expect("the usage table");
    for (kind, of) in
        [(Kind::STACK, &parked.id), (Kind::SHARE, &parked.id), (Kind::TIMER, &sleeps.id)]
    {
        let part = Id::new(of.location(), kind, of.serial());
        let row = resources
            .iter()
            .find(|row| row.id == part)
            .unwrap_or_else(|| panic!("{part} is not there"));
        assert_eq!(row.owner, Some(*of));
    }
    assert_eq!(resources.iter().filter(|row| row.id.kind() == Kind::VP).count(), 2);
    assert!(
        !resources
            .iter()
            .any(|row| row.id == Id::new(parked.id.location(), Kind::TIMER, parked.id.serial()))
    );
    let metrics = space.metrics().expect("metrics");
    let living = metrics.iter().find(|family| family.name == "kumihimo_living").expect("living");
    assert_eq!(living.samples[0].1 as u64, it.living);
}

/// The virtual processor may still be bound, because no kernel thread has taken it yet.
#[test]
fn declared_block_is_visible_at_once() {
    const NAME: &str = "declared_block_is_visible_at_once";
    if !has_vps(NAME) {
        return;
    }
    if is_child(NAME) {
        return Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let mut own = Machine::mine()
                .expect("a run-time directory")
                .spaces()
                .expect("the directory is read")
                .pop();
            let own = own.as_mut().expect("itself");
            for _ in 0..500 {
                let all = thread::blocking(|| own.microprocesses()).expect("it answers");
                assert_eq!(all.iter().map(|one| one.state).collect::<Vec<_>>(), [State::Blocked]);
            }
        });
    }
    let place = Place::new(NAME);
    let ended = again(NAME, &[("KUMI_DIR", place.path())]);
    assert!(ended.status.success(), "{}", ended.stderr);
}

#[test]
fn computing_microprocess_is_suspended_and_resumed() {
    const NAME: &str = "computing_microprocess_is_suspended_and_resumed";
    if !has_vps(NAME) || !is_preempted(NAME) {
        return;
    }
    let Some(other) = Other::run(NAME, || {
        let _computes = named("computes", 32, || {
            loop {
                std::hint::spin_loop();
            }
        });
        stay();
    }) else {
        return;
    };
    let id = other.id("computes");
    for _ in 0..20 {
        // The kernel may have blocked the computing microprocess once for a reason of its own,
        // whose end some event sources do not report.
        let is_lost = |one: &Microprocess| one.state == State::Blocked && !may_tell_returns();
        other.comes_to("computes", |one| one.state == State::Running || is_lost(one));
        if other.of("computes").is_some_and(|one| is_lost(&one)) {
            let _ = tells_returns(NAME);
            return;
        }
        assert_eq!(other.act(id, Action::Suspend).expect("done"), Done::Now);
        let seen = other.of("computes").expect("it lives");
        assert_eq!((seen.state, seen.kernel_thread), (State::Suspended, None));
        assert_eq!(other.act(id, Action::Suspend).expect("done"), Done::Already);
        assert_eq!(other.act(id, Action::Resume).expect("done"), Done::Now);
        assert_eq!(other.act(id, Action::Resume).expect("done"), Done::Already);
    }
    assert_eq!(other.act(id, Action::Priority(5)).expect("done"), Done::Now);
    assert_eq!(other.of("computes").expect("it lives").priority, 5);
    let error = other.act(id, Action::Priority(64)).expect_err("there is no such priority");
    assert!(matches!(error, Error::Refused(Refused::Invalid(_))), "{error}");
}

/// The IDs of an address space's resources are valid from outside, even if a socket was created
/// before the runtime.
#[test]
fn socket_created_before_the_runtime_has_a_valid_id() {
    const NAME: &str = "socket_created_before_the_runtime_has_a_valid_id";
    let early = is_child(NAME).then(|| kumihimo::net::UnixStream::pair().expect("a pair"));
    if !has_vps(NAME) {
        return;
    }
    let Some(other) = Other::run(NAME, || {
        let _parked = named("parked", 7, thread::park);
        stay();
    }) else {
        return drop(early);
    };
    other.comes_to("parked", |one| one.state == State::Waiting);
    let (id, mut space) = (other.id("parked"), other.neighbour().expect("it is there"));
    assert_eq!(id.location().space(), space.number());
    assert_eq!(other.act(id, Action::Suspend).expect("done"), Done::Now);
    let sockets = space.resources(Some(Kind::SOCKET)).expect("the usage table");
    assert_eq!(sockets.iter().filter(|row| row.id.location() == id.location()).count(), 2);
}

#[test]
fn cancel_ends_the_microprocess() {
    const NAME: &str = "cancel_ends_the_microprocess";
    if !has_vps(NAME) {
        return;
    }
    let Some(other) = Other::run(NAME, || {
        let waits = named("waits", 32, || thread::sleep(Duration::from_secs(3600)));
        let after = thread::spawn(move || {
            let _ = waits.join();
            // In the slot of the microprocess that has ended.
            named("after", 32, thread::park)
        });
        stay();
        drop(after);
    }) else {
        return;
    };
    let id = other.id("waits");
    // A suspended microprocess that is cancelled ends only after it is resumed.
    assert_eq!(other.act(id, Action::Suspend).expect("done"), Done::Now);
    assert_eq!(other.act(id, Action::Cancel).expect("done"), Done::Asked);
    assert_eq!(other.of("waits").expect("it lives").state, State::Suspended);
    assert_eq!(other.act(id, Action::Resume).expect("done"), Done::Now);
    other.comes_to("after", |one| one.state == State::Waiting);
    assert!(other.of("waits").is_none());
    for action in [Action::Suspend, Action::Resume, Action::Cancel, Action::Priority(1)] {
        let error = other.act(id, action).expect_err("it has ended");
        assert!(matches!(error, Error::Refused(Refused::Stale(_))), "{error}");
    }
    assert_eq!(
        other.of("after").expect("it lives").state,
        State::Waiting,
        "the successor is left alone"
    );
    let stack = Id::new(id.location(), Kind::STACK, id.serial());
    let error = other.act(stack, Action::Suspend).expect_err("a stack runs nothing");
    assert!(matches!(error, Error::Refused(Refused::Wrong(_))), "{error}");
}
