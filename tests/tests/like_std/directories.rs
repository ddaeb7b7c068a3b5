//! Directories, links and paths.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use kumihimo::fs::{self, DirBuilder, unix};

use crate::Beside;
use crate::beside::behaviours;
use crate::place::Place;

behaviours!(
    directory_lists_its_entries,
    entry_tells_its_type,
    empty_directory_lists_nothing,
    listing_a_file_fails,
    directory_is_created_once,
    missing_parents_are_created,
    existing_parents_are_accepted,
    file_among_the_parents_is_refused,
    mode_applies_to_a_new_directory,
    full_directory_is_not_removed,
    removal_of_a_tree,
    removal_of_a_tree_leaves_what_links_name,
    removal_of_a_missing_tree_fails,
    rename_moves_and_replaces,
    rename_of_a_missing_file_fails,
    symlink_is_followed,
    symlink_to_nothing,
    symlink_cycle_is_refused,
    hard_link_names_the_same_file,
    canonical_path_has_no_links,
    canonical_path_of_nothing_fails,
    metadata_of_a_link_itself,
);

fn directory_lists_its_entries(beside: Beside) {
    let place = Place::new();
    (0..20).for_each(|n| fs::write(place.at(&format!("f{n}")), "").unwrap());
    let path = place.path().to_owned();
    let names = beside.spawn(move || {
        fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect::<BTreeSet<_>>()
    });
    let expected: BTreeSet<_> = (0..20).map(|n| format!("f{n}").into()).collect();
    assert_eq!(names.result(), expected);
}

fn entry_tells_its_type(_: Beside) {
    let place = Place::new();
    fs::create_dir(place.at("dir")).unwrap();
    fs::write(place.at("file"), "123").unwrap();
    unix::symlink("file", place.at("link")).unwrap();
    for entry in fs::read_dir(place.path()).unwrap() {
        let entry = entry.unwrap();
        let (kind, name) = (entry.file_type().unwrap(), entry.file_name());
        let is = (kind.is_dir(), kind.is_file(), kind.is_symlink());
        let expected = match name.to_str().unwrap() {
            "dir" => (true, false, false),
            "file" => (false, true, false),
            _ => (false, false, true),
        };
        assert_eq!(is, expected, "{name:?}");
        assert_eq!(entry.path(), place.path().join(&name));
        assert_eq!(entry.metadata().unwrap().is_symlink(), is.2, "a link is not followed");
    }
}

fn empty_directory_lists_nothing(_: Beside) {
    assert_eq!(fs::read_dir(Place::new().path()).unwrap().count(), 0);
}

fn listing_a_file_fails(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "").unwrap();
    assert_eq!(fs::read_dir(place.at("a")).map(drop).unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(fs::read_dir(place.at("b")).map(drop).unwrap_err().kind(), ErrorKind::NotFound);
}

fn directory_is_created_once(_: Beside) {
    let place = Place::new();
    fs::create_dir(place.at("a")).unwrap();
    assert_eq!(fs::create_dir(place.at("a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::create_dir(place.at("b/c")).unwrap_err().kind(), ErrorKind::NotFound);
}

fn missing_parents_are_created(beside: Beside) {
    let place = Place::new();
    let makes: Vec<_> = (0..4)
        .map(|_| {
            let path = place.at("a/b/c/d");
            beside.spawn(move || fs::create_dir_all(path))
        })
        .collect();
    assert!(makes.into_iter().all(|one| one.result().is_ok()), "all at a time");
    assert!(fs::metadata(place.at("a/b/c/d")).unwrap().is_dir());
}

fn existing_parents_are_accepted(_: Beside) {
    let place = Place::new();
    fs::create_dir_all(place.path()).unwrap();
    fs::create_dir_all(Path::new("")).unwrap();
    unix::symlink(place.path(), place.at("link")).unwrap();
    fs::create_dir_all(place.at("link/x")).unwrap();
    assert!(fs::metadata(place.at("x")).unwrap().is_dir());
}

fn file_among_the_parents_is_refused(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "").unwrap();
    assert_eq!(fs::create_dir_all(place.at("a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::create_dir_all(place.at("a/b")).unwrap_err().kind(), ErrorKind::NotADirectory);
}

fn mode_applies_to_a_new_directory(_: Beside) {
    let place = Place::new();
    DirBuilder::new().mode(0o700).recursive(true).create(place.at("a/b")).unwrap();
    assert_eq!(fs::metadata(place.at("a/b")).unwrap().permissions().mode() & 0o777, 0o700);
}

fn full_directory_is_not_removed(_: Beside) {
    let place = Place::new();
    fs::create_dir_all(place.at("a/b")).unwrap();
    assert_eq!(fs::remove_dir(place.at("a")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert!(fs::remove_file(place.at("a")).is_err());
    fs::remove_dir(place.at("a/b")).unwrap();
    fs::remove_dir(place.at("a")).unwrap();
    assert!(!fs::exists(place.at("a")).unwrap());
}

fn removal_of_a_tree(_: Beside) {
    let place = Place::new();
    fs::create_dir_all(place.at("a/b/c")).unwrap();
    (0..10).for_each(|n| fs::write(place.at(&format!("a/b/{n}")), "x").unwrap());
    fs::remove_dir_all(place.at("a")).unwrap();
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

fn removal_of_a_tree_leaves_what_links_name(_: Beside) {
    let place = Place::new();
    fs::create_dir_all(place.at("a")).unwrap();
    fs::create_dir_all(place.at("kept/in")).unwrap();
    unix::symlink(place.at("kept"), place.at("a/link")).unwrap();
    unix::symlink(place.at("kept"), place.at("link")).unwrap();
    fs::remove_dir_all(place.at("a")).unwrap();
    fs::remove_dir_all(place.at("link")).unwrap();
    assert!(fs::exists(place.at("kept/in")).unwrap());
    assert!(fs::symlink_metadata(place.at("link")).is_err(), "the link itself is removed");
}

fn removal_of_a_missing_tree_fails(_: Beside) {
    let place = Place::new();
    assert_eq!(fs::remove_dir_all(place.at("a")).unwrap_err().kind(), ErrorKind::NotFound);
}

fn rename_moves_and_replaces(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "new").unwrap();
    fs::write(place.at("b"), "old").unwrap();
    fs::rename(place.at("a"), place.at("b")).unwrap();
    assert_eq!(fs::read(place.at("b")).unwrap(), b"new");
    assert!(!fs::exists(place.at("a")).unwrap());
}

fn rename_of_a_missing_file_fails(_: Beside) {
    let place = Place::new();
    let missing = fs::rename(place.at("a"), place.at("b")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    fs::write(place.at("file"), "").unwrap();
    fs::create_dir(place.at("dir")).unwrap();
    let onto = fs::rename(place.at("file"), place.at("dir")).unwrap_err();
    assert_eq!(onto.kind(), ErrorKind::IsADirectory);
}

fn symlink_is_followed(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "there").unwrap();
    unix::symlink("a", place.at("link")).unwrap();
    assert_eq!(fs::read(place.at("link")).unwrap(), b"there");
    assert_eq!(fs::read_link(place.at("link")).unwrap(), Path::new("a"));
    assert_eq!(fs::read_link(place.at("a")).unwrap_err().kind(), ErrorKind::InvalidInput);
    let again = unix::symlink("b", place.at("link")).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
}

fn symlink_to_nothing(_: Beside) {
    let place = Place::new();
    unix::symlink("none", place.at("link")).unwrap();
    assert!(!fs::exists(place.at("link")).unwrap());
    assert!(fs::symlink_metadata(place.at("link")).unwrap().is_symlink());
    fs::write(place.at("link"), "x").unwrap();
    assert_eq!(fs::read(place.at("none")).unwrap(), b"x");
}

fn symlink_cycle_is_refused(_: Beside) {
    let place = Place::new();
    unix::symlink("b", place.at("a")).unwrap();
    unix::symlink("a", place.at("b")).unwrap();
    assert_eq!(fs::read(place.at("a")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
}

fn hard_link_names_the_same_file(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "x").unwrap();
    fs::hard_link(place.at("a"), place.at("b")).unwrap();
    let metadata = fs::metadata(place.at("a")).unwrap();
    assert_eq!((metadata.nlink(), metadata.ino()), (2, fs::metadata(place.at("b")).unwrap().ino()));
    fs::remove_file(place.at("a")).unwrap();
    assert_eq!(fs::read(place.at("b")).unwrap(), b"x");
}

fn canonical_path_has_no_links(_: Beside) {
    let place = Place::new();
    fs::create_dir(place.at("dir")).unwrap();
    unix::symlink("dir", place.at("link")).unwrap();
    let canonical = fs::canonicalize(place.at("link/../link/.")).unwrap();
    assert_eq!(canonical, std::fs::canonicalize(place.at("dir")).unwrap());
}

fn canonical_path_of_nothing_fails(_: Beside) {
    let place = Place::new();
    assert_eq!(fs::canonicalize(place.at("a")).unwrap_err().kind(), ErrorKind::NotFound);
}

fn metadata_of_a_link_itself(_: Beside) {
    let place = Place::new();
    fs::write(place.at("a"), "12345").unwrap();
    unix::symlink("a", place.at("l")).unwrap();
    assert_eq!(fs::metadata(place.at("l")).unwrap().len(), 5);
    assert_eq!(fs::symlink_metadata(place.at("l")).unwrap().len(), 1, "the length of its text");
}
