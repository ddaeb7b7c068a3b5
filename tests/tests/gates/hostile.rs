//! Peers that write arbitrary data: constantly into the memory of the lane, to the socket of the
//! link, and as memory that they pass.

use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kumihimo::gate::{ErrorKind, Gate, Options, RawGate, Region};
use kumihimo::thread;
use kumihimo_tests::{Random, seed};

use crate::parts::{Held, Part, hear, play, serve_on, tell, until, until_no_link_is_left};

/// Number of words that are overwritten before a test ends.
const WORDS: u64 = 300_000;

/// Writes random words into all lanes of this process from a separate kernel thread, until the
/// process ends or `WORDS` words are written.
fn scribble() -> std::thread::JoinHandle<()> {
    let mut random = Random(seed() ^ u64::from(std::process::id()));
    std::thread::spawn(move || {
        // Through /proc/self/mem: a write to unmapped memory is an error and causes no signal.
        let memory = std::fs::OpenOptions::new()
            .write(true)
            .open("/proc/self/mem")
            .expect("one's own memory");
        let mut written = 0;
        while written < WORDS {
            let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
            let lanes: Vec<(u64, u64)> = maps
                .lines()
                .filter(|line| line.contains("memfd:kumihimo-lane"))
                .filter_map(|line| {
                    let (from, to) = line.split(' ').next()?.split_once('-')?;
                    Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
                })
                .collect();
            if lanes.is_empty() {
                std::thread::yield_now();
                continue;
            }
            for _ in 0..200 {
                let (from, to) = lanes[random.below(lanes.len() as u64) as usize];
                // Most of the interesting data is at the beginning: headers and rings.
                let within = if random.one_in(2) { (to - from).min(1 << 16) } else { to - from };
                let at = from + random.below(within / 4) * 4;
                let word = match random.below(4) {
                    0 => random.number() as u32,
                    1 => random.below(2048) as u32,
                    2 => u32::MAX - random.below(16) as u32,
                    _ => 1 << random.below(32),
                };
                let _ = memory.write_all_at(&word.to_ne_bytes(), at);
                written += 1;
            }
            std::thread::yield_now();
        }
    })
}

#[test]
fn client_that_corrupts_the_lane_harms_only_itself() {
    let server = || {
        let _serving = RawGate::serve("echo", &Options::new(), |asked, _, answer| {
            answer.extend_from_slice(asked);
            Ok(Vec::new())
        })
        .expect("it serves");
        let before = Held::now();
        let mut honest = Part::start("honest");
        honest.expect("calls");
        let mut vandals: Vec<Part> = (0..2).map(|_| Part::start("vandal")).collect();
        vandals.iter_mut().for_each(|vandal| vandal.expect("enough"));
        drop(vandals);
        honest.say("end");
        honest.expect("all calls succeeded");
        honest.end();
        until("nothing is left", || Held::now() == before);
    };
    let honest = || {
        let echo = RawGate::connect("echo").expect("it is there");
        let done = AtomicBool::new(false);
        let calls = AtomicU64::new(0);
        thread::scope(|scope| {
            for i in 0..8_u64 {
                let (echo, done, calls) = (&echo, &done, &calls);
                scope.spawn(move || {
                    let mut reply = Vec::new();
                    while !done.load(Ordering::Relaxed) {
                        let n = calls.fetch_add(1, Ordering::Relaxed);
                        let asked: Vec<u8> =
                            (0..n % 6000).map(|at| (at * 31 + n + i) as u8).collect();
                        echo.call(&asked, &mut reply).expect("others do not matter");
                        assert_eq!(reply, asked);
                    }
                });
            }
            until("calls succeed", || calls.load(Ordering::Relaxed) > 100);
            tell("calls");
            hear();
            let before = calls.load(Ordering::Relaxed);
            until("calls succeed", || calls.load(Ordering::Relaxed) > before + 100);
            done.store(true, Ordering::Relaxed);
        });
        tell("all calls succeeded");
        hear();
    };
    let vandal = || {
        // Before anything is overwritten: a lane whose header is damaged is refused.
        let gate = RawGate::connect("echo").expect("it lives");
        let scribbles = scribble();
        let mut reply = Vec::new();
        while !scribbles.is_finished() {
            for len in [10, 5000] {
                // The result is arbitrary, but the call must return.
                let _ = gate.call_within(&vec![7; len], &mut reply, Duration::from_millis(20));
            }
        }
        tell("enough");
        hear();
    };
    let parts: [(&str, &dyn Fn()); 3] =
        [("server", &server), ("honest", &honest), ("vandal", &vandal)];
    play("hostile::client_that_corrupts_the_lane_harms_only_itself", &parts);
}

#[test]
fn server_that_corrupts_the_lane_harms_no_other_gate() {
    let client = || {
        let mut server = Part::serving("server");
        let good = Gate::serve("good", |n: u32| n).expect("it serves");
        let own = Gate::<u32, u32>::connect("good").expect("it is there");
        assert_eq!(own.call(&1).expect("a reply"), 1);
        // The serving end is entered in the table shortly after it becomes callable.
        until("both ends are entered", || Held::now().links == 2);
        let before = Held::now();
        let gate = Gate::<(u64, Vec<u8>), (u64, Vec<u8>)>::connect("echo").expect("it is there");
        server.say("connected");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..8 {
                let (gate, done, own) = (&gate, &done, &own);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        // The result is arbitrary, but the call must return.
                        let _ = gate.call_within(&(1, vec![3; 300]), Duration::from_millis(20));
                        assert_eq!(own.call(&5).expect("another gate"), 5);
                    }
                });
            }
            server.expect("enough");
            done.store(true, Ordering::Relaxed);
        });
        server.kill();
        drop(gate);
        until_no_link_is_left(&before);
        drop((own, good));
    };
    let server = || {
        let _serving = Gate::serve("echo", |both: (u64, Vec<u8>)| both).expect("it serves");
        tell("serving");
        // Not while the client checks the header of the lane: it would refuse a damaged one.
        hear();
        scribble().join().expect("no panic");
        tell("enough");
        serve_on();
    };
    play(
        "hostile::server_that_corrupts_the_lane_harms_no_other_gate",
        &[("client", &client), ("server", &server)],
    );
}

/// Sockets of this process's links.
pub fn links() -> Vec<RawFd> {
    let all = std::fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    numbers
        .filter(|fd| {
            let (mut what, mut len) = (0_i32, 4);
            // SAFETY: an integer and its size. The name is truncated to nothing.
            unsafe {
                libc::getsockopt(
                    *fd,
                    libc::SOL_SOCKET,
                    libc::SO_TYPE,
                    (&raw mut what).cast(),
                    &mut len,
                ) == 0
                    && what == libc::SOCK_SEQPACKET
                    && libc::getpeername(
                        *fd,
                        std::ptr::null_mut::<libc::sockaddr>().wrapping_add(1),
                        &mut 0,
                    ) == 0
            }
        })
        .collect()
}

pub fn send(link: RawFd, record: &[u8], with: Option<RawFd>) {
    let mut part =
        libc::iovec { iov_base: record.as_ptr().cast_mut().cast(), iov_len: record.len() };
    let mut room = [0_u64; 8];
    // SAFETY: a message whose parts live until sendmsg(2) has copied them.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        if let Some(fd) = with {
            message.msg_control = room.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        }
        libc::sendmsg(link, &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    }
}

/// Serves a gate that sums the contents of the regions it receives.
fn sums() -> kumihimo::gate::Serving {
    Gate::<(), u64>::serve_with("sums", &Options::new(), |(), context| {
        Ok(context
            .regions()?
            .iter()
            .flat_map(|region| region.iter())
            .map(|byte| u64::from(*byte))
            .sum())
    })
    .expect("it serves")
}

#[test]
fn garbage_on_the_socket_closes_only_that_link() {
    let server = || {
        let _serving = sums();
        let before = Held::now();
        let mut client = Part::start("client");
        client.expect("done");
        client.end();
        until_no_link_is_left(&before);
    };
    let client = || {
        let mut random = Random(seed());
        let other = Gate::<(), u64>::connect("sums").expect("it is there");
        let first = links();
        for round in 0..60_usize {
            let gate = Gate::<(), u64>::connect("sums").expect("it is there");
            let link = *links().iter().find(|link| !first.contains(link)).expect("a socket");
            assert_eq!(gate.call(&()).expect("a reply"), 0);
            match round % 6 {
                0 => send(link, &[0x11; 17], None),
                1 => send(link, &[0x10], Some(0)),
                2 => send(link, &vec![0x13; 2000], None),
                3 => send(link, &[0x77], None),
                4 => {
                    let garbage: Vec<u8> =
                        (0..1 + random.below(100)).map(|_| random.number() as u8 & 0xf).collect();
                    send(link, &garbage, None);
                }
                _ => send(link, &[0x12, 1, 2, 3], None),
            }
            let error = loop {
                match gate.call(&()) {
                    Ok(sum) => assert_eq!(sum, 0),
                    Err(error) => break error,
                }
                if links().iter().filter(|link| !first.contains(link)).count() != 1 {
                    continue;
                }
                thread::yield_now();
                // The link may have been re-established unnoticed between two calls.
                if *links().iter().find(|link| !first.contains(link)).unwrap_or(&-1) != link {
                    break gate
                        .call_with(&(), &vec![Region::copy_of(b"x").expect("memory"); 5])
                        .expect_err("too many");
                }
            };
            assert!(
                matches!(error.kind(), ErrorKind::Malformed | ErrorKind::Gone | ErrorKind::Invalid),
                "{round}: {:?}: {error}",
                error.kind()
            );
            assert_eq!(other.call(&()).expect("another link"), 0);
            drop(gate);
            until("it is closed", || links().len() == first.len());
        }
        // Many wake-ups, and requests to forget memory that does not exist.
        for _ in 0..20_000 {
            send(first[0], &[0x10], None);
        }
        send(first[0], &[0x12, 9, 9, 9, 9, 9, 9, 9, 9], None);
        assert_eq!(other.call(&()).expect("it is a link as before"), 0);
        tell("done");
    };
    let parts: [(&str, &dyn Fn()); 2] = [("server", &server), ("client", &client)];
    play("hostile::garbage_on_the_socket_closes_only_that_link", &parts);
}

#[test]
fn unsealed_memory_is_refused() {
    let server = || {
        let _serving = sums();
        let mut client = Part::start("client");
        client.expect("done");
        client.end();
        until("nothing is left", || Held::now().links == 0 && Held::now().regions == 0);
    };
    let client = || {
        let gate = Gate::<(), u64>::connect("sums").expect("it is there");
        let region = Region::copy_of(&[1; 5000]).expect("memory");
        assert_eq!(gate.call_with(&(), std::slice::from_ref(&region)).expect("a reply").0, 5000);
        // Replace the region's memory under its number: by memory without seals, by sealed memory
        // of another size, and by something that is not memory.
        // SAFETY: a terminated name. The new descriptor is owned here.
        let unsealed = unsafe {
            let fd = libc::memfd_create(c"unsealed".as_ptr(), libc::MFD_ALLOW_SEALING);
            assert_eq!(libc::ftruncate(fd, 5000), 0);
            OwnedFd::from_raw_fd(fd)
        };
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let mut record = vec![0x11];
        record.extend_from_slice(&1_u64.to_le_bytes());
        record.extend_from_slice(&5000_u64.to_le_bytes());
        for fd in [unsealed.as_raw_fd(), null.as_raw_fd()] {
            let error = loop {
                // Repeat until the link poller has processed the message. The socket of the link
                // before may still be open.
                links().iter().for_each(|link| send(*link, &record, Some(fd)));
                match gate.call_with(&(), std::slice::from_ref(&region)) {
                    Ok((sum, _)) => assert_eq!(sum, 5000),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
        }
        // The link was cut, and the client connects again.
        let sum = loop {
            match gate.call(&()) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Malformed, "{error}"),
                Ok(sum) => break sum,
            }
        };
        assert_eq!(sum, 0);
        tell("done");
        std::io::stdout().flush().expect("it is open");
    };
    play("hostile::unsealed_memory_is_refused", &[("server", &server), ("client", &client)]);
}
