//! Random numbers with a printed seed, which `KUMI_SEED=number` sets.
#![allow(dead_code)]

use std::io::Write;

pub struct Rng(u64);

/// Returns the seed of this run, and prints it so that a failure can be repeated.
pub fn seed(test: &str) -> u64 {
    let seed = std::env::var("KUMI_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |d| d.as_nanos() as u64)
    });
    println!("{test}: KUMI_SEED={seed}");
    seed
}

impl Rng {
    pub fn new(seed: u64, stream: u64) -> Rng {
        Rng(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Threads that are joined one by one at the end of [`crew`].
///
/// `std::thread::scope` alone waits for a counter inside std, an ordering that ThreadSanitizer does
/// not observe because std is not instrumented.
pub struct Crew<'scope, 'env: 'scope> {
    pub scope: &'scope std::thread::Scope<'scope, 'env>,
    hands: std::cell::RefCell<Vec<std::thread::ScopedJoinHandle<'scope, ()>>>,
}

impl<'scope> Crew<'scope, '_> {
    pub fn spawn<T>(&self, f: impl FnOnce() -> T + Send + 'scope) {
        self.hands.borrow_mut().push(self.scope.spawn(move || drop(f())));
    }
}

pub fn crew<'env, T>(f: impl for<'scope> FnOnce(&Crew<'scope, 'env>) -> T) -> T {
    std::thread::scope(|scope| {
        let crew = Crew { scope, hands: Default::default() };
        let result = f(&crew);
        crew.hands.into_inner().into_iter().for_each(|hand| hand.join().unwrap());
        result
    })
}

/// Whether `spawn` creates microprocesses here. If it creates kernel threads 1:1, reports that
/// `test` is skipped: the test concerns priorities or the permits of microprocesses.
pub fn microprocesses(test: &str) -> bool {
    let here =
        kumihimo_runtime::thread::spawn(|| kumihimo_runtime::thread::current().is_microprocess())
            .join()
            .unwrap();
    if !here {
        // Not `eprintln!`: the test harness would capture its output.
        let _ = writeln!(std::io::stderr(), "[skip] {test}: kernel threads 1:1 here");
    }
    here
}
