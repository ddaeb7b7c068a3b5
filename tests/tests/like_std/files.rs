//! Files.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use kumihimo::fs::{self, File, FileTimes, OpenOptions, Permissions, TryLockError};

use crate::Beside;
use crate::beside::behaviours;
use crate::place::Place;

behaviours!(
    what_is_written_is_read,
    missing_file_is_not_found,
    create_truncates,
    create_new_refuses_an_existing_file,
    append_writes_at_the_end,
    append_is_atomic_between_writers,
    truncate_empties,
    contradicting_options_are_invalid,
    reading_a_written_only_file_fails,
    writing_a_read_only_file_fails,
    mode_applies_to_a_new_file,
    seeks_from_each_origin,
    seek_before_the_start_is_invalid,
    write_behind_the_end_leaves_zeros,
    positioned_access_keeps_the_position,
    positioned_read_needs_all_bytes,
    vectored_access,
    set_len_cuts_and_extends,
    clone_shares_the_position,
    metadata_describes_a_file,
    permissions_change,
    times_change,
    file_lock_excludes,
    shared_locks_share,
    lock_ends_with_its_file,
    lock_waits_for_its_holder,
    whole_files_are_read_and_written,
    text_has_to_be_utf8,
    copy_copies_contents_and_permissions,
    copy_of_a_directory_is_invalid,
    copy_replaces_a_longer_file,
    path_with_a_zero_byte_is_invalid,
    removed_file_stays_readable,
    synced_file_has_its_bytes,
    file_formats_with_its_path,
);

fn what_is_written_is_read(beside: Beside) {
    let place = Place::new();
    let path = place.at("a");
    File::create(&path).unwrap().write_all(b"some bytes").unwrap();
    let read = beside.spawn(move || {
        let mut text = String::new();
        File::open(path).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!(read.result(), "some bytes");
}

fn missing_file_is_not_found(_: Beside) {
    let place = Place::new();
    let missing = place.at("none");
    assert_eq!(File::open(&missing).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::metadata(&missing).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::remove_file(&missing).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!fs::exists(&missing).unwrap());
}

fn create_truncates(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "long text").unwrap();
    File::create(place.at("a")).unwrap().write_all(b"x").unwrap();
    assert_eq!(fs::read(place.at("a")).unwrap(), b"x");
}

fn create_new_refuses_an_existing_file(_: Beside) {
    let place = Place::new();
    drop(File::create_new(place.at("a")).unwrap());
    assert_eq!(File::create_new(place.at("a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
}

fn append_writes_at_the_end(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "12").unwrap();
    let mut file = OpenOptions::new().append(true).read(true).open(place.at("a")).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(b"3").unwrap();
    assert_eq!(file.stream_position().unwrap(), 3);
    assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "123");
}

fn append_is_atomic_between_writers(beside: Beside) {
    let place = Place::new();
    let path = place.at("a");
    let writers: Vec<_> = (b'a'..b'e')
        .map(|letter| {
            let path = path.clone();
            beside.spawn(move || {
                let mut options = OpenOptions::new();
                let mut file = options.append(true).create(true).open(path).unwrap();
                (0..50).for_each(|_| file.write_all(&[letter; 20]).unwrap());
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.result());
    let all = fs::read(&path).unwrap();
    assert_eq!(all.len(), 4 * 50 * 20);
    assert!(all.chunks(20).all(|chunk| chunk.iter().all(|&byte| byte == chunk[0])));
}

fn truncate_empties(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "12").unwrap();
    drop(OpenOptions::new().write(true).truncate(true).open(place.at("a")).unwrap());
    assert_eq!(fs::metadata(place.at("a")).unwrap().len(), 0);
}

fn contradicting_options_are_invalid(_: Beside) {
    let place = Place::new();
    let refused = |options: &mut OpenOptions| options.open(place.at("a")).unwrap_err().kind();
    assert_eq!(refused(&mut OpenOptions::new()), ErrorKind::InvalidInput);
    assert_eq!(refused(OpenOptions::new().read(true).create(true)), ErrorKind::InvalidInput);
    assert_eq!(refused(OpenOptions::new().read(true).truncate(true)), ErrorKind::InvalidInput);
    assert_eq!(
        refused(OpenOptions::new().append(true).truncate(true).create(true)),
        ErrorKind::InvalidInput
    );
    assert!(!fs::exists(place.at("a")).unwrap(), "nothing was created");
}

fn reading_a_written_only_file_fails(_: Beside) {
    let place = Place::new();
    let mut file = File::create(place.at("a")).unwrap();
    assert_eq!(file.read(&mut [0]).unwrap_err().raw_os_error(), Some(libc::EBADF));
}

fn writing_a_read_only_file_fails(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "1").unwrap();
    let mut file = File::open(place.at("a")).unwrap();
    assert_eq!(file.write(b"x").unwrap_err().raw_os_error(), Some(libc::EBADF));
    assert!(file.set_len(0).is_err());
}

fn mode_applies_to_a_new_file(_: Beside) {
    let place = Place::new();
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).mode(0o600).open(place.at("a")).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

fn seeks_from_each_origin(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "0123456789").unwrap();
    let mut file = File::open(place.at("a")).unwrap();
    let mut byte_at = |to| {
        let (at, mut byte) = (file.seek(to).unwrap(), [0]);
        file.read_exact(&mut byte).unwrap();
        (at, byte[0])
    };
    assert_eq!(byte_at(SeekFrom::Start(4)), (4, b'4'));
    assert_eq!(byte_at(SeekFrom::Current(-2)), (3, b'3'));
    assert_eq!(byte_at(SeekFrom::End(-1)), (9, b'9'));
    file.rewind().unwrap();
    assert_eq!(file.stream_position().unwrap(), 0);
}

fn seek_before_the_start_is_invalid(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "0123").unwrap();
    let mut file = File::open(place.at("a")).unwrap();
    assert_eq!(file.seek(SeekFrom::End(-5)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(file.stream_position().unwrap(), 0);
}

fn write_behind_the_end_leaves_zeros(_: Beside) {
    let place = Place::new();
    let mut file = File::create(place.at("a")).unwrap();
    file.seek(SeekFrom::Start(3)).unwrap();
    file.write_all(b"x").unwrap();
    assert_eq!(fs::read(place.at("a")).unwrap(), b"\0\0\0x");
}

fn positioned_access_keeps_the_position(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "0123456789").unwrap();
    let mut file = OpenOptions::new().read(true).write(true).open(place.at("a")).unwrap();
    let mut two = [0; 2];
    assert_eq!(file.read_at(&mut two, 5).unwrap(), 2);
    assert_eq!(file.write_at(b"xy", 7).unwrap(), 2);
    assert_eq!((&two, file.stream_position().unwrap()), (b"56", 0));
    file.read_exact(&mut two).unwrap();
    assert_eq!(&two, b"01");
    assert_eq!(fs::read(place.at("a")).unwrap(), b"0123456xy9");
}

fn positioned_read_needs_all_bytes(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "0123").unwrap();
    let file = File::open(place.at("a")).unwrap();
    let mut three = [0; 3];
    assert_eq!(file.read_at(&mut three, 2).unwrap(), 2);
    let short = file.read_exact_at(&mut three, 2).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
    file.read_exact_at(&mut three, 1).unwrap();
    assert_eq!(&three, b"123");
}

fn vectored_access(_: Beside) {
    let place = Place::new();
    let mut file = File::create_new(place.at("a")).unwrap();
    assert_eq!(file.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"c")]).unwrap(), 3);
    let (mut one, mut two) = ([0; 1], [0; 5]);
    let mut parts = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
    assert_eq!(File::open(place.at("a")).unwrap().read_vectored(&mut parts).unwrap(), 3);
    assert_eq!((&one, &two), (b"a", b"bc\0\0\0"));
}

fn set_len_cuts_and_extends(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "0123").unwrap();
    let mut file = OpenOptions::new().write(true).open(place.at("a")).unwrap();
    file.seek(SeekFrom::Start(3)).unwrap();
    file.set_len(2).unwrap();
    file.set_len(4).unwrap();
    assert_eq!(file.stream_position().unwrap(), 3, "the position stays");
    assert_eq!(fs::read(place.at("a")).unwrap(), b"01\0\0");
}

fn clone_shares_the_position(beside: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "0123").unwrap();
    let mut file = File::open(place.at("a")).unwrap();
    let mut clone = file.try_clone().unwrap();
    beside.spawn(move || clone.read_exact(&mut [0; 2]).unwrap()).result();
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "23");
}

fn metadata_describes_a_file(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "0123").unwrap();
    let of_path = fs::metadata(place.at("a")).unwrap();
    let of_file = File::open(place.at("a")).unwrap().metadata().unwrap();
    assert!(of_path.is_file() && !of_path.is_dir() && !of_path.is_symlink());
    assert_eq!((of_path.len(), of_path.ino()), (4, of_file.ino()));
    assert!(fs::metadata(place.path()).unwrap().is_dir());
}

fn permissions_change(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "").unwrap();
    let mode = || fs::metadata(place.at("a")).unwrap().permissions();
    fs::set_permissions(place.at("a"), Permissions::from_mode(0o444)).unwrap();
    assert!(mode().readonly());
    File::open(place.at("a")).unwrap().set_permissions(Permissions::from_mode(0o640)).unwrap();
    assert!(mode().mode() & 0o777 == 0o640 && !mode().readonly());
}

fn times_change(_: Beside) {
    let place = Place::new();
    let file = File::create(place.at("a")).unwrap();
    let (day, hour) = (Duration::from_secs(86_400), Duration::from_secs(3600));
    let (accessed, modified) = (SystemTime::UNIX_EPOCH + day, SystemTime::UNIX_EPOCH + hour);
    file.set_times(FileTimes::new().set_accessed(accessed).set_modified(modified)).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.accessed().unwrap(), metadata.modified().unwrap()), (accessed, modified));
    file.set_modified(accessed).unwrap();
    assert_eq!(file.metadata().unwrap().modified().unwrap(), accessed);
}

fn two_handles(place: &Place) -> (File, File) {
    (File::create(place.at("lock")).unwrap(), File::open(place.at("lock")).unwrap())
}

fn file_lock_excludes(beside: Beside) {
    let place = Place::new();
    let (one, other) = two_handles(&place);
    one.lock().unwrap();
    let refused = beside.spawn(move || {
        let exclusive = matches!(other.try_lock(), Err(TryLockError::WouldBlock));
        let shared = matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock));
        (exclusive && shared, other)
    });
    let (refused, other) = refused.result();
    assert!(refused);
    one.unlock().unwrap();
    other.try_lock().unwrap();
}

fn shared_locks_share(_: Beside) {
    let place = Place::new();
    let (one, other) = two_handles(&place);
    one.lock_shared().unwrap();
    other.lock_shared().unwrap();
    assert!(matches!(one.try_lock(), Err(TryLockError::WouldBlock)));
    other.unlock().unwrap();
    one.try_lock().expect("a shared lock becomes exclusive");
}

fn lock_ends_with_its_file(_: Beside) {
    let place = Place::new();
    let (one, other) = two_handles(&place);
    one.lock().unwrap();
    drop(one);
    other.try_lock().unwrap();
}

fn lock_waits_for_its_holder(beside: Beside) {
    let place = Place::new();
    let (one, other) = two_handles(&place);
    one.lock().unwrap();
    let waits = beside.spawn(move || other.lock());
    one.unlock().unwrap();
    waits.result().unwrap();
}

fn whole_files_are_read_and_written(beside: Beside) {
    let place = Place::new();
    let all: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
    let (path, bytes) = (place.at("a"), all.clone());
    beside.spawn(move || fs::write(path, bytes).unwrap()).result();
    assert!(fs::read(place.at("a")).unwrap() == all);
    fs::write(place.at("a"), "short").unwrap();
    assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "short");
}

fn text_has_to_be_utf8(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), b"ok\xff").unwrap();
    assert_eq!(fs::read_to_string(place.at("a")).unwrap_err().kind(), ErrorKind::InvalidData);
    let mut text = String::from("kept");
    let mut file = File::open(place.at("a")).unwrap();
    assert_eq!(file.read_to_string(&mut text).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(text, "kept");
}

fn copy_copies_contents_and_permissions(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "four").unwrap();
    fs::set_permissions(place.at("a"), Permissions::from_mode(0o604)).unwrap();
    assert_eq!(fs::copy(place.at("a"), place.at("b")).unwrap(), 4);
    assert_eq!(fs::read(place.at("b")).unwrap(), b"four");
    assert_eq!(fs::metadata(place.at("b")).unwrap().permissions().mode() & 0o777, 0o604);
}

fn copy_of_a_directory_is_invalid(_: Beside) {
    let place = Place::new();
    let refused = fs::copy(place.path(), place.at("b")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(!fs::exists(place.at("b")).unwrap());
    assert_eq!(fs::copy(place.at("none"), place.at("b")).unwrap_err().kind(), ErrorKind::NotFound);
}

fn copy_replaces_a_longer_file(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "1").unwrap();
    fs::write(place.at("b"), "longer").unwrap();
    assert_eq!(fs::copy(place.at("a"), place.at("b")).unwrap(), 1);
    assert_eq!(fs::read(place.at("b")).unwrap(), b"1");
}

fn path_with_a_zero_byte_is_invalid(_: Beside) {
    assert_eq!(File::open("a\0b").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(fs::metadata("a\0b").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(fs::create_dir("a\0b").unwrap_err().kind(), ErrorKind::InvalidInput);
}

fn removed_file_stays_readable(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "here").unwrap();
    let mut file = File::open(place.at("a")).unwrap();
    fs::remove_file(place.at("a")).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), file.metadata().unwrap().nlink()), ("here", 0));
}

fn synced_file_has_its_bytes(_: Beside) {
    let place = Place::new();
    let mut file = File::create(place.at("a")).unwrap();
    file.write_all(b"x").unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(place.at("a")).unwrap(), b"x");
}

fn file_formats_with_its_path(_: Beside) {
    let place = Place::new();
    let file = File::create(place.at("a")).unwrap();
    let formatted = format!("{file:?}");
    assert!(formatted.contains(place.at("a").to_str().unwrap()), "{formatted}");
    assert_eq!(formatted, format!("{:?}", std::fs::File::from(file)));
}
