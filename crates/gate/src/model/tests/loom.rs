//! loom models of a gate's bell, of calls over a lane, and of the end of a link.
//!
//! The lane, the calls of a client, the notifier and the rows of both sides are the real ones. A VP
//! is a thread that takes the posts of its row, and sleeps in its cell when there are none. A lost
//! wake-up is a deadlock, which loom reports.

use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize as Count;
use std::time::Instant;

use kumihimo_arbiter::row::{Caller, Cell, Reach, Row, SleepMode};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

use crate::client::calls::{Calls, WaitFailure};
use crate::lane::{ClientEnd, Incoming, ReplyHeader, RequestHeader, ServerEnd, test_lane};
use crate::link::notifier::Notifier;
use crate::link::socket::Link;
use crate::link::wake_address::PeerRow;
use crate::loom::{cancel, current, pass, remote_wake};
use crate::options::Placement;

/// Explores `f`. `KUMI_LOOM_BOUND` raises the bound on preemptions.
fn explore(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    let bound = std::env::var("KUMI_LOOM_BOUND").ok().and_then(|text| text.parse().ok());
    model.preemption_bound = Some(bound.unwrap_or(preemptions));
    model.max_branches = 20_000;
    let (runs, begin) = (std::sync::Arc::new(Count::new(0)), Instant::now());
    let count = runs.clone();
    model.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        f();
    });
    println!("{} executions, {:?}", runs.load(Ordering::Relaxed), begin.elapsed());
}

/// An address space with one VP: its row, and whether it ends.
struct Space {
    row: Row,
    ends: AtomicBool,
}

impl Space {
    fn new() -> Space {
        let cells: Box<[Cell]> = Box::new([Cell::new()]);
        let row =
            Row { head: Box::leak(Box::default()), cells: Box::leak(cells), reach: Reach::Shared };
        Space { row, ends: AtomicBool::new(false) }
    }

    /// The notifier of another address space towards this one.
    fn notifier(&self, placement: Placement) -> Notifier {
        Notifier::new(Some(PeerRow { row: self.row, bit: 5 }), 5, placement)
    }

    /// The loop of the VP: `poll` takes in what has come.
    fn run(&self, poll: impl Fn()) {
        let cell = &self.row.cells[0];
        let take_posts = || {
            if self.row.head.has_posts() && self.row.head.take_posts() != 0 {
                poll();
            }
        };
        while !self.ends.load(Ordering::Acquire) {
            take_posts();
            cell.prepare_sleep(SleepMode::Futex);
            if !self.row.head.has_posts() && !self.ends.load(Ordering::Acquire) {
                cell.sleep(None, self.row.reach);
            }
            cell.finish_sleep();
        }
        take_posts();
    }

    /// Ends the loop, as the end of its process would.
    fn end(&self) {
        self.ends.store(true, Ordering::Release);
        if self.row.cells[0].claim_wake().is_some() {
            self.row.cells[0].wake(self.row.reach);
        }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: `new` leaked both, and the last user of the row has ended.
        unsafe {
            drop(Box::from_raw(std::ptr::from_ref(self.row.head).cast_mut()));
            drop(Box::from_raw(std::ptr::from_ref(self.row.cells).cast_mut()));
        }
    }
}

fn link() -> OnceLock<Link> {
    OnceLock::from(Link { rings: AtomicU32::new(0) })
}

/// Two senders of one address space: one rings at once, the other one leaves that to its VP. The
/// server finds what each has sent before it sleeps, or is woken.
#[test]
fn bell_reaches_a_server_that_goes_to_sleep() {
    explore(3, || {
        let server = Arc::new(Space::new());
        let notifier = Arc::new(server.notifier(Placement::Adaptive));
        let sent: Arc<[AtomicBool; 2]> = Arc::new(Default::default());
        let send = |index: usize, defers: bool| {
            let (sent, notifier) = (sent.clone(), notifier.clone());
            thread::spawn(move || {
                if defers {
                    remote_wake::set_defers();
                }
                let link = link();
                sent[index].store(true, Ordering::Relaxed);
                notifier.notify(&link);
                if defers {
                    // The VP has nothing to run.
                    notifier.flush(Caller::Anywhere, &link);
                }
                link.get().unwrap().rings.load(Ordering::Relaxed)
            })
        };
        let senders = [send(0, false), send(1, true)];
        let came = || sent.iter().all(|sent| sent.load(Ordering::Relaxed));
        server.run(|| {
            if came() {
                server.ends.store(true, Ordering::Relaxed);
            }
        });
        let _ = senders.map(|sender| sender.join().unwrap());
    });
}

/// A client with one cell, and its server.
struct World {
    calls: Calls,
    to_server: Notifier,
    link: OnceLock<Link>,
    client: Space,
    server: Space,
    host: ServerEnd,
    to_client: Notifier,
    served: AtomicU32,
}

impl World {
    fn new() -> Arc<World> {
        let (client, server) = (Space::new(), Space::new());
        let (host, caller): (ServerEnd, ClientEnd) = test_lane(1);
        Arc::new(World {
            calls: Calls::new(caller),
            to_server: server.notifier(Placement::Scheduled),
            link: link(),
            to_client: client.notifier(Placement::Scheduled),
            client,
            server,
            host,
            served: AtomicU32::new(0),
        })
    }

    /// Answers the requests that have come.
    fn serve(&self) {
        let mut came = Vec::new();
        let popped = self.host.pop_requests(8, |incoming| {
            if let Incoming::Request(request) = incoming {
                came.push(request.cell);
            }
        });
        popped.expect("the client follows the protocol");
        for cell in came {
            self.served.fetch_add(1, Ordering::Relaxed);
            self.host.push_reply(cell, &ReplyHeader::default(), &[9]).unwrap();
            self.to_client.notify(&self.link);
        }
    }

    fn poll_replies(&self) {
        self.calls.take_replies(|cell, _| self.calls.give_back(cell, || ())).unwrap();
    }

    /// As `Client::call`.
    fn call(&self, deadline: Option<Instant>) -> Result<(), WaitFailure> {
        let cell = self.calls.take_cell(0, deadline)?;
        self.calls.lane.write(cell, &RequestHeader::default(), &[1]).unwrap();
        self.calls.push(cell, Some(current()), || self.to_server.notify(&self.link)).unwrap();
        let waited = self.calls.wait(cell, 0, deadline);
        match waited {
            Ok(()) => {
                let mut reply = Vec::new();
                self.calls.lane.read_reply(cell, &mut reply).unwrap();
                assert_eq!(reply, [9]);
                self.calls.give_back(cell, || ());
            }
            Err(WaitFailure::Gone) => {}
            Err(WaitFailure::Left) => {
                let notify = || self.to_server.notify(&self.link);
                if self.calls.abandon(cell, notify).is_some() {
                    self.calls.give_back(cell, || ());
                }
            }
        }
        waited
    }
}

fn spawn(world: &Arc<World>, f: fn(&World)) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

/// A call from end to end: both VPs may sleep at any time.
#[test]
fn call_wakes_the_server_and_its_reply_the_caller() {
    explore(2, || {
        let world = World::new();
        let server = spawn(&world, |world| world.server.run(|| world.serve()));
        let client = spawn(&world, |world| world.client.run(|| world.poll_replies()));
        assert_eq!(world.call(None), Ok(()));
        world.client.end();
        world.server.end();
        server.join().unwrap();
        client.join().unwrap();
        assert_eq!(world.served.load(Ordering::Relaxed), 1);
        assert_eq!(world.calls.lane.in_use(), 0);
    });
}

/// The link is cut while a call is under way: the call has its reply or fails, and does not hang.
#[test]
fn cut_ends_a_call_under_way() {
    explore(3, || {
        let world = World::new();
        let cut = spawn(&world, |world| {
            // As `ClientLink::end_with`: replies from before the end are taken in.
            world.poll_replies();
            world.calls.end();
        });
        let server = spawn(&world, |world| {
            world.serve();
            world.poll_replies();
        });
        match world.call(None) {
            Ok(()) => assert_eq!(world.served.load(Ordering::Relaxed), 1),
            Err(failure) => assert_eq!(failure, WaitFailure::Gone),
        }
        cut.join().unwrap();
        server.join().unwrap();
        assert!(world.calls.is_gone());
    });
}

/// The link is cut while a caller waits for a cell that never comes.
#[test]
fn cut_ends_a_wait_for_a_cell() {
    explore(3, || {
        let world = World::new();
        let held = world.calls.take_cell(0, None);
        assert!(held.is_ok());
        let waiter = spawn(&world, |world| {
            assert_eq!(world.calls.take_cell(0, None), Err(WaitFailure::Gone));
        });
        world.calls.end();
        waiter.join().unwrap();
    });
}

/// A deadline passes while the reply comes. The cell is free afterwards, whichever was first.
#[test]
fn deadline_and_reply_leave_the_cell_free() {
    explore(3, || {
        let world = World::new();
        let timer = current();
        let clock = thread::spawn(move || pass(&timer));
        let server = spawn(&world, |world| {
            world.serve();
            world.poll_replies();
        });
        // The server answers what it has found, or is asked again below.
        let called = world.call(Some(Instant::now()));
        assert!(matches!(called, Ok(()) | Err(WaitFailure::Left)));
        clock.join().unwrap();
        server.join().unwrap();
        world.serve();
        world.poll_replies();
        assert_eq!(world.calls.lane.in_use(), 0);
    });
}

/// A caller is cancelled when the cell comes for which it waits: one permit tells both. It leaves,
/// although nobody serves its call.
#[test]
fn cancelled_caller_leaves_although_a_cell_comes() {
    explore(3, || {
        let world = World::new();
        let held = world.calls.take_cell(0, None).unwrap();
        let caller = current();
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                world.calls.give_back(held, || ());
                cancel::cancel(&caller);
            })
        };
        assert_eq!(world.call(None), Err(WaitFailure::Left));
        other.join().unwrap();
        world.serve();
        world.poll_replies();
        assert_eq!(world.calls.lane.in_use(), 0);
    });
}

/// Two callers wait for the one cell, and the deadline of the first passes while the cell comes
/// back. The second has it in the end.
#[test]
fn cell_goes_to_the_next_caller_if_the_first_leaves() {
    explore(3, || {
        let world = World::new();
        let held = world.calls.take_cell(0, None).unwrap();
        let first = {
            let world = world.clone();
            thread::spawn(move || {
                let timer = current();
                // A park may return spuriously.
                timer.wake();
                let clock = thread::spawn(move || pass(&timer));
                if let Ok(cell) = world.calls.take_cell(0, Some(Instant::now())) {
                    world.calls.give_back(cell, || ());
                }
                clock.join().unwrap();
            })
        };
        let second = spawn(&world, |world| {
            let cell = world.calls.take_cell(0, None).unwrap();
            world.calls.give_back(cell, || ());
        });
        world.calls.give_back(held, || ());
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(world.calls.lane.in_use(), 0);
    });
}
