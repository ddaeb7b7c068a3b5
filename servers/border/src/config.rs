//! The configuration of a border: `border.conf`, beside the certificates.
//!
//! ```text
//! listen   0.0.0.0:7643
//! peer     build7 build7.example:7643
//! peer     build9 10.0.0.9:7643 identity=spiffe://site/build9
//! discover borders.default.svc:7643
//! allow    build7 observe steer call=adder,db-* level=40 calls=100 bytes=1048576
//! ```
//! A line has words separated by blanks; `#` begins a comment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kumihimo_machine::border::name::check_name;

use crate::rights::{Allowed, Rights};
use crate::tls::Files;

/// Port of borders, where none is given.
pub const PORT: u16 = 7643;
/// Name of the configuration in its folder.
pub const FILE: &str = "border.conf";
/// Highest priority that an identity may set, where none is given: the default of microprocesses.
const LEVEL: u8 = 32;
/// Calls at a time, and size of the largest request, where none is given.
const CALLS: usize = 64;
const BYTES: usize = 1 << 20;
/// Most of both: what the engine and a gate take.
const MOST_CALLS: usize = 1024;
const MOST_BYTES: usize = 64 << 20;
/// Highest priority of all.
const TOP_LEVEL: u8 = 63;

/// A machine of the static list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name of the machine.
    pub name: String,
    /// Where its border listens: `HOST:PORT`.
    pub place: String,
    /// Name that its certificate must have.
    pub identity: String,
}

/// A name for DNS behind which borders are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discover {
    /// The name and the port: `HOST:PORT`.
    pub place: String,
    /// Name that the certificates must have, if one was given.
    pub identity: Option<String>,
}

/// The configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Where the border listens, if others may reach it.
    pub listen: Option<SocketAddr>,
    /// The static list of machines.
    pub peers: Vec<Peer>,
    /// Names for DNS.
    pub discover: Vec<Discover>,
    /// Rights of other machines.
    pub allowed: Allowed,
}

impl Config {
    /// Reads the configuration in `folder`.
    ///
    /// # Errors
    /// A line about the file or the line in it that is wrong.
    pub fn read(folder: &Path) -> Result<Config, String> {
        let path = folder.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|e| {
            format!("{}: {e}; `kumi border init` makes a configuration", path.display())
        })?;
        Config::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            config.add(&words).map_err(|why| format!("line {}: {why}", number + 1))?;
        }
        Ok(config)
    }

    fn add(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            [] => {}
            ["listen", address] => {
                let parsed = address.parse().map_err(|_| {
                    format!("{address:?} is no address: expected IP:PORT, such as 0.0.0.0:{PORT}")
                })?;
                if self.listen.replace(parsed).is_some() {
                    return Err("a second `listen`".to_owned());
                }
            }
            ["peer", name, place, options @ ..] => {
                check_name(name).map_err(|e| e.to_string())?;
                check_place(place)?;
                if self.peers.iter().any(|peer| peer.name == *name) {
                    return Err(format!("a second machine named {name}"));
                }
                let identity = identity(options)?.unwrap_or(name).to_owned();
                self.peers.push(Peer {
                    name: (*name).to_owned(),
                    place: (*place).to_owned(),
                    identity,
                });
            }
            ["discover", place, options @ ..] => {
                check_place(place)?;
                let identity = identity(options)?.map(str::to_owned);
                self.discover.push(Discover { place: (*place).to_owned(), identity });
            }
            ["allow", name, rights @ ..] => {
                if self.allowed.0.iter().any(|rights| rights.name == *name) {
                    return Err(format!("a second `allow` of {name}"));
                }
                self.allowed.0.push(parse_rights(name, rights)?);
            }
            [word @ ("listen" | "peer" | "discover" | "allow"), ..] => {
                return Err(format!("`{word}` with too few or too many words"));
            }
            [word, ..] => {
                return Err(format!(
                    "{word:?} is unknown: expected listen, peer, discover or allow"
                ));
            }
        }
        Ok(())
    }
}

/// Checks that a text has the form `HOST:PORT`.
///
/// # Errors
/// A line that names the text.
pub fn check_place(place: &str) -> Result<(), String> {
    let wrong = || format!("{place:?} is no place: expected HOST:PORT, such as build7:{PORT}");
    let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || host.contains(':') && !is_bracketed {
        return Err(wrong());
    }
    port.parse::<u16>().ok().filter(|port| *port > 0).map(drop).ok_or_else(wrong)
}

fn identity<'a>(options: &[&'a str]) -> Result<Option<&'a str>, String> {
    let mut identity = None;
    for option in options {
        match option.split_once('=') {
            Some(("identity", name)) if !name.is_empty() => identity = Some(name),
            _ => return Err(format!("{option:?} is unknown: expected identity=NAME")),
        }
    }
    Ok(identity)
}

fn parse_rights(name: &str, words: &[&str]) -> Result<Rights, String> {
    let mut rights = Rights {
        name: name.to_owned(),
        level: LEVEL,
        calls: CALLS,
        bytes: BYTES,
        ..Rights::default()
    };
    let number = |word: &str, text: &str, most: usize| {
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| format!("{word:?}: expected a number from 1 to {most}"))
    };
    for word in words {
        match word.split_once('=') {
            None if *word == "observe" => rights.observe = true,
            None if *word == "steer" => rights.steer = true,
            Some(("call", gates)) if !gates.split(',').any(str::is_empty) => {
                rights.call.extend(gates.split(',').map(str::to_owned));
            }
            Some(("calls", calls)) => rights.calls = number(word, calls, MOST_CALLS)?,
            Some(("bytes", bytes)) => rights.bytes = number(word, bytes, MOST_BYTES)?,
            Some(("level", level)) => {
                let level = level.parse().ok().filter(|level| *level <= TOP_LEVEL);
                rights.level = level.ok_or_else(|| {
                    format!("{word:?} is no level: expected a number from 0 to {TOP_LEVEL}")
                })?;
            }
            _ => {
                return Err(format!(
                    "{word:?} is no right: expected observe, steer, call=GATE,..., level=N, calls=N or bytes=N"
                ));
            }
        }
    }
    Ok(rights)
}

/// Returns the folder of the configuration: `kumihimo/border` below `$XDG_CONFIG_HOME` or
/// `~/.config`.
///
/// # Errors
/// Returns a line if neither variable is set.
pub fn default_folder() -> Result<PathBuf, String> {
    let of = |name| kumihimo_config::trusted_variable(name).map(PathBuf::from);
    let base = of("XDG_CONFIG_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| of("HOME").map(|home| home.join(".config")));
    base.map(|base| base.join("kumihimo/border"))
        .ok_or_else(|| "there is no $HOME: name the folder by --config".to_owned())
}

/// Returns the files with certificates in a folder.
#[must_use]
pub fn files(folder: &Path) -> Files {
    let revoked = folder.join("revoked.pem");
    Files {
        authorities: folder.join("ca.pem"),
        certificate: folder.join("border.pem"),
        key: folder.join("border.key"),
        revoked: revoked.exists().then_some(revoked),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn configuration_is_parsed() {
        let text = "# a site\nlisten 0.0.0.0:7643\n\npeer build7 build7.example:7643 # ours\n\
                    peer b9 [::1]:1 identity=spiffe://site/b9\ndiscover borders.svc:7643\n\
                    allow build7 observe steer call=a,b-* level=40 calls=3 bytes=4096\nallow spiffe://site/b9\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.listen, Some("0.0.0.0:7643".parse().unwrap()));
        let identities: Vec<&str> = config.peers.iter().map(|p| p.identity.as_str()).collect();
        assert_eq!(identities, ["build7", "spiffe://site/b9"]);
        assert_eq!(config.discover[0].identity, None);
        let rights = |n: usize| {
            let rights = &config.allowed.0[n];
            (rights.name.as_str(), rights.observe, rights.steer, rights.level)
        };
        assert_eq!(rights(0), ("build7", true, true, 40));
        assert_eq!(rights(1), ("spiffe://site/b9", false, false, 32));
        let first = &config.allowed.0[0];
        assert_eq!((first.calls, first.bytes), (3, 4096));
        assert!(first.may_call("a") && first.may_call("b-c") && !first.may_call("c"));
    }

    #[test]
    fn wrong_lines_are_refused_with_their_numbers() {
        for (text, why) in [
            ("listen here", "line 1: \"here\" is no address"),
            ("listen 1.2.3.4:1\nlisten 1.2.3.4:1", "line 2: a second `listen`"),
            ("peer 12 a:1", "does not begin with a letter"),
            ("peer all a:1", "every machine"),
            ("peer a a", "is no place"),
            ("peer a ::1:1", "is no place"),
            ("peer a a:0", "is no place"),
            ("peer a a:1\npeer a b:1", "line 2: a second machine named a"),
            ("peer a a:1 port=1", "expected identity=NAME"),
            ("peer a", "too few or too many"),
            ("allow a dance", "is no right"),
            ("allow a level=64", "is no level"),
            ("allow a call=", "is no right"),
            ("allow a calls=0", "from 1 to 1024"),
            ("allow a bytes=1g", "from 1 to"),
            ("allow a\nallow a observe", "line 2: a second `allow`"),
            ("dance", "is unknown"),
        ] {
            let error = Config::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-z0-9=:.# \n]{0,80}") {
            let _ = Config::parse(&text);
        }
    }
}
