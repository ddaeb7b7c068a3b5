//! Settings of a process from environment variables that start with `KUMI_`.
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! The environment is parsed once, at the first call of [`get`] or [`check`]; the child of a fork
//! keeps the result. Eleven variables are for users ([`Config`]). `KUMI_LAB` holds settings for
//! tests and experiments ([`Lab`]), as `key=value` pairs separated by commas. An empty variable
//! counts as unset.
//!
//! A value outside of the grammar is an [`Error`] that contains the variable, the value and the
//! allowed values. A variable of an earlier version is an error that contains its successor.
//! [`get`] uses the default instead, so that code below the runtime always has a configuration.
//! Starting a runtime calls [`check`] and fails.
//!
//! Set-id programs and programs with file capabilities (`AT_SECURE`, getauxval(3)) ignore all these
//! variables, because their caller is not trusted.
//!
//! [`named_file`] opens files that settings and options name.
//!
//! This crate depends on no other crate of the workspace. Other crates convert its plain types to
//! their own.

mod environment;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod lab;
pub mod named_file;
mod refused;
mod table;
mod typo;
mod values;

pub use environment::{check, describe, get, is_privileged, lab_with, trusted_variable};
pub use error::{Error, Problem};
pub use lab::{KEYS, Lab};
pub use refused::refused_names;
pub use table::{Config, Line, Origin, Setting, VARIABLES};
pub use typo::{is_test_variable, misspelled};
pub use values::size::bytes;
pub use values::span::{ShownSpan, span};
pub use values::{
    Arbiter, Batch, Bpf, DEFAULT_PREEMPT_SIGNAL, DUMP_SIGNALS, Dlopen, Events, FsBase, Guard,
    LARGEST_BATCH, Locking, MAX_KERNEL_THREADS, MAX_STACK, MAX_VPS, MachineDir, OnMisbehaviour,
    Preempt, Queue, Ready, Share, TRACE_RECORDS, Tls, Watchdog, dump_signal, is_dump_signal,
};

#[cfg(test)]
mod tests;
