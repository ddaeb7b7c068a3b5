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

#[test]
fn file_renamed_in_a_moved_directory_may_have_its_new_name_at_the_former_place() {
    let mut ledger = Ledger::default();
    ledger.make(0, "/d/a");
    ledger.sync(1, "/d/a", b"synced");
    ledger.rename_directory(2, "/d", "/e");
    ledger.rename(3, "/e/a", "/e/b");
    for place in ["/d/a", "/d/b", "/e/a", "/e/b"] {
        finds(&ledger, place, b"synced").expect(place);
    }
    // The directory's rename is not synced with the file.
    ledger.sync(4, "/e/b", b"synced");
    for place in ["/d/b", "/e/b"] {
        finds(&ledger, place, b"synced").expect(place);
    }
    finds(&ledger, "/e/a", b"synced").expect_err("the file's new name was synced");
    ledger.sync_all(5, |_| Some(b"synced".to_vec()));
    finds(&ledger, "/d/b", b"synced").expect_err("the directory's name was synced");
}

#[test]
fn file_made_in_a_moved_directory_may_be_at_the_former_place() {
    let mut ledger = Ledger::default();
    ledger.rename_directory(0, "/d", "/e");
    ledger.make(1, "/e/a");
    ledger.sync(2, "/e/a", b"synced");
    for place in ["/d/a", "/e/a"] {
        finds(&ledger, place, b"synced").expect(place);
    }
    finds(&ledger, "/a", b"synced").expect_err("the file was never at this path");
}
