//! Kumihimo's streams and timers in the tasks of Tokio, whose wakers are code of the program.

use std::time::{Duration, Instant};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use kumihimo::future::block_on;
use kumihimo::futures::{Polled, sleep};
use kumihimo::net::{TcpListener, TcpStream, UnixStream};
use kumihimo::thread;

#[test]
fn streams_and_timers_wait_in_tokio_tasks() {
    const TASKS: u32 = 100;
    // One worker: a task that blocked it would stop all others.
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut tasks = Vec::new();
    let mut peers = Vec::new();
    for n in 0..TASKS {
        let (near, far) = UnixStream::pair().unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        peers.push(thread::spawn(move || {
            use std::io::{Read, Write};
            let mut bytes = [0; 4];
            (&far).read_exact(&mut bytes).unwrap();
            peer.write_all(&bytes).unwrap();
        }));
        tasks.push(tokio.spawn(async move {
            let (mut near, mut tcp) = (Polled::new(near), Polled::new(tcp));
            let deadline = Instant::now() + Duration::from_millis(2);
            sleep(Duration::from_millis(2)).await;
            assert!(Instant::now() >= deadline);
            near.write_all(&n.to_le_bytes()).await.unwrap();
            let mut bytes = [0; 4];
            tcp.read_exact(&mut bytes).await.unwrap();
            u32::from_le_bytes(bytes)
        }));
    }
    let sum: u32 = tasks.into_iter().map(|task| block_on(task).unwrap()).sum();
    assert_eq!(sum, TASKS * (TASKS - 1) / 2);
    peers.into_iter().for_each(|peer| peer.join().unwrap());
}
