//! A thousand threads of std that wait at once.
kumihimo::interpose!();

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

fn kernel_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("proc").count()
}

#[kumihimo::main]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let before = kernel_threads();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    let server = thread::spawn(move || {
        (0..200).map(|_| listener.accept().expect("a connection").0).collect::<Vec<_>>()
    });
    let readers: Vec<_> = (0..200)
        .map(|_| {
            thread::spawn(move || {
                let mut stream = TcpStream::connect(at).expect("connects");
                let mut word = [0; 4];
                stream.read_exact(&mut word).expect("a word");
                word
            })
        })
        .collect();
    let waiters: Vec<_> = (0..200)
        .map(|_| {
            let gate = gate.clone();
            thread::spawn(move || {
                let (lock, opened) = &*gate;
                drop(opened.wait_while(lock.lock().unwrap(), |open| !*open).unwrap());
            })
        })
        .collect();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..200).map(|_| mpsc::channel::<u32>()).unzip();
    let receivers: Vec<_> =
        receivers.into_iter().map(|from| thread::spawn(move || from.recv().unwrap())).collect();
    let sleepers: Vec<_> =
        (0..200).map(|_| thread::spawn(|| thread::sleep(Duration::from_millis(300)))).collect();
    let parked: Vec<_> = (0..200).map(|_| thread::spawn(thread::park)).collect();
    let mut streams = server.join().expect("no panic");
    thread::sleep(Duration::from_millis(100));
    let during = kernel_threads();
    assert!(during <= 16, "{before} kernel threads, then {during}");
    for stream in &mut streams {
        stream.write_all(b"word")?;
    }
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    for (n, sender) in (0..).zip(&senders) {
        sender.send(n)?;
    }
    for thread in &parked {
        thread.thread().unpark();
    }
    for reader in readers {
        assert_eq!(&reader.join().unwrap(), b"word");
    }
    let sum: u32 = receivers.into_iter().map(|one| one.join().unwrap()).sum();
    assert_eq!(sum, 199 * 100);
    for one in waiters.into_iter().chain(sleepers).chain(parked) {
        one.join().unwrap();
    }
    Ok(())
}
