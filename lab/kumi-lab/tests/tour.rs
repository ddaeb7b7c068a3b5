//! The chapters of `kumi tour` that start this program as a child process. The others have unit
//! tests.

use std::path::Path;
use std::process::Command;

use kumihimo_tests::place::Place;

/// The output of a chapter.
fn chapter(number: u8) -> String {
    chapter_in(Path::new("."), number)
}

/// The output of a chapter with this current directory.
fn chapter_in(directory: &Path, number: u8) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kumi-lab"));
    command.current_dir(directory).args(["tour", "--chapter", &number.to_string()]);
    let output = command.output().expect("kumi");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Returns whether the chapter was left out on this machine.
fn is_left_out(said: &str) -> bool {
    let left_out = said.contains("Left out: ");
    if left_out {
        kumihimo_tests::skip(
            "tour",
            "microprocesses are kernel threads here, or not seen from outside, or nothing can be mounted",
        );
    }
    left_out
}

#[test]
fn suspended_microprocess_is_shown_by_ps() {
    let said = chapter(9);
    if !is_left_out(&said) {
        let row = |name| {
            said.lines().find(|line| line.split_whitespace().nth(1) == Some(name)).expect("a row")
        };
        assert!(
            row("east").contains(" suspended ") && !row("north").contains(" suspended "),
            "{said}"
        );
        assert!(said.contains("^ suspended") && said.contains("^ resumed"), "{said}");
    }
}

#[test]
fn every_locking_design_has_a_row_of_times() {
    let said = chapter(10);
    if !is_left_out(&said) {
        for design in ["kind", "id", "vp"] {
            let row = said
                .lines()
                .find(|line| line.split_whitespace().next() == Some(design))
                .expect("a row");
            // For each load, two times with their units, and their ratio.
            assert_eq!(row.split_whitespace().count(), 1 + 3 * 5, "{said}");
        }
        assert!(said.contains("Tender, by id (P3)"), "{said}");
    }
}

#[test]
fn calls_and_priority_inversion_are_drawn() {
    let said = chapter(11);
    if !is_left_out(&said) {
        for drawn in ["gate", "Unix socket, threads"] {
            // The duration of a call, and the number of calls a second.
            assert_eq!(
                said.lines()
                    .filter(|line| line.starts_with(&format!("  {drawn} ")) && line.contains('#'))
                    .count(),
                2,
                "{said}"
            );
        }
        for case in ["no arbiter", "arbiter, no inheritance", "arbiter and inheritance"] {
            assert!(
                said.lines()
                    .any(|line| line.starts_with(&format!("  {case} ")) && line.contains("# ")),
                "{said}"
            );
        }
    }
}

#[test]
fn five_organisations_of_a_file_server_are_compared() {
    let said = chapter(12);
    if !is_left_out(&said) {
        for organisation in
            ["sequential", "user-threads", "processes", "kernel-threads", "microprocesses"]
        {
            let bar = |line: &&str| {
                line.starts_with(&format!("  {organisation} ")) && line.contains("# ")
            };
            assert_eq!(said.lines().filter(bar).count(), 1, "{said}");
        }
        assert_eq!(said.matches("e2fsck -fn: clean").count(), 2, "{said}");
        assert!(said.contains("nothing is missing or damaged"), "{said}");
    }
}

/// The tour may start in any directory. A clone of the repository there would fill the image.
#[test]
fn file_server_clones_no_repository_larger_than_its_image() {
    let place = Place::new("large-repository");
    std::fs::File::create(place.0.join("zeros")).unwrap().set_len(100 << 20).unwrap();
    let author = ["-c", "user.name=kumi", "-c", "user.email=kumi@example.invalid"];
    for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "zeros"]] {
        let mut git = Command::new("git");
        git.current_dir(&place.0).args(author).args(arguments);
        let Ok(status) = git.status() else {
            return kumihimo_tests::skip("tour", "git is not installed");
        };
        assert!(status.success(), "{git:?}");
    }
    let said = chapter_in(&place.0, 12);
    assert!(is_left_out(&said) || said.contains("nothing is missing or damaged"), "{said}");
}

/// With the libraries of `kumi run` beside the program, or without them.
#[test]
fn unmodified_server_runs_plainly_and_under_kumi_run() {
    let said = chapter(14);
    if !is_left_out(&said) {
        for row in ["the program itself", "under kumi run"] {
            let row =
                said.lines().find_map(|line| line.trim_start().strip_prefix(row)).expect("a row");
            // Kernel threads, memory and CPU time with their units, and requests a second.
            assert_eq!(row.split_whitespace().count(), 6, "{said}");
        }
        assert!(said.contains("replies were compared and correct"), "{said}");
    }
}
