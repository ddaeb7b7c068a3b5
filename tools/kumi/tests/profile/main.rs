//! Tests of `kumi profile`. The profiled programs are this test program itself, as a child process.

mod cpu;
mod formats;
mod refused;
mod served;
mod waits;
