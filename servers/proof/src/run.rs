//! Runs thousands of random sequences from a seed, and shrinks failing ones.

use kumihimo_tests::{Random, extent, rounds};
use proptest::collection::SizeRange;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::compare::Difference;
use crate::operations::{Operation, sequence};
use crate::watch::Watchdog;

/// Time limit of shrinking in milliseconds. Shrinking then stops with its best result.
const SHRINKING: u32 = 20_000;

/// Runs `cases` sequences of `length` operations and shrinks the first failing one.
///
/// # Errors
/// The shortest failing sequence found, one operation a line, and the difference that it causes.
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

/// Removes each operation that is not needed for the failure. proptest has tried this only with
/// larger values.
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

/// Runs the test `name`: rounds of `cases` sequences (a quarter of them in a brief run) until
/// `KUMI_STRESS_SECONDS` have passed, at least one round. Prints the number of rounds.
///
/// # Panics
/// With the result of [`search`], and the seed that reproduces it.
pub fn test(
    name: &'static str,
    cases: u32,
    length: impl Into<SizeRange>,
    check: impl Fn(&[Operation]) -> Result<(), Difference>,
) {
    let cases = extent(cases, (cases / 4).max(1));
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
