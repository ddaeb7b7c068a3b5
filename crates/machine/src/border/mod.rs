//! Other machines, through the border of this one (`kumi border`).
//!
//! A border is a process of the user, and at most one of each run-time directory. It has the lock
//! of `border.lock` and listens at `border.socket`. Its protocol continues that of the control
//! socket: one JSON object per line.
//!
//! ```text
//! border: {"protocol":1,"version":"0.2.0","border":"build8"}
//! client: {"protocol":1,"border":"machines"}
//! border: {"name":"build7","state":"reachable",...}     one line per machine
//! border: {"end":1}
//! client: {"protocol":1,"border":"control","machine":"build7","epoch":"9f3a...","space":12}
//! ```
//! After the last request the connection is one to the control socket of address space 12 of that
//! machine, whose greeting is the next line; or the border answers with an error.
//!
//! - [`name`]: names of machines and epochs of run-time directories.
//! - [`protocol`]: requests to the border and its answers.
//! - [`place`]: the border's lock and socket, and the epoch.

pub mod name;
pub mod place;
pub mod protocol;

pub use name::{Epoch, MachineName};
pub use place::Place;
pub use protocol::{Ask, Greeting, MachineRow, MachineState, SpaceNumber};
