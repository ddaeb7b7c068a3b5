//! The textual patterns of locking operations.

/// Patterns that match wherever they occur in a line.
const ANYWHERE: [&str; 22] = [
    ".lock(",
    ".try_lock(",
    ".read().unwrap",
    ".write().unwrap",
    ".enter(",
    ".enter_own(",
    ".enter_kind(",
    ".claim(",
    "Claim.take(",
    "claim.take(",
    "compare_exchange",
    "fetch_add(",
    "fetch_sub(",
    "fetch_or(",
    "fetch_and(",
    "fetch_xor(",
    "fetch_max(",
    "fetch_min(",
    "fetch_update(",
    // Also matches the end of `compiler_fence(`.
    "fence(",
    "barrier::light(",
    "barrier::heavy(",
];
/// Memory orderings, which distinguish an atomic `swap` from a swap of slice elements.
const ORDERINGS: [&str; 5] = ["Acquire", "Release", "AcqRel", "Relaxed", "SeqCst"];

/// Returns whether a line of code acquires or releases a lock, or orders memory accesses.
///
/// Declarations do not count, nor do plain atomic loads and stores. The paper excludes both.
#[must_use]
pub fn touches_locking(line: &str) -> bool {
    ANYWHERE.iter().any(|pattern| line.contains(pattern))
        || is_lock_function(line)
        || is_atomic_swap(line)
}

/// A call of a function named `lock` with a reference: `lock(&...)`, but not `unlock(&...)`.
fn is_lock_function(line: &str) -> bool {
    line.match_indices("lock(&").any(|(at, _)| {
        line[..at]
            .chars()
            .next_back()
            .is_some_and(|before| before != '_' && !before.is_ascii_lowercase())
    })
}

/// A `.swap(` that is followed by a memory ordering on the same line.
fn is_atomic_swap(line: &str) -> bool {
    line.split_once(".swap(")
        .is_some_and(|(_, rest)| ORDERINGS.iter().any(|ordering| rest.contains(ordering)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_locking_operation_is_recognised() {
        for line in [
            "let held = self.state.lock();",
            "if let Some(held) = self.state.try_lock() {",
            "let held = lock(&self.state);",
            "drop(Self::lock(&state));",
            "self.map.read().unwrap_or_else(recover)",
            "self.map.write().unwrap()",
            "let held = table.enter(id);",
            "let held = table.enter_own(vp);",
            "let held = table.enter_kind(kind);",
            "let claimed = self.core.claim(vp);",
            "if Claim.take(vp) {",
            "self.claim.take(vp)",
            "self.word.swap(0, Ordering::AcqRel)",
            "self.word.swap(0, Relaxed)",
            "self.word.compare_exchange(0, 1, Acquire, Relaxed)",
            "self.word.compare_exchange_weak(",
            "fence(SeqCst);",
            "compiler_fence(SeqCst);",
            "barrier::light();",
            "barrier::heavy();",
        ] {
            assert!(touches_locking(line), "{line}");
        }
        for operation in ["add", "sub", "or", "and", "xor", "max", "min", "update"] {
            assert!(
                touches_locking(&format!("self.word.fetch_{operation}(1, Relaxed);")),
                "{operation}"
            );
        }
    }

    #[test]
    fn other_code_is_not_counted() {
        for line in [
            "state: Mutex<State>,",
            "let word = self.word.load(Acquire);",
            "self.word.store(1, Release);",
            "unlock(&self.state);",
            "try_lock(&self.state);",
            "lock(&self.state);",
            "fn lock(state: &Mutex<State>) {",
            "order.swap(0, 1);",
            "use std::sync::atomic::Ordering::Acquire; order.swap(0, 1);",
            "stream.read().await",
            "span.enter_guard()",
            "let next = self.fetch_next();",
            "barrier::wait()",
            "let claims = claim.taken();",
        ] {
            assert!(!touches_locking(line), "{line}");
        }
    }

    #[test]
    fn text_of_more_than_one_byte_a_character_is_accepted() {
        assert!(touches_locking("é = lock(&é);"));
        assert!(touches_locking("élock(&é)"));
    }
}
