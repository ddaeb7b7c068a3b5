//! Seats of an object that root has loaded: events by BPF without privileges.
//!
//! ```text
//! /sys/fs/bpf/kumihimo/        root's, 0755
//!   program pages buffers owners   root's, 0600
//!   seats/USER/                root's, 0755
//!     SEAT/                    the user's, 0700; locked (flock) by the process that has taken it
//!       program page buffer    the user's, 0600
//! ```
//! A seat's number is its index in the outer maps. The lock goes with the process, however it ends.
//! Pins are gone after a reboot: install at every start (see `kumi events install`).

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use kumihimo_arch::descriptor::Descriptor;

use super::abi::MOST_SLOTS;
use super::file_lock::FileLock;
use super::load::{self, OWNER_NONE, OWNER_PRIVATE, Object, SeatMaps, check};
use super::object;
use super::sys::{self, errno};
use crate::report::unavailable::Unavailable;

/// The most seats there can be, of all users together.
pub const MOST_SEATS: u32 = 1024;
/// Slots of a seat where nothing else is asked for: 256 KiB of memory.
pub const DEFAULT_SLOTS: u32 = 1023;

/// Where an object is pinned.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) root: PathBuf,
}

/// A seat, taken.
pub(super) struct TakenSeat {
    pub(super) program: Descriptor,
    pub(super) maps: SeatMaps,
    pub(super) number: u32,
    pub(super) slots: u32,
    pub(super) lock: FileLock,
}

/// A user's number, from the number or the name.
///
/// # Errors
/// No such user.
pub fn user(text: &str) -> Result<u32, Unavailable> {
    let unknown = || {
        Unavailable::new(
            format!("no user {text:?}"),
            "the name or number of a user: see `getent passwd`",
        )
    };
    let number = match text.parse() {
        Ok(number) => number,
        Err(_) => named(text).ok_or_else(unknown)?,
    };
    if number < OWNER_PRIVATE { Ok(number) } else { Err(unknown()) }
}

fn named(text: &str) -> Option<u32> {
    let name = CString::new(text).ok()?;
    let mut buffer = vec![0; 16 << 10];
    // SAFETY: an all-zero passwd is valid: null pointers and zeros.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the name is terminated, the buffer's length is told; all live through the call.
    let done = unsafe {
        libc::getpwnam_r(name.as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found)
    };
    (done == 0 && !found.is_null()).then_some(entry.pw_uid)
}

pub(super) fn paranoid() -> String {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .map_or_else(|e| errno(&e), |text| text.trim().to_owned())
}

pub(super) fn this_user() -> u32 {
    // SAFETY: takes nothing, cannot fail. The real user: the program compares with that.
    unsafe { libc::getuid() }
}

/// A step on a path that failed.
fn failed(step: &str, path: &Path, error: &io::Error) -> Unavailable {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "root's rights: `sudo kumi events ...`",
        Some(libc::ENOENT) => "`sudo kumi events install`",
        Some(libc::ENODEV) => "a kernel with CONFIG_BPF_SYSCALL=y",
        _ => "`sudo kumi events uninstall`, then install again",
    };
    Unavailable::new(format!("{step} {}: {}", path.display(), errno(error)), remedy)
}

fn path_text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("paths here are made of names without a zero")
}

fn get(path: &Path) -> Result<Descriptor, Unavailable> {
    sys::pinned(&path_text(path)).map_err(|e| failed("opening", path, &e))
}

fn pin(object: &Descriptor, path: &Path) -> Result<(), Unavailable> {
    sys::pin(object.as_fd(), &path_text(path)).map_err(|e| failed("pinning", path, &e))
}

fn directory(path: &Path, mode: u32) -> Result<(), Unavailable> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(failed("making the directory", path, &error))
        }
        // The mode again: umask may have taken bits away.
        _ => fs::set_permissions(path, Permissions::from_mode(mode))
            .map_err(|e| failed("chmod of", path, &e)),
    }
}

fn open_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// Entries whose names are numbers, in their order. A directory that is not there has none.
pub(super) fn numbered(path: &Path) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

impl Store {
    /// The one of this machine: `/sys/fs/bpf/kumihimo`.
    pub fn system() -> Store {
        Store::at("/sys/fs/bpf/kumihimo")
    }

    /// Another one. `root`'s parent is a directory that is a bpffs, or that one may be mounted on.
    pub fn at(root: impl Into<PathBuf>) -> Store {
        Store { root: root.into() }
    }

    fn parent(&self) -> &Path {
        self.root.parent().expect("a store is not at /")
    }

    pub(super) fn seats_of(&self, user: u32) -> PathBuf {
        self.root.join("seats").join(user.to_string())
    }

    /// Whether the place is a bpffs.
    pub(super) fn mounted(&self) -> io::Result<bool> {
        const BPF_FS_MAGIC: i128 = 0xcafe_4a11;
        // SAFETY: an all-zero statfs is valid: integers.
        let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: the path is terminated; both live through the call.
        let done = unsafe { libc::statfs(path_text(self.parent()).as_ptr(), &mut stat) };
        if done < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(i128::from(stat.f_type) == BPF_FS_MAGIC)
        }
    }

    fn mount(&self, said: &mut Vec<String>) -> Result<(), Unavailable> {
        let parent = self.parent();
        if !self.mounted().map_err(|e| failed("statfs of", parent, &e))? {
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            // SAFETY: terminated strings that live through the call.
            let done = unsafe {
                libc::mount(
                    c"bpf".as_ptr(),
                    path_text(parent).as_ptr(),
                    c"bpf".as_ptr(),
                    flags,
                    c"mode=0711".as_ptr().cast(),
                )
            };
            if done < 0 {
                return Err(failed("mounting a bpffs on", parent, &io::Error::last_os_error()));
            }
            said.push(format!("mounted a bpffs on {}", parent.display()));
        }
        // systemd mounts it 0700. To pass through is enough; each pin has a mode of its own, 0600
        // unless someone changed it.
        let mode = fs::metadata(parent).map_err(|e| failed("stat of", parent, &e))?.mode() & 0o7777;
        if mode & 1 == 0 {
            fs::set_permissions(parent, Permissions::from_mode(mode | 0o011))
                .map_err(|e| failed("chmod of", parent, &e))?;
            said.push(format!(
                "{}: mode {mode:04o} -> {:04o}, so that users reach their seats",
                parent.display(),
                mode | 0o011
            ));
        }
        Ok(())
    }

    fn opened(&self) -> Result<Object, Unavailable> {
        let get = |name| get(&self.root.join(name));
        Ok(Object {
            program: get("program")?,
            pages: get("pages")?,
            buffers: get("buffers")?,
            owners: get("owners")?,
        })
    }

    /// Loads and pins the object, and makes seats for `user` until he has `seats`; idempotent. An
    /// object of another version, or with fewer `slots` than asked for (None: what there is, else
    /// [`DEFAULT_SLOTS`]), is replaced, all users' seats with it; processes that hold a seat of the
    /// old one keep it until they end. Without a `user`, only refreshes what is there. Mounts a
    /// bpffs where there is none.
    ///
    /// Returns what was done, line by line.
    ///
    /// # Errors
    /// Not root; what the kernel refuses.
    pub fn install(
        &self,
        user: Option<u32>,
        seats: u32,
        slots: Option<u32>,
    ) -> Result<Vec<String>, Unavailable> {
        // SAFETY: takes nothing, cannot fail.
        if unsafe { libc::geteuid() } != 0 || !sys::may_load() {
            return Err(Unavailable::new(
                "installing needs root",
                "`sudo kumi events install ...`",
            ));
        }
        check(slots.unwrap_or(DEFAULT_SLOTS))?;
        if user.is_none() && self.seats()?.is_empty() {
            let why = "nothing is installed yet, and no user is named";
            return Err(Unavailable::new(why, "`kumi events install --user NAME`"));
        }
        let mut said = Vec::new();
        self.mount(&mut said)?;
        directory(&self.root, 0o755)?;
        let lock = open_directory(&self.root).and_then(FileLock::wait_for);
        let _lock = lock.map_err(|e| failed("locking", &self.root, &e))?;

        let mut wanted = self.seats()?;
        if let Some(user) = user {
            let has = wanted.entry(user).or_default();
            *has = seats.max(*has);
        }
        let total: u32 = wanted.values().sum();
        if total > MOST_SEATS {
            return Err(Unavailable::new(
                format!("{total} seats, of {MOST_SEATS} at most"),
                "fewer --seats",
            ));
        }
        let has = self.slots();
        let (object, slots) = match self.current().zip(has) {
            Some((object, has)) if slots.unwrap_or(1) <= has => (object, has),
            _ => {
                let slots = slots.or(has).unwrap_or(DEFAULT_SLOTS);
                self.clear()?;
                let object = Object::load(MOST_SEATS, &SeatMaps::new(slots)?)?;
                let pins = [
                    ("pages", &object.pages),
                    ("buffers", &object.buffers),
                    ("owners", &object.owners),
                ];
                // The program last: with it, all the rest is there.
                for (name, object) in pins.into_iter().chain([("program", &object.program)]) {
                    pin(object, &self.root.join(name))?;
                }
                said.push(format!(
                    "loaded and pinned {} in {}, {slots} slots a seat",
                    object::FILTER.name,
                    self.root.display()
                ));
                (object, slots)
            }
        };
        directory(&self.root.join("seats"), 0o755)?;
        for (user, seats) in wanted {
            let made = self.fill(&object, user, seats, slots)?;
            said.push(format!("user {user}: {seats} seats, {made} of them new"));
        }
        said.push(
            "a reboot undoes this: run it again at every start (a systemd unit with Type=oneshot)"
                .to_owned(),
        );
        Ok(said)
    }

    /// The installed object, if it is this build's.
    fn current(&self) -> Option<Object> {
        let object = self.opened().ok()?;
        let name = sys::program_name(object.program.as_fd()).ok()?;
        (name == object::FILTER.name).then_some(object)
    }

    /// The slots of the installed seats. All have maps like the template's: the first whole one
    /// tells.
    fn slots(&self) -> Option<u32> {
        let users = numbered(&self.root.join("seats")).ok()?;
        let seats = users.into_iter().flat_map(|user| {
            let place = self.seats_of(user);
            numbered(&place)
                .unwrap_or_default()
                .into_iter()
                .map(move |seat| place.join(seat.to_string()))
        });
        seats
            .into_iter()
            .find_map(|seat| load::page_slots(get(&seat.join("page")).ok()?.as_fd()).ok())
    }

    /// How many seats each user has, unusable ones included.
    fn seats(&self) -> Result<BTreeMap<u32, u32>, Unavailable> {
        let of = |path: &Path| numbered(path).map_err(|e| failed("reading", path, &e));
        let mut all = BTreeMap::new();
        for user in of(&self.root.join("seats"))? {
            all.insert(user, of(&self.seats_of(user))?.len() as u32);
        }
        Ok(all)
    }

    fn fill(&self, object: &Object, user: u32, seats: u32, slots: u32) -> Result<u32, Unavailable> {
        let place = self.seats_of(user);
        directory(&place, 0o755)?;
        let mut whole = 0;
        for seat in numbered(&place).map_err(|e| failed("reading", &place, &e))? {
            let path = place.join(seat.to_string());
            // The directory is given away last, so the user's is complete; unless he has removed
            // something himself.
            let complete = fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir() && m.uid() == user)
                && ["program", "page", "buffer"]
                    .iter()
                    .all(|name| fs::symlink_metadata(path.join(name)).is_ok());
            if complete {
                whole += 1;
            } else {
                fs::remove_dir_all(&path).map_err(|e| failed("removing", &path, &e))?;
                if seat < MOST_SEATS {
                    sys::map_set(object.owners.as_fd(), seat, OWNER_NONE)
                        .map_err(|e| load::unavailable("emptying a seat", &e))?;
                }
            }
        }
        let mut free = 0..MOST_SEATS;
        for _ in whole..seats {
            let seat = loop {
                let Some(seat) = free.next() else {
                    return Err(Unavailable::new(
                        "no seat is free",
                        "`kumi events uninstall`, then install again with fewer",
                    ));
                };
                let owner = sys::map_get(object.owners.as_fd(), seat)
                    .map_err(|e| load::unavailable("reading an owner", &e))?;
                if owner == OWNER_NONE {
                    break seat;
                }
            };
            let maps = SeatMaps::new(slots)?;
            object.give(seat, &maps, user)?;
            let path = place.join(seat.to_string());
            directory(&path, 0o700)?;
            // Everything is made and given away while the directory is still root's: nothing can be
            // put in the way.
            for (name, object) in
                [("program", &object.program), ("page", &maps.page), ("buffer", &maps.buffer)]
            {
                let path = path.join(name);
                pin(object, &path)?;
                give_away(&path, user)?;
            }
            give_away(&path, user)?;
        }
        Ok(seats.saturating_sub(whole))
    }

    fn clear(&self) -> Result<(), Unavailable> {
        for name in ["program", "pages", "buffers", "owners", "seats"] {
            let path = self.root.join(name);
            // Neither follows symbolic links, which users can make in their seats.
            let done =
                if name == "seats" { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match done {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("removing", &path, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes all pins; false: there were none. Processes that hold a seat keep it until they end.
    /// A bpffs that `install` has mounted stays.
    ///
    /// # Errors
    /// Not root.
    pub fn uninstall(&self) -> Result<bool, Unavailable> {
        match fs::symlink_metadata(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed("stat of", &self.root, &error)),
            Ok(_) => {}
        }
        self.clear()?;
        fs::remove_dir(&self.root).map_err(|e| failed("removing", &self.root, &e))?;
        Ok(true)
    }

    /// The first free seat of this user.
    pub(super) fn take(&self, slots: u32) -> Result<TakenSeat, Unavailable> {
        let user = this_user();
        let place = self.seats_of(user);
        let seats = numbered(&place).map_err(|e| failed("reading", &place, &e))?;
        if seats.is_empty() {
            return Err(Unavailable::new(
                format!(
                    "no CAP_BPF and CAP_PERFMON, and no seat of user {user} in {}",
                    self.root.display()
                ),
                load::capabilities(),
            ));
        }
        let count = seats.len();
        for number in seats {
            let path = place.join(number.to_string());
            let file = open_directory(&path).map_err(|e| failed("opening the seat", &path, &e))?;
            let lock =
                FileLock::try_take(file).map_err(|e| failed("locking the seat", &path, &e))?;
            if let Some(lock) = lock {
                return TakenSeat::new(&path, number, slots, lock);
            }
        }
        Err(Unavailable::new(
            format!(
                "all {count} seats of user {user} are taken (`kumi events status` lists the holders)"
            ),
            format!("`sudo kumi events install --user {user} --seats {}`", count + 1),
        ))
    }
}

impl TakenSeat {
    fn new(path: &Path, number: u32, slots: u32, lock: FileLock) -> Result<TakenSeat, Unavailable> {
        let again = "`sudo kumi events install`, from this version's kumi";
        let program = get(&path.join("program"))?;
        let name = sys::program_name(program.as_fd()).map_err(|e| failed("asking", path, &e))?;
        if name != object::FILTER.name {
            return Err(Unavailable::new(
                format!("the installed program is {name}, this build's is {}", object::FILTER.name),
                again,
            ));
        }
        let maps = SeatMaps { page: get(&path.join("page"))?, buffer: get(&path.join("buffer"))? };
        let has = load::page_slots(maps.page.as_fd())
            .map_err(|e| failed("asking", &path.join("page"), &e))?;
        if has < slots || has > MOST_SLOTS {
            return Err(Unavailable::new(
                format!("the seats installed have {has} slots, {slots} are needed"),
                format!("`sudo kumi events install --slots {slots}`"),
            ));
        }
        Ok(TakenSeat { program, maps, number, slots: has, lock })
    }
}

/// To the user, for him alone.
fn give_away(path: &Path, user: u32) -> Result<(), Unavailable> {
    let mode = if path.is_dir() { 0o700 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(|e| failed("chmod of", path, &e))?;
    std::os::unix::fs::chown(path, Some(user), None).map_err(|e| failed("chown of", path, &e))
}
