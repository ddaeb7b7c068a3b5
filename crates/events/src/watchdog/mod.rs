//! Watchdog: detects a user scheduler that violates the event protocol, and starvation.
//!
//! - [`config`]: what is detected, and what is done about it.
//! - `scan`: the watchdog's thread, which scans all VPs.
//! - `starvation`: detects that every kernel thread sleeps at the limit.
//! - `report`: the text of a violation.
//!
//! The shared page flows in, reports and overrides flow out. The highest room: it uses all others.

pub mod config;
mod report;
pub(crate) mod scan;
pub(crate) mod starvation;

pub use config::{Distrust, OnMisbehaviour, Violation};
