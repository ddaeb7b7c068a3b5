//! A relay that delays what passes, in place of a network: this kernel may have no netem.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that one read takes.
const PIECE: usize = 64 << 10;

/// Accepts connections until it is dropped.
pub struct Relay {
    at: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Relay {
    /// Passes connections on to `to`. Each byte arrives `delay` later than it would.
    pub fn start(to: SocketAddr, delay: Duration) -> io::Result<Relay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let relay = Relay { at: listener.local_addr()?, ended: Arc::default() };
        let ended = relay.ended.clone();
        thread::spawn(move || {
            for near in listener.incoming() {
                if ended.load(SeqCst) {
                    return;
                }
                // An error ends the connection; its user reports it.
                let _ = near.and_then(|near| join(&near, &TcpStream::connect(to)?, delay));
            }
        });
        Ok(relay)
    }

    /// Where it listens.
    pub fn at(&self) -> SocketAddr {
        self.at
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.at);
    }
}

fn join(near: &TcpStream, far: &TcpStream, delay: Duration) -> io::Result<()> {
    for (from, to) in [(near, far), (far, near)] {
        to.set_nodelay(true)?;
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let (pass, passed) = mpsc::channel();
        thread::spawn(move || read(from, delay, &pass));
        thread::spawn(move || write(to, &passed));
    }
    Ok(())
}

/// Reads what comes, until the connection or the other thread ends.
fn read(mut from: TcpStream, delay: Duration, pass: &mpsc::Sender<(Instant, Vec<u8>)>) {
    let mut piece = vec![0; PIECE];
    while let Ok(n @ 1..) = from.read(&mut piece) {
        if pass.send((Instant::now() + delay, piece[..n].to_vec())).is_err() {
            break;
        }
    }
}

/// Writes each piece when its time has come.
fn write(mut to: TcpStream, passed: &mpsc::Receiver<(Instant, Vec<u8>)>) {
    while let Ok((at, piece)) = passed.recv() {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_and_not_before_the_delay() {
        const DELAY: Duration = Duration::from_millis(20);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(listener.local_addr().unwrap(), DELAY).unwrap();
        let mut near = TcpStream::connect(relay.at()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let sent: Vec<u8> = (0..=u8::MAX).collect();
        let begun = Instant::now();
        near.write_all(&sent).unwrap();
        let mut received = vec![0; sent.len()];
        far.read_exact(&mut received).unwrap();
        assert!(begun.elapsed() >= DELAY);
        assert_eq!(received, sent);
        far.write_all(b"back").unwrap();
        drop(far);
        let mut back = String::new();
        near.read_to_string(&mut back).unwrap();
        assert_eq!(back, "back");
    }
}
