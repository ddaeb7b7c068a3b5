//! Formats of the result, and where it is written.

use kumihimo::thread;
use kumihimo_tests::process;

use super::served::{Folder, one_to_one};

#[test]
fn format_follows_the_name_of_the_file() {
    let test = "formats::format_follows_the_name_of_the_file";
    if process::is_child(test) {
        let all: Vec<_> = (0..3)
            .map(|n| thread::Builder::new().name(format!("idle-{n}")).spawn(thread::park))
            .collect();
        all.into_iter().for_each(|one| drop(one.expect("spawned").join()));
        return;
    }
    if one_to_one(test) {
        return;
    }
    let folder = Folder::new(test);
    let served = folder.served(test, |all| all.len() == 3);
    let written = |name: &str| {
        let file = folder.file(name);
        let (code, said, complaints) = folder.profile(&["--stacks", "-o", &file, &served.pid()]);
        assert_eq!((code, &*said), (0, ""), "{complaints}");
        assert!(complaints.contains("3 microprocesses"), "{complaints}");
        std::fs::read(file).expect("written")
    };
    let svg = String::from_utf8(written("stacks.svg")).expect("text");
    assert!(svg.starts_with("<?xml") && svg.contains("3 microprocesses"), "{svg}");
    let folded = String::from_utf8(written("stacks.folded")).expect("text");
    let line = folded.lines().find(|line| line.starts_with("idle;")).expect("a line");
    assert!(line.contains("park") && line.ends_with(";[unpark] 3"), "{folded}");
    assert!(String::from_utf8(written("stacks.txt")).expect("text").contains("WITH CALLS"));
    assert_eq!(written("stacks.pprof")[..2], [0x1f, 0x8b]);
    // An existing file is replaced.
    assert_eq!(written("stacks.pprof")[..2], [0x1f, 0x8b]);

    let (code, said, _) = folder.profile(&["--stacks", "--format", "folded", &served.pid()]);
    assert!(code == 0 && said.contains("idle;"), "{said}");
    let (code, _, complaints) =
        folder.profile(&["--stacks", "-o", &folder.file("stacks"), &served.pid()]);
    assert!(code == 1 && complaints.contains("--format"), "{complaints}");
    let nowhere = ["--stacks", "-o", "/no/such/folder/x.svg", &served.pid()];
    let (code, _, complaints) = folder.profile(&nowhere);
    assert!(code == 1 && complaints.contains("/no/such/folder"), "{complaints}");
}
