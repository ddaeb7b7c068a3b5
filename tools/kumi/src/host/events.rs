//! `kumi events`: manages the shared BPF object for unprivileged users.

use clap::{Args as ClapArgs, Subcommand};
use kumihimo_events::bpf::pinned::{DEFAULT_SLOTS, Store, user};

use crate::text::say;

#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load the object and pin it, with seats for a user (as root; may be repeated; needed after
    /// each boot)
    Install {
        /// Name or number of the user; by default the user that called sudo. Without either, the
        /// installed object is refreshed
        #[arg(long, value_name = "NAME|UID")]
        user: Option<String>,
        /// Number of the user's processes that can use it at the same time
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
        seats: u32,
        #[arg(long, help = format!("Kernel threads of a process [default: as installed, else {DEFAULT_SLOTS}]"))]
        slots: Option<u32>,
    },
    /// Remove all pinned objects (as root)
    Uninstall,
    /// Show what is installed, the holder of each seat, and what the kernel allows
    Status,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<(), String> {
    let store = Store::system();
    match args.command {
        Command::Install { user: name, seats, slots } => {
            let name = name.or_else(|| std::env::var("SUDO_UID").ok());
            let number =
                name.as_deref().map(user).transpose().map_err(|refused| refused.to_string())?;
            for line in
                store.install(number, seats, slots).map_err(|refused| refused.to_string())?
            {
                say!("{line}");
            }
        }
        Command::Uninstall => {
            let removed = store.uninstall().map_err(|refused| refused.to_string())?;
            say!("{}", if removed { "removed" } else { "nothing was installed" });
        }
        Command::Status => say!("{}", store.status()),
    }
    Ok(())
}
