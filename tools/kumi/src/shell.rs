//! `kumi completions` and `kumi man`: completion scripts and manual pages, generated from the
//! command's definition.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap_complete::Shell;

use crate::text::written;

#[derive(clap::Args)]
#[command(after_help = "To install, for one user:\n  \
    bash: kumi completions bash >~/.local/share/bash-completion/completions/kumi\n  \
    fish: kumi completions fish >~/.config/fish/completions/kumi.fish\n  \
    zsh:  kumi completions zsh >~/.zfunc/_kumi   (with fpath+=~/.zfunc before compinit in ~/.zshrc)\n\
    In a package, for all users: $(DESTDIR)/usr/share/bash-completion/completions/kumi and similar")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

#[derive(clap::Args)]
#[command(after_help = "To install, for one user:\n  \
    mkdir -p ~/.local/share/man/man1 && kumi man ~/.local/share/man/man1\n\
    In a package, for all users: kumi man $(DESTDIR)/usr/share/man/man1")]
pub struct Man {
    /// Directory for the manual pages of the command and of each subcommand; it must exist. Without
    /// it, the command's own page is printed
    folder: Option<PathBuf>,
}

/// Writes the completion script of a shell to standard output.
pub fn completions(args: Completions, mut command: clap::Command) -> Result<ExitCode, String> {
    let mut text = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut text);
    written(io::stdout().write_all(&text).map(|()| ExitCode::SUCCESS))
}

/// Writes the manual pages.
pub fn man(args: Man, command: clap::Command) -> Result<ExitCode, String> {
    match args.folder {
        Some(folder) => {
            clap_mangen::generate_to(command, &folder)
                .map_err(|e| format!("{}: {e}", folder.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        None => {
            let mut text = Vec::new();
            // The same page as in a directory.
            let mut command = command.disable_help_subcommand(true);
            command.build();
            let rendered = clap_mangen::Man::new(command).render(&mut text);
            written(
                rendered.and_then(|()| io::stdout().write_all(&text)).map(|()| ExitCode::SUCCESS),
            )
        }
    }
}
