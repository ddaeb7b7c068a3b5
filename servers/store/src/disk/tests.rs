use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;

fn image(name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("kumihimo-disk-{name}-{}", std::process::id()));
    File::create(&path).and_then(|mut file| file.write_all(bytes)).expect("a file");
    path
}

#[test]
fn written_data_is_read_back_and_the_end_is_an_error() {
    let path = image("ends", &[1; 8192]);
    let disk = open_disk(&path, true).expect("an image");
    assert_eq!(disk.size(), 8192);
    disk.write(4000, &[7; 100]).expect("a write");
    disk.flush().expect("a flush");
    let mut read = [0; 102];
    disk.read(3999, &mut read).expect("a read");
    assert_eq!((read[0], read[1], read[100], read[101]), (1, 7, 7, 1));
    assert_eq!(disk.read(8191, &mut [0; 2]).expect_err("the end").kind(), ErrorKind::UnexpectedEof);
    std::fs::remove_file(path).expect("it was there");
}

#[test]
fn image_has_one_writer_or_several_readers() {
    let path = image("locked", &[0; 1024]);
    let first = open_disk(&path, true).expect("an image");
    assert_eq!(open_disk(&path, true).expect_err("it is taken").kind(), ErrorKind::ResourceBusy);
    assert_eq!(open_disk(&path, false).expect_err("it is taken").kind(), ErrorKind::ResourceBusy);
    drop(first);
    let _reader = open_disk(&path, false).expect("free again");
    open_disk(&path, false).expect("several may read");
    assert_eq!(open_disk(&path, true).expect_err("it is read").kind(), ErrorKind::ResourceBusy);
    std::fs::remove_file(path).expect("it was there");
}

#[test]
fn directories_and_character_devices_are_refused() {
    assert_eq!(
        open_disk(&std::env::temp_dir(), false).expect_err("a directory").kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        open_disk(Path::new("/dev/null"), false).expect_err("a device").kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        open_disk(Path::new("/no/such"), false).expect_err("nothing").kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn each_block_is_delayed() {
    static WAITED: AtomicU64 = AtomicU64::new(0);
    let path = image("delayed", &[0; 10_000]);
    let wait = |time: Duration| {
        WAITED.fetch_add(time.as_secs(), Relaxed);
    };
    let disk =
        Delayed::new(open_disk(&path, true).expect("an image"), Duration::from_secs(1000), wait);
    disk.read(0, &mut [0; 512]).expect("a read");
    disk.write(0, &[0; 4096]).expect("a write");
    disk.read(0, &mut [0; 4097]).expect("a read");
    assert_eq!((WAITED.load(Relaxed), disk.size()), (4000, 10_000));
    std::fs::remove_file(path).expect("it was there");
}
