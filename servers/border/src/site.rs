//! `kumi border init` and `add`: an authority and certificates for a small site.
//!
//! A folder with the certificates of a machine, its key and its configuration is all that a border
//! needs. The first machine's folder also has the key of the authority.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use kumihimo_machine::border::name::check_name;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::config::{Config, FILE, check_place, files};
use crate::tls::Tls;

/// Name of the authority, by which its certificates refer to it.
const AUTHORITY: &str = "Kumihimo border authority";
/// Key of the authority.
const AUTHORITY_KEY: &str = "ca.key";

/// A machine on the command line: `build7=10.0.0.7:7643`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    name: String,
    place: String,
}

impl std::str::FromStr for Member {
    type Err = String;

    fn from_str(text: &str) -> Result<Member, String> {
        let (name, place) = text.split_once('=').ok_or_else(|| {
            format!("{text:?} is no machine: expected NAME=HOST:PORT, such as build7=10.0.0.7:7643")
        })?;
        check_name(name).map_err(|e| e.to_string())?;
        check_place(place)?;
        Ok(Member { name: name.to_owned(), place: place.to_owned() })
    }
}

/// Makes an authority, the folder of this machine, and beside it a folder for each other one.
/// Returns the lines that join these.
///
/// # Errors
/// A line about what exists already or cannot be written.
pub fn init(folder: &Path, own: &Member, others: &[Member]) -> Result<String, String> {
    let all: Vec<&Member> = std::iter::once(own).chain(others).collect();
    check_distinct(&all)?;
    if folder.join("ca.pem").exists() {
        return Err(format!(
            "{}: there is an authority already: `kumi border add` adds machines",
            folder.display()
        ));
    }
    let key = KeyPair::generate().map_err(|e| e.to_string())?;
    let params = authority()?;
    let authority = params.self_signed(&key).map_err(|e| e.to_string())?.pem();
    make_folder(folder)?;
    write(&folder.join(AUTHORITY_KEY), &key.serialize_pem(), true)?;
    write(&folder.join("ca.pem"), &authority, false)?;
    let issuer = Issuer::new(params, key);
    let mut lines = String::new();
    for member in &all {
        let own = member.name == own.name;
        let at = if own { folder.to_owned() } else { beside(folder, &member.name)? };
        if !own {
            make_folder(&at)?;
            write(&at.join("ca.pem"), &authority, false)?;
        }
        certify(&issuer, &at, &member.name)?;
        write(&at.join(FILE), &configuration(member, &all), false)?;
        if !own {
            lines += &join_lines(&at, member);
        }
    }
    Tls::load(&files(folder))?;
    Ok(lines)
}

/// Adds a machine to the site whose authority is in `folder`. Returns the lines that join it.
///
/// # Errors
/// A line about what exists already or cannot be read or written.
pub fn add(folder: &Path, member: &Member) -> Result<String, String> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let (authority_pem, key) = (read("ca.pem")?, read(AUTHORITY_KEY)?);
    let key = KeyPair::from_pem(&key)
        .map_err(|e| format!("{}: {e}", folder.join(AUTHORITY_KEY).display()))?;
    let config = Config::read(folder)?;
    let tls = Tls::load(&files(folder))?;
    let own = tls.own().machine().unwrap_or_default().to_owned();
    if own == member.name || config.peers.iter().any(|peer| peer.name == member.name) {
        return Err(format!("this site has a machine named {} already", member.name));
    }
    let at = beside(folder, &member.name)?;
    make_folder(&at)?;
    write(&at.join("ca.pem"), &authority_pem, false)?;
    certify(&Issuer::new(authority()?, key), &at, &member.name)?;
    // An authority that another program made has another name.
    Tls::load(&files(&at))?;
    let mut text = format!("listen 0.0.0.0:{}\n", port(member));
    if let Some(listen) = config.listen {
        text += &format!("peer {own} {own}:{}\nallow {own} observe steer\n", listen.port());
    }
    for peer in &config.peers {
        text += &format!("peer {} {}\nallow {0} observe steer\n", peer.name, peer.place);
    }
    write(&at.join(FILE), &text, false)?;
    let path = folder.join(FILE);
    let line = format!("peer {} {}\nallow {0} observe steer\n", member.name, member.place);
    OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(join_lines(&at, member))
}

fn check_distinct(all: &[&Member]) -> Result<(), String> {
    for (nth, member) in all.iter().enumerate() {
        if all[..nth].iter().any(|other| other.name == member.name) {
            return Err(format!("two machines named {}", member.name));
        }
    }
    Ok(())
}

fn join_lines(at: &Path, member: &Member) -> String {
    let host = member.place.rsplit_once(':').map_or(&*member.place, |(host, _)| host);
    format!("scp -pr {} {host}:.config/kumihimo/border\nssh {host} kumi border\n", at.display())
}

fn port(member: &Member) -> &str {
    member.place.rsplit_once(':').map_or("", |(_, port)| port)
}

fn configuration(member: &Member, all: &[&Member]) -> String {
    let mut text = format!("listen 0.0.0.0:{}\n", port(member));
    for other in all.iter().filter(|other| other.name != member.name) {
        text += &format!("peer {} {}\nallow {0} observe steer\n", other.name, other.place);
    }
    text
}

fn authority() -> Result<CertificateParams, String> {
    let mut params = CertificateParams::new(Vec::new()).map_err(|e| e.to_string())?;
    params.distinguished_name.push(DnType::CommonName, AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid(&mut params);
    Ok(params)
}

/// Sets the dates. Certificates of a small site are replaced by hand, so they last some years, and
/// begin before the clock of any machine.
fn valid(params: &mut CertificateParams) {
    const YEARS: i32 = 10;
    const SECONDS_A_YEAR: u64 = 31_556_952;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let year = 1970 + i32::try_from(now / SECONDS_A_YEAR).unwrap_or(0);
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + YEARS, 1, 1);
}

fn certify(issuer: &Issuer<'_, KeyPair>, at: &Path, name: &str) -> Result<(), String> {
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(|e| e.to_string())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    valid(&mut params);
    let key = KeyPair::generate().map_err(|e| e.to_string())?;
    let certificate = params.signed_by(&key, issuer).map_err(|e| e.to_string())?;
    write(&at.join("border.pem"), &certificate.pem(), false)?;
    write(&at.join("border.key"), &key.serialize_pem(), true)
}

fn beside(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let last = folder.file_name().and_then(|last| last.to_str());
    let last = last.ok_or_else(|| format!("{}: it has no name", folder.display()))?;
    Ok(folder.with_file_name(format!("{last}-{name}")))
}

fn make_folder(at: &Path) -> Result<(), String> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(at)
        .map_err(|e| format!("{}: {e}", at.display()))
}

/// Writes a new file. An existing one is never replaced.
fn write(path: &Path, text: &str, is_secret: bool) -> Result<(), String> {
    let mode = if is_secret { 0o600 } else { 0o644 };
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| format!("{}: {e}", path.display()))
}
