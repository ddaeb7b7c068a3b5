//! Tests of `kumi web`: of its protocol by plain sockets, and of its page by a browser.

mod admission;
mod browser;
#[allow(dead_code, reason = "shared with the tests of other commands")]
#[path = "../machine/double.rs"]
mod double;
mod gone;
mod limits;
mod options;
mod passwords;
mod plain;
mod program;
mod steering;
mod stream;
mod tls;
