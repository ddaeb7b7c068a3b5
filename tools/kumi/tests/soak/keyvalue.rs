//! The key-value server under faults. One client is a model of the data.
//!
//! Each value is the number of the operation that set it, so the data show which operations have
//! been applied. After a crash these have to be the first ones of all that were acknowledged: all
//! of them with `always`, and some with `everysec`, or if the end of the log was cut off.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kumihimo_tests::{Random, until};
use rustix::process::Signal;

use crate::service::{Fault, Service};

pub const FAULTS: [Fault; 4] = [Fault::Kill, Fault::Stop, Fault::Descriptors, Fault::Memory];
const KEYS: u64 = 40;
/// A reply that takes longer means a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// An operation on a key.
#[derive(Clone, Copy, Debug)]
struct Done {
    number: u64,
    /// It has set the value, and not removed it.
    set: bool,
    acknowledged: bool,
}

/// The client, and what it knows about the data.
pub struct Model {
    socket: PathBuf,
    log: PathBuf,
    stream: Option<BufReader<UnixStream>>,
    /// Operations on each key in the order in which they were sent.
    keys: BTreeMap<u64, Vec<Done>>,
    next: u64,
    always: bool,
    pub acknowledged: u64,
}

pub fn service(kumi: &'static Path, place: &Path, small: &Path, always: bool) -> Service {
    let (socket, log) = (place.join("kv.socket"), small.join("kv.aof"));
    let run = place.join("machine");
    Service::new("kv", place.join("kv.errors"), "listening", move || {
        let mut command = Command::new(kumi);
        command.args(["serve", "kv", "--sync", if always { "always" } else { "everysec" }]);
        command.arg("--unix").arg(&socket).arg("--append-log").arg(&log);
        command.env("KUMI_DIR", &run).env("KUMI_ARBITER", "on").env("KUMI_VPS", "2");
        command
    })
}

impl Model {
    pub fn new(place: &Path, small: &Path, always: bool) -> Model {
        Model {
            socket: place.join("kv.socket"),
            log: small.join("kv.aof"),
            stream: None,
            keys: BTreeMap::new(),
            next: 1,
            always,
            acknowledged: 0,
        }
    }

    fn ask(&mut self, words: &[&str]) -> io::Result<String> {
        if self.stream.is_none() {
            let stream = UnixStream::connect(&self.socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            self.stream = Some(BufReader::new(stream));
        }
        let stream = self.stream.as_mut().expect("set above");
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        let asked = stream.get_mut().write_all(request.as_bytes());
        let reply = asked.and_then(|()| reply(stream));
        if let Err(error) = &reply {
            assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "no reply to {words:?}");
            self.stream = None;
        }
        reply
    }

    /// One operation. Whether it was carried out is unknown unless it is acknowledged.
    fn step(&mut self, random: &mut Random) {
        let (key, number) = (random.below(KEYS), self.next);
        let (name, value) = (format!("key:{key}"), number.to_string());
        let set = !random.one_in(5);
        self.next += 1;
        let padded = format!("{value} {}", "x".repeat(random.below(200) as usize));
        let reply =
            if set { self.ask(&["SET", &name, &padded]) } else { self.ask(&["DEL", &name]) };
        let acknowledged = match &reply {
            Ok(reply) if reply == "+OK" || reply.starts_with(':') => true,
            Ok(reply) => {
                assert!(reply.starts_with('-'), "{reply}");
                false
            }
            Err(_) => false,
        };
        self.acknowledged += u64::from(acknowledged);
        self.keys.entry(key).or_default().push(Done { number, set, acknowledged });
    }

    /// Sends operations until `over`. Starts the server again whenever it has ended, and compares
    /// its data.
    pub fn run(&mut self, service: &Service, random: &mut Random, over: &AtomicBool) {
        while !over.load(SeqCst) {
            for _ in 0..1 + random.below(50) {
                self.step(random);
            }
            if !service.is_alive() {
                let cut = random.one_in(4) && self.cut_log(random);
                self.stream = None;
                service.revive();
                self.compare(service, !self.always || cut);
            }
        }
    }

    /// Cuts some bytes off the end of the log, as a crash of the machine does.
    fn cut_log(&self, random: &mut Random) -> bool {
        let Ok(file) = fs::OpenOptions::new().write(true).open(&self.log) else { return false };
        let length = file.metadata().expect("a file").len();
        file.set_len(length.saturating_sub(1 + random.below(2000))).expect("it is shortened");
        true
    }

    /// Compares all data with the model. `lost`: acknowledged operations may be missing at the end.
    /// The model has the data afterwards.
    pub fn compare(&mut self, service: &Service, lost: bool) {
        let mut found = BTreeMap::new();
        for key in 0..KEYS {
            let name = format!("key:{key}");
            let reply = RefCell::new(Err(io::ErrorKind::NotFound.into()));
            until(
                &format!("a value of {name}"),
                || format!("{:?}", reply.borrow()),
                || {
                    *reply.borrow_mut() = self.ask(&["GET", &name]);
                    let has_come = reply.borrow().as_ref().is_ok_and(|it| !it.starts_with('-'));
                    if !has_come {
                        // Disturbed meanwhile. The data are those of the last life, whichever one.
                        service.revive();
                    }
                    has_come
                },
            );
            let reply = reply.into_inner().expect("a reply");
            let value = reply.split(' ').next().unwrap_or_default().parse::<u64>().ok();
            found.insert(key, value);
        }
        let last = found.values().flatten().max().copied().unwrap_or(0);
        for (key, all) in &mut self.keys {
            let value = found[key];
            let until = if lost { last } else { u64::MAX };
            let needed = all.iter().rev().find(|one| one.acknowledged && one.number <= until);
            let needed = needed.map_or(0, |one| one.number);
            let is = match value {
                Some(number) => all.iter().find(|one| one.set && one.number == number).copied(),
                None => all.iter().rev().find(|one| !one.set && one.number >= needed).copied().or(
                    (needed == 0).then_some(Done { number: 0, set: false, acknowledged: true }),
                ),
            };
            let is = is.unwrap_or_else(|| {
                panic!("key {key} is {value:?}, but operation {needed} was acknowledged: {all:?}")
            });
            assert!(
                is.number >= needed,
                "key {key} is {value:?}, but operation {needed} was acknowledged: {all:?}"
            );
            // What was sent later is known not to be there. What was sent earlier is kept: if the
            // end of the log is cut off, it is the data again.
            all.retain(|one| one.number < is.number);
            all.push(Done { acknowledged: true, ..is });
        }
    }

    /// Damages the middle of the log of a server that has ended. The start is refused, or, where
    /// the damage is inside of a value, nothing else is lost. The repair saves what it removes.
    pub fn damage(&mut self, kumi: &Path, service: &Service, random: &mut Random) {
        let whole = fs::read(&self.log).expect("the log");
        if whole.len() < 100 {
            return;
        }
        let mut damaged = whole.clone();
        let at = random.below(whole.len() as u64 / 2) as usize;
        damaged[at..at + 16].fill(0xff);
        fs::write(&self.log, &damaged).expect("the log");
        match service.start() {
            Ok(()) => _ = service.end(Signal::KILL),
            Err((status, said)) => {
                assert!(!status.success() && said.contains("--repair"), "{status}: {said}");
                assert_eq!(fs::read(&self.log).expect("the log"), damaged, "nothing is changed");
                let repair =
                    Command::new(kumi).args(["serve", "kv", "--repair"]).arg(&self.log).output();
                let repair = repair.expect("kumi");
                assert!(repair.status.success(), "{}", String::from_utf8_lossy(&repair.stderr));
                service.start().expect("it is repaired");
                service.end(Signal::KILL);
            }
        }
        fs::write(&self.log, whole).expect("the log");
    }
}

fn reply(stream: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end().to_owned();
    let Some(length) = line.strip_prefix('$').and_then(|text| text.parse::<i64>().ok()) else {
        return Ok(line);
    };
    let Ok(length) = usize::try_from(length) else { return Ok(String::new()) };
    let mut text = vec![0; length + 2];
    stream.read_exact(&mut text)?;
    text.truncate(length);
    String::from_utf8(text).map_err(io::Error::other)
}
