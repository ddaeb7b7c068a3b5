//! Files, directories, FIFOs and terminals.

use std::ffi::CString;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use kumihimo_io::fs::{self, DirBuilder, File, FileTimes, OpenOptions, TryLockError};
use kumihimo_runtime::thread;

use super::Env;

/// A directory of one's own, removed at the end.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new() -> Place {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "kumihimo-io-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        let c = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a string that ends in zero.
        assert_eq!(unsafe { libc::mkfifo(c.as_ptr(), 0o600) }, 0);
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

pub fn whole_files(_: Env) {
    let place = Place::new();
    let path = place.at("a");
    assert!(!fs::exists(&path).unwrap());
    fs::write(&path, "some text").unwrap();
    assert!(fs::exists(&path).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"some text");
    assert_eq!(fs::read_to_string(&path).unwrap(), "some text");
    fs::write(&path, b"\xff").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    // Larger than what is reserved at a time, and none at all.
    let large: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
    fs::write(&path, &large).unwrap();
    assert_eq!(fs::read(&path).unwrap(), large);
    fs::write(&path, "").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
    // No size, and something in it all the same.
    assert!(fs::read_to_string("/proc/self/status").unwrap().starts_with("Name:"));
}

pub fn reading_and_writing(_: Env) {
    let place = Place::new();
    let mut file = File::create_new(place.at("a")).unwrap();
    assert_eq!(File::create_new(place.at("a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    file.write_all(b"0123456789").unwrap();
    file.flush().unwrap();
    let mut buf = [0; 4];
    assert_eq!(file.read(&mut buf).unwrap(), 0, "at the end");
    assert_eq!(file.seek(SeekFrom::Start(2)).unwrap(), 2);
    file.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"2345");
    assert_eq!(file.stream_position().unwrap(), 6);
    // A read asks for no more than there is.
    let mut all = [0; 64];
    assert_eq!(file.read(&mut all).unwrap(), 4);
    assert_eq!(file.seek(SeekFrom::End(-1)).unwrap(), 9);
    assert_eq!(file.seek(SeekFrom::Current(-100)).unwrap_err().kind(), ErrorKind::InvalidInput);

    let (mut a, mut b) = ([0; 3], [0; 5]);
    file.rewind().unwrap();
    assert_eq!(
        file.read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]).unwrap(),
        8
    );
    assert_eq!((&a, &b), (b"012", b"34567"));
    assert_eq!(
        file.write_vectored(&[IoSlice::new(b"x"), IoSlice::new(b""), IoSlice::new(b"yz")]).unwrap(),
        3
    );
    file.rewind().unwrap();
    let mut text = String::from("> ");
    assert_eq!(file.read_to_string(&mut text).unwrap(), 11);
    assert_eq!(text, "> 01234567xyz");
    let mut more = b"<".to_vec();
    file.seek(SeekFrom::Start(9)).unwrap();
    assert_eq!(file.read_to_end(&mut more).unwrap(), 2);
    assert_eq!(more, b"<yz");

    // Closed for the one or the other.
    assert!(File::open(place.at("a")).unwrap().write(b"x").is_err());
    assert!(File::create(place.at("a")).unwrap().read(&mut buf).is_err());
    assert_eq!(fs::metadata(place.at("a")).unwrap().len(), 0, "create empties it");
}

pub fn at_offsets(_: Env) {
    let place = Place::new();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(place.at("a"))
        .unwrap();
    file.write_all_at(b"abcdef", 4).unwrap();
    let mut buf = [0; 3];
    file.read_exact_at(&mut buf, 5).unwrap();
    assert_eq!(&buf, b"bcd");
    assert_eq!((&file).stream_position().unwrap(), 0, "the position stays");
    assert_eq!(file.read_at(&mut buf, 100).unwrap(), 0);
    assert_eq!(file.read_exact_at(&mut buf, 9).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(file.read_at(&mut buf, u64::MAX).unwrap_err().kind(), ErrorKind::InvalidInput);
    file.set_len(6).unwrap();
    assert_eq!(fs::read(place.at("a")).unwrap(), b"\0\0\0\0ab");
}

pub fn clones_share_the_position(env: Env) {
    let place = Place::new();
    fs::write(place.at("a"), "abcdef").unwrap();
    let mut file = File::open(place.at("a")).unwrap();
    let mut clone = file.try_clone().unwrap();
    let mut buf = [0; 2];
    file.read_exact(&mut buf).unwrap();
    let other = env.spawn(move || {
        let mut buf = [0; 2];
        clone.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"cd");
    });
    other();
    file.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"ef");
}

pub fn options(_: Env) {
    let place = Place::new();
    let path = place.at("a");
    let contradiction = OpenOptions::new().truncate(true).append(true).open(&path);
    assert_eq!(contradiction.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(OpenOptions::new().open(&path).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(File::open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(File::open("with\0nul").unwrap_err().kind(), ErrorKind::InvalidInput);
    let mut file = File::options().append(true).create(true).mode(0o640).open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    file.write_all(b"ab").unwrap();
    file.rewind().unwrap();
    file.write_all(b"cd").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"abcd");
    let link = place.at("link");
    fs::unix::symlink("a", &link).unwrap();
    let refused = File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(&link);
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ELOOP));
    // SAFETY: F_GETFD takes no pointer.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
}

pub fn attributes(_: Env) {
    let place = Place::new();
    let path = place.at("a");
    let file = File::create(&path).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o400)).unwrap();
    assert!(fs::metadata(&path).unwrap().permissions().readonly());
    fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_times(FileTimes::new().set_accessed(then).set_modified(then)).unwrap();
    assert_eq!(file.metadata().unwrap().accessed().unwrap(), then);
    let later = then + Duration::from_secs(1);
    file.set_modified(later).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), later);
    // To oneself is always allowed.
    let (uid, gid) = (file.metadata().unwrap().uid(), file.metadata().unwrap().gid());
    fs::unix::chown(&path, Some(uid), Some(gid)).unwrap();
    fs::unix::fchown(&file, Some(uid), None).unwrap();
    fs::unix::lchown(&path, None, Some(gid)).unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
}

pub fn names(_: Env) {
    let place = Place::new();
    let (a, b, link) = (place.at("a"), place.at("b"), place.at("link"));
    fs::write(&a, "x").unwrap();
    fs::hard_link(&a, &b).unwrap();
    assert_eq!(fs::metadata(&a).unwrap().nlink(), 2);
    fs::remove_file(&a).unwrap();
    assert_eq!(fs::remove_file(&a).unwrap_err().kind(), ErrorKind::NotFound);
    fs::unix::symlink("b", &link).unwrap();
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("b"));
    assert_eq!(fs::read_link(&b).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::metadata(&link).unwrap().is_file());
    assert_eq!(fs::canonicalize(&link).unwrap(), fs::canonicalize(&b).unwrap());
    fs::rename(&b, &a).unwrap();
    assert!(!fs::exists(&link).unwrap(), "broken");
    assert_eq!(fs::read(&a).unwrap(), b"x");
}

pub fn directories(_: Env) {
    let place = Place::new();
    let deep = place.at("x").join("y").join("z");
    assert_eq!(fs::create_dir(&deep).unwrap_err().kind(), ErrorKind::NotFound);
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir_all(&deep).unwrap();
    assert_eq!(fs::create_dir(&deep).unwrap_err().kind(), ErrorKind::AlreadyExists);
    DirBuilder::new().mode(0o700).create(place.at("own")).unwrap();
    assert_eq!(fs::metadata(place.at("own")).unwrap().permissions().mode() & 0o777, 0o700);
    // More than are fetched at a time.
    for n in 0..300 {
        fs::write(deep.join(n.to_string()), "").unwrap();
    }
    let mut found: Vec<u32> = Vec::new();
    for entry in fs::read_dir(&deep).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.file_type().unwrap().is_file());
        assert_eq!(entry.path(), deep.join(entry.file_name()));
        assert_eq!(entry.metadata().unwrap().ino(), entry.ino());
        found.push(entry.file_name().to_str().unwrap().parse().unwrap());
    }
    found.sort_unstable();
    assert!(found.into_iter().eq(0..300));
    assert_eq!(fs::read_dir(deep.join("0")).unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(fs::remove_dir(&deep).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(
        File::open(&deep).unwrap().read(&mut [0]).unwrap_err().kind(),
        ErrorKind::IsADirectory
    );
    fs::remove_dir_all(place.at("x")).unwrap();
    fs::remove_dir(place.at("own")).unwrap();
    assert_eq!(fs::read_dir(&place.0).unwrap().count(), 0);
}

pub fn copies(_: Env) {
    let place = Place::new();
    let (a, b) = (place.at("a"), place.at("b"));
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(&a, &bytes).unwrap();
    fs::set_permissions(&a, std::fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(&b, vec![7; 2_000_000]).unwrap();
    assert_eq!(fs::copy(&a, &b).unwrap(), 1_000_000);
    assert_eq!(fs::read(&b).unwrap(), bytes);
    assert_eq!(fs::metadata(&b).unwrap().mode() & 0o777, 0o640);
    fs::write(&a, "").unwrap();
    assert_eq!(fs::copy(&a, &b).unwrap(), 0);
    // The kernel says that it has no size.
    assert!(fs::copy("/proc/self/status", &b).unwrap() > 0);
    assert!(fs::read_to_string(&b).unwrap().starts_with("Name:"));
    assert_eq!(fs::copy(&place.0, &b).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(fs::copy(place.at("none"), &b).unwrap_err().kind(), ErrorKind::NotFound);
}

/// ENOSPC, EIO and others come through as they are.
pub fn errors_of_the_device(_: Env) {
    let place = Place::new();
    let mut full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
    assert_eq!(full.write(b"x").unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(full.read(&mut [1; 8]).unwrap(), 8);
    assert_eq!(fs::write("/dev/full", "x").unwrap_err().kind(), ErrorKind::StorageFull);
    fs::write(place.at("a"), "x").unwrap();
    assert_eq!(fs::copy(place.at("a"), "/dev/full").unwrap_err().kind(), ErrorKind::StorageFull);
    // Nothing is mapped at address 0.
    let mut memory = File::open("/proc/self/mem").unwrap();
    assert_eq!(memory.read(&mut [0; 8]).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(memory.read_at(&mut [0; 8], 0).unwrap_err().raw_os_error(), Some(libc::EIO));
}

/// A write that does not fit any more is short, the next one an error; what is there stays.
pub fn a_full_disk(_: Env) {
    let place = Place::new();
    let disk = place.at("disk");
    std::fs::create_dir(&disk).unwrap();
    let target = CString::new(disk.as_os_str().as_bytes()).unwrap();
    // SAFETY: strings that end in zero.
    let mounted = unsafe {
        libc::mount(
            c"tmpfs".as_ptr(),
            target.as_ptr(),
            c"tmpfs".as_ptr(),
            0,
            c"size=64k".as_ptr().cast(),
        )
    };
    if mounted != 0 {
        // As `kumihimo_tests::skip` says it; /dev/full is tested everywhere.
        let line = b"\n[skip] a_full_disk: only root may mount a small one\n";
        return std::io::stderr().write_all(line).unwrap();
    }
    let outcome = std::panic::catch_unwind(|| {
        let mut file = File::create(disk.join("a")).unwrap();
        assert_eq!(file.write(&[1; 100_000]).unwrap(), 65_536);
        assert_eq!(file.write(&[1; 10]).unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(fs::metadata(disk.join("a")).unwrap().len(), 65_536);
        drop(file);
        assert_eq!(
            fs::copy(disk.join("a"), disk.join("b")).unwrap_err().kind(),
            ErrorKind::StorageFull
        );
        // Emptied first: a child process that another test is about to start may still have the
        // file open.
        File::create(disk.join("a")).unwrap();
        fs::remove_file(disk.join("a")).unwrap();
        fs::write(disk.join("b"), [2; 65_536]).unwrap();
    });
    // SAFETY: as above.
    assert_eq!(unsafe { libc::umount(target.as_ptr()) }, 0);
    outcome.unwrap();
}

pub fn locks(env: Env) {
    let place = Place::new();
    let path = place.at("a");
    let first = File::create(&path).unwrap();
    let second = File::open(&path).unwrap();
    first.lock_shared().unwrap();
    second.try_lock_shared().unwrap();
    assert!(matches!(first.try_lock(), Err(TryLockError::WouldBlock)));
    second.unlock().unwrap();
    first.lock().unwrap();
    assert!(matches!(second.try_lock_shared(), Err(TryLockError::WouldBlock)));
    let waits = env.spawn(move || {
        second.lock().unwrap();
        second.unlock().unwrap();
    });
    thread::yield_now();
    first.unlock().unwrap();
    waits();
}

pub fn conversions(_: Env) {
    let place = Place::new();
    let file = File::create(place.at("a")).unwrap();
    let number = file.as_raw_fd();
    let std = std::fs::File::from(file);
    let shown = format!("{std:?}");
    let file = File::from(std);
    assert_eq!(format!("{file:?}"), shown);
    let owned = OwnedFd::from(file);
    let raw = File::from(owned).into_raw_fd();
    assert_eq!(raw, number);
    // SAFETY: just taken out.
    let mut file = unsafe { File::from_raw_fd(raw) };
    file.write_all(b"x").unwrap();
    assert!(!file.is_terminal());
    assert_eq!(fs::read(place.at("a")).unwrap(), b"x");
}

/// A FIFO's read waits for a writer's bytes, and ends when all writers are gone.
pub fn fifos(env: Env) {
    let place = Place::new();
    let path = place.fifo("f");
    let at = path.clone();
    assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
    let writer = env.spawn(move || {
        let mut writer = OpenOptions::new().write(true).open(at).unwrap();
        for n in 0..100u8 {
            writer.write_all(&[n; 10]).unwrap();
            thread::yield_now();
        }
    });
    let mut all = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut all).unwrap();
    writer();
    assert!(
        all.chunks(10).enumerate().all(|(n, bytes)| bytes == [n as u8; 10]) && all.len() == 1000
    );
}

/// More than fits goes in parts, and the writer waits in between.
pub fn a_full_fifo(env: Env) {
    let place = Place::new();
    let path = place.fifo("f");
    let mut both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut reader = File::open(&path).unwrap();
    let reads = env.spawn(move || {
        let mut all = vec![0; 500_000];
        reader.read_exact(&mut all).unwrap();
        assert!(all.iter().enumerate().all(|(n, byte)| *byte == (n % 251) as u8));
    });
    let bytes: Vec<u8> = (0..500_000u32).map(|n| (n % 251) as u8).collect();
    both.write_all(&bytes).unwrap();
    reads();
}

/// `O_NONBLOCK` asked for by the user is obeyed.
pub fn a_nonblocking_fifo(_: Env) {
    let place = Place::new();
    let path = place.fifo("f");
    let mut both = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)
        .unwrap();
    assert_eq!(both.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut written = 0;
    let full = loop {
        match both.write(&[1; 8192]) {
            Ok(n) => written += n,
            Err(e) => break e,
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    assert_eq!(written, 65_536);
    assert_eq!(both.read(&mut vec![0; 100_000]).unwrap(), written);
}

pub fn a_deadline_ends_a_wait(_: Env) {
    let place = Place::new();
    let path = place.fifo("f");
    let mut both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    thread::scope_until(Instant::now() + Duration::from_millis(5), |_| {
        assert_eq!(both.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::TimedOut);
    });
    both.write_all(b"still").unwrap();
    let mut buf = [0; 8];
    assert_eq!(both.read(&mut buf).unwrap(), 5);
}

/// A terminal is waited for, gives lines, and is told from what is none.
pub fn a_terminal(env: Env) {
    let (mut ours, mut theirs) = terminal();
    assert!(theirs.is_terminal());
    // Gone only when all is read.
    let _keyboard = ours.try_clone().unwrap();
    let types = env.spawn(move || {
        thread::yield_now();
        ours.write_all(b"first\n").unwrap();
        ours.write_all(b"second\n").unwrap();
        let mut echo = [0; 64];
        assert!(ours.read(&mut echo).unwrap() > 0);
    });
    let mut line = [0; 64];
    let n = theirs.read(&mut line).unwrap();
    assert_eq!(&line[..n], b"first\n");
    let n = theirs.read(&mut line).unwrap();
    assert_eq!(&line[..n], b"second\n");
    types();
}

pub fn terminal() -> (File, File) {
    let (mut ours, mut theirs) = (0, 0);
    let null = std::ptr::null_mut();
    // SAFETY: room for two descriptors; neither name nor settings.
    assert_eq!(unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()) }, 0);
    // SAFETY: fresh, owned by nobody else.
    unsafe { (File::from_raw_fd(ours), File::from_raw_fd(theirs)) }
}
