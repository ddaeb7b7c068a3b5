//! Tests of `kumi` commands that show and steer microprocesses.

mod board;
mod container;
mod double;
mod gates;
mod live;
mod locks;
mod ps;
mod pty;
mod real;
mod refused;
mod shell;
mod slow;
mod steer;
mod top;
