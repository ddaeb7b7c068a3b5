use super::*;

/// Checks the ledger against a disk with one file after a cut.
fn finds(ledger: &Ledger, place: &str, contents: &[u8]) -> Result<(), String> {
    ledger.check(9, |path| Ok((path == place).then(|| contents.to_vec())))
}

#[test]
fn moved_file_may_be_in_either_directory_until_synced() {
    let mut ledger = Ledger::default();
    ledger.make(0, "/d/a");
    ledger.sync(1, "/d/a", b"synced");
    ledger.rename(2, "/d/a", "/a");
    ledger.rename_directory(3, "/d", "/e");
    // Either rename may or may not have reached the disk.
    for place in ["/d/a", "/a", "/e/a"] {
        finds(&ledger, place, b"synced").expect(place);
    }
    finds(&ledger, "/e/b", b"synced").expect_err("the file was never at this path");
    finds(&ledger, "/e/a", b"other").expect_err("the contents differ");
    ledger.sync(4, "/a", b"synced");
    finds(&ledger, "/a", b"synced").expect("the file was synced");
    finds(&ledger, "/e/a", b"synced").expect_err("the name was synced elsewhere");
}
