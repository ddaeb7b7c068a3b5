//! Tests of `kumi run`: C and C++ programs, built here, plainly and on microprocesses; and what the
//! command refuses.

mod bed;
mod command;
mod doctor;
mod fire;
mod observed;
mod programs;
mod refused;
mod signals;
