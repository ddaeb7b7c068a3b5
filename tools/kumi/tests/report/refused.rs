//! Input that is no trace, or not one that can be shown: a clear message, and no file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use kumihimo_trace::script::Script;

use crate::bed::{Folder, KUMI};

/// Runs the command on `trace`, which it has to refuse without leaving anything.
fn refused(folder: &Folder, trace: &str, why: &str) {
    let before = folder.names();
    let (output, said) = folder.report(&[trace]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with(&format!("kumi: {trace}: ")) && said.contains(why), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(folder.names(), before);
}

#[test]
fn file_that_is_no_trace_is_refused() {
    let folder = Folder::new("no-trace");
    std::fs::write(folder.file("text"), "no trace").expect("room");
    std::fs::write(folder.file("empty"), "").expect("room");
    std::fs::create_dir(folder.file("folder")).expect("room");
    refused(&folder, "text", "expected a packet; the file is not a complete trace");
    refused(&folder, "empty", "is empty");
    refused(&folder, "folder", "is a directory");
    refused(&folder, "missing", "No such file");
    // A packet of another program's trace.
    std::fs::write(folder.file("other"), [0x0a, 0x03, 0x98, 0x06, 0x01]).expect("room");
    refused(&folder, "other", "not a trace of Kumihimo");
}

#[test]
fn trace_cut_in_the_middle_is_refused() {
    let folder = Folder::new("cut");
    folder.trace("whole", &Script::known());
    let bytes = std::fs::read(folder.file("whole")).expect("readable");
    std::fs::write(folder.file("cut"), &bytes[..bytes.len() / 2]).expect("room");
    // An existing report stays.
    std::fs::write(folder.file("report.html"), "former").expect("room");
    refused(&folder, "cut", "the file ends inside a packet");
    assert_eq!(std::fs::read_to_string(folder.file("report.html")).expect("readable"), "former");
}

#[test]
fn trace_of_another_version_is_refused() {
    let folder = Folder::new("version");
    folder.trace("later", &Script::known());
    let mut bytes = std::fs::read(folder.file("later")).expect("readable");
    let at = bytes.windows(6).position(|six| six == b"Parked").expect("the table of names");
    bytes[at..at + 6].copy_from_slice(b"Perked");
    std::fs::write(folder.file("later"), &bytes).expect("room");
    refused(&folder, "later", "another version of Kumihimo wrote the trace");
    let mut spool = File::create(folder.file("spool")).expect("room");
    Script::known().write_spool(&mut spool).expect("room");
    // The version follows the eight bytes of the magic.
    spool.write_all_at(&9u32.to_le_bytes(), 8).expect("room");
    refused(&folder, "spool", "a spool of version 9");
}

#[test]
fn report_does_not_replace_its_trace() {
    let folder = Folder::new("same");
    folder.trace("trace", &Script::known());
    let before = std::fs::read(folder.file("trace")).expect("readable");
    let (output, said) = folder.report(&["trace", "-o", "./trace"]);
    assert!(output.status.code() == Some(1) && said.contains("would replace the trace"), "{said}");
    assert_eq!(std::fs::read(folder.file("trace")).expect("readable"), before);
}

/// Ten gigabytes, almost all of them absent: a trace, and packets of a megabyte of which this
/// program knows no field.
fn ten_gigabytes(folder: &Folder, name: &str, last: &[u8]) {
    const PACKETS: u64 = 10_240;
    const SIZE: u64 = 1 << 20;
    folder.trace(name, &Script::known());
    let file = OpenOptions::new().write(true).open(folder.file(name)).expect("a file");
    let start = file.metadata().expect("a file").len();
    for n in 0..PACKETS {
        // A packet, and in it field 99 with as many bytes; the rest of both is a hole.
        let content = SIZE - 4;
        let inside = content - 5;
        let mut head = vec![0x0a];
        varint(&mut head, content);
        head.extend([0x9a, 0x06]);
        varint(&mut head, inside);
        assert_eq!(head.len(), 9);
        file.write_all_at(&head, start + n * SIZE).expect("room");
    }
    let end = start + PACKETS * SIZE;
    file.set_len(end).expect("a hole");
    file.write_all_at(last, end).expect("room");
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Runs the command with at most 400 MB of address space, in which 10 GB do not fit.
fn within_400_mb(folder: &Folder, trace: &str) -> (Option<i32>, String) {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -v 400000; exec \"$@\"", "sh", KUMI, "trace", "report", trace])
        .current_dir(&folder.0)
        .stdin(Stdio::null());
    let output = command.output().expect("a shell");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn ten_gigabytes_take_bounded_memory() {
    // A file system in memory gives holes without keeping pages for them.
    let folder = Folder::in_memory("large");
    ten_gigabytes(&folder, "large", &[]);
    let (code, said) = within_400_mb(&folder, "large");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("3 microprocesses"), "{said}");
    std::fs::remove_file(folder.file("report.html")).expect("written");
    // As large, and no trace at all.
    File::create(folder.file("zeros")).and_then(|f| f.set_len(10 << 30)).expect("a hole");
    let (code, said) = within_400_mb(&folder, "zeros");
    assert!(code == Some(1) && said.contains("at byte 0: expected a packet"), "{said}");
}

#[test]
fn output_that_cannot_be_written_is_reported() {
    let folder = Folder::new("output");
    folder.trace("trace", &Script::known());
    let (output, said) = folder.report(&["trace", "-o", "/no/such/folder/x.html"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/no/such/folder"), "{said}");
    let (output, said) = folder.report(&["trace", "-o", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/dev/full: No space left on device"), "{said}");
    let (output, said) = folder.report(&["trace", "--stall", "0"]);
    assert!(output.status.code() == Some(2) && said.contains("--stall"), "{said}");
}

#[test]
fn stacks_need_a_trace_in_a_file() {
    let folder = Folder::new("stream");
    let output = Command::new(KUMI)
        .args(["trace", "--stacks", "-o", "/dev/null", "touch", "ran"])
        .current_dir(&folder.0)
        .output()
        .expect("kumi");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("--stacks needs a trace"), "{said}");
    assert_eq!(folder.names(), Vec::<String>::new());
}
