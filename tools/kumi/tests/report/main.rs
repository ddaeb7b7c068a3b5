//! Tests of `kumi trace report`: the file, the page in a browser, and input that is no trace.

mod bed;
mod page;
mod recorded;
mod refused;
