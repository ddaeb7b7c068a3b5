//! The password of `--password-file`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::secret::{Key, Sealed};

/// Shortest password, in bytes.
const SHORTEST: usize = 8;
/// Largest part of the file that is read, in bytes.
const LONGEST: u64 = 4096;

/// Reads the password: the first line of a file that nobody else may read.
///
/// # Errors
/// A line about the file, if it cannot be read, belongs to another user, can be read by others, or
/// has a password that is too short.
pub fn read(path: &Path, key: &Key) -> Result<Sealed, String> {
    let about = |e: std::io::Error| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(about)?;
    let metadata = file.metadata().map_err(about)?;
    let me = rustix::process::geteuid().as_raw();
    if !metadata.is_file() || (metadata.uid() != me && metadata.uid() != 0) {
        return Err(format!(
            "{}: the password file must be a file of user {me} or of root",
            path.display()
        ));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(format!(
            "{}: other users may read this password file: chmod 600 it",
            path.display()
        ));
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(about)?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() < SHORTEST {
        return Err(format!(
            "{}: the password, its first line, has {} bytes: use {SHORTEST} or more",
            path.display(),
            line.len()
        ));
    }
    Ok(key.seal(line))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn password_is_the_first_line_of_a_private_file() {
        let path = std::env::temp_dir().join(format!("kumi-web-password-{}", std::process::id()));
        let key = Key::new().expect("random numbers");
        for (text, mode, complaint) in [
            ("correct horse\r\nbattery", 0o600, None),
            ("seven77\n", 0o600, Some("7 bytes: use 8 or more")),
            ("", 0o600, Some("0 bytes")),
            ("correct horse", 0o640, Some("chmod 600")),
        ] {
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("changed");
            match (read(&path, &key), complaint) {
                (Ok(sealed), None) => assert!(key.is(&sealed, b"correct horse")),
                (Err(why), Some(part)) => assert!(why.contains(part), "{why}"),
                (read, _) => panic!("{text:?}: {:?}", read.err()),
            }
        }
        fs::remove_file(&path).expect("removed");
        assert!(read(&path, &key).err().expect("it is absent").contains("No such file"));
        assert!(read(Path::new("/dev/null"), &key).err().expect("a device").contains("must be"));
    }
}
