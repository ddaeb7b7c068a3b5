//! Servers that die, clients that die, and what runs out.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kumihimo_conformance::{Image, Mounted, Options, Organisation};
use kumihimo_tests::process;
use rustix::io::Errno;

use crate::ground::{has_e2fsprogs, kumi, serve};

/// A longer wait is a hang.
const LIMIT: Duration = Duration::from_secs(60);

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).expect("an error of the kernel")
}

/// A server that takes so long for each block that clients wait whenever it is killed, and whose
/// attributes the kernel does not keep.
fn slow(organisation: Organisation, image: &Image) -> Mounted {
    Mounted::start(
        kumi(),
        &Options::new(organisation).with(&["--delay", "20ms", "--timeout", "0"]),
        image.path(),
    )
}

/// Clients get an error, and what is left is cleared by `kumi umount`.
fn killed_while_clients_wait(name: &str, organisation: Organisation) {
    if !has_e2fsprogs(name) {
        return;
    }
    let image = Image::new(64, 1024);
    let filled = serve(Organisation::Microprocesses, &image);
    for n in 0..4 {
        std::fs::write(filled.path().join(format!("f{n}")), vec![n; 2_000_000]).expect("a file");
    }
    filled.unmount();
    let mounted = slow(organisation, &image);
    let open = File::open(mounted.path().join("f0")).expect("it opens");
    let (sender, receiver) = mpsc::channel();
    for n in 0..4 {
        let (sender, path) = (sender.clone(), mounted.path().join(format!("f{n}")));
        std::thread::spawn(move || {
            sender.send(None).expect("it listens");
            sender.send(Some(std::fs::read(path).map(|_| ()))).expect("it listens");
        });
    }
    for _ in 0..4 {
        assert!(receiver.recv_timeout(LIMIT).expect("it begins").is_none());
    }
    process::send_signal(mounted.pid(), rustix::process::Signal::KILL).expect("it is a child");
    for _ in 0..4 {
        let ended = receiver.recv_timeout(LIMIT).expect("nobody hangs").expect("an end");
        let error = errno(&ended.expect_err("2 MB take longer"));
        assert!([Errno::NOTCONN, Errno::CONNABORTED, Errno::IO].contains(&error), "{error:?}");
    }
    let error = open.read_at(&mut [0; 10], 1_500_000).expect_err("there is no server");
    assert!([Errno::NOTCONN, Errno::CONNABORTED, Errno::IO].contains(&errno(&error)), "{error}");
    // Nothing that the kernel still knows by itself.
    let made = std::fs::create_dir(mounted.path().join("new"));
    assert_eq!(errno(&made.expect_err("there is no server")), Errno::NOTCONN);
    drop(open);
    mounted.clear();
    image.repair();
    serve(organisation, &image).unmount();
}
crate::organisations::organisations!(killed_while_clients_wait);

/// Until dd waits for its input: read(2), which is call 0, of descriptor 0; proc_pid_syscall(5).
fn until_it_reads(dd: &mut Child) {
    let begun = Instant::now();
    while !std::fs::read_to_string(format!("/proc/{}/syscall", dd.id()))
        .is_ok_and(|said| said.starts_with("0 0x0 "))
    {
        assert!(dd.try_wait().expect("a child").is_none(), "it ended before it was killed");
        assert!(begun.elapsed() < LIMIT, "dd never reads");
        std::thread::yield_now();
    }
}

/// A client that is killed while it waits ends at once, and the server goes on.
#[test]
fn clients_that_are_killed_while_they_wait() {
    let name = "lives::clients_that_are_killed_while_they_wait";
    if !has_e2fsprogs(name) {
        return;
    }
    for organisation in [Organisation::KernelThreads, Organisation::Microprocesses] {
        let image = Image::new(64, 1024);
        let filled = serve(Organisation::Microprocesses, &image);
        std::fs::write(filled.path().join("f"), vec![7; 4_000_000]).expect("a file");
        filled.unmount();
        let mounted = slow(organisation, &image);
        let mut clients: Vec<_> = (0..4)
            .map(|n| {
                let input = format!("if={}", mounted.path().join("f").display());
                let skip = format!("skip={}", 500 + 700 * n);
                let mut dd = Command::new("dd");
                dd.args([&input, "of=/dev/null", "bs=1k", "iflag=direct", &skip])
                    .stderr(Stdio::null());
                dd.spawn().expect("dd(1)")
            })
            .collect();
        for client in &mut clients {
            until_it_reads(client);
            client.kill().expect("it is a child");
        }
        for mut client in clients {
            let status = client.wait().expect("it ends");
            assert!(!status.success());
        }
        assert_eq!(
            std::fs::metadata(mounted.path().join("f")).expect("it is served").len(),
            4_000_000
        );
        mounted.unmount();
        image.expect_clean();
    }
}

/// The medium fails in the middle: the image is cut off while it is served.
#[test]
fn a_medium_that_fails() {
    let name = "lives::a_medium_that_fails";
    if !has_e2fsprogs(name) {
        return;
    }
    let image = Image::new(64, 4096);
    let filled = serve(Organisation::Microprocesses, &image);
    std::fs::write(filled.path().join("f"), vec![1; 30 << 20]).expect("a file");
    filled.unmount();
    let mounted = serve(Organisation::Microprocesses, &image);
    let before = std::fs::read(image.path()).expect("the image");
    let medium = OpenOptions::new().write(true).open(image.path()).expect("the image");
    medium.set_len(16 << 20).expect("it is cut");
    let error = std::fs::read(mounted.path().join("f")).expect_err("most of it is gone");
    assert_eq!(errno(&error), Errno::IO);
    // What is there is served.
    assert!(std::fs::metadata(mounted.path().join("f")).expect("stat").len() == 30 << 20);
    medium.write_all_at(&before, 0).expect("it is back");
    drop(mounted);
    image.repair();
}

#[test]
fn ten_thousand_files_can_be_open() {
    const NAME: &str = "lives::ten_thousand_files_can_be_open";
    if !has_e2fsprogs(NAME) {
        return;
    }
    process::alone(NAME, || {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let most = getrlimit(Resource::Nofile).maximum;
        if most.is_some_and(|most| most < 10_100) {
            return kumihimo_tests::skip(NAME, "the hard limit of open files is less");
        }
        setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })
            .expect("up to the hard limit");
        let image = Image::with(64, 1024, &["-N", "12000"]);
        let mounted = serve(Organisation::Microprocesses, &image);
        let files: Vec<File> = (0..10_000u32)
            .map(|n| {
                let path = mounted.path().join(format!("f{n}"));
                let mut file = File::options()
                    .create_new(true)
                    .read(true)
                    .write(true)
                    .open(path)
                    .expect("it opens");
                file.write_all(&n.to_ne_bytes()).expect("it is written");
                file
            })
            .collect();
        for (n, file) in (0u32..).zip(&files) {
            let mut bytes = [0; 4];
            file.read_exact_at(&mut bytes, 0).expect("it is read");
            assert_eq!(u32::from_ne_bytes(bytes), n);
        }
        drop(files);
        mounted.unmount();
        image.expect_clean();
    });
}

/// Without `-f` the command returns when the mount is served; the server ends with the mount,
/// however that is taken away.
fn in_the_background(organisation: Organisation, clock: bool) {
    let image = Image::new(16, 1024);
    let (point, clock_point, run) =
        (image.directory("point"), image.directory("clock"), image.directory("run"));
    let log = image.directory("log").join("file");
    let begin = || {
        let mut command = Command::new(kumi());
        command.arg("mount").args(["--organisation", &organisation.to_string(), "--log"]).arg(&log);
        if clock {
            command.arg("--clock").arg(&clock_point);
        }
        command.args([image.path(), &point]).env("KUMI_DIR", &run);
        // Through pipes, which end only when nobody has them any more: no server may keep them.
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(command.output()));
        let output = receiver.recv_timeout(LIMIT).expect("the pipes end").expect("kumi");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    };
    begin();
    std::fs::write(point.join("f"), "text").expect("it is served");
    assert!(!clock || std::fs::read(clock_point.join("now")).expect("the time").len() == 20);
    let device = std::fs::metadata(&point).expect("stat").dev();
    assert_ne!(device, std::fs::metadata(image.path()).expect("stat").dev());
    // The holder of the image's lock.
    let unmount = |program: &Path, first: &[&str], point: &Path| {
        assert!(Command::new(program).args(first).arg(point).status().expect("it runs").success());
    };
    // The server writes what is left and gives the image back: then the lock is free.
    let given_back = || {
        let lock = File::open(image.path()).expect("the image");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
            .expect("it is given back");
    };
    unmount(kumi(), &["umount"], &point);
    // In one process with the clock, that is served until its mount is taken away, too; a clock of
    // its own ends with the files.
    if clock && organisation != Organisation::Processes {
        unmount(kumi(), &["umount"], &clock_point);
    }
    given_back();
    image.expect_clean();
    if !clock {
        begin();
        assert_eq!(std::fs::read_to_string(point.join("f")).expect("it is read"), "text");
        unmount(Path::new("umount"), &[], &point);
        given_back();
    }
    assert_eq!(std::fs::read_to_string(&log).expect("what it said"), "");
}

#[test]
fn in_the_background_files_alone() {
    if has_e2fsprogs("lives::in_the_background_files_alone") {
        in_the_background(Organisation::Microprocesses, false);
    }
}

#[test]
fn in_the_background_with_a_clock() {
    if has_e2fsprogs("lives::in_the_background_with_a_clock") {
        in_the_background(Organisation::Microprocesses, true);
        in_the_background(Organisation::Processes, true);
    }
}
