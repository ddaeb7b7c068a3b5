//! kumihimo.h against its library: as C reads it, as C and C++ build with it, between two
//! processes, and from Python.

mod arguments;
mod handlers;
mod header;
mod place;
mod programs;
mod python;
