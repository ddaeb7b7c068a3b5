//! Description of this machine, its features, and their use by the runtime.
//!
//! - [`description`]: names and values of hardware and software, for reports.
//! - `doctor`: every mechanism with its fallback, and the remedy for each unavailable one.
//! - `events`: installs and removes the event programs that unprivileged users share.
//!
//! Facts flow from the kernel's files and the runtime's self-tests to lines on standard output.
//! This module may use `text`, and from `show` the board, whose offenders `doctor` prints.

pub mod description;
pub(crate) mod doctor;
pub(crate) mod events;
