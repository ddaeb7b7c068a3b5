//! Files inside a container.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};

use kumihimo::fs;
use kumihimo::runtime::Runtime;
use kumihimo::thread;

use crate::in_each;

/// Larger than a page, and no multiple of one.
const BYTES: usize = 100_001;

#[test]
fn files_are_written_and_read() {
    in_each("files::files_are_written_and_read", || {
        Runtime::builder().build().expect("a runtime").run(|| {
            let all: Vec<_> = (0..20u8).map(|n| thread::spawn(move || write_and_read(n))).collect();
            all.into_iter().for_each(|one| one.join().expect("no panic"));
            let refused = fs::write("/kumihimo-test", "x").expect_err("read-only");
            assert!(
                matches!(
                    refused.kind(),
                    ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
                ),
                "{refused}"
            );
            let own = std::env::current_exe().expect("this program");
            let mut start = [0; 4];
            fs::File::open(own).expect("readable").read_exact(&mut start).expect("bytes");
            assert_eq!(&start, b"\x7fELF");
        });
    });
}

fn write_and_read(n: u8) {
    let path = format!("/tmp/kumihimo-files-{n}");
    let bytes: Vec<_> = (0..BYTES).map(|i| (i % 251) as u8 ^ n).collect();
    let options = || fs::OpenOptions::new();
    let mut file =
        options().read(true).write(true).create_new(true).open(&path).expect("a new file");
    file.write_all(&bytes).expect("room");
    file.sync_all().expect("it is synchronised");
    file.seek(SeekFrom::Start(0)).expect("a file");
    let mut found = Vec::new();
    file.read_to_end(&mut found).expect("it is readable");
    assert!(found == bytes, "file {n}");
    fs::rename(&path, format!("{path}-renamed")).expect("it is there");
    fs::remove_file(format!("{path}-renamed")).expect("it is there");
}
