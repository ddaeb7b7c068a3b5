use super::*;

/// What is at one place after a cut.
fn finds(ledger: &Ledger, place: &str, contents: &[u8]) -> Result<(), String> {
    ledger.check(9, |path| Ok((path == place).then(|| contents.to_vec())))
}

#[test]
fn moved_file_is_lost_with_either_directory_it_may_be_in() {
    let mut ledger = Ledger::default();
    ledger.make(0, "/d/a");
    ledger.sync(1, "/d/a", b"synced");
    ledger.rename(2, "/d/a", "/a");
    ledger.rename_directory(3, "/d", "/e");
    // The one and the other may have reached the disk, or not.
    for place in ["/d/a", "/a", "/e/a"] {
        finds(&ledger, place, b"synced").expect(place);
    }
    finds(&ledger, "/e/b", b"synced").expect_err("it was never to be there");
    finds(&ledger, "/e/a", b"other").expect_err("another one");
    ledger.sync(4, "/a", b"synced");
    finds(&ledger, "/a", b"synced").expect("it was synced");
    finds(&ledger, "/e/a", b"synced").expect_err("its name was synced");
}
