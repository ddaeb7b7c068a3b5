//! Tests of kumihimo.h and its library: arguments, compilation as C and C++, calls between two
//! processes, and Python.

mod arguments;
mod handlers;
mod header;
mod place;
mod programs;
mod python;
