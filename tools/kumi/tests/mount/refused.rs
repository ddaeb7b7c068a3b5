//! Requests that are refused: each with its reason in one line, and nothing left behind.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kumihimo_conformance::{Image, Mounted, Options, Organisation, Scratch};
use kumihimo_tests::skip;

use crate::ground::{can_mount, has_e2fsprogs, kumi, serve};

fn run<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[S]) -> Output {
    Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .expect("it starts")
}

/// Asserts one line on standard error that contains `fragment`, exit status 1, and no mount at
/// `point`.
fn expect_refusal(case: &str, output: &Output, fragment: &str, point: Option<&Path>) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_one_line = said.starts_with("kumi: ") && said.trim_end().lines().count() == 1;
    assert!(output.status.code() == Some(1) && is_one_line, "{case}: {}: {said}", output.status);
    assert!(said.contains(fragment), "{case}: {said:?} does not contain {fragment:?}");
    assert!(output.stdout.is_empty(), "{case}: {}", String::from_utf8_lossy(&output.stdout));
    if let Some(point) = point {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("procfs");
        let text = format!(" {} ", point.display());
        assert!(
            !mounts.lines().any(|line| line.contains(&text) && line.contains("fuse.kumi")),
            "{case}: it is mounted"
        );
    }
}

fn mount(store: &Path, point: &Path, more: &[&str]) -> Output {
    let mut arguments: Vec<&OsStr> = vec!["mount".as_ref(), "-f".as_ref()];
    arguments.extend(more.iter().map(OsStr::new));
    arguments.extend([store.as_os_str(), point.as_os_str()]);
    run(kumi(), &arguments)
}

/// A file with the given contents.
fn file(scratch: &Scratch, name: &str, content: &[u8], size: u64) -> PathBuf {
    let path = scratch.path().join(name);
    let mut file = File::create(&path).expect("a file");
    file.write_all(content).expect("it is written");
    file.set_len(size.max(content.len() as u64)).expect("room");
    path
}

/// An image of another type, made by e2fsprogs.
fn made(scratch: &Scratch, name: &str, kind: &[&str]) -> PathBuf {
    let path = file(scratch, name, b"", 16 << 20);
    let arguments = [&["-q", "-F"], kind, &[path.to_str().expect("UTF-8")]].concat();
    assert!(run("mke2fs", &arguments).status.success());
    path
}

#[test]
fn unsupported_stores_are_refused() {
    if !has_e2fsprogs("refused::unsupported_stores_are_refused") {
        return;
    }
    let scratch = Scratch::new("refused");
    let point = scratch.directory("point");
    let random: Vec<u8> =
        (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut xfs = vec![0; 1 << 20];
    xfs[..4].copy_from_slice(b"XFSB");
    let mut btrfs = vec![0; 1 << 20];
    btrfs[65600..65608].copy_from_slice(b"_BHRfS_M");
    let fifo = scratch.path().join("fifo");
    assert!(run("mkfifo", &[&fifo]).status.success());
    let cut = made(&scratch, "cut", &["-t", "ext2"]);
    OpenOptions::new()
        .write(true)
        .open(&cut)
        .expect("it is there")
        .set_len(5 << 20)
        .expect("it is cut");
    let tiny = made(&scratch, "tiny", &["-t", "ext2"]);
    OpenOptions::new()
        .write(true)
        .open(&tiny)
        .expect("it is there")
        .set_len(1500)
        .expect("it is cut");
    let table: [(&str, PathBuf, &[&str], &str); 16] = [
        ("missing", scratch.path().join("none"), &[], "none: No such file or directory"),
        ("empty", file(&scratch, "empty", b"", 0), &[], "empty: not an ext2 file system"),
        ("zeros", file(&scratch, "zeros", b"", 1 << 20), &[], "zeros: not an ext2 file system"),
        (
            "random bytes",
            file(&scratch, "random", &random, 0),
            &[],
            "random: not an ext2 file system",
        ),
        (
            "text",
            file(&scratch, "text", b"this is a text\n", 0),
            &[],
            "text: not an ext2 file system",
        ),
        ("xfs", file(&scratch, "xfs", &xfs, 0), &[], "XFS"),
        ("btrfs", file(&scratch, "btrfs", &btrfs, 0), &[], "Btrfs"),
        ("ext4", made(&scratch, "ext4", &["-t", "ext4"]), &[], "extents"),
        ("ext3", made(&scratch, "ext3", &["-t", "ext3"]), &[], "journal"),
        ("64bit", made(&scratch, "64bit", &["-t", "ext2", "-O", "extents,64bit"]), &[], "64bit"),
        (
            "inline_data",
            made(&scratch, "inline", &["-t", "ext2", "-O", "inline_data"]),
            &[],
            "inline_data",
        ),
        ("truncated", cut, &[], "cut: "),
        ("truncated in the superblock", tiny, &[], "tiny: "),
        (
            "a directory as an image",
            scratch.directory("directory"),
            &["--store", "ext2"],
            "a directory, not an ext2 image",
        ),
        (
            "a file as a directory",
            file(&scratch, "file", b"", 9),
            &["--store", "host"],
            "not a directory; use --store ext2",
        ),
        ("a FIFO", fifo, &[], "neither a regular file nor a block device"),
    ];
    for (case, store, more, fragment) in table {
        let output = mount(&store, &point, more);
        let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
        expect_refusal(case, &output, "kumi: ", Some(&point));
        assert!(
            said.contains(&fragment.to_lowercase()),
            "{case}: {said:?} does not contain {fragment:?}"
        );
    }
}

#[test]
fn damaged_superblocks_are_refused() {
    if !has_e2fsprogs("refused::damaged_superblocks_are_refused") {
        return;
    }
    let scratch = Scratch::new("refused");
    let point = scratch.directory("point");
    // Name of the case, offset in the superblock, value, and expected message.
    let table: [(&str, u64, u32, &str); 6] = [
        ("no inodes", 0, 0, "inodes"),
        ("more blocks than there are", 4, u32::MAX, "blocks"),
        ("no blocks in a group", 32, 0, "blocks in a group"),
        ("no inodes in a group", 40, 0, "inodes in a group"),
        ("an absurd block size", 24, 77, "block size"),
        ("an absurd inode size", 88, 7, "inodes of 7 bytes"),
    ];
    for (case, at, value, fragment) in table {
        let image = made(&scratch, &case.replace(' ', "-"), &["-t", "ext2"]);
        let file = OpenOptions::new().write(true).open(&image).expect("it is there");
        file.write_all_at(&value.to_le_bytes(), 1024 + at).expect("it is damaged");
        expect_refusal(case, &mount(&image, &point, &[]), fragment, Some(&point));
    }
}

#[test]
fn unusable_mount_points_are_refused() {
    if !has_e2fsprogs("refused::unusable_mount_points_are_refused") {
        return;
    }
    let image = Image::new(16, 1024);
    let (full, file, busy) =
        (image.directory("full"), image.directory("d").join("file"), image.directory("busy"));
    std::fs::write(full.join("something"), "").expect("a file");
    std::fs::write(&file, "").expect("a file");
    assert!(
        run("mount", &["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), busy.as_os_str()])
            .status
            .success()
    );
    let refused = [
        (
            "missing",
            mount(image.path(), &image.path().with_file_name("none"), &[]),
            "make the directory first",
        ),
        ("a file", mount(image.path(), &file, &[]), "not a directory"),
        ("not empty", mount(image.path(), &full, &[]), "not empty"),
        ("busy", mount(image.path(), &busy, &[]), "tmpfs"),
        ("not ours", run(kumi(), &["umount".as_ref(), busy.as_os_str()]), "not ours"),
        (
            "nothing there",
            run(kumi(), &["umount".as_ref(), full.as_os_str()]),
            "nothing is mounted there",
        ),
        ("no such point", run(kumi(), &["umount", "/none/at/all"]), "No such file or directory"),
    ];
    assert!(run("umount", &[&busy]).status.success());
    for (case, output, fragment) in refused {
        expect_refusal(case, &output, fragment, None);
    }
}

#[test]
fn mounted_image_is_refused() {
    let name = "refused::mounted_image_is_refused";
    if !has_e2fsprogs(name) {
        return;
    }
    let image = Image::new(16, 1024);
    let point = image.directory("point");
    let Some(kernel) = image.by_the_kernel(false) else {
        return skip(name, "no loop mounts of ext2 here");
    };
    expect_refusal(
        "by the kernel",
        &mount(image.path(), &point, &[]),
        "the kernel has it mounted",
        Some(&point),
    );
    drop(kernel);
    let ours = serve(Organisation::Microprocesses, &image);
    expect_refusal(
        "by us",
        &mount(image.path(), &point, &[]),
        "another server has it mounted",
        Some(&point),
    );
    expect_refusal("on ours", &mount(image.path(), ours.path(), &[]), "is mounted there", None);
    let reading = mount(image.path(), &point, &["--read-only"]);
    expect_refusal("by us, to be read", &reading, "another server has it mounted", Some(&point));
    // The first server keeps working.
    std::fs::write(ours.path().join("f"), "still").expect("it is served");
    ours.unmount();
    image.expect_clean();
    // Several read-only servers may share an image.
    let options = Options::new(Organisation::Microprocesses).with(&["--read-only"]);
    let (one, other) = (
        Mounted::start(kumi(), &options, image.path()),
        Mounted::start(kumi(), &options, image.path()),
    );
    assert_eq!(
        std::fs::read(one.path().join("f")).expect("f"),
        std::fs::read(other.path().join("f")).expect("f")
    );
    one.unmount();
    other.unmount();
}

#[test]
fn read_only_medium_requires_the_option() {
    let name = "refused::read_only_medium_requires_the_option";
    if !has_e2fsprogs(name) {
        return;
    }
    let image = Image::new(16, 1024);
    let point = image.directory("point");
    let looped = run(
        "losetup",
        &["-f".as_ref(), "--show".as_ref(), "-r".as_ref(), image.path().as_os_str()],
    );
    if !looped.status.success() {
        return skip(name, "no loop devices here");
    }
    let device = String::from_utf8_lossy(&looped.stdout).trim().to_owned();
    let refused = mount(Path::new(&device), &point, &[]);
    let options = Options::new(Organisation::Microprocesses).with(&["--read-only"]);
    let read = Mounted::try_start(kumi(), &options, Path::new(&device)).map(|mounted| {
        let found = mounted.path().join("lost+found").is_dir();
        mounted.unmount();
        found
    });
    assert!(run("losetup", &["-d", &device]).status.success());
    expect_refusal("to be written", &refused, "--read-only", Some(&point));
    assert_eq!(read, Ok(true));
}

#[test]
fn busy_mount_is_unmounted_only_lazily() {
    let name = "refused::busy_mount_is_unmounted_only_lazily";
    if !has_e2fsprogs(name) {
        return;
    }
    let image = Image::new(16, 1024);
    let mounted = serve(Organisation::Microprocesses, &image);
    let open = File::create(mounted.path().join("f")).expect("a file");
    let refused = run(kumi(), &["umount".as_ref(), mounted.path().as_os_str()]);
    expect_refusal("busy", &refused, "--lazy", None);
    // The mount stays usable. A lazy unmount works, and the server ends with the last open file.
    (&open).write_all(b"text").expect("it is served");
    let lazily = run(kumi(), &["umount".as_ref(), "--lazy".as_ref(), mounted.path().as_os_str()]);
    assert!(lazily.status.success(), "{}", String::from_utf8_lossy(&lazily.stderr));
    (&open).write_all(b", more").expect("it is served still");
    (&open).seek(SeekFrom::Start(0)).expect("it is");
    drop(open);
    mounted.expect_end();
    image.expect_clean();
    let again = serve(Organisation::Microprocesses, &image);
    assert_eq!(std::fs::read(again.path().join("f")).expect("f"), b"text, more");
    again.unmount();
}

/// Mounts an image, kills the server while a file is open there, and unmounts with `kumi umount`.
/// `beforehand` is called with the mount point shortly before the kill.
fn unmount_busy_after_server_died(name: &str, beforehand: impl Fn(&Path)) {
    if !has_e2fsprogs(name) {
        return;
    }
    let image = Image::new(16, 1024);
    let mounted = serve(Organisation::Microprocesses, &image);
    let mut open = File::create(mounted.path().join("f")).expect("a file");
    beforehand(mounted.path());
    mounted.kill();
    open.write_all(b"text").expect_err("there is no server");
    image.repair();
}

#[test]
fn busy_mount_of_a_dead_server_is_unmounted() {
    unmount_busy_after_server_died("refused::busy_mount_of_a_dead_server_is_unmounted", |_| ());
}

/// For up to a second after the server's death, the kernel serves stat(2) of the mount point from
/// its cache. `kumi umount` must not take this for a living server.
#[test]
fn umount_of_a_busy_dead_mount_succeeds_while_its_attributes_are_cached() {
    let name = "refused::umount_of_a_busy_dead_mount_succeeds_while_its_attributes_are_cached";
    unmount_busy_after_server_died(name, |point| {
        assert!(std::fs::metadata(point).expect("attributes").is_dir());
    });
}

#[test]
fn missing_fuse_device_is_reported() {
    let name = "refused::missing_fuse_device_is_reported";
    if !has_e2fsprogs(name) {
        return;
    }
    let image = Image::new(16, 1024);
    let point = image.directory("point");
    let script = "mount -t tmpfs none /dev && exec \"$0\" mount -f \"$1\" \"$2\"";
    let arguments: [&OsStr; 6] = [
        "-m".as_ref(),
        "sh".as_ref(),
        "-c".as_ref(),
        script.as_ref(),
        kumi().as_os_str(),
        image.path().as_os_str(),
    ];
    let output = run("unshare", &[&arguments[..], &[point.as_os_str()]].concat());
    expect_refusal("no /dev/fuse", &output, "/dev/fuse: No such file or directory", Some(&point));
}

#[test]
fn server_without_kernel_threads_for_signals_leaves_no_mount() {
    if !can_mount("refused::server_without_kernel_threads_for_signals_leaves_no_mount") {
        return;
    }
    let scratch = Scratch::new("signals");
    let [store, point] = ["store", "point"].map(|name| scratch.path().join(name));
    for directory in [&store, &point] {
        std::fs::create_dir(directory).expect("a directory");
    }
    let output = Command::new(kumi())
        .args(["mount", "-f", "--organisation", "kernel-threads"])
        .args([&store, &point])
        // More than the address space of a process has room for.
        .env("RUST_MIN_STACK", (1_u64 << 46).to_string())
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    expect_refusal("no kernel thread", &output, "cannot wait for signals: ", Some(&point));
}

/// As an unprivileged user: with fusermount3, if it is installed set-user-ID.
#[test]
fn unprivileged_mount_needs_fusermount3() {
    let name = "refused::unprivileged_mount_needs_fusermount3";
    if !can_mount(name) {
        return;
    }
    let scratch = Scratch::new("refused");
    let (served, point) = (scratch.directory("served"), scratch.directory("point"));
    let run_directory = scratch.directory("run");
    for path in [&served, &point, &run_directory] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("chown");
    }
    // A copy in an accessible directory: the build directory may be below root's home.
    let copy = scratch.path().join("kumi");
    std::fs::copy(kumi(), &copy).expect("the program");
    let as_nobody = |path: &str, arguments: &[&OsStr]| {
        let mut command = Command::new("setpriv");
        // env(1) sets PATH after setpriv(1) has been found in the original PATH.
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/env"])
            .arg(format!("PATH={path}"));
        command.arg(&copy).args(arguments).env("KUMI_DIR", &run_directory).stdin(Stdio::null());
        command
    };
    let mounts: [&OsStr; 3] = ["mount".as_ref(), served.as_os_str(), point.as_os_str()];
    let foreground: [&OsStr; 4] =
        ["mount".as_ref(), "-f".as_ref(), served.as_os_str(), point.as_os_str()];
    let Ok(without) = as_nobody("/none", &foreground).output() else {
        return skip(name, "no setpriv(1) here");
    };
    expect_refusal("no fusermount3", &without, "fusermount3", Some(&point));
    let path = std::env::var("PATH").expect("a path");
    let begun = as_nobody(&path, &mounts)
        .stderr(File::create(scratch.path().join("errors")).expect("a file"))
        .status();
    if !begun.expect("setpriv(1)").success() {
        let said = std::fs::read_to_string(scratch.path().join("errors")).expect("the log");
        assert!(said.starts_with("kumi: "), "{said}");
        return skip(name, said.trim_end());
    }
    // Other users, including root, have no access to the mount.
    let root = std::fs::read_dir(&point).map(|_| ()).map_err(|e| e.kind());
    let ended =
        as_nobody(&path, &["umount".as_ref(), point.as_os_str()]).output().expect("kumi umount");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(root, Err(std::io::ErrorKind::PermissionDenied));
}

#[test]
fn invalid_arguments_are_refused() {
    let table: [(&[&str], &str); 7] = [
        (&["mount"], "required"),
        (&["mount", "--organisation", "none", "a", "b"], "microprocesses"),
        (&["mount", "--threads", "0", "a", "b"], "threads"),
        (&["mount", "--threads", "many", "a", "b"], "threads"),
        (&["mount", "--cache", "lots", "a", "b"], "expected a number of bytes"),
        (&["mount", "--delay", "5", "a", "b"], "expected a time"),
        (&["umount"], "required"),
    ];
    for (arguments, fragment) in table {
        let output = run(kumi(), arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && said.contains(fragment),
            "{arguments:?}: {}: {said}",
            output.status
        );
    }
}
