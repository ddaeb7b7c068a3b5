//! Streams that futures poll: in microprocesses, on kernel threads, with wakers of other executors.

mod waker;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::{or, try_zip, yield_now};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use kumihimo::future::{block_on, block_on_timeout};
use kumihimo::futures::{Polled, PolledStream, sleep};
use kumihimo::net::{TcpListener, TcpStream, UnixStream};
use kumihimo::runtime::Runtime;
use kumihimo::thread;
use proptest::prelude::*;
use waker::{Counted, in_turn, through};

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Sends `data` in chunks to the peer, which sends everything back; returns what arrives.
async fn there_and_back<S: PolledStream>(
    (near, far): (S, S),
    data: &[u8],
    chunk: usize,
    room: usize,
) -> io::Result<Vec<u8>> {
    let (near, mut far) = (Polled::new(near), Polled::new(far));
    let echo = async {
        let mut buffer = vec![0; room];
        loop {
            match far.read(&mut buffer).await? {
                0 => return far.close().await,
                n => far.write_all(&buffer[..n]).await?,
            }
        }
    };
    let (mut reader, mut writer) = futures_lite::io::split(near);
    let write = async {
        for chunk in data.chunks(chunk) {
            writer.write_all(chunk).await?;
        }
        writer.close().await
    };
    let mut back = Vec::new();
    let read = async {
        reader.read_to_end(&mut back).await?;
        Ok(())
    };
    try_zip(echo, try_zip(write, read)).await?;
    Ok(back)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// All data arrive in order, for any sizes, in any thread and with any waker.
    #[test]
    fn data_arrive_in_order(
        length in 0..400_000usize,
        chunk in 1..70_000usize,
        room in 1..70_000usize,
        is_unix: bool,
        is_microprocess: bool,
        is_foreign_waker: bool,
    ) {
        let data: Vec<u8> = (0..length).map(|n| (n ^ (n >> 8)) as u8).collect();
        let expected = data.clone();
        let drive = move || {
            let work = async {
                if is_unix {
                    there_and_back(UnixStream::pair()?, &data, chunk, room).await
                } else {
                    there_and_back(tcp_pair(), &data, chunk, room).await
                }
            };
            if is_foreign_waker { block_on(through(work)) } else { block_on(work) }
        };
        let back = if is_microprocess { thread::spawn(drive).join().unwrap() } else { drive() };
        prop_assert!(back.unwrap() == expected);
    }
}

/// Readers give up at random moments and read again: no byte is lost, and none of them hangs.
#[test]
fn dropped_reads_lose_nothing() {
    const PAIRS: usize = 100;
    const BYTES: u32 = 200;
    let pairs: Vec<_> = (0..PAIRS)
        .map(|n| {
            let (near, mut far) = if n % 2 == 0 {
                let (near, far) = tcp_pair();
                (Either::Tcp(Polled::new(near)), Either::Tcp(Polled::new(far)))
            } else {
                let (near, far) = UnixStream::pair().unwrap();
                (Either::Unix(Polled::new(near)), Either::Unix(Polled::new(far)))
            };
            let write = move || {
                for byte in 0..BYTES {
                    block_on(far.write(byte as u8)).unwrap();
                    if byte % 16 == 0 {
                        thread::sleep(Duration::from_micros(u64::from(byte) * 7 % 300));
                    }
                }
            };
            let mut near = near;
            let read = move || {
                let (mut expected, mut dropped) = (0, 0);
                while expected < BYTES {
                    let wait = Duration::from_micros((expected as u64 * 37 + n as u64) % 200);
                    let give_up = async {
                        sleep(wait).await;
                        None
                    };
                    let next = or(async { Some(near.read().await.unwrap()) }, give_up);
                    let next = if n % 3 == 0 { block_on(through(next)) } else { block_on(next) };
                    match next {
                        Some(byte) => {
                            assert_eq!(byte, expected as u8);
                            expected += 1;
                        }
                        None => dropped += 1,
                    }
                }
                dropped
            };
            (thread::spawn(read), thread::spawn(write))
        })
        .collect();
    for (reader, writer) in pairs {
        writer.join().unwrap();
        reader.join().unwrap();
    }
}

enum Either {
    Tcp(Polled<TcpStream>),
    Unix(Polled<UnixStream>),
}

impl Either {
    async fn read(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        match self {
            Either::Tcp(stream) => stream.read_exact(&mut byte).await?,
            Either::Unix(stream) => stream.read_exact(&mut byte).await?,
        }
        Ok(byte[0])
    }

    async fn write(&mut self, byte: u8) -> io::Result<()> {
        match self {
            Either::Tcp(stream) => stream.write_all(&[byte]).await,
            Either::Unix(stream) => stream.write_all(&[byte]).await,
        }
    }
}

#[test]
fn dropped_streams_keep_no_waker() {
    let check = || {
        for how in 0..3 {
            let (near, far) = UnixStream::pair().unwrap();
            let mut near = Polled::new(near);
            let counted = Counted::new();
            assert!(counted.poll(&mut Box::pin(near.read(&mut [0; 8]))).is_pending());
            assert!(counted.holders() > 1, "the stream holds the waker");
            match how {
                0 => drop(near),
                1 => drop(near.into_inner()),
                _ => {
                    (&far).write_all(b"x").unwrap();
                    counted.wait();
                }
            }
            assert_eq!(counted.holders(), 1);
            assert_eq!(counted.calls(), usize::from(how == 2));
        }
    };
    check();
    thread::spawn(check).join().unwrap();
}

/// The waker of the last poll counts, as `Future::poll` has it.
#[test]
fn last_waker_replaces_the_former_one() {
    let (near, far) = UnixStream::pair().unwrap();
    let mut near = Polled::new(near);
    let (first, second) = (Counted::new(), Counted::new());
    let mut buffer = [0; 8];
    let mut read = Box::pin(near.read(&mut buffer));
    assert!(first.poll(&mut read).is_pending());
    assert!(second.poll(&mut read).is_pending());
    (&far).write_all(b"x").unwrap();
    second.wait();
    assert_eq!((first.calls(), first.holders()), (0, 1));
    assert!(second.poll(&mut read).is_ready());
}

#[test]
fn shutdown_beside_a_waiting_future_ends_it() {
    let check = |near: TcpStream, far: TcpStream| {
        let closer = near.try_clone().unwrap();
        let reader = thread::spawn(move || block_on(Polled::new(near).read(&mut [0; 8])));
        thread::sleep(Duration::from_millis(2));
        closer.shutdown(Shutdown::Both).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 0);
        drop(far);
    };
    let (near, far) = tcp_pair();
    check(near, far);
    let (near, far) = tcp_pair();
    thread::spawn(move || check(near, far)).join().unwrap();
}

#[test]
fn writes_to_a_gone_peer_are_errors_and_close_twice_is_none() {
    let (near, far) = tcp_pair();
    let mut near = Polled::new(near);
    drop(far);
    let error = block_on(async {
        loop {
            if let Err(error) = near.write_all(&[0; 4096]).await {
                return error;
            }
            yield_now().await;
        }
    });
    assert!(matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset));
    block_on(near.close()).unwrap();
    block_on(near.close()).unwrap();
}

#[test]
fn empty_buffers_never_wait() {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut near = Polled::new(near);
    assert_eq!(block_on(near.read(&mut [])).unwrap(), 0);
    assert_eq!(block_on(near.write(&[])).unwrap(), 0);
}

/// A blocking reader and a future wait for the same stream: the data serve one, then the other.
#[test]
fn blocking_calls_and_futures_share_a_stream() {
    thread::spawn(|| {
        let (near, far) = tcp_pair();
        let stream = Polled::new(near);
        let shared = Arc::new(stream);
        let blocking = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut byte = [0];
                shared.get_ref().read_exact(&mut byte).unwrap();
                byte[0]
            })
        };
        thread::sleep(Duration::from_millis(1));
        (&far).write_all(b"a").unwrap();
        assert_eq!(blocking.join().unwrap(), b'a');
        let mut stream = Arc::into_inner(shared).unwrap();
        (&far).write_all(b"b").unwrap();
        let mut byte = [0];
        block_on(stream.read_exact(&mut byte)).unwrap();
        assert_eq!(byte, *b"b");
    })
    .join()
    .unwrap();
}

/// A stream moves between a foreign kernel thread and the runtimes that come and go beside it.
#[test]
fn streams_outlive_runtimes() {
    let listening = std::thread::spawn(|| {
        let (near, far) = tcp_pair();
        let mut near = Polled::new(near);
        // Waits on a kernel thread first, with the process's poller.
        assert!(block_on_timeout(near.read(&mut [0]), Duration::from_millis(1)).is_none());
        (near, far)
    });
    let (mut near, far) = listening.join().unwrap();
    for round in 0..3u8 {
        // The default runtime of the other tests may run; then its microprocesses serve.
        let run = |f: Box<dyn FnOnce() + Send>| match Runtime::builder().vps(2).build() {
            Ok(runtime) => runtime.run(f),
            Err(_) => thread::spawn(f).join().unwrap(),
        };
        let (send, receive) = std::sync::mpsc::channel();
        let mut stream = near;
        run(Box::new(move || {
            let mut byte = [0];
            assert!(block_on_timeout(stream.read(&mut byte), Duration::from_millis(1)).is_none());
            send.send(stream).unwrap();
        }));
        near = receive.recv().unwrap();
        let writer = {
            let far = far.try_clone().unwrap();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(2));
                (&far).write_all(&[round]).unwrap();
            })
        };
        let mut byte = [0];
        block_on(near.read_exact(&mut byte)).unwrap();
        assert_eq!(byte, [round]);
        writer.join().unwrap();
    }
}

/// A thousand connections, each driven by its own microprocess, whose futures wait all at once.
#[test]
fn thousand_streams_wait_on_few_kernel_threads() {
    let pairs: Vec<_> = (0..1000).map(|_| UnixStream::pair().unwrap()).collect();
    let (readers, writers): (Vec<_>, Vec<_>) = pairs
        .into_iter()
        .map(|(near, far)| {
            let read = move || {
                let mut byte = [0];
                block_on(Polled::new(near).read_exact(&mut byte)).unwrap();
                byte[0]
            };
            (thread::spawn(read), far)
        })
        .unzip();
    for far in &writers {
        in_turn();
        (&*far).write_all(b"z").unwrap();
    }
    assert!(readers.into_iter().all(|reader| reader.join().unwrap() == b'z'));
}
