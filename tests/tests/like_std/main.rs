//! What std's threads, locks, channels, sockets, files and children do, done by those of Kumihimo.
//!
//! Each body is one behaviour. It runs in a microprocess, with what it starts in microprocesses or
//! on kernel threads, and on a kernel thread beside microprocesses.

mod beside;
mod channels;
mod children;
mod condvars;
mod copies;
mod directories;
mod files;
mod locks;
mod once;
mod pipes;
mod place;
mod tcp;
mod threads;
mod udp;
mod unix_sockets;

use beside::Beside;
