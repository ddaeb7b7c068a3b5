//! `kumi serve`: servers written with Kumihimo.

use clap::Subcommand;

/// The available servers.
#[derive(Subcommand)]
pub enum Server {
    /// An in-memory key-value server with Redis's protocol (RESP2 and RESP3)
    Kv(kumihimo_kv::Options),
    /// The clock, as a gate and as a small mount
    Clock(kumihimo_files::ClockOptions),
}

/// Serves until a signal arrives.
pub fn run(server: Server) -> Result<(), String> {
    match server {
        Server::Kv(options) => kumihimo_kv::run(options),
        Server::Clock(options) => kumihimo_files::serve_clock(options),
    }
}
