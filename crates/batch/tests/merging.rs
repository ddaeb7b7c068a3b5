//! Merged calls have the same outcomes as the calls alone.

mod resident;

use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use kumihimo_batch::fault::Faulty;
use kumihimo_batch::{Address, Backend, Batch, Call, Counters, LARGEST, Op, Plain, Uring};
use proptest::prelude::*;
use resident::Resident;

/// Returns each back end that this machine allows.
fn batches() -> Vec<Batch> {
    let mut all: Vec<Box<dyn Backend>> = vec![Box::new(Plain)];
    if let Ok(uring) = Uring::new(LARGEST as u32) {
        all.push(Box::new(uring));
    }
    all.into_iter().map(Batch::new).collect()
}

/// Returns the outcomes as numbers of bytes or error numbers, and the numbers of kernel entries and
/// merged calls.
fn run(batch: &mut Batch, mut calls: Vec<Call<'_>>) -> (Vec<Result<usize, i32>>, u64, u64) {
    let counters = Counters::default();
    batch.run(&mut calls.iter_mut().collect::<Vec<_>>(), &counters);
    let outcome =
        |call: &Call<'_>| call.outcome.unwrap().result().map_err(|e| e.raw_os_error().unwrap());
    let entries = counters.entries.load(Ordering::Relaxed);
    (calls.iter().map(outcome).collect(), entries, counters.merged.load(Ordering::Relaxed))
}

fn sends<'a>(socket: &'a UnixStream, messages: &'a [Vec<u8>]) -> Vec<Call<'a>> {
    messages.iter().map(|from| Call::new(Op::Send { socket: socket.as_fd(), from }, 0)).collect()
}

#[test]
fn small_sends_to_one_connection_are_merged() {
    for mut batch in batches() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let messages: Vec<Vec<u8>> = (0..16).map(|i| vec![i; 64]).collect();
        let (outcomes, entries, merged) = run(&mut batch, sends(&near, &messages));
        assert_eq!((outcomes, entries, merged), (vec![Ok(64); 16], 1, 15), "{}", batch.backend());
        let mut got = vec![0; 16 * 64];
        far.read_exact(&mut got).unwrap();
        assert_eq!(got, messages.concat());
    }
}

#[test]
fn adjacent_reads_are_merged() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("adjacent-{}", std::process::id()));
    std::fs::write(
        &path,
        (0..65_536u32).flat_map(|i| (i as u16).to_le_bytes()).collect::<Vec<_>>(),
    )
    .unwrap();
    let file = File::open(&path).unwrap();
    let _resident = Resident::of(&file);
    for mut batch in batches() {
        let mut rooms = vec![vec![0u8; 4096]; 16];
        // In reverse: the order of arrival does not matter.
        let calls = rooms.iter_mut().enumerate().rev();
        let calls = calls.map(|(i, into)| {
            Call::new(Op::ReadAt { file: file.as_fd(), into, at: i as u64 * 4096 }, 0)
        });
        let (outcomes, entries, merged) = run(&mut batch, calls.collect());
        assert_eq!((outcomes, entries, merged), (vec![Ok(4096); 16], 1, 15), "{}", batch.backend());
        for (i, room) in rooms.iter().enumerate() {
            let mut alone = vec![0; 4096];
            file.read_exact_at(&mut alone, i as u64 * 4096).unwrap();
            assert_eq!(*room, alone);
        }
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn merged_datagrams_to_one_peer_stay_separate_datagrams() {
    for mut batch in batches() {
        let (to, from) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let peer = Address::new(&to.local_addr().unwrap());
        let messages: Vec<Vec<u8>> =
            (0..16).map(|i| vec![i; if i == 15 { 10 } else { 100 }]).collect();
        let call = |from_bytes| Op::SendDatagram {
            socket: from.as_fd(),
            to: Some(&peer),
            from: from_bytes,
        };
        let calls = messages.iter().map(|bytes| Call::new(call(bytes), 0)).collect();
        let (outcomes, entries, merged) = run(&mut batch, calls);
        let lengths: Vec<_> = messages.iter().map(|m| Ok(m.len())).collect();
        assert_eq!((outcomes, entries, merged), (lengths, 1, 15), "{}", batch.backend());
        let mut room = [0; 1000];
        for message in &messages {
            let n = to.recv(&mut room).unwrap();
            assert_eq!(room[..n], message[..]);
        }
    }
}

#[test]
fn oversized_datagram_fails_alone() {
    for mut batch in batches() {
        let (to, from) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        let messages = [vec![1; 50], vec![2; 70_000], vec![3; 50], vec![4; 0]];
        let call =
            |bytes| Call::new(Op::SendDatagram { socket: from.as_fd(), to: None, from: bytes }, 0);
        let (outcomes, ..) = run(&mut batch, messages.iter().map(|m| call(m)).collect());
        assert_eq!(outcomes, [Ok(50), Err(libc::EMSGSIZE), Ok(50), Ok(0)], "{}", batch.backend());
    }
}

#[test]
fn first_merged_send_to_a_closed_peer_gets_the_reset() {
    for mut batch in batches() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        (&near).write_all(b"unread").unwrap();
        // The peer is closed with unread data, which causes a reset.
        drop(far);
        loop {
            // Wait for the reset, which leaves its error to the first sender.
            let mut poll =
                libc::pollfd { fd: std::os::fd::AsRawFd::as_raw_fd(&near), events: 0, revents: 0 };
            // SAFETY: one live pollfd.
            unsafe { libc::poll(&raw mut poll, 1, -1) };
            if poll.revents & libc::POLLERR != 0 {
                break;
            }
        }
        let messages = [b"a", b"b", b"c"];
        let call = |from| Call::new(Op::Send { socket: near.as_fd(), from }, 0);
        let (outcomes, ..) = run(&mut batch, messages.iter().map(|m| call(&m[..])).collect());
        assert_eq!(
            outcomes,
            [Err(libc::ECONNRESET), Err(libc::EPIPE), Err(libc::EPIPE)],
            "{}",
            batch.backend()
        );
    }
}

#[test]
fn higher_levels_enter_first() {
    for mut batch in batches() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let messages: Vec<Vec<u8>> = (0..12u8).map(|i| vec![i; 10]).collect();
        let calls = messages.iter().enumerate();
        let calls = calls
            .map(|(i, from)| Call::new(Op::Send { socket: near.as_fd(), from }, (i % 3) as u8));
        let (outcomes, ..) = run(&mut batch, calls.collect());
        assert_eq!(outcomes, [Ok(10); 12]);
        let mut got = [0; 120];
        far.read_exact(&mut got).unwrap();
        let order: Vec<u8> = got.chunks(10).map(|m| m[0]).collect();
        assert_eq!(order, [2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9], "{}", batch.backend());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Fills a stream whose reader is slow. Every byte that a send has counted arrives, no other
    /// byte does, and the senders' order is kept. Short writes and failures occur only if the
    /// stream is full.
    #[test]
    fn reported_bytes_equal_the_received_bytes(
        lengths in prop::collection::vec(prop_oneof![1usize..100, 1_000usize..16_000], 2..LARGEST),
        rounds in 1usize..6,
    ) {
        for mut batch in batches() {
            let (near, mut far) = UnixStream::pair().unwrap();
            far.set_nonblocking(true).unwrap();
            let mut told = Vec::new();
            let mut got = Vec::new();
            for round in 0..rounds {
                let messages: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(i, len)| vec![(i + round) as u8; *len]).collect();
                let (outcomes, ..) = run(&mut batch, sends(&near, &messages));
                let mut full = false;
                for (outcome, message) in outcomes.iter().zip(&messages) {
                    match outcome {
                        Ok(n) => told.extend_from_slice(&message[..*n]),
                        Err(e) => prop_assert_eq!(*e, libc::EAGAIN),
                    }
                    full |= *outcome != Ok(message.len());
                }
                if full {
                    // The stream must still be full for a later write of the same size.
                    near.set_nonblocking(true).unwrap();
                    let again = (&near).write(&vec![0; 1 << 20]);
                    if let Ok(n) = again {
                        told.extend(std::iter::repeat_n(0, n));
                        prop_assert!(n < 1 << 20);
                    }
                }
                let mut room = [0; 9_000];
                if let Ok(n) = far.read(&mut room) {
                    got.extend_from_slice(&room[..n]);
                }
            }
            drop(near);
            far.set_nonblocking(false).unwrap();
            far.read_to_end(&mut got).unwrap();
            prop_assert!(got == told, "{}: {} bytes came of {}", batch.backend(), got.len(), told.len());
        }
    }

    /// Reads at any offset, beyond the end too, with any neighbours: the results equal those of
    /// `pread`.
    #[test]
    fn merged_reads_equal_separate_reads(reads in prop::collection::vec((0u64..40, 1usize..5), 2..LARGEST)) {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("reads-{}", std::process::id()));
        std::fs::write(&path, (0..15_123u32).map(|i| (i % 241) as u8).collect::<Vec<_>>()).unwrap();
        let file = File::open(&path).unwrap();
        let _resident = Resident::of(&file);
        for mut batch in batches() {
            let mut rooms: Vec<Vec<u8>> = reads.iter().map(|(_, len)| vec![0; len * 512]).collect();
            let calls = rooms.iter_mut().zip(&reads);
            let calls = calls.map(|(into, (at, _))| Call::new(Op::ReadAt { file: file.as_fd(), into, at: at * 512 }, 0));
            let (outcomes, ..) = run(&mut batch, calls.collect());
            for ((outcome, room), (at, len)) in outcomes.iter().zip(&rooms).zip(&reads) {
                let mut alone = vec![0; len * 512];
                let n = file.read_at(&mut alone, at * 512).unwrap();
                prop_assert_eq!(outcome, &Ok(n));
                prop_assert_eq!(&room[..n], &alone[..n]);
            }
        }
    }

    /// The kernel fails now and then: a caller that repeats unfinished calls, as every user of
    /// sockets must, loses nothing.
    #[test]
    fn injected_faults_lose_no_bytes(seed in any::<u64>(), lengths in prop::collection::vec(1usize..5_000, 2..40)) {
        let mut batch = Batch::new(Box::new(Faulty::new(kumihimo_batch::open(LARGEST as u32).0, seed, 3)));
        let (near, mut far) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            far.read_to_end(&mut got).map(|_| got)
        });
        let messages: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(i, len)| vec![i as u8; *len]).collect();
        let mut sent = vec![0usize; messages.len()];
        let mut told = vec![0usize; 256];
        while sent.iter().zip(&messages).any(|(n, m)| *n < m.len()) {
            let open: Vec<usize> = (0..messages.len()).filter(|&i| sent[i] < messages[i].len()).collect();
            let calls = open.iter().map(|&i| {
                let parts = [IoSlice::new(&messages[i][sent[i]..])];
                let from = Box::leak(Box::new(parts));
                let op = if i % 2 == 0 {
                    Op::Send { socket: near.as_fd(), from: &messages[i][sent[i]..] }
                } else {
                    Op::SendVectored { socket: near.as_fd(), from: &from[..] }
                };
                Call::new(op, 0)
            });
            let (outcomes, ..) = run(&mut batch, calls.collect());
            for (&i, outcome) in open.iter().zip(outcomes) {
                match outcome {
                    Ok(n) => {
                        sent[i] += n;
                        told[i] += n;
                    }
                    // The reader is slow now and then.
                    Err(e) => prop_assert!([libc::EAGAIN, libc::EINTR, libc::ENOBUFS].contains(&e), "{e}"),
                }
            }
        }
        drop(near);
        let got = reader.join().unwrap().unwrap();
        let mut came = vec![0usize; 256];
        got.iter().for_each(|&byte| came[usize::from(byte)] += 1);
        prop_assert_eq!(came, told);
    }
}

#[test]
fn refused_io_uring_falls_back_to_plain_calls_with_the_reason() {
    // On a separate kernel thread: a seccomp filter cannot be removed.
    let refused = std::thread::spawn(|| {
        deny_io_uring();
        kumihimo_batch::open(64)
    });
    let (backend, why) = refused.join().unwrap();
    assert_eq!(backend.name(), "plain");
    let why = why.unwrap();
    assert_eq!(why.kind(), ErrorKind::PermissionDenied);
    assert!(why.to_string().contains("io_uring_setup"), "{why}");
}

/// Denies io_uring, as the default seccomp profiles of containers do.
fn deny_io_uring() {
    let load = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let is_setup =
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_io_uring_setup as u32 };
    let deny = libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
    };
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let mut filter = [load, is_setup, deny, allow];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: a live program of four instructions, for this kernel thread only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
            0
        );
    }
}
