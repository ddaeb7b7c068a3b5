//! Gates between processes.

use super::*;

/// Another process of this program.
struct PeerProcess {
    process: Child,
    says: Option<ChildStdin>,
    hears: BufReader<ChildStdout>,
}

impl PeerProcess {
    fn begin(room: &TestDirectory, role: &str) -> PeerProcess {
        PeerProcess::begin_as(0, room, role)
    }

    fn begin_as(uid: u32, room: &TestDirectory, role: &str) -> PeerProcess {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "link::link_poller::tests::processes::peer_process",
            "--exact",
            "--nocapture",
        ]);
        command.env("KUMI_GATE_ROLE", role).env("KUMI_GATE_ROOM", &room.0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if uid != 0 {
            command.uid(uid).gid(uid);
        }
        let mut process = command.spawn().expect("this program again");
        let (says, hears) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        PeerProcess { process, says, hears }
    }

    /// What it says next, past libtest's own lines.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.hears.read_line(&mut line).unwrap(), 0, "it ended");
            if let Some((_, line)) = line.split_once('@') {
                return line.trim_end().to_owned();
            }
        }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn signal(&self, signal: i32) {
        // SAFETY: integers; it is our child, and not reaped.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    fn ends_well(mut self) {
        self.says = None;
        let mut rest = String::new();
        self.hears.read_to_string(&mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "{rest}");
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn say(line: impl std::fmt::Display) {
    println!("@{line}");
    std::io::stdout().flush().unwrap();
}

fn wait_for_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// What the other process does; no test where nobody asks for it.
#[test]
fn peer_process() {
    let (Ok(role), Some(path)) =
        (std::env::var("KUMI_GATE_ROLE"), std::env::var_os("KUMI_GATE_ROOM"))
    else {
        return;
    };
    let room = std::mem::ManuallyDrop::new(TestDirectory(path.into()));
    match role.split_once(' ').unwrap_or((&role, "")) {
        ("serve", allowed) => serves(&room, allowed.parse().ok()),
        ("call", name) => calls(&room, name),
        ("connect", name) => {
            let machine = Machine::at(&room.0).map_err(Error::from);
            match machine
                .and_then(|machine| LinkPoller::new().connect(&machine, &hello(name), LONG))
            {
                Ok(established) => say(format!("in {:?}", established.peer.uid)),
                Err(why) => say(format!("{:?} {why}", why.kind())),
            }
        }
        ("thousand", _) => a_thousand(&room),
        ("fork", _) => forks(&room),
        _ => panic!("{role}"),
    }
}

/// Says what it is told, and answers rings.
fn serves(room: &TestDirectory, allowed: Option<u32>) {
    let (poller, number, (test_gate, told)) = (LinkPoller::new(), room.number(), test_gate());
    let _clock =
        poller.publish(&number, "clock", &Vec::from_iter(allowed), test_gate.clone()).unwrap();
    let shut = poller.publish(&number, "shut", &[], test_gate).unwrap();
    say("ready");
    std::thread::spawn(move || {
        let mut links = Vec::new();
        for told in told {
            match told {
                Notification::Opened(link) => {
                    say(format!("opened {:?} {:?}", link.peer().uid, link.peer().pid));
                    links.push(link);
                }
                Notification::Rang => {
                    say("rang");
                    links.iter().for_each(Link::ring);
                }
                Notification::Gone(why) => say(format!("gone {:?} {why}", why.kind())),
                other => say(format!("{other:?}")),
            }
        }
    });
    wait_for_end();
    drop(shut);
}

fn calls(room: &TestDirectory, name: &str) {
    let (link, told) = linked(&LinkPoller::new(), room, name);
    link.ring();
    say("linked");
    wait_for_end();
    drop(told);
}

#[test]
fn two_processes_shake_hands_ring_and_pass_memory() {
    let room = TestDirectory::new();
    let mut server = PeerProcess::begin(&room, "serve");
    assert_eq!(server.line(), "ready");
    let poller = LinkPoller::new();
    let wanted = Hello { size: LaneSize { cells: 4, inline: 256 }, ..hello("clock") };
    let established = poller.connect(&room.machine(), &wanted, LONG).unwrap();
    assert_eq!(established.welcome.size, LaneSize { cells: 8, inline: 256 });
    assert_eq!(established.welcome.wake_address, Some(WakeAddress { board: 1, row: 2, bit: 3 }));
    assert_eq!(established.peer.pid, Some(server.process.id()));
    let mut lane = [0; LANE.len()];
    rustix::io::pread(&established.lane, &mut lane[..], 0).unwrap();
    assert_eq!(lane, LANE);
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(server.line(), format!("opened {uid} Some({})", std::process::id()));
    drop(established);
    assert!(server.line().starts_with("gone Gone"));

    let (link, told) = linked(&poller, &room, "clock");
    assert!(server.line().starts_with("opened"));
    for _ in 0..10 {
        link.ring();
        assert_eq!(server.line(), "rang");
        assert!(matches!(next(&told), Notification::Rang));
    }
    link.pass_region(7, memory(b"payload").as_fd(), 7).unwrap();
    link.forget_region(7).unwrap();
    assert_eq!(server.line(), format!("{:?}", Notification::Region(7, 7, b"payload".into())));
    assert_eq!(server.line(), "Forgotten(7)");
    link.close(&Error::new(ErrorKind::Cancelled, "enough"));
    assert_eq!(server.line(), "gone Cancelled enough");
    assert_eq!(gone(&told).kind(), ErrorKind::Gone);
    assert_eq!(link.forget_region(7).unwrap_err().kind(), ErrorKind::Gone);
    link.ring();
    let nobody = poller.connect(&room.machine(), &hello("nobody"), LONG).unwrap_err();
    assert!(
        nobody.kind() == ErrorKind::NotFound && nobody.to_string().contains("nobody"),
        "{nobody}"
    );
    server.ends_well();
    assert_eq!(
        poller.connect(&room.machine(), &hello("clock"), LONG).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn killed_servers_name_is_free_and_its_clients_are_notified() {
    let room = TestDirectory::new();
    let mut server = PeerProcess::begin(&room, "serve");
    assert_eq!(server.line(), "ready");
    let (poller, number, (test_gate, served)) = (LinkPoller::new(), room.number(), test_gate());
    let in_use = poller.publish(&number, "clock", &[], test_gate.clone()).err().unwrap();
    assert_eq!(in_use.kind(), ErrorKind::InUse);
    assert!(in_use.to_string().contains(&server.process.id().to_string()), "{in_use}");
    let callers: Vec<_> = (0..20).map(|_| linked(&poller, &room, "clock")).collect();
    server.kill();
    for (_, told) in &callers {
        assert_eq!(gone(told).kind(), ErrorKind::Gone);
    }
    let serving = poller.publish(&number, "clock", &[], test_gate.clone()).unwrap();
    assert_eq!(
        poller.publish(&number, "clock", &[], test_gate).err().unwrap().kind(),
        ErrorKind::InUse
    );
    // To itself, too.
    let (link, told) = linked(&poller, &room, "clock");
    let its = opened(&served);
    link.ring();
    assert!(matches!(next(&served), Notification::Rang));
    its.ring();
    assert!(matches!(next(&told), Notification::Rang));
    // Links outlive the name.
    drop(serving);
    assert_eq!(
        poller.connect(&room.machine(), &hello("clock"), LONG).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    link.ring();
    assert!(matches!(next(&served), Notification::Rang));
    drop(its);
    assert_eq!(gone(&told).to_string(), "the other side has closed the link");
}

#[test]
fn killed_client_ends_its_link() {
    let room = TestDirectory::new();
    let (poller, number, (test_gate, told)) = (LinkPoller::new(), room.number(), test_gate());
    let _serving = poller.publish(&number, "clock", &[], test_gate).unwrap();
    let mut caller = PeerProcess::begin(&room, "call clock");
    let link = opened(&told);
    assert_eq!(link.peer().pid, Some(caller.process.id()));
    assert_eq!(caller.line(), "linked");
    caller.kill();
    assert_eq!(gone(&told).kind(), ErrorKind::Gone);
}

#[test]
fn rings_do_not_block_on_a_stopped_process() {
    let room = TestDirectory::new();
    let mut server = PeerProcess::begin(&room, "serve");
    assert_eq!(server.line(), "ready");
    let poller = LinkPoller::new();
    let (link, told) = linked(&poller, &room, "clock");
    assert!(server.line().starts_with("opened"));
    server.signal(libc::SIGSTOP);
    // More than any socket's buffer takes.
    (0..10_000).for_each(|_| link.ring());
    server.signal(libc::SIGCONT);
    assert_eq!(server.line(), "rang");
    assert!(matches!(next(&told), Notification::Rang));
}

#[test]
fn other_users_connect_where_they_are_allowed() {
    if !rustix::process::geteuid().is_root() {
        let text = b"\n[skip] other_users_connect_where_they_are_allowed: only root can be several users\n";
        return std::io::stderr().write_all(text).unwrap();
    }
    const OWNER: u32 = 54321;
    const GUEST: u32 = 54322;
    const STRANGER: u32 = 54323;
    let room = TestDirectory::new();
    chown(&room.0, Some(OWNER), None).unwrap();
    let said = |uid, what: &str| PeerProcess::begin_as(uid, &room, what).line();
    let mut shut = PeerProcess::begin_as(OWNER, &room, "serve");
    assert_eq!(shut.line(), "ready");
    assert!(said(GUEST, "connect clock").starts_with("Io"), "the directory is shut");
    shut.kill();
    let mut server = PeerProcess::begin_as(OWNER, &room, &format!("serve {GUEST}"));
    assert_eq!(server.line(), "ready");
    for uid in [0, OWNER, GUEST] {
        assert_eq!(said(uid, "connect clock"), format!("in {OWNER}"));
        assert!(server.line().starts_with(&format!("opened {uid} ")));
        assert!(server.line().starts_with("gone"));
    }
    for (uid, name) in [(GUEST, "shut"), (STRANGER, "shut"), (STRANGER, "clock")] {
        let text = said(uid, &format!("connect {name}"));
        assert!(text.starts_with("NotPermitted") && text.contains(&uid.to_string()), "{text}");
        assert!(text.contains(&OWNER.to_string()), "{text}");
    }
    server.ends_well();
}

fn count(of: &str) -> usize {
    fs::read_dir(format!("/proc/self/{of}")).unwrap().count()
}

/// The mask of the poller's kernel thread.
fn blocked() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|one| one.unwrap().path());
    let poller = tasks.filter(|path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "kumi-gates\n")
    });
    let status = fs::read_to_string(poller.last().expect("it is there").join("status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

/// In a process that does nothing else.
fn a_thousand(room: &TestDirectory) {
    let limit = rustix::process::Rlimit { current: Some(8192), maximum: Some(8192) };
    if let Err(e) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
        say(format!("skip {e}"));
        return;
    }
    let number = room.number();
    let (machine, (descriptors, threads)) = (room.machine(), (count("fd"), count("task")));
    let poller = LinkPoller::new();
    for _ in 0..3 {
        let (test_gate, told) = test_gate();
        let serving = poller.publish(&number, "clock", &[], test_gate).unwrap();
        let callers: Vec<_> = (0..1_000).map(|_| linked(&poller, room, "clock")).collect();
        let hosts: Vec<_> = callers.iter().map(|_| opened(&told)).collect();
        assert_eq!(count("task"), threads + 1);
        for signal in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGURG,
            libc::SIGPROF,
            libc::SIGCHLD,
            libc::SIGRTMAX(),
        ] {
            assert_ne!(blocked() & 1 << (signal - 1), 0, "signal {signal}");
        }
        assert_eq!(count("fd"), descriptors + 3 + 2_000, "epoll, wakeup, listener, and two ends");
        callers.iter().for_each(|(link, _)| link.ring());
        for _ in &hosts {
            assert!(matches!(next(&told), Notification::Rang));
        }
        drop(serving);
        for (link, told) in callers {
            drop(link);
            assert_eq!(gone(&told).kind(), ErrorKind::Gone);
        }
        drop(hosts);
        until(|| count("task") == threads, || "the kernel thread has not ended".into());
        until(
            || count("fd") == descriptors,
            || format!("{} descriptors, not {descriptors}", count("fd")),
        );
        assert_eq!(machine.gates().unwrap(), []);
    }
    say("well");
}

#[test]
fn thousand_links_leak_nothing() {
    let room = TestDirectory::new();
    let mut other = PeerProcess::begin(&room, "thousand");
    let said = other.line();
    if let Some(why) = said.strip_prefix("skip") {
        let text = format!("\n[skip] thousand_links_leak_nothing: descriptors: {why}\n");
        return std::io::stderr().write_all(text.as_bytes()).unwrap();
    }
    assert_eq!(said, "well");
    other.ends_well();
}

/// The listener and the kernel thread come and go all the time, and no caller of a gate that is
/// there is turned away.
#[test]
fn gates_are_published_and_closed_concurrently() {
    let room = TestDirectory::new();
    let (poller, number) = (LinkPoller::new(), room.number());
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (poller, number, room) = (&poller, &number, &room);
            scope.spawn(move || {
                let name = format!("gate {n}");
                for poll_loop in 0..200 {
                    let (test_gate, told) = test_gate();
                    let allowed = [54321];
                    let allowed = if (n + poll_loop) % 3 == 0 { &allowed[..] } else { &[] };
                    let serving = poller.publish(number, &name, allowed, test_gate).unwrap();
                    let (link, _) = linked(poller, room, &name);
                    let its = opened(&told);
                    link.ring();
                    assert!(matches!(next(&told), Notification::Rang));
                    if poll_loop % 2 == 0 {
                        drop((serving, link));
                    } else {
                        drop((its, serving));
                    }
                    assert_eq!(gone(&told).kind(), ErrorKind::Gone);
                }
            });
        }
    });
    assert_eq!(room.machine().gates().unwrap(), []);
    assert!(!room.0.join(format!("{}.gates", number.location().space())).exists());
    until(|| poller.lock().running.is_none(), || "the kernel thread has not ended".into());
    assert_eq!(poller.refused().0, 0);
}

/// Its child lives on when it is killed.
fn forks(room: &TestDirectory) {
    let poller = LinkPoller::of_process();
    let (number, (test_gate, _told)) = (room.number(), test_gate());
    let serving = poller.publish(&number, "forked", &[], test_gate.clone()).unwrap();
    let (link, told) = linked(poller, room, "clock");
    // SAFETY: the child uses what the test looks at, and never returns; glibc lets it allocate.
    if unsafe { libc::fork() } == 0 {
        number.forget_in_child();
        let refused = [
            poller.publish(&number, "more", &[], test_gate).err().unwrap(),
            poller.connect(&room.machine(), &hello("clock"), LONG).unwrap_err(),
        ];
        assert!(
            refused.iter().all(|e| e.kind() == ErrorKind::Io && e.to_string().contains("fork"))
        );
        link.ring();
        assert_eq!(link.forget_region(1).unwrap_err().kind(), ErrorKind::Gone);
        drop((link, serving, told));
        say("child");
        wait_for_end();
        // SAFETY: ends the process without anything that belongs to the parent.
        unsafe { libc::_exit(0) }
    }
    std::mem::forget((link, serving));
    loop {
        std::thread::park();
    }
}

#[test]
fn forked_child_leaves_its_parents_links_alone() {
    let room = TestDirectory::new();
    let (poller, number, (test_gate, told)) = (LinkPoller::new(), room.number(), test_gate());
    let _serving = poller.publish(&number, "clock", &[], test_gate.clone()).unwrap();
    let mut parent = PeerProcess::begin(&room, "fork");
    let link = opened(&told);
    assert_eq!(parent.line(), "child");
    link.ring();
    assert!(told.try_recv().is_err(), "the child has not ended the link, and rings nobody");
    parent.kill();
    assert_eq!(gone(&told).kind(), ErrorKind::Gone);
    poller.publish(&number, "forked", &[], test_gate).unwrap();
}
