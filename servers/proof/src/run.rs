//! Sequences by the thousand, from a seed, with shrinking.

use kumihimo_tests::{Random, rounds};
use proptest::collection::SizeRange;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::compare::Difference;
use crate::operations::{Operation, sequence};
use crate::watch::Watchdog;

/// What shrinking may cost: in milliseconds, for it stops at what it has.
const SHRINKING: u32 = 20_000;

/// Runs `cases` sequences of `length` operations. The first that fails is shrunk.
///
/// # Errors
/// The shortest sequence found, one operation a line, and what was wrong with it.
pub fn search(
    random: &mut Random,
    cases: u32,
    length: impl Into<SizeRange>,
    check: impl Fn(&[Operation]) -> Result<(), Difference>,
) -> Result<(), Difference> {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_time: SHRINKING,
        max_shrink_iters: u32::MAX,
        ..Config::default()
    };
    let mut seed = [0; 32];
    seed.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.number().to_le_bytes()));
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let result =
        runner.run(&sequence(length), |operations| check(&operations).map_err(TestCaseError::fail));
    result.map_err(|error| match error {
        TestError::Fail(reason, operations) => {
            let (operations, reason) = shortest(operations, reason.message().to_owned(), &check);
            let lines: Vec<String> = operations
                .iter()
                .enumerate()
                .map(|(number, operation)| format!("  {number}: {operation:?},\n"))
                .collect();
            format!("{reason}\nafter\n{}", lines.concat())
        }
        TestError::Abort(reason) => reason.message().to_owned(),
    })
}

/// Leaves out each operation without which it fails still: proptest has tried that with larger ones
/// only.
fn shortest(
    mut operations: Vec<Operation>,
    mut reason: Difference,
    check: impl Fn(&[Operation]) -> Result<(), Difference>,
) -> (Vec<Operation>, Difference) {
    let mut place = operations.len();
    while place > 0 {
        place -= 1;
        let mut fewer = operations.clone();
        fewer.remove(place);
        if let Err(difference) = check(&fewer) {
            (operations, reason) = (fewer, difference);
            place = place.min(operations.len());
        }
    }
    (operations, reason)
}

/// The test `name`: rounds of `cases` sequences until `KUMI_STRESS_SECONDS` are over, one round at
/// least. Says how many there were.
///
/// # Panics
/// With what [`search`] found, and how to repeat it.
pub fn test(
    name: &'static str,
    cases: u32,
    length: impl Into<SizeRange>,
    check: impl Fn(&[Operation]) -> Result<(), Difference>,
) {
    let (length, mut sequences) = (length.into(), 0);
    let watchdog = Watchdog::new(name);
    let check = |operations: &[Operation]| {
        watchdog.step(format!("with {operations:?}"));
        check(operations)
    };
    for mut round in rounds(name) {
        if let Err(difference) = search(&mut round.random, cases, length.clone(), check) {
            panic!(
                "{name}: KUMI_SEED={}, round {}: {difference}",
                kumihimo_tests::seed(),
                round.number
            );
        }
        sequences += cases;
    }
    eprintln!("{name}: {sequences} sequences");
}
