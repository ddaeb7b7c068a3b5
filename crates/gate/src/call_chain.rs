//! Call chain: the gates through which the running microprocess was called. A request carries it,
//! so that a circle of calls is detected.

use std::cell::Cell;

use crate::lane::Chain;

thread_local! {
    /// Of the request that is being handled.
    static CHAIN: Cell<Chain> = const { Cell::new(Chain::NONE) };
}

/// Of the caller.
pub(crate) fn current() -> Chain {
    CHAIN.get()
}

/// While `f` runs, the caller handles a request that came through `chain`, and then through gate
/// `word`.
pub(crate) fn within<R>(chain: &Chain, word: u32, f: impl FnOnce() -> R) -> R {
    struct Back(Chain);
    impl Drop for Back {
        fn drop(&mut self) {
            CHAIN.set(self.0);
        }
    }
    let _back = Back(enter(chain, word));
    f()
}

/// From now on the caller handles a request that came through `chain`, and then through gate
/// `word`. Returns what was before.
pub(crate) fn enter(chain: &Chain, word: u32) -> Chain {
    let mut chain = *chain;
    // A full one was refused where it came in.
    let _ = chain.push(word);
    CHAIN.replace(chain)
}

/// It handles nothing any more, or what it did before.
pub(crate) fn leave(before: Chain) {
    CHAIN.set(before);
}
