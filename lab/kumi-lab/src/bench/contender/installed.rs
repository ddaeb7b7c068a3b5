//! Programs of other packages.

use std::path::{Path, PathBuf};

use super::Trouble;

/// Directories of servers, which are not on the PATH of most users.
const SERVERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The path of an installed program, or a refusal that states how to install it.
pub fn installed(program: &str, how: &str) -> Result<PathBuf, Trouble> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SERVERS.iter().map(|&folder| Path::new(folder).to_owned()))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| Trouble::Refused(format!("{program} is not installed ({how})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_package_is_refused_with_its_installation_command() {
        let Err(Trouble::Refused(why)) = installed("no-such-server", "apt-get install it") else {
            panic!("there")
        };
        assert_eq!(why, "no-such-server is not installed (apt-get install it)");
        assert!(installed("sh", "").is_ok());
    }
}
