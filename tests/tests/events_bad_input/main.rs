//! Bad input to events: the program degrades, reports it once, and loses nothing. Each case has a
//! row in `docs/src/reference/bad-input`.
//!
//! Every test runs in child processes. If the source matters, there is one for each source that
//! this machine supports.

mod blocked;
mod clocks;
mod corrupt;
mod debugger;
mod limits;
mod processes;
mod refused;
mod signals;
mod starvation;
mod stops;
mod traps;
mod under;
