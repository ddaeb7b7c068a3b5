//! This machine: what it is, what it offers, and what the runtime makes of it.
//!
//! - [`description`]: names and values of hardware and software, for reports.
//! - `doctor`: every mechanism with its fallback, and what would enable a refused one.
//! - `events`: installs and removes the event programs that unprivileged users share.
//!
//! Facts flow from the kernel's files and the runtime's self-tests to lines on standard output.
//! This room may use `text`, and of `show` the board, whose offenders the doctor names.

pub mod description;
pub(crate) mod doctor;
pub(crate) mod events;
