//! Seeing and steering microprocesses by the command `kumi`.

mod double;
mod ps;
mod pty;
mod real;
mod refused;
mod shell;
mod steer;
mod top;
