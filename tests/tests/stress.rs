//! Random mix of all operations, from a seed: spawn, join, panic, cancel, change priorities, lock,
//! send, connect, block; by microprocesses and by std threads. Every round ends with balanced
//! books. Takes seconds in `make test`, minutes in `make soak`.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use kumihimo::net::{SocketAddr, TcpListener, TcpStream, UnixStream};
use kumihimo::policy::Priority;
use kumihimo::runtime::{Runtime, metrics};
use kumihimo::sync::{Condvar, Mutex, RwLock, Semaphore, mpmc, msg};
use kumihimo::thread::{self, Builder, Cancelled, Thread};
use kumihimo_events::source;
use kumihimo_tests::{Random, rounds};

const ACTORS: u64 = 60;
const STEPS: u64 = 40;
const STD_THREADS: u64 = 3;

/// Payload of a deliberate panic, which is not reported.
struct Asked(u64);

/// State shared by the actors, which must balance at the end.
struct World {
    /// Two numbers that are equal whenever the lock is free.
    ledger: Mutex<(u64, u64)>,
    entries: AtomicU64,
    /// Eight numbers that are equal whenever no writer holds the lock.
    table: RwLock<[u64; 8]>,
    permits: Semaphore,
    inside: AtomicU64,
    turn: (Mutex<u64>, Condvar),
    post: mpmc::Sender<u64>,
    posted: AtomicU64,
    clerk: msg::Address<u64, u64>,
    peers: Mutex<Vec<Thread>>,
    server: SocketAddr,
    /// Number of guards created and dropped in cancelled and panicking microprocesses.
    made: AtomicU64,
    dropped: AtomicU64,
}

struct Guard<'a>(&'a World);

impl<'a> Guard<'a> {
    fn new(world: &'a World) -> Self {
        world.made.fetch_add(1, Relaxed);
        Self(world)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Relaxed);
    }
}

fn short(random: &mut Random) -> Duration {
    Duration::from_micros(random.below(300))
}

fn priority(random: &mut Random) -> Priority {
    Priority::new(u8::try_from(random.below(64)).expect("below 64")).expect("below 64")
}

fn act(world: &Arc<World>, mut random: Random) {
    for _ in 0..STEPS {
        step(world, &mut random);
    }
}

fn step(world: &Arc<World>, random: &mut Random) {
    match random.below(19) {
        0 => thread::yield_now(),
        1 => thread::sleep(short(random)),
        2 => thread::park_timeout(short(random)),
        3 => child(random),
        4 => panicking_child(world, random),
        5 => cancelled_child(world, random),
        6 => book(world, random),
        7 => table(world, random),
        8 => permit(world, random),
        9 => condition(world, random),
        10 => {
            world.post.send(1).expect("the receivers live");
            world.posted.fetch_add(1, Relaxed);
        }
        11 => {
            let n = random.below(1 << 40);
            assert_eq!(msg::send_recv(&world.clerk, n).expect("the clerk lives"), n + 1);
        }
        12 => {
            let peers = world.peers.lock().expect("not poisoned");
            let peer = &peers[usize::try_from(random.below(peers.len() as u64)).expect("small")];
            if random.one_in(2) { peer.unpark() } else { peer.set_priority(priority(random)) }
        }
        13 => thread::current().set_priority(priority(random)),
        14 => tcp(world, random),
        15 => unix(random),
        16 => {
            let n = random.number();
            assert_eq!(thread::blocking(|| std::hint::black_box(n) ^ 1), n ^ 1);
        }
        17 => kernel(random),
        _ => scope(random),
    }
}

/// Blocks the kernel thread, outside of Kumihimo.
fn kernel(random: &mut Random) {
    let time = short(random);
    // Without events the virtual processor blocks as well: indefinitely, if the reply needs it.
    if random.one_in(2) || metrics().is_none_or(|now| now.events == "off") {
        return std::thread::sleep(time);
    }
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let n = random.number();
    // A microprocess writes the reply, for which it needs a virtual processor.
    let answer = thread::spawn(move || {
        thread::sleep(time);
        writer.write_all(&n.to_ne_bytes()).expect("room");
    });
    let mut got = [0; 8];
    reader.read_exact(&mut got).expect("no EINTR");
    assert_eq!(u64::from_ne_bytes(got), n);
    answer.join().expect("no panic");
}

fn child(random: &mut Random) {
    let n = random.below(1000);
    let builder = Builder::new().priority(priority(random)).child_first(random.one_in(2));
    let handle = builder
        .spawn(move || {
            thread_local!(static MINE: std::cell::Cell<u64> = const { std::cell::Cell::new(7) });
            assert_eq!(MINE.replace(n), 7, "a fresh microprocess has fresh thread-local storage");
            thread::yield_now();
            assert_eq!(MINE.get(), n);
            n * 2
        })
        .expect("a microprocess");
    assert_eq!(handle.join().expect("no panic"), n * 2);
}

fn panicking_child(world: &Arc<World>, random: &mut Random) {
    let (n, late, world) = (random.number(), random.one_in(2), world.clone());
    let handle = thread::spawn(move || {
        let _guard = Guard::new(&world);
        if late {
            thread::yield_now();
        }
        std::panic::panic_any(Asked(n));
    });
    let payload = handle.join().expect_err("it panics");
    assert_eq!(payload.downcast_ref::<Asked>().map(|asked| asked.0), Some(n));
}

fn cancelled_child(world: &Arc<World>, random: &mut Random) {
    let (how, mut own, world) = (random.below(5), random.split(), world.clone());
    let handle = thread::spawn(move || {
        let _guard = Guard::new(&world);
        loop {
            match how {
                0 => thread::sleep(Duration::from_secs(3600)),
                1 => thread::park(),
                2 => {
                    let (_sender, receiver) = mpmc::channel::<()>();
                    let _: Result<_, _> = receiver.recv();
                }
                3 => {
                    let (mut here, _there) = UnixStream::pair().expect("a pair");
                    drop(here.read(&mut [0]));
                }
                // A wait, not only a yield: the canceller may be of lower priority.
                _ => {
                    book(&world, &mut own);
                    thread::sleep(short(&mut own));
                }
            }
        }
    });
    for _ in 0..random.below(4) {
        thread::yield_now();
    }
    handle.cancel();
    assert!(handle.join().expect_err("it never returns").is::<Cancelled>());
}

// Never interrupted between the two halves: cancellation unwinds only at a wait.
fn book(world: &World, random: &mut Random) {
    let mut ledger = world.ledger.lock().expect("not poisoned");
    assert_eq!(ledger.0, ledger.1);
    ledger.0 += 1;
    if random.one_in(8) {
        // Others contend for the lock meanwhile.
        thread::without_cancellation(thread::yield_now);
    }
    ledger.1 += 1;
    world.entries.fetch_add(1, Relaxed);
}

fn table(world: &World, random: &mut Random) {
    if random.one_in(4) {
        let mut table = world.table.write().expect("not poisoned");
        for number in table.iter_mut() {
            *number += 1;
        }
    } else {
        let table = world.table.read().expect("not poisoned");
        if random.one_in(4) {
            thread::yield_now();
        }
        assert!(table.iter().all(|number| *number == table[0]));
    }
}

fn permit(world: &World, random: &mut Random) {
    let _permit = world.permits.acquire();
    assert!(world.inside.fetch_add(1, Relaxed) < 3, "the semaphore has three permits");
    if random.one_in(2) {
        thread::yield_now();
    }
    world.inside.fetch_sub(1, Relaxed);
}

fn condition(world: &World, random: &mut Random) {
    let (turn, changed) = &world.turn;
    let mut now = turn.lock().expect("not poisoned");
    *now += 1;
    changed.notify_one();
    if random.one_in(2) {
        let before = *now;
        drop(
            changed
                .wait_timeout_while(now, short(random), |now| *now == before)
                .expect("not poisoned"),
        );
    }
}

fn echo(stream: &mut (impl Read + Write), random: &mut Random) {
    let length = usize::try_from(1 + random.below(3000)).expect("small");
    let sent: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
    stream.write_all(&sent).expect("written");
    let mut back = vec![0; length];
    stream.read_exact(&mut back).expect("read");
    assert!(sent == back, "the echo differs");
}

fn serve(mut stream: impl Read + Write) {
    let mut buffer = [0; 512];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

fn tcp(world: &World, random: &mut Random) {
    let mut stream = TcpStream::connect(world.server).expect("the server listens");
    for _ in 0..1 + random.below(3) {
        echo(&mut stream, random);
    }
}

fn unix(random: &mut Random) {
    let (mut here, there) = UnixStream::pair().expect("a pair");
    let server = thread::spawn(move || serve(there));
    echo(&mut here, random);
    drop(here);
    server.join().expect("no panic");
}

fn scope(random: &mut Random) {
    let total = AtomicU64::new(0);
    let width = random.below(6);
    thread::scope(|s| {
        for n in 0..width {
            let total = &total;
            s.spawn(move || {
                thread::yield_now();
                total.fetch_add(n, Relaxed);
            });
        }
    });
    assert_eq!(total.into_inner(), width * width.saturating_sub(1) / 2);
}

fn play(random: &mut Random) {
    // A different loopback address each round: closed connections keep their pair of addresses for
    // a minute (TIME_WAIT).
    let host = Ipv4Addr::new(
        127,
        1 + random.below(250) as u8,
        random.below(256) as u8,
        1 + random.below(250) as u8,
    );
    let listener = TcpListener::bind((host, 0)).expect("a loopback address");
    let (post, letters) = mpmc::channel();
    let (clerk, mailbox) = msg::mailbox();
    let world = Arc::new(World {
        ledger: Mutex::new((0, 0)),
        entries: AtomicU64::new(0),
        table: RwLock::new([0; 8]),
        permits: Semaphore::new(3),
        inside: AtomicU64::new(0),
        turn: (Mutex::new(0), Condvar::new()),
        post,
        posted: AtomicU64::new(0),
        clerk,
        peers: Mutex::new(vec![thread::current()]),
        server: listener.local_addr().expect("bound"),
        made: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
    });
    let server = thread::spawn(move || {
        loop {
            let (stream, _) = listener.accept().expect("accepts");
            thread::spawn(move || serve(stream));
        }
    });
    let clerk = thread::spawn(move || {
        let Ok(mut request) = mailbox.receive() else { return };
        loop {
            let Ok(next) = mailbox.reply_and_receive(request.from, request.message + 1) else {
                return;
            };
            request = next;
        }
    });
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let letters = letters.clone();
            thread::spawn(move || letters.iter().sum::<u64>())
        })
        .collect();
    drop(letters);

    let actors: Vec<_> = (0..ACTORS)
        .map(|_| {
            let (world, own) = (world.clone(), random.split());
            Builder::new()
                .priority(priority(random))
                .spawn(move || act(&world, own))
                .expect("an actor")
        })
        .collect();
    world
        .peers
        .lock()
        .expect("not poisoned")
        .extend(actors.iter().map(|actor| actor.thread().clone()));
    let foreign: Vec<_> = (0..STD_THREADS)
        .map(|_| {
            let (world, own) = (world.clone(), random.split());
            std::thread::spawn(move || act(&world, own))
        })
        .collect();
    for actor in actors {
        actor.join().expect("no actor panics");
    }
    for thread in foreign {
        thread::blocking(|| thread.join()).expect("no std thread panics");
    }

    server.cancel();
    assert!(server.join().expect_err("it never returns").is::<Cancelled>());
    let world = Arc::into_inner(world).expect("all its users have ended");
    let ledger = world.ledger.into_inner().expect("not poisoned");
    assert_eq!((ledger.0, ledger.1), (world.entries.load(Relaxed), world.entries.load(Relaxed)));
    assert_eq!(world.made.load(Relaxed), world.dropped.load(Relaxed));
    assert_eq!(world.inside.load(Relaxed), 0);
    drop((world.post, world.clerk));
    let received: u64 = readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
    assert_eq!(received, world.posted.load(Relaxed));
    clerk.join().expect("no panic");
}

#[test]
fn random_mix_of_operations_balances() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Asked>() {
            report(info);
        }
    }));
    let sources = source::probe();
    for mut round in rounds("random_mix_of_operations_balances") {
        let vps = 1 + usize::try_from(round.random.below(4)).expect("small");
        let mut builder = Runtime::builder().vps(vps);
        // Half of the time the machine's best event source, otherwise a random available one.
        if std::env::var_os("KUMI_EVENTS").is_none() && round.random.one_in(2) {
            let allowed: Vec<_> = sources.iter().filter(|(_, refused)| refused.is_none()).collect();
            builder = builder.events(allowed[round.random.below(allowed.len() as u64) as usize].0);
        }
        let runtime = builder.build().expect("a runtime");
        runtime.run(|| play(&mut round.random));
        assert!(metrics().is_none(), "round {}: the runtime has ended", round.number);
    }
}
