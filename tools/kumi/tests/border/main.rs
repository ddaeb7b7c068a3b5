//! Tests of `kumi border`: two machines as two run-time directories, over loopback.

mod calls;
mod certificates;
mod control;
#[allow(dead_code, reason = "shared with the tests of other commands")]
#[path = "../machine/double.rs"]
mod double;
mod lost;
mod refused;
mod rights;
mod site;
