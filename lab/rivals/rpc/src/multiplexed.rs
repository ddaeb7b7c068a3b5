//! `unix-mux`: all callers share one Unix stream; each frame has the number of its caller. Callers
//! are kernel threads. A caller that finds no other one writing writes for all, and one more kernel
//! thread reads and wakes callers. `unix-mux-states`: one kernel thread has all callers as entries
//! of an array, reads the available replies, and writes the next calls of all of them together. No
//! thread is woken, and there is no context switch.

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::rpc::{
    ANSWER, Answer, Caller, Plan, Side, Slice, by_threads, fail, serve, told, until_told,
};

use crate::while_;

/// Size of the caller's number in a frame.
const WHOSE: usize = 4;
/// Writes of several callers are combined up to this size. Beyond it, copying costs more than a
/// call.
const TOGETHER: usize = 16 << 10;
/// Minimum size of a read.
const READ: usize = 256 << 10;

/// Kind of callers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    Threads,
    States,
}

pub fn run(plan: &Plan, callers: Callers) -> Result<(), String> {
    plan.placed(&["scheduled"])?;
    let path = plan.place.join("socket");
    match (plan.side, callers) {
        (Side::Server, _) => {
            let listener = UnixListener::bind(path).map_err(while_("bind"))?;
            println!("ready");
            let plan = plan.clone();
            thread::spawn(move || {
                let (stream, _) = listener.accept().expect("accept");
                if let Err(why) = answer(&plan, &stream) {
                    fail(&why);
                }
            });
            until_told();
            std::process::exit(0)
        }
        (Side::Client, Callers::States) => {
            as_states(plan, UnixStream::connect(path).map_err(while_("connect"))?)
        }
        (Side::Client, Callers::Threads) => {
            let shared = Shared::over(plan, UnixStream::connect(path).map_err(while_("connect"))?);
            by_threads(plan, Ok, |n, payload| shared.call(*n, payload))
        }
    }
}

/// Reads frames of equal length.
struct Frames {
    buffer: Vec<u8>,
    length: usize,
    filled: usize,
    /// Bytes of complete frames that have been returned.
    taken: usize,
}

impl Frames {
    fn of(bytes: usize) -> Frames {
        let length = WHOSE + bytes;
        Frames { buffer: vec![0; READ.max(2 * length)], length, filled: 0, taken: 0 }
    }

    /// Returns the frames that one read completes, each with its caller and contents. `None` if the
    /// other side has closed the stream.
    fn read(
        &mut self,
        mut stream: &UnixStream,
    ) -> Result<Option<impl Iterator<Item = (usize, &[u8])>>, String> {
        if self.taken > 0 {
            self.buffer.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
        }
        match stream.read(&mut self.buffer[self.filled..]).map_err(while_("read"))? {
            0 => return Ok(None),
            more => self.filled += more,
        }
        self.taken = self.filled / self.length * self.length;
        Ok(Some(self.buffer[..self.taken].chunks_exact(self.length).map(|frame| {
            let (whose, rest) = frame.split_first_chunk().expect("a frame is longer");
            (u32::from_ne_bytes(*whose) as usize, rest)
        })))
    }
}

/// Replies to all requests that arrived together with one write.
fn answer(plan: &Plan, mut stream: &UnixStream) -> Result<(), String> {
    let (mut frames, mut replies) = (Frames::of(plan.bytes), Vec::new());
    while let Some(asked) = frames.read(stream)? {
        replies.clear();
        for (whose, payload) in asked {
            replies.extend_from_slice(&(whose as u32).to_ne_bytes());
            replies.extend_from_slice(&serve(payload, plan.check).to_bytes());
        }
        if stream.write_all(&replies).is_err() {
            // The client has ended and needs no reply.
            break;
        }
    }
    Ok(())
}

fn reply(bytes: &[u8]) -> Answer {
    Answer::from_bytes(bytes.try_into().expect("as long as an answer"))
}

/// State shared by callers that are kernel threads.
struct Shared {
    stream: UnixStream,
    out: Mutex<Out>,
    /// Held by the writer of a large payload.
    large: Mutex<()>,
    answers: Vec<(Mutex<Option<Answer>>, Condvar)>,
}

#[derive(Default)]
struct Out {
    frames: Vec<u8>,
    /// True if a caller is writing and will check for more data.
    writes: bool,
}

impl Shared {
    fn over(plan: &Plan, stream: UnixStream) -> Arc<Shared> {
        let answers = (0..plan.callers).map(|_| Default::default()).collect();
        let shared =
            Arc::new(Shared { stream, out: Mutex::default(), large: Mutex::default(), answers });
        let reader = shared.clone();
        thread::spawn(move || {
            fail(&reader.read().err().unwrap_or_else(|| "the server has closed".to_owned()))
        });
        shared
    }

    fn read(&self) -> Result<(), String> {
        let mut frames = Frames::of(ANSWER);
        while let Some(replies) = frames.read(&self.stream)? {
            for (whose, bytes) in replies {
                let (answer, there) =
                    self.answers.get(whose).ok_or("a reply for an unknown caller")?;
                *answer.lock().expect("no panic") = Some(reply(bytes));
                there.notify_one();
            }
        }
        Ok(())
    }

    fn call(&self, n: usize, payload: &[u8]) -> Result<Answer, String> {
        if payload.len() > TOGETHER {
            self.write_alone(n, payload)
        } else {
            self.write_together(n, payload)
        }
        .map_err(while_("write"))?;
        let (answer, there) = &self.answers[n];
        let mut answer = answer.lock().expect("no panic");
        loop {
            match answer.take() {
                Some(answer) => return Ok(answer),
                None => answer = there.wait(answer).expect("no panic"),
            }
        }
    }

    fn write_together(&self, n: usize, payload: &[u8]) -> std::io::Result<()> {
        let mut out = self.out.lock().expect("no panic");
        out.frames.extend_from_slice(&(n as u32).to_ne_bytes());
        out.frames.extend_from_slice(payload);
        if out.writes {
            return Ok(());
        }
        out.writes = true;
        let mut frames = Vec::new();
        while !out.frames.is_empty() {
            frames.clear();
            std::mem::swap(&mut frames, &mut out.frames);
            drop(out);
            (&self.stream).write_all(&frames)?;
            out = self.out.lock().expect("no panic");
        }
        out.writes = false;
        Ok(())
    }

    fn write_alone(&self, n: usize, payload: &[u8]) -> std::io::Result<()> {
        let whose = (n as u32).to_ne_bytes();
        let mut parts = &mut [IoSlice::new(&whose), IoSlice::new(payload)][..];
        let _alone = self.large.lock().expect("no panic");
        while !parts.is_empty() {
            let written = (&self.stream).write_vectored(parts)?;
            IoSlice::advance_slices(&mut parts, written);
        }
        Ok(())
    }
}

/// Controlled by standard input, like [`by_threads`].
fn as_states(plan: &Plan, stream: UnixStream) -> Result<(), String> {
    let mut callers: Vec<_> = (0..plan.callers).map(|n| Caller::new(plan, n)).collect();
    println!("ready");
    while let Some(length) = told()? {
        slice(&mut callers, &stream, length).unwrap_or_else(|why| fail(&why)).say();
    }
    Ok(())
}

fn slice(
    callers: &mut [Caller],
    mut stream: &UnixStream,
    length: Duration,
) -> Result<Slice, String> {
    let (begun, mut under_way, mut over) = (Instant::now(), callers.len(), false);
    let (mut frames, mut out) = (Frames::of(ANSWER), Vec::new());
    let ask = |out: &mut Vec<u8>, n: usize, caller: &mut Caller| {
        out.extend_from_slice(&(n as u32).to_ne_bytes());
        out.extend_from_slice(caller.stamped());
    };
    callers.iter_mut().enumerate().for_each(|(n, caller)| ask(&mut out, n, caller));
    while under_way > 0 {
        stream.write_all(&out).map_err(while_("write"))?;
        out.clear();
        let replies = frames.read(stream)?.ok_or("the server has closed")?;
        over = over || begun.elapsed() >= length;
        for (whose, bytes) in replies {
            let caller = callers.get_mut(whose).ok_or("a reply for an unknown caller")?;
            caller.answered(reply(bytes))?;
            if over {
                caller.pause();
                under_way -= 1;
            } else {
                ask(&mut out, whose, caller);
            }
        }
    }
    let mut slice = Slice::since(begun);
    callers.iter_mut().for_each(|caller| caller.collect(&mut slice));
    Ok(slice)
}
