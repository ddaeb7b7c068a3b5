//! Scan: the watchdog's thread, which scans for violations of the event protocol and starvation.
//!
//! - `run`: the thread.
//! - `violations`, `suspicion`: the checks of each VP, and how long a suspicion has lasted.
//! - `starvation`: detects that every kernel thread sleeps at the limit.
//! - `report`: the text of a violation.
//!
//! The shared page and the watchdog's state flow in, reports and overrides flow out. The highest
//! room but `open`: it uses `watchdog`, `pool` and all below.

mod report;
pub(crate) mod run;
mod starvation;
mod suspicion;
mod violations;
