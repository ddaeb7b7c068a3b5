//! `kumi serve kv`: an in-memory key-value server that speaks Redis's protocol, RESP2 and RESP3,
//! with a microprocess for each connection.
//!
//! The server is an ordinary application of Kumihimo: blocking code on the public API. The loop of
//! a connection (`serve/connection.rs`) reads, runs every complete command in the buffer, and
//! writes all replies together.
//!
//! ```
//! use std::io::{Read, Write};
//! use kumihimo_kv::{Server, Settings};
//!
//! let settings = Settings { listen: Some(([127, 0, 0, 1], 0).into()), ..Settings::default() };
//! let running = Server::start(settings)?;
//! let mut client = kumihimo::net::TcpStream::connect(running.address().expect("an address"))?;
//! client.write_all(b"SET greeting hello\r\nGET greeting\r\nSHUTDOWN\r\n")?;
//! let mut replies = String::new();
//! client.read_to_string(&mut replies)?;
//! assert_eq!(replies, "+OK\r\n$5\r\nhello\r\n");
//! running.wait()?;
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

mod budget;
mod clients;
mod commands;
mod data;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod options;
mod password;
mod protocol;
mod serve;
mod server;
mod session;

pub use log::Sync;
pub use options::{Options, run};
pub use password::Password;
pub use serve::{Repaired, Replayed, Running, repair};
pub use server::{Server, Settings};
