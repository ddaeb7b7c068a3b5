//! Where the server listens: TCP on the loopback interface, a UNIX socket of the user, or, with a
//! password and TLS, any address.

use std::fmt;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use kumihimo::net::{TcpListener, UnixListener, UnixStream};

/// The value of `--listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `127.0.0.1:8080`.
    Tcp(SocketAddr),
    /// `unix:PATH`.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("the path of the socket is empty".to_owned()),
            Some(path) => Ok(Listen::Unix(path.into())),
            None => text.parse().map(Listen::Tcp).map_err(|_| {
                "expected an address with a port, for example 127.0.0.1:8080 or [::1]:8080, or unix:PATH".to_owned()
            }),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => write!(f, "{address}"),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Listen {
    /// Whether only processes of this machine can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Listen::Tcp(address) => address.ip().is_loopback(),
            Listen::Unix(_) => true,
        }
    }
}

/// A listener.
pub enum Listener {
    /// TCP.
    Tcp(TcpListener, SocketAddr),
    /// UNIX.
    Unix { listener: UnixListener, _file: SocketFile },
}

/// The file of a UNIX socket, which is removed when this value is dropped.
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode, by which the file is recognised.
    is: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have put its own socket there.
        if fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.is) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    /// A line with the address or path, and what to do.
    pub fn bind(listen: &Listen) -> Result<Listener, String> {
        match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address).map_err(|e| match e.kind() {
                    ErrorKind::AddrInUse => format!(
                        "{address}: another program listens there: use another port, or port 0 for a free one"
                    ),
                    _ => format!("{address}: {e}"),
                })?;
                let bound = listener.local_addr().map_err(|e| format!("{address}: {e}"))?;
                Ok(Listener::Tcp(listener, bound))
            }
            Listen::Unix(path) => {
                let (listener, _file) = bind_unix(path)?;
                Ok(Listener::Unix { listener, _file })
            }
        }
    }
}

/// Listens at a path, with access for the user alone. Replaces a socket of the user that an ended
/// process has left there.
fn bind_unix(path: &Path) -> Result<(UnixListener, SocketFile), String> {
    let about = |e: std::io::Error| format!("{}: {e}", path.display());
    let listener = match UnixListener::bind(path) {
        Err(e) if e.kind() == ErrorKind::AddrInUse => {
            let there = fs::symlink_metadata(path).map_err(about)?;
            let me = rustix::process::geteuid().as_raw();
            if !there.file_type().is_socket() || there.uid() != me {
                return Err(format!(
                    "{}: this is no socket of user {me}: use another path",
                    path.display()
                ));
            }
            let is_dead =
                UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
            if !is_dead {
                return Err(format!(
                    "{}: another program listens there: use another path",
                    path.display()
                ));
            }
            fs::remove_file(path).map_err(about)?;
            UnixListener::bind(path).map_err(about)?
        }
        bound => bound.map_err(about)?,
    };
    // Until here, others could connect; the owner of the other end is checked at each connection.
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(about)?;
    let file = fs::symlink_metadata(path).map_err(about)?;
    let file = SocketFile { path: path.to_owned(), is: (file.dev(), file.ino()) };
    Ok((listener, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_parsed() {
        let tcp = |text: &str| Ok(Listen::Tcp(text.parse().expect("an address")));
        assert_eq!("127.0.0.1:0".parse(), tcp("127.0.0.1:0"));
        assert_eq!("[::1]:80".parse(), tcp("[::1]:80"));
        assert_eq!("unix:/a b".parse(), Ok(Listen::Unix("/a b".into())));
        for wrong in ["", "8080", "localhost:80", "127.0.0.1", "unix:"] {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
        let local = |text: &str| text.parse::<Listen>().expect("valid").is_local();
        assert!(
            local("127.0.0.1:0") && local("127.9.9.9:1") && local("[::1]:1") && local("unix:a")
        );
        assert!(!local("0.0.0.0:1") && !local("[::]:1") && !local("192.0.2.1:1"));
    }
}
