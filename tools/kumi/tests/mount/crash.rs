//! Tests that kill the server while it writes.

use kumihimo_conformance::{Image, Options, Organisation, crash};
use kumihimo_tests::{Random, seed};

use crate::ground::{has_e2fsprogs, kumi};

/// Ten crashes in total, or the number in `KUMI_CRASHES` (`make soak`: 200).
fn killed(name: &str, organisation: Organisation) {
    if !has_e2fsprogs(name) {
        return;
    }
    let times = std::env::var("KUMI_CRASHES")
        .map_or(10, |text| text.parse().expect("KUMI_CRASHES is a number"));
    eprintln!("{name}: KUMI_SEED={}", seed());
    let own = name
        .bytes()
        .fold(seed(), |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    // Each of the five organisations gets two of ten crashes.
    crash::kill_while_writing(
        kumi(),
        &Options::new(organisation),
        &Image::new(64, 1024),
        times / 5,
        &mut Random(own),
    );
}

crate::organisations::organisations!(killed);

#[test]
fn with_writeback() {
    let name = "crash::with_writeback";
    if has_e2fsprogs(name) {
        let options = Options::new(Organisation::Microprocesses).with(&["--writeback"]);
        crash::kill_while_writing(kumi(), &options, &Image::new(64, 4096), 2, &mut Random(seed()));
    }
}
