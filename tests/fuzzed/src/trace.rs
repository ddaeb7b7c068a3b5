//! Traces: the spool of a run, and the finished file.

use std::io::Cursor;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use arbitrary::{Arbitrary, Unstructured};
use kumihimo_trace::read::{Reader, summaries};
use kumihimo_trace::spool::{CLOCK, Header, OUTSIDE, Spool, write};
use kumihimo_trace::{check, check_together, export};

use crate::memory::file;

/// A record that is mostly valid: kind, level, cause, wait, argument, time and id.
#[derive(Arbitrary, Debug)]
struct Event {
    kind: u8,
    level: u8,
    cause: u8,
    wait: u8,
    arg: Small,
    time: Small,
    id: Small,
}

/// A number, small ones more often.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Small {
    Few(u8),
    Some(u16),
    Any(u64),
}

impl Small {
    fn number(self) -> u64 {
        match self {
            Small::Few(n) => u64::from(n % 8),
            Small::Some(n) => n.into(),
            Small::Any(n) => n,
        }
    }
}

impl Event {
    fn words(&self) -> [u64; 3] {
        let last = u64::from(self.kind % 28)
            | u64::from(self.level) << 8
            | u64::from(self.cause) << 16
            | u64::from(self.wait) << 24
            | self.arg.number() << 32;
        [self.time.number(), self.id.number(), last]
    }
}

#[derive(Arbitrary, Debug)]
enum Writer {
    Vp(u8),
    Any(u32),
    Outside,
    Clock,
}

#[derive(Arbitrary, Debug)]
struct Run {
    vps: Small,
    pid: u32,
    offset: Small,
    about: Vec<(bool, String)>,
    chunks: Vec<(Writer, Vec<Event>)>,
}

impl Run {
    fn bytes(&self) -> Vec<u8> {
        let about = self.about.iter().enumerate().map(|(i, (known, text))| {
            let key = if *known { ["program", "board", "row"][i % 3] } else { text.as_str() };
            (key.to_owned(), text.clone())
        });
        let header = Header {
            vps: self.vps.number() as u32,
            pid: self.pid,
            offset: self.offset.number(),
            about: about.collect(),
        };
        let chunks = self.chunks.iter().map(|(writer, events)| {
            let writer = match writer {
                Writer::Vp(vp) => u32::from(vp % 4),
                Writer::Any(any) => *any,
                Writer::Outside => OUTSIDE,
                Writer::Clock => CLOCK,
            };
            (writer, events.iter().map(Event::words).collect())
        });
        let mut bytes = Vec::new();
        write(&mut bytes, &header, &chunks.collect::<Vec<_>>()).expect("memory takes the bytes");
        bytes
    }
}

/// Byte 0: whether the rest is the bytes of a spool, or a run from which they are made, and whether
/// only whole rounds are read.
pub(crate) fn spool(data: &[u8]) {
    let [how, data @ ..] = data else { return };
    let bytes = if how & 1 == 0 {
        data.to_vec()
    } else {
        let mut input = Unstructured::new(data);
        let Ok(run) = input.arbitrary::<Run>() else { return };
        [run.bytes(), input.take_rest().to_vec()].concat()
    };
    let Ok(spool) = Spool::open(file(&bytes)) else { return };
    let spool = if how & 2 == 0 { spool } else { spool.whole_rounds() };
    let entries = spool.entries().map(|entry| entry.expect("memory reads without errors"));
    let (mut count, mut names) = (0, 0);
    for entry in entries {
        count += 1;
        names += entry.name.map_or(0, |name| name.len());
    }
    assert!(count <= bytes.len() / 24, "{count} records in {} bytes", bytes.len());
    // An invalid byte of a name becomes three.
    assert!(names <= 3 * bytes.len());
    let mut out = Vec::new();
    let summary = export::convert(&spool, &mut out, u64::from(how >> 2)).expect("it is converted");
    assert!(out.len() <= (1 << 19) + 256 * bytes.len(), "{} of {}", out.len(), bytes.len());
    // The project's own file is one that its own reader accepts.
    let again = examine(&out).expect("a whole file");
    assert_eq!(again, 1, "{summary:?}");
}

/// The bytes of a finished trace, perhaps of another program.
pub(crate) fn file_of(data: &[u8]) {
    let _ = examine(data);
}

/// Reads and checks a trace. Returns the number of runs.
fn examine(bytes: &[u8]) -> std::io::Result<usize> {
    let mut reader = Reader::new(Cursor::new(bytes));
    let mut events = 0;
    let read = loop {
        match reader.next_event() {
            Ok(Some(event)) => {
                events += 1;
                assert!(event.arguments.len() <= bytes.len());
            }
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    assert!(events <= bytes.len() / 2 && reader.tracks.len() <= bytes.len() / 2);
    let file = file(bytes);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let report = check(&path, None);
    let _ = check_together(&[path.clone(), path.clone()], None);
    let runs = summaries(&path);
    read?;
    let report = report?;
    let _ = (report.to_string(), report.verdict());
    Ok(runs?.len())
}
