//! Regular use of the control socket.

mod harness;

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use harness::{AtEnd, Double, Room, Served, alone, pipe, serving};
use kumihimo_machine::Error;
use kumihimo_machine::handler::{Action, Done, Metric, Refused};
use kumihimo_machine::space::Limits;
use kumihimo_resource::id::Kind;

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> Refused {
    match result {
        Err(Error::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn notified_neighbour_runs_its_handler() {
    let room = Room::new();
    let (sender, receiver) = mpsc::channel();
    let notified = Box::new(move || sender.send(()).expect("the receiver is alive"));
    let served = room.serve(Double { notified: Some(notified), ..Double::with(0) });
    let other = room.serve(Double::with(0));
    for _ in 0..3 {
        other.number.notify(served.space);
        receiver.recv_timeout(Duration::from_secs(60)).expect("the handler is called");
    }
    // Notifies itself, a number without an address space, and faster than the listener reads.
    served.number.notify(served.space);
    receiver.recv_timeout(Duration::from_secs(60)).expect("the handler is called");
    other.number.notify(4000);
    (0..1000).for_each(|_| other.number.notify(served.space));
    receiver.recv_timeout(Duration::from_secs(60)).expect("the handler is called");
    let core_listener = room.path().join(format!("{}.ear", served.space));
    assert_eq!(
        std::fs::metadata(&core_listener).expect("a socket").permissions().mode() & 0o777,
        0o600
    );
    let gone = served.space;
    drop(served);
    assert!(!core_listener.exists());
    other.number.notify(gone);
}

#[test]
fn all_requests_are_answered() {
    let room = Room::new();
    let metric = Metric {
        name: "kumihimo_things_total".into(),
        help: "Things.".into(),
        counter: true,
        samples: vec![
            (vec![("vp".into(), "0".into())], 1.5),
            (vec![("vp".into(), "1".into())], f64::NAN),
            (Vec::new(), 1e300),
        ],
    };
    let trace: Vec<u8> = (0..5_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let double = Double { metrics: vec![metric], trace: Some(trace.clone()), ..Double::with(100) };
    let served = room.serve(double);
    let spaces = room.machine().spaces().unwrap();
    assert_eq!(spaces.iter().map(|one| one.number()).collect::<Vec<_>>(), [served.space]);

    let (mut neighbour, double) = (served.neighbour(), &served.double);
    for _ in 0..2 {
        let space = neighbour.space().unwrap();
        assert_eq!(
            (space.pid, space.living, space.id.location()),
            (std::process::id(), 100, served.number.location())
        );
        assert_eq!(
            neighbour.microprocesses().unwrap(),
            (0..100).map(|slot| double.one(slot)).collect::<Vec<_>>()
        );
        assert_eq!(neighbour.microprocess(double.id(3)).unwrap(), double.one(3));
        assert_eq!(
            neighbour.resources(None).unwrap(),
            (0..100).map(|slot| double.row(slot)).collect::<Vec<_>>()
        );
        assert_eq!(neighbour.resources(Some(Kind::TIMER)).unwrap().len(), 100);
        assert_eq!(neighbour.resources(Some(Kind::FIRST_OWN)).unwrap(), []);
        assert_eq!(neighbour.act(double.id(5), Action::Suspend).unwrap(), Done::Now);
        assert_eq!(neighbour.act(double.id(6), Action::Priority(63)).unwrap(), Done::Now);
        assert!(neighbour.backtrace(double.id(0)).unwrap().ends_with("\nmain\n"));
        let metrics = neighbour.metrics().unwrap();
        // A value that JSON cannot represent is omitted.
        assert_eq!(
            metrics[0].samples.iter().map(|sample| sample.1).collect::<Vec<_>>(),
            [1.5, 1e300]
        );
        assert_eq!(metrics[1].name, "kumihimo_control_refused_total");
        let mut taken = Vec::new();
        neighbour.trace(&mut taken).unwrap();
        assert_eq!(taken, trace);
    }
    let acted = [(double.id(5), Action::Suspend), (double.id(6), Action::Priority(63))];
    assert_eq!(*double.acted.lock().unwrap(), [acted, acted].concat());
    assert_eq!(served.control.refused(), 0);
}

#[test]
fn errors_are_returned_and_keep_the_connection_open() {
    let room = Room::new();
    let served = room.serve(Double::with(3));
    let mut neighbour = served.neighbour();
    let stale = served.double.id(3);
    for _ in 0..3 {
        let Refused::Stale(text) = refused(neighbour.microprocess(stale)) else { panic!() };
        assert!(text.contains(&stale.to_string()), "{text}");
        assert!(matches!(refused(neighbour.act(stale, Action::Cancel)), Refused::Stale(_)));
        let Refused::Unsupported(text) = refused(neighbour.trace(&mut Vec::new())) else {
            panic!()
        };
        assert_eq!(text, "nothing is traced here");
        assert_eq!(neighbour.microprocesses().unwrap().len(), 3);
    }
    assert!(served.double.acted.lock().unwrap().is_empty());
}

#[test]
fn requests_sent_together_are_answered_in_order() {
    let room = Room::new();
    let served = room.serve(Double::with(2));
    let mut raw = served.raw();
    let one = "{\"protocol\":1,\"ask\":\"microprocesses\"}\n{\"protocol\":1,\"ask\":\"space\"}\n";
    raw.say(one.repeat(10));
    raw.0.get_ref().shutdown(Shutdown::Write).unwrap();
    let answer = String::from_utf8(raw.rest()).unwrap();
    let ends: Vec<&str> = answer.lines().filter(|line| line.contains("end")).collect();
    assert_eq!(ends, ["{\"end\":2}", "{\"end\":1}"].repeat(10));
    assert_eq!(answer.lines().count(), 10 * (3 + 2));
}

#[test]
fn neighbour_reconnects_after_the_server_closed_the_connection() {
    let room = Room::new();
    let served = room.serve_within(
        Double::with(1),
        Limits { patience: Duration::from_millis(200), ..Limits::default() },
    );
    let mut neighbour = served.neighbour();
    neighbour.space().unwrap();
    // A younger connection, so the neighbour's is closed first.
    assert_eq!(served.raw().line(), "");
    neighbour.space().unwrap();
}

#[test]
fn handler_panic_is_an_error() {
    let room = Room::new();
    let panics = Box::new(|| std::panic::panic_any(()));
    let served = room.serve(Double { before: Some(panics), ..Double::with(1) });
    let mut neighbour = served.neighbour();
    let Refused::Failed(text) = refused(neighbour.microprocess(served.double.id(0))) else {
        panic!()
    };
    assert!(text.contains("panicked"), "{text}");
    assert_eq!(neighbour.microprocesses().unwrap().len(), 1);
}

#[test]
fn request_fails_after_the_handler_is_dropped() {
    alone(|| {
        let room = Room::new();
        let Served { control, number, double, space, .. } = room.serve(Double::with(1));
        drop(double);
        let mut neighbour = room.machine().neighbour(space).unwrap();
        let Refused::Failed(text) = refused(neighbour.space()) else { panic!() };
        assert!(text.contains("ending"), "{text}");
        drop((control, number));
        assert!(matches!(room.machine().neighbour(space), Err(Error::Gone(_))));
    });
}

/// The handler may own the control socket, and the last reference to the handler may be dropped on
/// the control kernel thread.
#[test]
fn handler_may_be_dropped_on_the_control_thread() {
    let room = Room::new();
    let (control, (ended, end)) = (Arc::new(Mutex::new(None)), mpsc::channel());
    let (asks, asked) = mpsc::channel();
    let (lets_go, let_go) = mpsc::channel();
    let (control_in_it, let_go) = (control.clone(), Mutex::new(let_go));
    let double = Double {
        before: Some(Box::new(move || {
            asks.send(()).unwrap();
            let_go.lock().unwrap().recv().unwrap();
        })),
        at_end: AtEnd(Some(Box::new(move || {
            drop(control_in_it.lock().unwrap().take());
            ended.send(std::thread::current().name() == Some("kumi-control")).unwrap();
        }))),
        ..Double::with(1)
    };
    let served = room.serve(double);
    let (mut neighbour, id) = (served.neighbour(), served.double.id(0));
    *control.lock().unwrap() = Some(served.control);
    let asker = std::thread::spawn(move || neighbour.microprocess(id));
    asked.recv().unwrap();
    drop(served.double);
    lets_go.send(()).unwrap();
    assert!(end.recv().unwrap());
    let _ = asker.join().unwrap();
}

/// Waits until the calling kernel thread is the only one. A joined thread is listed until the
/// kernel has finished its exit.
fn await_other_threads() {
    while std::fs::read_dir("/proc/self/task").unwrap().count() != 1 {
        std::thread::yield_now();
    }
}

#[test]
fn dropped_control_leaves_no_descriptors_or_threads() {
    let room = Room::new();
    room.directory();
    // Allocates everything that the first use keeps permanently.
    drop(room.serve(Double::with(1)));
    let before = harness::fork(0, || {
        let count = harness::descriptors();
        for _ in 0..5 {
            let served =
                room.serve(Double { trace: Some(vec![0; 64 << 20]), ..Double::with(10_000) });
            let _idle = served.raw();
            // Neither client reads its answer, which is longer than the socket's buffer.
            let (mut list, mut trace) = (served.raw(), served.raw());
            list.say("{\"protocol\":1,\"ask\":\"microprocesses\"}\n");
            trace.say("{\"protocol\":1,\"ask\":\"trace\"}\n");
            assert!(trace.line().contains("bytes"));
            drop(served);
            // `drop` waits 3 s for the thread, which may need longer for the list on a busy
            // machine.
            await_other_threads();
            assert_eq!(harness::descriptors(), count + 3, "the test's own clients");
            assert!(!list.rest().ends_with(b"{\"end\":10000}\n"));
        }
        assert_eq!(harness::descriptors(), count);
    });
    before.ends_well();
    assert!(room.machine().spaces().unwrap().is_empty());
    let left: Vec<_> =
        std::fs::read_dir(room.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("socket")), "{left:?}");
}

#[test]
fn control_thread_blocks_signals() {
    let room = Room::new();
    let (_process, number) = serving(&room, Double::with(1));
    let pid = room.machine().neighbour(number).unwrap().space().unwrap().pid;
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let text = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let status = tasks.map(|task| text(task.unwrap().path().join("status")));
    let status = status
        .into_iter()
        .find(|status| status.contains("kumi-control"))
        .expect("the control thread exists");
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
    let blocked = u64::from_str_radix(blocked, 16).unwrap();
    // All signals except SIGKILL, SIGSTOP, the two that glibc reserves (signal(7), nptl(7)), and
    // SIGBUS: a fault in the board while it is blocked would end the process.
    let not: u64 = [7, 9, 19, 32, 33].into_iter().map(|signal: u64| 1 << (signal - 1)).sum();
    assert_eq!(blocked, !not, "{blocked:x}");
}

#[test]
fn slow_trace_reader_does_not_delay_other_requests() {
    let room = Room::new();
    let served = room.serve(Double { trace: Some(vec![7; 32 << 20]), ..Double::with(10) });
    let mut slow = served.raw();
    slow.say("{\"protocol\":1,\"ask\":\"trace\"}\n");
    assert!(slow.line().contains("bytes"));
    let mut neighbour = served.neighbour();
    for _ in 0..100 {
        assert_eq!(neighbour.microprocesses().unwrap().len(), 10);
    }
    let Refused::Busy(text) = refused(neighbour.trace(&mut Vec::new())) else { panic!() };
    assert!(text.contains("trace"), "{text}");
    let rest = slow.rest();
    assert!(rest.ends_with(b"{\"end\":32}\n"), "{}", rest.len());
    assert_eq!(rest.iter().filter(|byte| **byte == 7).count(), 32 << 20);
}

/// An error of the trace's output is returned to the caller, and the address space continues.
#[test]
fn trace_output_error_is_returned() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let room = Room::new();
    let served = room.serve(Double { trace: Some(vec![7; 32 << 20]), ..Double::with(1) });
    let mut neighbour = served.neighbour();
    let error = neighbour.trace(&mut Full).unwrap_err();
    assert!(
        matches!(&error, Error::Io(_, e) if e.kind() == std::io::ErrorKind::StorageFull),
        "{error}"
    );
    assert_eq!(neighbour.microprocesses().unwrap().len(), 1);
}

#[test]
fn address_space_that_dies_during_an_answer_is_gone() {
    let room = Room::new();
    let (_from_child, to_test) = pipe();
    let to_test = Mutex::new(to_test);
    // The request makes the process kill itself.
    let dies = Box::new(move || {
        let _ = to_test.lock().unwrap().write_all(b"x");
        // SAFETY: the call has only integer arguments.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    });
    let (process, number) = serving(&room, Double { before: Some(dies), ..Double::with(1) });
    let machine = room.machine();
    let mut neighbour = machine.neighbour(number).unwrap();
    let id = neighbour.microprocesses().unwrap()[0].id;
    let error = neighbour.microprocess(id).unwrap_err();
    assert!(matches!(error, Error::Gone(_)), "{error}");
    // The kernel closes its connections slightly before it releases its locks.
    process.was_killed();
    assert!(machine.spaces().unwrap().is_empty());
    assert!(!room.path().join(format!("{number}.socket")).exists(), "the socket is removed");
}
