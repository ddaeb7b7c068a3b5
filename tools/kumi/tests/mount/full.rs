//! Tests with a full volume: no free blocks, and no free inodes.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use kumihimo_conformance::{Image, Organisation};

use crate::ground::{has_e2fsprogs, serve};

/// Timeout. A longer wait means a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// Fills the volume, checks that nothing is damaged, and frees space again.
fn no_room_left(name: &str, organisation: Organisation) {
    if !has_e2fsprogs(name) {
        return;
    }
    let image = Image::with(8, 1024, &["-N", "64"]);
    let mounted = serve(organisation, &image);
    std::fs::write(mounted.path().join("keep"), vec![b'k'; 100_000]).expect("a file");
    let mut big = File::create(mounted.path().join("big")).expect("a file");
    let full = loop {
        if let Err(e) = big.write_all(&[b'b'; 65_536]).and_then(|()| big.sync_data()) {
            break e;
        }
    };
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    let size = big.metadata().expect("stat").len();
    assert!(size > 5 << 20, "{size}");
    drop(big);
    assert_eq!(
        std::fs::read(mounted.path().join("keep")).expect("it is there"),
        vec![b'k'; 100_000]
    );
    let back = std::fs::read(mounted.path().join("big")).expect("it is there");
    assert!(back.iter().all(|byte| *byte == b'b'));
    std::fs::remove_file(mounted.path().join("big")).expect("it goes");
    // Use up the inodes, too.
    let mut made = 0;
    let none = loop {
        match File::create_new(mounted.path().join(format!("n{made}"))) {
            Ok(_) => made += 1,
            Err(e) => break e,
        }
    };
    assert!(none.kind() == ErrorKind::StorageFull && made > 20, "{none} after {made}");
    std::fs::remove_file(mounted.path().join("n0")).expect("it goes");
    // The inode is free only after the kernel has forgotten it. FORGET may arrive after later
    // requests.
    let begun = Instant::now();
    while let Err(e) = std::fs::write(mounted.path().join("again"), "room") {
        assert!(
            e.kind() == ErrorKind::StorageFull && begun.elapsed() < LIMIT,
            "no space after the removal: {e}"
        );
        std::thread::yield_now();
    }
    mounted.unmount();
    image.expect_clean();
}
crate::organisations::organisations!(no_room_left);
