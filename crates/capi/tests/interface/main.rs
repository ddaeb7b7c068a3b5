//! Tests of kumihimo.h, kumihimo.hpp and their library: arguments, compilation as C and C++,
//! threads and what they share, calls between two processes, and Python.

mod arguments;
mod build;
mod families;
mod handlers;
mod header;
mod place;
mod programs;
mod python;
mod standard;
