//! Servers and clients that are killed, failing media, and exhausted resources.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kumihimo_conformance::{Image, Mounted, Options, Organisation};
use kumihimo_tests::{process, until};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use crate::ground::{has_e2fsprogs, kumi, separate_descriptors, serve};

/// Timeout. A longer wait means a hang.
const LIMIT: Duration = Duration::from_secs(60);

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).expect("an error of the kernel")
}

/// A server with a slow disk, so that clients are waiting whenever it is killed, and without
/// attribute caching in the kernel.
fn slow(organisation: Organisation, image: &Image) -> Mounted {
    Mounted::start(
        kumi(),
        &Options::new(organisation).with(&["--delay", "20ms", "--timeout", "0"]),
        image.path(),
    )
}

/// Kills the server while clients wait: the clients get an error, and `kumi umount` removes the
/// stale mount.
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
            sender.send(None).expect("a listening socket");
            sender.send(Some(std::fs::read(path).map(|_| ()))).expect("a listening socket");
        });
    }
    for _ in 0..4 {
        assert!(receiver.recv_timeout(LIMIT).expect("it begins").is_none());
    }
    process::send_signal(mounted.pid(), Signal::KILL).expect("it is a child");
    for _ in 0..4 {
        let ended = receiver.recv_timeout(LIMIT).expect("a client hangs").expect("an end");
        let error = errno(&ended.expect_err("2 MB take longer"));
        assert!([Errno::NOTCONN, Errno::CONNABORTED, Errno::IO].contains(&error), "{error:?}");
    }
    let error = open.read_at(&mut [0; 10], 1_500_000).expect_err("there is no server");
    assert!([Errno::NOTCONN, Errno::CONNABORTED, Errno::IO].contains(&errno(&error)), "{error}");
    // A request that the kernel cannot answer from its caches.
    let made = std::fs::create_dir(mounted.path().join("new"));
    assert_eq!(errno(&made.expect_err("there is no server")), Errno::NOTCONN);
    drop(open);
    mounted.clear();
    image.repair();
    serve(organisation, &image).unmount();
}
crate::organisations::organisations!(killed_while_clients_wait);

/// Waits until dd is blocked in read(2) of descriptor 0 (system call 0): proc_pid_syscall(5).
fn until_it_reads(dd: &mut Child) {
    let begun = Instant::now();
    while !std::fs::read_to_string(format!("/proc/{}/syscall", dd.id()))
        .is_ok_and(|said| said.starts_with("0 0x0 "))
    {
        assert!(dd.try_wait().expect("a child").is_none(), "dd ended before it was killed");
        assert!(begun.elapsed() < LIMIT, "dd did not read in time");
        std::thread::yield_now();
    }
}

/// A client that is killed while it waits ends at once, and the server keeps working.
#[test]
fn client_killed_while_waiting_leaves_the_server_running() {
    let name = "lives::client_killed_while_waiting_leaves_the_server_running";
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

/// Returns whether a child of this process executes a program in its own process group.
fn is_group_leader_in_execve() -> bool {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").expect("procfs").flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).any(|pid| {
        // After the name in parentheses: state, parent, process group (proc_pid_stat(5)).
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let mut fields = fields.split(' ').skip(1);
        fields.next().is_some_and(|parent| parent == own.to_string())
            && fields.next() == Some(&pid)
            // System call 59: proc_pid_syscall(5).
            && std::fs::read_to_string(format!("/proc/{pid}/syscall"))
                .is_ok_and(|said| said.starts_with("59 "))
    })
}

/// A child has the descriptors of its parent until it has executed its program. Here the program
/// lies on a mount whose server is stopped, so the child of another test exists as long as this
/// test wants.
#[test]
fn unmount_succeeds_while_another_test_starts_a_program() {
    let name = "lives::unmount_succeeds_while_another_test_starts_a_program";
    if !has_e2fsprogs(name) {
        return;
    }
    let (programs, image) = (Image::new(16, 1024), Image::new(16, 1024));
    let options = Options::new(Organisation::Microprocesses).with(&["--timeout", "0"]);
    let stopped = Mounted::start(kumi(), &options, programs.path());
    let program = stopped.path().join("true");
    std::fs::copy("/bin/true", &program).expect("a copy");
    let mounted = serve(Organisation::Microprocesses, &image);
    process::send_signal(stopped.pid(), Signal::STOP).expect("it is a child");
    // Reported when all of its threads have stopped.
    let pid = i32::try_from(stopped.pid()).ok().and_then(Pid::from_raw).expect("a process");
    waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("it stops");
    let (begun, begins) = mpsc::channel();
    let (start, starts) = mpsc::channel();
    let other = std::thread::spawn(move || {
        separate_descriptors();
        begun.send(()).expect("a receiver");
        starts.recv().expect("a sender");
        Command::new(program).process_group(0).status()
    });
    begins.recv().expect("a sender");
    let file = File::create(mounted.path().join("f")).expect("a file");
    start.send(()).expect("a receiver");
    until("the child is in execve", || (), is_group_leader_in_execve);
    drop(file);
    mounted.unmount();
    process::send_signal(stopped.pid(), Signal::CONT).expect("it is a child");
    assert!(other.join().expect("no panic").expect("it runs").success());
    image.expect_clean();
    stopped.unmount();
}

/// A failing medium: the image is truncated while it is served.
#[test]
fn failing_medium_causes_io_errors() {
    let name = "lives::failing_medium_causes_io_errors";
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
    // Data in the cache or in the rest of the image is still served.
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
            return kumihimo_tests::skip(NAME, "the hard limit of open files is too low");
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

/// Without `-f`, the command returns once the file system is served. The server ends when the file
/// system is unmounted, by whatever program.
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
        // The output goes through pipes, which end only when all writers have closed them. The
        // server must not keep them open.
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
    // The server holds the lock of the image.
    let unmount = |program: &Path, first: &[&str], point: &Path| {
        assert!(Command::new(program).args(first).arg(point).status().expect("it runs").success());
    };
    // The lock is released after the server has written everything.
    let given_back = || {
        let lock = File::open(image.path()).expect("the image");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
            .expect("it is given back");
    };
    unmount(kumi(), &["umount"], &point);
    // With the clock in the same process, the server runs until the clock's mount is removed as
    // well. A separate clock process ends with the file server.
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
    assert_eq!(std::fs::read_to_string(&log).expect("the log"), "");
}

#[test]
fn background_server_ends_with_its_mount() {
    if has_e2fsprogs("lives::background_server_ends_with_its_mount") {
        in_the_background(Organisation::Microprocesses, false);
    }
}

#[test]
fn background_server_with_a_clock_ends_with_its_mounts() {
    if has_e2fsprogs("lives::background_server_with_a_clock_ends_with_its_mounts") {
        in_the_background(Organisation::Microprocesses, true);
        in_the_background(Organisation::Processes, true);
    }
}
