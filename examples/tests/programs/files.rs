//! Tests of `index`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

use crate::program::{Folder, run};

#[test]
fn index_of_a_tree_is_sorted_and_complete() {
    let folder = Folder::new("index");
    // Words 0 to 19. The frequency of a word is its number modulo the number of the file. 40
    // directories with 25 files each.
    let mut expected = BTreeMap::new();
    for n in 0..1000 {
        let path = format!("{}/{}/{n}.txt", n % 4, n % 10);
        let file = folder.0.join(&path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let times = n % 7;
        fs::write(&file, "Some common, text;\n".to_owned() + &"wOrd\u{e9} ".repeat(times)).unwrap();
        if times > 0 {
            expected.insert(path, times);
        }
    }
    fs::write(folder.0.join("empty"), "").unwrap();
    fs::write(folder.0.join("binary"), [0xff, b'a', 0, 0xfe]).unwrap();
    // Symbolic links are not followed: neither cyclic nor dangling ones.
    symlink(&folder.0, folder.0.join("circle")).unwrap();
    symlink("nowhere", folder.0.join("dangling")).unwrap();
    let ended =
        run(env!("CARGO_BIN_EXE_index"), &[folder.0.to_str().unwrap(), "WORD\u{e9}", "absent"]);
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    let found: BTreeMap<_, _> = ended
        .stdout
        .lines()
        .skip(1)
        .map(|line| {
            let mut words = line.split(' ').skip(1);
            let (times, path) =
                (words.next().unwrap().parse().unwrap(), words.next().unwrap().to_owned());
            (path, times)
        })
        .collect();
    assert_eq!(ended.stdout.lines().next(), Some("1002 files, 5 words"));
    assert_eq!(found, expected);
}

#[test]
fn unreadable_files_are_reported() {
    let ended = run(env!("CARGO_BIN_EXE_index"), &["/nonexistent/folder", "word"]);
    assert!(ended.status.success() && ended.stdout == "0 files, 0 words\n", "{ended:?}");
    assert!(ended.stderr.contains("/nonexistent/folder: No such file"), "{ended:?}");
}
