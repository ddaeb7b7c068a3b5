//! Each quota that a client can exceed: the client that does is cut, and is told which quota it
//! was. The state of the gate and the metrics, both read over the control socket, have the reason
//! too.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kumihimo::gate::{Context, Error, ErrorKind, Gate, Options, Quotas, Region, Serving};
use kumihimo::machine::Machine;
use kumihimo::resource::Kind;
use kumihimo::thread;
use kumihimo_tests::user::become_user;

use crate::parts::{Part, hear, play, tell, until};

const USER: u32 = 54323;
const MIB: usize = 1 << 20;

type Regions = Gate<(), usize>;

/// Serves a gate that counts regions.
fn counts(name: &str, options: &Options) -> Serving {
    let count = |(): (), context: &Context<'_>| Ok(context.regions()?.len());
    Regions::serve_with(name, options, count).expect("it serves")
}

fn with(set: impl FnOnce(&mut Quotas)) -> Options {
    let mut quotas = Quotas::default();
    set(&mut quotas);
    Options::new().quotas(quotas)
}

/// What `kumi resources --kind gate` and the metrics of this process say: the states of its gates,
/// and how many clients were cut for a quota.
fn seen() -> (String, f64) {
    thread::blocking(|| {
        let machine = Machine::mine().expect("a run-time directory");
        let mut space = machine
            .spaces()
            .expect("the directory is read")
            .into_iter()
            .find_map(|mut one| {
                let is_own = one.space().ok()?.pid == std::process::id();
                is_own.then_some(one)
            })
            .expect("this address space is there");
        let gates = space.resources(Some(Kind::GATE)).expect("an answer");
        let states: Vec<String> = gates.into_iter().map(|gate| gate.state).collect();
        let metrics = space.metrics().expect("an answer");
        let cuts = metrics
            .iter()
            .filter(|metric| metric.name == "kumihimo_gate_clients_cut_total")
            .flat_map(|metric| &metric.samples)
            .filter(|(labels, _)| labels.iter().any(|(_, value)| value == "quota"))
            .map(|(_, value)| *value);
        (states.join("\n"), cuts.sum())
    })
}

/// Passes regions of `bytes` bytes over `gate`, and keeps them there, until that fails. Returns how
/// many were passed before.
fn pass_until_cut(gate: &Regions, bytes: usize) -> (usize, Error) {
    for passed in 0..1 << 20 {
        let region = Region::copy_of(&vec![1; bytes]).expect("memory");
        if let Err(error) = gate.call_with(&(), &[region]) {
            return (passed, error);
        }
    }
    panic!("it may pass any number");
}

/// The client passes regions of so many bytes over each of its links until one is cut, and tells
/// how many it could pass in all.
fn passes(name: &str, links: usize, bytes: usize, quota: &str) -> usize {
    let gates: Vec<Regions> =
        (0..links).map(|_| Gate::connect(name).expect("it is there")).collect();
    let mut passed = 0;
    loop {
        for (at, gate) in gates.iter().enumerate() {
            let region = Region::copy_of(&vec![1; bytes]).expect("memory");
            match gate.call_with(&(), &[region]) {
                Ok((count, _)) => assert_eq!(count, 1),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
                    assert!(error.to_string().contains(quota), "{error}");
                    // The others are not cut.
                    for other in gates.iter().enumerate().filter(|(n, _)| *n != at) {
                        assert_eq!(other.1.call(&()).expect("another link"), 0);
                    }
                    return passed;
                }
            }
            passed += 1;
        }
    }
}

/// A part of the test, and its name.
type NamedPart = (&'static str, Box<dyn Fn()>);
/// Name, quotas, number of links, bytes of a region, and how many regions fit.
type Case = (&'static str, fn(&mut Quotas), usize, usize, usize);

const CASES: [Case; 4] = [
    ("link_regions", |quotas| quotas.link_regions = 3, 1, 100, 3),
    ("user_regions", |quotas| quotas.user_regions = 5, 3, 100, 5),
    ("link_bytes", |quotas| quotas.link_bytes = 3 * MIB, 1, MIB, 3),
    // The lanes of the links count too.
    ("user_bytes", |quotas| quotas.user_bytes = 400 * MIB, 2, 100 * MIB, 3),
];

#[test]
fn each_quota_of_regions_and_bytes_is_enforced_and_named() {
    let server = || {
        let serving: Vec<Serving> =
            CASES.iter().map(|(name, set, ..)| counts(name, &with(set))).collect();
        for (n, (name, .., fit)) in CASES.iter().enumerate() {
            let mut client = Part::start(name);
            client.expect(&format!("{fit} fit"));
            let (states, cuts) = seen();
            let reason = format!("Quotas::{name}");
            assert!(states.contains("1 cut") && states.contains(&reason), "{name}: {states}");
            assert_eq!(cuts, (n + 1) as f64, "{name}");
            client.end();
        }
        drop(serving);
    };
    let client = |case: &Case| {
        let (name, _, links, bytes, _) = *case;
        tell(&format!("{} fit", passes(name, links, bytes, &format!("Quotas::{name}"))));
        hear();
    };
    let clients: Vec<NamedPart> = CASES
        .iter()
        .map(|case| (case.0, Box::new(move || client(case)) as Box<dyn Fn()>))
        .collect();
    let mut parts: Vec<(&str, &dyn Fn())> = vec![("server", &server)];
    parts.extend(clients.iter().map(|(name, client)| (*name, &**client)));
    play("quota_limits::each_quota_of_regions_and_bytes_is_enforced_and_named", &parts);
}

#[test]
fn link_whose_lane_exceeds_the_bytes_of_its_user_is_refused() {
    let server = || {
        let _serving = counts("small", &with(|quotas| quotas.user_bytes = 1000));
        let error = Regions::connect("small").expect_err("its lane has more");
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        assert!(error.to_string().contains("Quotas::user_bytes"), "{error}");
    };
    let name = "quota_limits::link_whose_lane_exceeds_the_bytes_of_its_user_is_refused";
    play(name, &[("server", &server)]);
}

/// Sets the limit on this process's descriptors.
fn limit_descriptors(most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: an initialised structure that the call reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

/// One client held nearly all descriptors, and a link of another one was cut.
#[test]
fn clients_leave_descriptors_to_the_server_and_to_others() {
    const NAME: &str = "quota_limits::clients_leave_descriptors_to_the_server_and_to_others";
    const DESCRIPTORS: u64 = 400;
    let server = || {
        // SAFETY: reads an integer.
        if unsafe { libc::geteuid() } != 0 {
            return kumihimo_tests::skip(NAME, "needs root to change the user");
        }
        limit_descriptors(DESCRIPTORS);
        let _serving = counts("regions", &Options::new().allow(USER));
        let mut neighbour = Part::start("neighbour");
        neighbour.expect("linked");
        for (side, quota) in [("stranger", "a quarter"), ("own", "half of its")] {
            let mut client = Part::start(side);
            client.expect(quota);
            let (states, _) = seen();
            assert!(states.contains(quota), "{states}");
            // The neighbour's link is not cut, and the server has descriptors left.
            neighbour.say("call");
            neighbour.expect("called");
            let spare: Vec<_> = (0..DESCRIPTORS / 8)
                .map(|_| std::fs::File::open("/dev/null").expect("a descriptor is left"))
                .collect();
            drop(spare);
            client.end();
        }
        neighbour.end();
    };
    let neighbour = || {
        let gate = Regions::connect("regions").expect("it is there");
        tell("linked");
        for _ in 0..2 {
            hear();
            assert_eq!(gate.call(&()).expect("not cut"), 0);
            tell("called");
        }
        hear();
    };
    let exceeds = |folder: Option<std::ffi::OsString>, quota: &str, most: u64| {
        let options = folder.map_or_else(Options::new, |folder| Options::new().directory(folder));
        let gate = Regions::connect_with("regions", &options).expect("it is there");
        let (passed, error) = pass_until_cut(&gate, 100);
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        assert!(error.to_string().contains(quota), "{error}");
        assert!(passed as u64 <= most, "{passed}");
        tell(quota);
        hear();
    };
    let stranger = || {
        let folder = std::env::var_os("KUMI_DIR").expect("it is set");
        assert!(become_user(USER));
        exceeds(Some(folder), "a quarter", DESCRIPTORS / 4);
    };
    let own = || exceeds(None, "half of its", DESCRIPTORS / 2);
    let parts: [(&str, &dyn Fn()); 4] =
        [("server", &server), ("neighbour", &neighbour), ("stranger", &stranger), ("own", &own)];
    play(NAME, &parts);
}

#[test]
fn one_user_does_not_occupy_all_handlers() {
    const NAME: &str = "quota_limits::one_user_does_not_occupy_all_handlers";
    let server = || {
        static BLOCKED: AtomicUsize = AtomicUsize::new(0);
        // SAFETY: reads an integer.
        if unsafe { libc::geteuid() } != 0 {
            return kumihimo_tests::skip(NAME, "needs root to change the user");
        }
        let options = with(|quotas| quotas.user_handlers = Some(3)).handlers(4).allow(USER);
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
        // Two links, neither of which exceeds the share of a link.
        let greedy: Vec<Part> = (0..2).map(|_| Part::start("greedy")).collect();
        until("the user has its share", || BLOCKED.load(Ordering::SeqCst) == 3);
        let own = Gate::<bool, ()>::connect("slow").expect("it is there");
        for _ in 0..100 {
            own.call(&false).expect("a handler is free");
        }
        assert_eq!(BLOCKED.load(Ordering::SeqCst), 3);
        greedy.into_iter().for_each(Part::kill);
        until("nothing waits", || seen().0.contains(" 0 wait"));
    };
    let greedy = || {
        let folder = std::env::var_os("KUMI_DIR").expect("it is set");
        assert!(become_user(USER));
        let options = Options::new().directory(folder);
        let gate = Gate::<bool, ()>::connect_with("slow", &options).expect("it is allowed");
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| gate.call(&true));
            }
        });
    };
    play(NAME, &[("server", &server), ("greedy", &greedy)]);
}
