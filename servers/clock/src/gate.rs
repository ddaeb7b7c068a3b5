//! The clock as a gate.

use kumihimo::gate::{Error, Gate, Serving};
use kumihimo::sync::{Mutex, PoisonError};

use crate::Reading;

/// Default name of the gate.
pub const NAME: &str = "clock";

/// Serves [`Reading`]s. Each reply is a time in nanoseconds. If `turn` is given, each request is
/// handled with this mutex locked, which makes the gate part of a sequential server.
///
/// # Errors
/// As [`Gate::serve`]: the name is taken, or gates are unavailable.
pub fn serve(name: &str, turn: Option<&'static Mutex<()>>) -> Result<Serving, Error> {
    let answer = move |reading: Reading| {
        let _turn = turn.map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        reading.nanoseconds()
    };
    Gate::serve(name, answer)
}

/// Calls the clock at a gate. Blocks the microprocess or the foreign kernel thread.
///
/// # Errors
/// As [`Gate::connect`] and [`Gate::call`].
pub fn ask(name: &str, reading: Reading) -> Result<i64, Error> {
    Gate::<Reading, i64>::connect(name)?.call(&reading)
}
