//! The clock at a gate.

use kumihimo::gate::{Error, Gate, Serving};
use kumihimo::sync::{Mutex, PoisonError};

use crate::Reading;

/// What it is called unless told otherwise.
pub const NAME: &str = "clock";

/// Serves [`Reading`]s, each answered with nanoseconds. `turn`: a request waits for its turn with
/// all that the server does: where it is sequential.
///
/// # Errors
/// As [`Gate::serve`]: the name is taken, there can be no gate here.
pub fn serve(name: &str, turn: Option<&'static Mutex<()>>) -> Result<Serving, Error> {
    let answer = move |reading: Reading| {
        let _turn = turn.map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        reading.nanoseconds()
    };
    Gate::serve(name, answer)
}

/// Asks the clock at a gate. Blocks the microprocess, or a foreign kernel thread.
///
/// # Errors
/// As [`Gate::connect`] and [`Gate::call`].
pub fn ask(name: &str, reading: Reading) -> Result<i64, Error> {
    Gate::<Reading, i64>::connect(name)?.call(&reading)
}
