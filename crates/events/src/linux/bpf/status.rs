//! What is installed, as text.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::pinned::{Store, numbered, paranoid, this_user};
use super::sys::{self, errno};
use super::{load, object};

/// One seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Whose.
    pub user: u32,
    /// Its index in the object.
    pub number: u32,
    /// The process that has taken it; None: free. As far as this process's /proc/locks shows.
    pub holder: Option<u32>,
}

/// What is installed, and what the machine allows. `Display` is the report.
#[derive(Clone, Debug)]
pub struct Status {
    /// Where it was looked for.
    pub place: String,
    /// Whether there is a bpffs, or what keeps us from knowing.
    pub mounted: Result<bool, String>,
    /// The installed program's name. None: nothing is installed. Err: it is, and cannot be looked
    /// at.
    pub program: Option<Result<String, String>>,
    /// This build's program.
    pub ours: &'static str,
    /// Highest slot of a seat, where one may be looked at.
    pub slots: Option<u32>,
    /// All seats that can be seen.
    pub seats: Vec<Seat>,
    /// kernel.perf_event_paranoid.
    pub paranoid: String,
    /// kernel.unprivileged_bpf_disabled.
    pub unprivileged: String,
    /// Whether the calling thread may load without an installed object.
    pub may_load: bool,
    /// The kernel's version.
    pub kernel: (u32, u32),
}

impl Status {
    /// Whether the installed program is this build's.
    pub fn matches(&self) -> bool {
        matches!(&self.program, Some(Ok(name)) if name == self.ours)
    }
}

impl Store {
    /// What is installed, and what the machine allows.
    pub fn status(&self) -> Status {
        status(self)
    }
}

fn status(store: &Store) -> Status {
    let mut seats = Vec::new();
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    for user in numbered(&store.root.join("seats")).unwrap_or_default() {
        let place = store.seats_of(user);
        for number in numbered(&place).unwrap_or_default() {
            seats.push(Seat {
                user,
                number,
                holder: holder(&place.join(number.to_string()), &locks),
            });
        }
    }
    // Root's pin for root, a seat's for its user.
    let mine = seats.iter().filter(|seat| seat.user == this_user() || sys::may_load());
    let mine: Vec<_> =
        mine.map(|seat| store.seats_of(seat.user).join(seat.number.to_string())).collect();
    let name = |path: &Path| {
        let name = sys::pinned(&text(path))
            .and_then(|fd| sys::program_name(std::os::fd::AsFd::as_fd(&fd)));
        name.map_err(|e| format!("{}: {}", path.display(), errno(&e)))
    };
    let places = [store.root.join("program")]
        .into_iter()
        .chain(mine.iter().map(|seat| seat.join("program")));
    let names: Vec<_> = places.map(|path| name(&path)).collect();
    let first = names.iter().find(|name| name.is_ok()).or(names.first()).cloned();
    let slots = mine.iter().find_map(|seat| {
        let page = sys::pinned(&text(&seat.join("page"))).ok()?;
        load::page_slots(std::os::fd::AsFd::as_fd(&page)).ok()
    });
    let setting =
        |path| fs::read_to_string(path).map_or_else(|e| errno(&e), |text| text.trim().to_owned());
    Status {
        place: store.root.display().to_string(),
        mounted: store.mounted().map_err(|e| errno(&e)),
        program: if fs::symlink_metadata(&store.root).is_ok() { first } else { None },
        ours: object::FILTER.name,
        slots,
        seats,
        paranoid: paranoid(),
        unprivileged: setting("/proc/sys/kernel/unprivileged_bpf_disabled"),
        may_load: sys::may_load(),
        kernel: sys::kernel(),
    }
}

fn text(path: &Path) -> std::ffi::CString {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// The process that has locked a directory, by /proc/locks: asking with a lock of our own could
/// make another process miss the seat.
fn holder(path: &Path, locks: &str) -> Option<u32> {
    let at = fs::symlink_metadata(path).ok()?;
    let place = format!("{:02x}:{:02x}:{}", libc::major(at.dev()), libc::minor(at.dev()), at.ino());
    locks.lines().find_map(|line| {
        // "1: FLOCK  ADVISORY  WRITE 4242 00:2a:5678 0 EOF"
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&place.as_str()))
            .then(|| words[4].parse().ok())?
    })
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mounted {
            Ok(true) => {}
            Ok(false) => {
                writeln!(f, "no bpffs is mounted above {}; install mounts one", self.place)?
            }
            Err(why) => writeln!(f, "cannot tell whether there is a bpffs: {why}")?,
        }
        match &self.program {
            None => writeln!(
                f,
                "nothing is installed in {}; to install: sudo kumi events install --user NAME",
                self.place
            )?,
            Some(Err(why)) => writeln!(f, "installed, but not to be looked at (root may): {why}")?,
            Some(Ok(name)) if name == self.ours => {
                writeln!(f, "installed in {}: {name}, this build's", self.place)?
            }
            Some(Ok(name)) => {
                writeln!(
                    f,
                    "installed in {}: {name}, but this build's is {}: install again",
                    self.place, self.ours
                )?;
            }
        }
        if let Some(slots) = self.slots {
            writeln!(f, "slots of a seat: {slots}")?;
        }
        for Seat { user, number, holder } in &self.seats {
            match holder {
                Some(process) => {
                    writeln!(f, "seat {number} of user {user}: taken by process {process}")?
                }
                None => writeln!(f, "seat {number} of user {user}: free")?,
            }
        }
        let traps = if self.kernel >= (6, 10) {
            "Blocked and Unblocked"
        } else {
            "Blocked only (Unblocked from 6.10 on)"
        };
        writeln!(f, "Linux {}.{}: {traps}", self.kernel.0, self.kernel.1)?;
        let enough = self.paranoid.parse::<i32>().is_ok_and(|value| value <= 1);
        let says = if enough {
            "enough for seats"
        } else {
            "seats need 1 or less: sysctl kernel.perf_event_paranoid=1"
        };
        writeln!(f, "kernel.perf_event_paranoid {}: {says}", self.paranoid)?;
        writeln!(
            f,
            "kernel.unprivileged_bpf_disabled {}: no matter for seats from Linux 6.0 on",
            self.unprivileged
        )?;
        let may = if self.may_load {
            "may load programs itself, and needs no seat"
        } else {
            "needs a seat"
        };
        write!(f, "this user {may}")
    }
}
