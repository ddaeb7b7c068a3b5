//! `kumi completions` and `kumi man`: what a shell and `man` are told of this command, generated
//! from the command itself.

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
    For all, in a package's install step: $(DESTDIR)/usr/share/bash-completion/completions/kumi and alike")]
pub struct Completions {
    /// Which shell
    shell: Shell,
}

#[derive(clap::Args)]
#[command(after_help = "To install, for one user:\n  \
    mkdir -p ~/.local/share/man/man1 && kumi man ~/.local/share/man/man1\n\
    For all, in a package's install step: kumi man $(DESTDIR)/usr/share/man/man1")]
pub struct Man {
    /// The folder into which a page for the command and one for each subcommand go; it must exist.
    /// Without it the command's own page goes to standard output
    folder: Option<PathBuf>,
}

/// Writes the completions of one shell to standard output.
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
            // As for a folder.
            let mut command = command.disable_help_subcommand(true);
            command.build();
            let rendered = clap_mangen::Man::new(command).render(&mut text);
            written(
                rendered.and_then(|()| io::stdout().write_all(&text)).map(|()| ExitCode::SUCCESS),
            )
        }
    }
}
