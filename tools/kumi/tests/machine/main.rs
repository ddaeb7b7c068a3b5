//! Seeing and steering microprocesses by the command `kumi`.

mod board;
mod double;
mod gates;
mod ps;
mod pty;
mod real;
mod refused;
mod shell;
mod steer;
mod top;
