//! Kernel objects on which random programs of system calls act.

use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use kumihimo_batch::{Address, Batch, Call, Counters, Message, Op, Outcome};
use proptest::prelude::*;

use crate::resident::Resident;

pub const STREAMS: usize = 3;
pub const FILE_SIZE: usize = 40_000;

/// A call of a program: its kind, its object and its number of bytes.
#[derive(Clone, Debug)]
pub enum Step {
    Nop,
    Send { stream: usize, parts: Vec<usize> },
    Recv { stream: usize, len: usize },
    Datagram { connected: bool, len: usize },
    Take { len: usize },
    Read { at: u64, len: usize },
    Write { at: u64, len: usize },
    Sync,
    Stat,
}

pub fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![4 => 1usize..300, 1 => 300usize..20_000, 1 => Just(0)];
    prop_oneof![
        1 => Just(Step::Nop),
        4 => (0..STREAMS, prop::collection::vec(len.clone(), 1..4)).prop_map(|(stream, parts)| Step::Send { stream, parts }),
        3 => (0..STREAMS, len.clone()).prop_map(|(stream, len)| Step::Recv { stream, len }),
        3 => (any::<bool>(), prop_oneof![3 => Just(100usize), 1 => 0usize..200, 1 => Just(70_000)])
            .prop_map(|(connected, len)| Step::Datagram { connected, len }),
        2 => (50usize..200).prop_map(|len| Step::Take { len }),
        // Offsets are multiples of 500, so that adjacent reads occur.
        4 => (0u64..90, 1usize..4).prop_map(|(at, len)| Step::Read { at: at * 500, len: len * 500 }),
        1 => (0..FILE_SIZE as u64, 0usize..3_000).prop_map(|(at, len)| Step::Write { at, len }),
        1 => Just(Step::Sync),
        1 => Just(Step::Stat),
    ]
}

/// The outcome of a call, and the bytes that it received.
pub type Seen = (Result<usize, i32>, Vec<u8>);

pub struct World {
    near: Vec<std::os::fd::OwnedFd>,
    far: Vec<std::os::fd::OwnedFd>,
    sender: UdpSocket,
    connected: UdpSocket,
    receiver: UdpSocket,
    peer: Address,
    file: File,
    resident: Resident,
    path: PathBuf,
    written: u8,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl World {
    pub fn new() -> World {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // In the build directory: tmpfs, which /tmp may be, does not support RWF_NOWAIT.
        let name = format!("batch-{}-{number}", std::process::id());
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let contents: Vec<u8> = (0..FILE_SIZE).map(|i| (i * 7 % 251) as u8).collect();
        std::fs::write(&path, contents).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.sync_all().unwrap();
        let resident = Resident::of(&file);
        let (mut near, mut far): (Vec<std::os::fd::OwnedFd>, Vec<std::os::fd::OwnedFd>) =
            (vec![], vec![]);
        for i in 0..STREAMS {
            if i == 0 {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                // Sent data is received at once, so that the next call finds the state that this
                // one leaves.
                stream.set_nodelay(true).unwrap();
                near.push(stream.into());
                far.push(listener.accept().unwrap().0.into());
            } else {
                let (a, b) = UnixStream::pair().unwrap();
                near.push(a.into());
                far.push(b.into());
            }
        }
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at: SocketAddr = receiver.local_addr().unwrap();
        let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
        connected.connect(at).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        World {
            near,
            far,
            sender,
            connected,
            receiver,
            peer: Address::new(&at),
            file,
            resident,
            path,
            written: 0,
        }
    }

    /// Executes all steps in one batch. Returns the result of each, in the order of the steps.
    pub fn run(&mut self, batch: &mut Batch, steps: &[Step], levels: &[u8]) -> Vec<Seen> {
        // Writes may have extended the file.
        self.resident = Resident::of(&self.file);
        let path = std::ffi::CString::new(self.path.to_str().unwrap()).unwrap();
        let mut rooms: Vec<Vec<u8>> = Vec::new();
        let mut stats = Vec::new();
        for step in steps {
            self.written = self.written.wrapping_add(1);
            rooms.push(match step {
                Step::Send { parts, .. } => vec![self.written; parts.iter().sum()],
                Step::Datagram { len, .. } | Step::Write { len, .. } => vec![self.written; *len],
                Step::Recv { len, .. } | Step::Take { len } | Step::Read { len, .. } => {
                    vec![0; *len]
                }
                Step::Nop | Step::Sync | Step::Stat => vec![],
            });
            // SAFETY: a structure of integers.
            stats.push(unsafe { std::mem::zeroed::<libc::statx>() });
        }
        let sent = rooms.clone();
        let slices: Vec<Vec<std::io::IoSlice<'_>>> = steps
            .iter()
            .zip(&sent)
            .map(|(step, bytes)| match step {
                Step::Send { parts, .. } => {
                    let mut rest = &bytes[..];
                    let cut = |len: &usize| {
                        let (part, more) = rest.split_at(*len);
                        rest = more;
                        std::io::IoSlice::new(part)
                    };
                    parts.iter().map(cut).collect()
                }
                _ => vec![],
            })
            .collect();
        let mut calls: Vec<Call<'_>> = Vec::new();
        for (i, (room, stat)) in rooms.iter_mut().zip(&mut stats).enumerate() {
            let op = match &steps[i] {
                Step::Nop => Op::Nop,
                Step::Send { stream, parts } if parts.len() == 1 => {
                    Op::Send { socket: self.near[*stream].as_fd(), from: &sent[i] }
                }
                Step::Send { stream, .. } => {
                    Op::SendVectored { socket: self.near[*stream].as_fd(), from: &slices[i] }
                }
                Step::Recv { stream, len } if len % 2 == 1 => {
                    let (first, second) = room.split_at_mut(len / 3);
                    let parts =
                        Box::leak(Box::new([IoSliceMut::new(first), IoSliceMut::new(second)]));
                    let message = Box::leak(Box::new(Message::new(parts)));
                    Op::RecvMessage { socket: self.far[*stream].as_fd(), message }
                }
                Step::Recv { stream, .. } => {
                    Op::Recv { socket: self.far[*stream].as_fd(), into: room, flags: 0 }
                }
                Step::Datagram { connected: true, .. } => {
                    Op::SendDatagram { socket: self.connected.as_fd(), to: None, from: &sent[i] }
                }
                Step::Datagram { .. } => Op::SendDatagram {
                    socket: self.sender.as_fd(),
                    to: Some(&self.peer),
                    from: &sent[i],
                },
                Step::Take { .. } => {
                    Op::Recv { socket: self.receiver.as_fd(), into: room, flags: 0 }
                }
                Step::Read { at, .. } => {
                    Op::ReadAt { file: self.file.as_fd(), into: room, at: *at }
                }
                Step::Write { at, .. } => {
                    Op::WriteAt { file: self.file.as_fd(), from: &sent[i], at: *at }
                }
                Step::Sync => Op::Sync { file: self.file.as_fd(), data: true },
                Step::Stat => Op::Stat { path: &path, into: stat },
            };
            calls.push(Call::new(op, levels[i % levels.len()]));
        }
        batch.run(&mut calls.iter_mut().collect::<Vec<_>>(), &Counters::default());
        let outcomes: Vec<Outcome> =
            calls.iter().map(|call| call.outcome.expect("each call has one")).collect();
        drop(calls);
        let seen = |(((outcome, room), stat), step): (((Outcome, Vec<u8>), libc::statx), &Step)| {
            let bytes = match step {
                Step::Recv { .. } | Step::Take { .. } | Step::Read { .. } => room,
                Step::Stat => stat.stx_size.to_le_bytes().to_vec(),
                _ => vec![],
            };
            (outcome.result().map_err(|e| e.raw_os_error().unwrap()), bytes)
        };
        outcomes.into_iter().zip(rooms).zip(stats).zip(steps).map(seen).collect()
    }

    /// Returns the data that was not received yet, and the contents of the file.
    pub fn rest(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for (near, far) in self.near.drain(..).zip(self.far.drain(..)) {
            drop(near);
            let mut bytes = Vec::new();
            let mut far = File::from(far);
            far.read_to_end(&mut bytes).unwrap();
            all.push(bytes);
        }
        self.receiver.set_nonblocking(true).unwrap();
        let mut datagram = [0; 1 << 16];
        while let Ok(n) = self.receiver.recv(&mut datagram) {
            all.push(datagram[..n].to_vec());
        }
        self.file.flush().unwrap();
        all.push(std::fs::read(&self.path).unwrap());
        all
    }
}
