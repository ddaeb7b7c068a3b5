//! Replays the fuzzers' corpora: each input meets the requirements of its target.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kumihimo_fuzzed::{TARGETS, corpus, seeds, target};

/// Most bytes of all corpora together, which lie in the repository.
const MOST_BYTES: usize = 300 << 10;

fn replay(name: &str) {
    let inputs = corpus::of(name).expect("the committed corpus");
    assert!(inputs.len() >= 10, "{name} has {} inputs", inputs.len());
    let run = target(name).run;
    let mut failures = Vec::new();
    for input in inputs.into_iter().chain(seeds::of(name)) {
        if catch_unwind(AssertUnwindSafe(|| run(&input))).is_err() {
            failures.push(input.escape_ascii().to_string());
        }
    }
    assert!(failures.is_empty(), "{} inputs fail:\n{}", failures.len(), failures.join("\n"));
}

macro_rules! replays {
    ($($name:ident)+) => {
        /// The targets that a test replays.
        const REPLAYED: &[&str] = &[$(stringify!($name)),+];

        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })+
    };
}

replays! {
    kv_requests kv_commands kv_log control_requests control_answers lane link_records spool
    trace_file unwind ext2 fuse config
}

#[test]
fn every_target_has_a_test_a_program_and_a_small_corpus() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, REPLAYED);
    let manifest = include_str!("../../../fuzz/Cargo.toml");
    let programs = manifest.lines().filter_map(|line| line.strip_prefix("name = \""));
    let programs: Vec<&str> = programs.skip(1).map(|rest| rest.trim_end_matches('"')).collect();
    assert_eq!(programs, names);
    let lengths = names.iter().map(|name| std::fs::metadata(corpus::path(name)).expect(name).len());
    let bytes = usize::try_from(lengths.sum::<u64>()).expect("small");
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
}

#[test]
fn packed_corpus_is_unpacked_to_its_inputs() {
    let inputs = vec![b"one".to_vec(), Vec::new(), vec![0; 300]];
    let packed = corpus::pack(&inputs);
    assert_eq!(corpus::unpack(&packed), Some(inputs));
    assert_eq!(corpus::unpack(&packed[..packed.len() - 1]), None);
    assert_eq!(corpus::unpack(&[1]), None);
}
