use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use proptest::prelude::*;

use crate::environment::Parsed;
use crate::lab::merge;
use crate::*;

fn parsed(variables: &[(&str, &str)]) -> Parsed {
    let all: HashMap<&str, &str> = variables.iter().copied().collect();
    Parsed::of(|name| all.get(name).map(OsString::from))
}

/// Returns the configuration, and checks that there is no error.
fn config(variables: &[(&str, &str)]) -> Config {
    let parsed = parsed(variables);
    assert_eq!(parsed.error, None, "{variables:?}");
    parsed.config
}

fn error(variables: &[(&str, &str)]) -> String {
    let parsed = parsed(variables);
    parsed.error.unwrap_or_else(|| panic!("{variables:?} was accepted")).to_string()
}

#[test]
fn variables_are_the_eleven_settings_and_the_laboratory() {
    let names: Vec<_> = VARIABLES.iter().map(|setting| setting.name).collect();
    let expected = [
        "KUMI_VPS",
        "KUMI_EVENTS",
        "KUMI_PREEMPT",
        "KUMI_KERNEL_THREADS",
        "KUMI_STACK",
        "KUMI_TRACE",
        "KUMI_DIR",
        "KUMI_ARBITER",
        "KUMI_SHARE",
        "KUMI_WATCHDOG",
        "KUMI_DUMP_SIGNAL",
        "KUMI_LAB",
    ];
    assert_eq!(names, expected);
    assert!(refused_names().all(|old| !names.contains(&old) && !is_test_variable(old)));
}

#[test]
fn empty_environment_is_the_default() {
    assert_eq!(config(&[]), Config::default());
    let empty: Vec<_> =
        VARIABLES.iter().map(|s| s.name).chain(refused_names()).map(|name| (name, "")).collect();
    assert_eq!(config(&empty), Config::default(), "an empty variable counts as unset");
}

#[test]
fn values_are_typed() {
    assert_eq!(config(&[("KUMI_VPS", "1024")]).vps, Some(1024));
    assert_eq!(config(&[("KUMI_EVENTS", "watch")]).events, Some(Events::Watch));
    let preempt = |text| config(&[("KUMI_PREEMPT", text)]).preempt;
    assert_eq!(preempt("clock"), Some(Preempt::Clock));
    assert_eq!(preempt("signal"), Some(Preempt::Signal(libc::SIGURG)));
    assert_eq!(preempt("signal=10"), Some(Preempt::Signal(10)));
    assert_eq!(preempt("off"), Some(Preempt::Off));
    assert_eq!(config(&[("KUMI_KERNEL_THREADS", "77")]).kernel_threads, Some(77));
    assert_eq!(config(&[("KUMI_STACK", "64k")]).stack, Some(64 << 10));
    assert_eq!(config(&[("KUMI_STACK", "1G")]).stack, Some(1 << 30));
    assert_eq!(config(&[("KUMI_TRACE", "out-%p")]).trace, Some("out-%p".into()));
    assert_eq!(config(&[("KUMI_DIR", "off")]).dir, MachineDir::Off);
    assert_eq!(config(&[("KUMI_DIR", "/run/x")]).dir, MachineDir::At("/run/x".into()));
    let arbiter = |text| config(&[("KUMI_ARBITER", text)]).arbiter;
    assert_eq!(arbiter("on"), Arbiter::On);
    assert_eq!(arbiter("off"), Arbiter::Off);
    assert_eq!(arbiter("none"), Arbiter::NoBoard);
    assert_eq!(arbiter("/run/board"), Arbiter::BoardAt("/run/board".into()));
    let ms = Duration::from_millis;
    assert_eq!(
        config(&[("KUMI_SHARE", "12.5%,20ms,hard")]).share,
        Some(Share { per_mille: 125, period: Some(ms(20)), hard: true })
    );
    assert_eq!(
        config(&[("KUMI_WATCHDOG", "report=200")]).watchdog,
        Some(Watchdog { on: OnMisbehaviour::Report, bound: Some(ms(200)) })
    );
    let signal = |text| config(&[("KUMI_DUMP_SIGNAL", text)]).dump_signal;
    assert_eq!(signal("USR2"), Some(libc::SIGUSR2));
    assert_eq!(signal("SIGQUIT"), Some(libc::SIGQUIT));
    assert_eq!(signal("RTMIN+3"), Some(libc::SIGRTMIN() + 3));
}

#[test]
fn paths_need_not_be_utf8() {
    let path = OsString::from_vec(b"/tmp/\xff".to_vec());
    for name in ["KUMI_TRACE", "KUMI_DIR", "KUMI_ARBITER"] {
        let parsed = Parsed::of(|asked| (asked == name).then(|| path.clone()));
        assert_eq!(parsed.error, None, "{name}");
    }
    let parsed = Parsed::of(|asked| (asked == "KUMI_LAB").then(|| path.clone()));
    assert!(parsed.error.expect("no text").to_string().starts_with("KUMI_LAB=/tmp/"));
}

#[test]
fn lab_accepts_every_key() {
    // Contains only designs that builds without the feature `lab` have.
    let list = "tls=donor,guard=mprotect,fsbase=arch_prctl,dlopen=listed,queue=ring,locking=vp,\
                bpf=switch,batch=fixed:3,uring=off,ready=recent,sticky=off,check_attributes=off,\
                trace_buffer=8";
    let lab = config(&[("KUMI_LAB", list)]).lab;
    assert_eq!(lab.tls, Some(Tls::Donor));
    assert_eq!(lab.guard, Some(Guard::Mprotect));
    assert_eq!(lab.fsbase, Some(FsBase::ArchPrctl));
    assert_eq!(lab.dlopen, Some(Dlopen::Listed));
    assert_eq!(lab.queue, Some(Queue::Ring));
    assert_eq!(lab.locking, Some(Locking::Vp));
    assert_eq!(lab.bpf, Some(Bpf::Switch));
    assert_eq!(lab.batch, Some(Batch::Fixed(3)));
    assert_eq!(lab.ready, Some(Ready::Recent));
    assert_eq!((lab.uring, lab.sticky, lab.trace_buffer), (Some(false), Some(false), Some(8)));
    assert_eq!(lab.check_attributes, Some(false));
    assert!(KEYS.iter().all(|key| list.contains(&format!("{}=", key.name))));
    assert_eq!(config(&[("KUMI_LAB", "tls=,queue=")]), Config::default());
}

/// Values outside of the grammar of each setting.
const BAD: [(&str, &[&str]); 10] = [
    ("KUMI_VPS", &["0", "1025", "many", "-1", "+1", " 1", "1 ", "1.5", "99999999999999999999"]),
    ("KUMI_EVENTS", &["ptrace", "BPF", "on", "bpf,perf"]),
    (
        "KUMI_PREEMPT",
        &[
            "signal=",
            "signal=0",
            "signal=5",
            "signal=9",
            "signal=11",
            "signal=33",
            "signal=65",
            "signal=x",
            "signal=+10",
            "tick",
            "clock=1",
            "on",
        ],
    ),
    ("KUMI_KERNEL_THREADS", &["0", "1048577", "a few", "-3"]),
    (
        "KUMI_STACK",
        &["0", "1025m", "2g", "k", "1t", "-1", "1.5m", "64 k", "99999999999999999g", "+64k"],
    ),
    ("KUMI_DIR", &["relative", "./x", "on", "Off"]),
    ("KUMI_ARBITER", &["relative/board", "yes", "None"]),
    (
        "KUMI_SHARE",
        &[
            "50",
            "%",
            "0%",
            "-5%",
            "+5%",
            "5.%",
            ".5%",
            "5.55%",
            "102400.1%",
            "99999999999%",
            "50%,",
            "50%,20",
            "50%,0ms",
            "50%,11s",
            "50%,soft",
            "50%,hard,20ms",
            "50%,hard,hard",
            "50%,20ms,30ms",
            " 50%",
            "half",
        ],
    ),
    ("KUMI_WATCHDOG", &["on", "end=", "end=99", "end=x", "end=-1", "report=3600001", "=100"]),
    ("KUMI_DUMP_SIGNAL", &["12", "SEGV", "KILL", "TRAP", "RTMIN+99", "RTMIN+-1", "RTMIN+", "usr2"]),
];

/// Values outside of the grammar of each key of `KUMI_LAB`.
const BAD_PAIRS: [(&str, &[&str]); 13] = [
    ("tls", &["nonsense", "Clone", "off"]),
    ("guard", &["none", "on"]),
    ("fsbase", &["slow"]),
    ("dlopen", &["on"]),
    ("queue", &["queue", "list"]),
    ("locking", &["loose", "VP"]),
    ("bpf", &["tracepoint"]),
    ("batch", &["often", "fixed", "fixed:0", "fixed:65", "fixed:x", "fixed:", "fixed:+3", "on"]),
    ("uring", &["yes", "1"]),
    ("ready", &["first", "lifo", "on"]),
    ("sticky", &["perhaps"]),
    ("check_attributes", &["always"]),
    ("trace_buffer", &["many", "7", "16777217", "-8"]),
];

#[test]
fn invalid_value_error_names_variable_and_allowed_values() {
    for (name, values) in BAD {
        let setting = VARIABLES.iter().find(|setting| setting.name == name).expect("a setting");
        for value in values {
            let expected = format!("{name}={value}: expected {}", setting.allowed);
            assert_eq!(error(&[(name, value)]), expected);
            assert_eq!(parsed(&[(name, value)]).config, Config::default(), "the default instead");
        }
    }
    // KUMI_TRACE accepts every path, and the next test covers KUMI_LAB.
    assert_eq!(BAD.len(), VARIABLES.len() - 2);
}

#[test]
fn invalid_pair_error_names_key_and_allowed_values() {
    for (name, values) in BAD_PAIRS {
        let key = KEYS.iter().find(|key| key.name == name).expect("a key");
        for value in values {
            let expected = format!("KUMI_LAB={name}={value}: expected {} for {name}", key.allowed);
            assert_eq!(error(&[("KUMI_LAB", &format!("{name}={value}"))]), expected);
        }
    }
    assert_eq!(BAD_PAIRS.len(), KEYS.len());
    for (list, pair, expected) in [
        ("quue=ring", "quue=ring", "key=value pairs with the keys tls, guard,"),
        ("ring", "ring", "key=value pairs with the keys tls"),
        ("queue", "queue", "queue=VALUE, with ring"),
        ("queue=ring,queue=ring", "queue=ring", "queue once"),
        ("queue=ring,", "queue=ring,", "key=value pairs, none of them empty"),
        ("batch=fixed=3", "batch=fixed=3", "adaptive, paper, off or fixed:N"),
    ] {
        let said = error(&[("KUMI_LAB", list)]);
        assert!(said.starts_with(&format!("KUMI_LAB={pair}: expected {expected}")), "{said}");
    }
}

#[test]
fn designs_for_comparison_need_the_feature_lab() {
    let key = |name: &str| KEYS.iter().find(|key| key.name == name).expect("a key").allowed;
    for (list, has) in [
        ("queue=locked", cfg!(feature = "lab-queue")),
        ("queue=steal", cfg!(feature = "lab-queue")),
        ("locking=kind", cfg!(feature = "lab-locking")),
        ("locking=id", cfg!(feature = "lab-locking")),
    ] {
        let error = parsed(&[("KUMI_LAB", list)]).error;
        assert_eq!(error.is_none(), has, "{list}");
        let said = error.map_or_else(String::new, |error| error.to_string());
        assert!(has || said.contains("the feature `lab`"), "{said}");
    }
    assert_eq!(key("queue").contains("feature"), !cfg!(feature = "lab-queue"));
    assert_eq!(key("locking").contains("feature"), !cfg!(feature = "lab-locking"));
}

#[test]
fn old_name_error_names_successor() {
    for (old, value, successor) in [
        ("KUMI_MACHINE", "off", "KUMI_DIR=off"),
        ("KUMI_BOARD", "off", "KUMI_ARBITER=none"),
        ("KUMI_BOARD", "on", "KUMI_ARBITER=on"),
        ("KUMI_BOARD", "/a/board", "KUMI_ARBITER=/a/board"),
        ("KUMI_BATCH", "fixed=3", "KUMI_LAB=batch=fixed:3"),
        ("KUMI_TLS", "kernel", "KUMI_LAB=tls=kernel"),
        ("KUMI_GUARD", "mprotect", "KUMI_LAB=guard=mprotect"),
        ("KUMI_FSBASE", "arch_prctl", "KUMI_LAB=fsbase=arch_prctl"),
        ("KUMI_DLOPEN", "listed", "KUMI_LAB=dlopen=listed"),
        ("KUMI_QUEUE", "ring", "KUMI_LAB=queue=ring"),
        ("KUMI_LOCKING", "vp", "KUMI_LAB=locking=vp"),
        ("KUMI_BPF", "switch", "KUMI_LAB=bpf=switch"),
        ("KUMI_URING", "off", "KUMI_LAB=uring=off"),
        ("KUMI_STICKY", "off", "KUMI_LAB=sticky=off"),
        ("KUMI_TRACE_BUFFER", "64", "KUMI_LAB=trace_buffer=64"),
    ] {
        let expected =
            format!("{old}={value}: this variable was replaced, set {successor} instead");
        assert_eq!(error(&[(old, value)]), expected);
        let (name, value) = successor.split_once('=').expect("an assignment");
        // The successor is valid.
        config(&[(name, value)]);
    }
    assert_eq!(
        error(&[("KUMI_MACHINE", "on")]),
        "KUMI_MACHINE=on: this variable was removed, unset it"
    );
}

#[test]
fn successors_of_old_names_are_merged() {
    let said = error(&[("KUMI_LAB", "bpf=switch"), ("KUMI_TLS", "donor"), ("KUMI_URING", "off")]);
    assert_eq!(
        said.matches("set KUMI_LAB=bpf=switch,tls=donor,uring=off instead").count(),
        2,
        "{said}"
    );
}

#[test]
fn successor_of_invalid_value_lists_allowed_values() {
    for (old, value, successor) in [
        ("KUMI_TLS", "nonsense", "KUMI_LAB=tls=VALUE (clone, donor, kernel or fail)"),
        ("KUMI_QUEUE", "ring,uring=off", "KUMI_LAB=queue=VALUE (ring"),
        ("KUMI_BOARD", "relative", "KUMI_ARBITER=VALUE (on, off, none, or "),
    ] {
        let said = error(&[(old, value)]);
        assert!(said.contains(&format!("was replaced, set {successor}")), "{said}");
    }
}

#[test]
fn empty_pairs_are_one_error_with_the_list() {
    for list in ["queue=ring,", ",,", "=x", "queue=ring,,uring=off"] {
        let error = parsed(&[("KUMI_LAB", list)]).error.expect("an empty pair");
        assert_eq!(error.problems().len(), 1, "{error}");
        let expected = format!("KUMI_LAB={list}: expected key=value pairs, none of them empty");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let said = error(&[("KUMI_VPS", "0"), ("KUMI_LAB", "queue=x,uring=y"), ("KUMI_TLS", "donor")]);
    let parts: Vec<_> = said.split("; ").collect();
    assert_eq!(parts.len(), 4, "{said}");
    let names = ["KUMI_VPS=0: ", "KUMI_LAB=queue=x: ", "KUMI_LAB=uring=y: ", "KUMI_TLS=donor: "];
    assert!(parts.iter().zip(names).all(|(part, name)| part.starts_with(name)), "{said}");
}

#[test]
fn error_is_invalid_input_with_escaped_value() {
    let error = parsed(&[("KUMI_VPS", "\u{1b}[2J\n")]).error.expect("no number");
    assert_eq!(error.problems().len(), 1);
    let io = std::io::Error::from(&error);
    assert_eq!(io.kind(), std::io::ErrorKind::InvalidInput);
    assert!(io.to_string().starts_with("KUMI_VPS=\\u{1b}[2J\\n: expected"), "{io}");
}

#[test]
fn child_pairs_replace_pairs_of_the_same_key() {
    for (own, pairs, merged) in [
        ("", "tls=donor", "tls=donor"),
        ("queue=ring", "tls=donor", "queue=ring,tls=donor"),
        ("queue=ring,tls=clone", "tls=donor", "queue=ring,tls=donor"),
        ("queue=ring,tls=clone", "tls=", "queue=ring"),
        ("queue=ring", "queue=", ""),
        ("queue=ring", "", "queue=ring"),
        ("", "", ""),
    ] {
        assert_eq!(merge(own, pairs), merged, "{own:?} {pairs:?}");
    }
}

/// As `std::thread` parses it.
#[test]
fn rust_min_stack_is_a_number_of_bytes_or_ignored() {
    let of = |value| config(&[("RUST_MIN_STACK", value)]).rust_min_stack;
    assert_eq!(of("8388608"), Some(8 << 20));
    assert_eq!(of("+1"), Some(1));
    assert_eq!(of("0"), Some(0));
    for ignored in ["", "8m", "-1", " 1", "1 ", "0x10", "99999999999999999999"] {
        assert_eq!(of(ignored), None, "{ignored:?}");
    }
    let not_text =
        Parsed::of(|name| (name == "RUST_MIN_STACK").then(|| OsString::from_vec(vec![b'1', 0xff])));
    assert_eq!((not_text.config.rust_min_stack, not_text.error), (None, None));
}

#[test]
fn description_has_value_and_origin() {
    let all = parsed(&[("KUMI_VPS", "3"), ("KUMI_EVENTS", "x"), ("KUMI_LAB", "queue=ring,tls=x")]);
    let lines = all.describe(false);
    assert_eq!(lines.len(), VARIABLES.len() + KEYS.len());
    let of = |name: &str| {
        let line = lines.iter().find(|line| line.name == name).expect("a line");
        assert!(!line.effect.is_empty() && !line.value.is_empty());
        (line.value.as_str(), line.origin)
    };
    assert_eq!(of("KUMI_VPS"), ("3", Origin::Environment));
    assert_eq!(of("KUMI_EVENTS").1, Origin::Refused);
    assert_eq!(of("KUMI_STACK"), ("160k", Origin::Default));
    assert_eq!(of("lab queue"), ("ring", Origin::Lab));
    assert_eq!(of("lab tls").1, Origin::Refused);
    assert_eq!(of("lab sticky"), ("on", Origin::Default));
    let of_std = |variables: &[(&str, &str)]| {
        let lines = parsed(variables).describe(false);
        let line = lines.into_iter().find(|line| line.name == "KUMI_STACK").expect("a line");
        (line.value, line.origin)
    };
    assert_eq!(of_std(&[("RUST_MIN_STACK", "65536")]), ("65536".into(), Origin::Std));
    let both = [("RUST_MIN_STACK", "65536"), ("KUMI_STACK", "1m")];
    assert_eq!(of_std(&both), ("1m".into(), Origin::Environment));
    assert_eq!(of_std(&[("RUST_MIN_STACK", "64k")]), ("160k".into(), Origin::Default));
    let lines = Parsed::default().describe(true);
    assert!(lines.iter().all(|line| line.origin == Origin::Privileged));
}

#[test]
fn sizes_parse_with_units() {
    for (text, size) in [
        ("0", Some(0)),
        ("17b", Some(17)),
        ("4k", Some(4096)),
        ("4KB", Some(4096)),
        ("3m", Some(3 << 20)),
        ("2Gb", Some(2 << 30)),
        ("", None),
        ("m", None),
        ("1t", None),
        ("1 k", None),
        ("-1", None),
        ("+4k", None),
        ("18446744073709551615k", None),
    ] {
        assert_eq!(bytes(text), size, "{text}");
    }
}

proptest! {
    /// Any value is either an error that contains the value, or changes the configuration of its
    /// own variable only.
    #[test]
    fn any_value_is_a_setting_or_its_error(index in 0..VARIABLES.len(), value in ".{1,12}") {
        let name = VARIABLES[index].name;
        match parsed(&[(name, &value)]).error {
            None => {
                let described = parsed(&[(name, &value)]).describe(false);
                let set = described.iter().filter(|line| line.origin != Origin::Default);
                prop_assert!(set.clone().count() >= 1);
                prop_assert!(set.clone().all(|l| l.name == name || name == "KUMI_LAB"));
            }
            Some(error) => {
                prop_assert!(error.problems().iter().all(|problem| problem.variable == name));
                let named = error.problems().iter().all(|problem| value.contains(&problem.value));
                prop_assert!(named, "{}", error);
            }
        }
    }

    #[test]
    fn any_pair_is_a_setting_or_its_error(index in 0..KEYS.len(), value in "[^,=]{1,12}") {
        let pair = format!("{}={value}", KEYS[index].name);
        let parsed = parsed(&[("KUMI_LAB", &pair)]);
        match parsed.error {
            None => prop_assert_ne!(parsed.config, Config::default()),
            Some(error) => {
                prop_assert_eq!(error.problems().len(), 1);
                prop_assert_eq!(&error.problems()[0].value, &pair);
            }
        }
    }

    #[test]
    fn numbers_in_range_are_accepted(vps in 1usize..=1024, threads in 1usize..=1 << 20) {
        let (vps_text, threads_text) = (vps.to_string(), threads.to_string());
        let all = config(&[("KUMI_VPS", &vps_text), ("KUMI_KERNEL_THREADS", &threads_text)]);
        prop_assert_eq!((all.vps, all.kernel_threads), (Some(vps), Some(threads)));
    }
}
