//! Random numbers with a seed that can be given (`KUMI_SEED=number`) and is printed.
#![allow(dead_code)]

use std::io::Write;

pub struct Rng(u64);

/// A seed for this run, printed so that a failure can be repeated.
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
/// `std::thread::scope` by itself only counts them down, an order that ThreadSanitizer does not see
/// in std.
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

/// Whether `spawn` makes microprocesses here. If not (kernel threads 1:1), says that `test` is
/// skipped: it is of priorities, or of what a microprocess does with its permits.
pub fn microprocesses(test: &str) -> bool {
    let here =
        kumihimo_runtime::thread::spawn(|| kumihimo_runtime::thread::current().is_microprocess())
            .join()
            .unwrap();
    if !here {
        // Not by a macro: the harness would keep it to itself.
        let _ = writeln!(std::io::stderr(), "[skip] {test}: kernel threads 1:1 here");
    }
    here
}
