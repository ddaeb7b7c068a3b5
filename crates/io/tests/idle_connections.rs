//! What a connection once used of its stack goes back to the kernel while it waits for long. In a
//! process of its own: it looks at its memory.

use std::io::{Read, Write};
use std::time::Duration;

use kumihimo_io::net::UnixStream;
use kumihimo_runtime::runtime::Runtime;
use kumihimo_runtime::thread;

const CONNECTIONS: usize = 300;
const USED: usize = 96 << 10;

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    text.split(' ').nth(1).expect("two numbers").parse::<usize>().expect("a number") * 4096
}

/// Uses much stack, and says what cannot be known without having used it.
#[inline(never)]
fn deep(seed: u8) -> u8 {
    let mut room = std::hint::black_box([seed; USED]);
    for i in 1..room.len() {
        room[i] = room[i - 1].wrapping_add(room[i]);
    }
    std::hint::black_box(&room)[USED - 1]
}

fn serve(mut stream: UnixStream) {
    let kept = std::hint::black_box([7u8; 1000]);
    let mut byte = [0];
    while stream.read(&mut byte).expect("a byte or the end") == 1 {
        let answer = deep(byte[0]);
        // What the frames above the wait hold is untouched.
        assert!(kept.iter().all(|b| *b == 7));
        stream.write_all(&[answer]).expect("somebody reads");
    }
}

#[test]
fn a_long_wait_gives_the_unused_stack_back() {
    Runtime::builder().vps(2).build().expect("a runtime").run(|| {
        if !thread::current().is_microprocess() || cfg!(kumihimo_asan) {
            return println!(
                "[skip] a_long_wait_gives_the_unused_stack_back: stacks are not only ours here"
            );
        }
        let (mut streams, servers): (Vec<_>, Vec<_>) = (0..CONNECTIONS)
            .map(|_| {
                let (here, there) = UnixStream::pair().expect("a pair");
                (here, thread::spawn(move || serve(there)))
            })
            .unzip();
        let before = resident();
        for round in 1..=2 {
            for stream in &mut streams {
                stream.write_all(&[round]).expect("it reads");
                let mut answer = [0];
                stream.read_exact(&mut answer).expect("an answer");
                assert_eq!(answer[0], (0..USED).fold(0u8, |sum, _| sum.wrapping_add(round)));
            }
            assert!(
                resident().saturating_sub(before) > CONNECTIONS * USED * 3 / 4,
                "all of it was in use"
            );
            while resident().saturating_sub(before) > CONNECTIONS * USED / 4 {
                thread::sleep(Duration::from_millis(50));
            }
        }
        drop(streams);
        for server in servers {
            server.join().expect("no panic");
        }
    });
}
