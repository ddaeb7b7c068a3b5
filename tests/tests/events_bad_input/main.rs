//! Bad input to events and what must come of it: the program degrades, says so once, and loses
//! nothing. Each row is in CAVEATS.md.
//!
//! Every test runs in processes of its own; where the source matters, in one for each source that
//! this machine allows.

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
