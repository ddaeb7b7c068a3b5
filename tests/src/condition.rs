//! Wait for a condition, bounded by the number of looks.

use std::fmt::Debug;
use std::time::Duration;

use kumihimo::thread;

/// Number of looks, a millisecond apart, after which a condition counts as one that never comes. No
/// limit of time: a look takes longer on a busy machine.
const LOOKS: u32 = 60_000;

/// Returns when `is` returns true. `state` describes in the panic what there is instead.
///
/// Blocks the microprocess between looks, or the kernel thread if it runs none.
///
/// # Panics
/// If the condition `what` does not come.
pub fn until<S: Debug>(what: &str, state: impl Fn() -> S, mut is: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{what}: not within {LOOKS} looks; {:?}", state());
}
