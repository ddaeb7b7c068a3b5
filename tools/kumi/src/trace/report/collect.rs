//! Reads a trace once, and keeps what the page shows.
//!
//! Memory is bounded, whatever the length of the trace: spans of the timeline lose resolution
//! ([`super::lanes`]), lists keep their longest members, and a trace with too many tracks is
//! refused ([`LIMITS`]).

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::rc::Rc;

use kumihimo_trace::perfetto::{SLICE_BEGIN, SLICE_END};
use kumihimo_trace::read::{Event, Of, Track};
use kumihimo_trace::{Checker, Reader, Report, State, Summary};

use super::contention::Contention;
use super::lanes::{Lane, Place, Runs};
use super::latency::{Histogram, Longest};

/// What bounds the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Number of tracks of a trace that is read: microprocesses, VPs, kernel threads, cores.
    pub(super) tracks: usize,
    /// Number of spans that all timelines together keep.
    pub(super) spans: usize,
}

/// The limits of the command.
pub(super) const LIMITS: Limits = Limits { tracks: 500_000, spans: 2_000_000 };
/// Number of the longest times from runnable to running that are listed.
const MOST_LONGEST: usize = 100;
/// Number of causes and of reasons that are told apart.
const MOST_WORDS: usize = 64;

/// What a parked microprocess waits for.
#[derive(Debug)]
struct Wait {
    reason: Rc<str>,
    lock: Option<u64>,
    holder: Option<Rc<str>>,
}

/// A microprocess.
#[derive(Debug)]
pub(super) struct Micro {
    pub(super) label: Rc<str>,
    state: Option<State>,
    since: u64,
    wait: Option<Wait>,
    /// Since when it is runnable, and why.
    runnable: Option<(u64, Rc<str>)>,
    pub(super) level: Option<u8>,
    pub(super) runs: u64,
    pub(super) running: u64,
    pub(super) latency: u64,
    pub(super) latencies: u64,
    pub(super) longest_latency: u64,
    pub(super) parks: u64,
    pub(super) parked: u64,
    pub(super) blocks: u64,
    /// In the kernel, or on a kernel thread without a VP.
    pub(super) outside: u64,
    pub(super) first: u64,
    pub(super) last: u64,
}

/// A run of a runtime.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) track: u64,
    pub(super) name: String,
    pub(super) micros: Vec<Micro>,
    by_track: HashMap<u64, u32>,
    by_label: HashMap<Rc<str>, u32>,
    pub(super) lanes: Vec<Lane>,
    lane_by_track: HashMap<u64, usize>,
    pub(super) contention: Contention,
    pub(super) latency: Histogram,
    pub(super) by_cause: BTreeMap<Rc<str>, Histogram>,
    pub(super) by_level: BTreeMap<u8, Histogram>,
    pub(super) longest: Longest<Place>,
    /// Number of times from runnable to running that reached the limit of a stall.
    pub(super) stalls: u64,
    stall: u64,
    /// The last event, in nanoseconds since the start of the run.
    pub(super) end: u64,
    pub(super) summary: Option<Summary>,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) runs: Vec<Run>,
    pub(super) report: Report,
    /// Detail of the timelines in nanoseconds; 0: all of it.
    pub(super) resolution: u64,
}

/// Reads all events of `reader`. A microprocess that is runnable for `stall` nanoseconds, and does
/// not run, is a stall. `bound` is that of the check.
///
/// # Errors
/// Why the file is not a trace that can be shown.
pub(super) fn collect<R: BufRead>(
    reader: &mut Reader<R>,
    stall: u64,
    bound: Option<u64>,
    limits: Limits,
) -> Result<Collected, String> {
    let mut checker = Checker::new(bound);
    let mut all = Collector { runs: Vec::new(), by_track: HashMap::new(), spans: 0, resolution: 0 };
    let mut words = Words::default();
    while let Some(event) = reader.next_event().map_err(|e| e.to_string())? {
        if reader.tracks.len() > limits.tracks {
            return Err(format!(
                "more than {} microprocesses, kernel threads and VPs, which are too many for a \
                 report; trace a shorter time",
                limits.tracks
            ));
        }
        checker.take(&event, &reader.tracks).map_err(|e| e.to_string())?;
        all.take(&event, &reader.tracks, stall, &mut words)?;
        if all.spans > limits.spans {
            all.coarsen(limits.spans / 2);
        }
    }
    let Collector { mut runs, resolution, .. } = all;
    runs.iter_mut().for_each(Run::close);
    if runs.iter().all(|run| run.lanes.is_empty()) {
        return Err("no run of a runtime is in it; it is not a trace of Kumihimo".to_owned());
    }
    Ok(Collected { runs, report: checker.report(), resolution })
}

/// Words that occur often, kept once each.
#[derive(Debug, Default)]
struct Words(HashMap<String, Rc<str>>);

impl Words {
    fn get(&mut self, word: &str) -> Rc<str> {
        if let Some(known) = self.0.get(word) {
            return known.clone();
        }
        // The runtime has a fixed set; a file may contain any.
        let word = if self.0.len() < MOST_WORDS { word } else { "other" };
        self.0.entry(word.to_owned()).or_insert_with(|| word.into()).clone()
    }
}

#[derive(Debug)]
struct Collector {
    runs: Vec<Run>,
    by_track: HashMap<u64, usize>,
    spans: usize,
    resolution: u64,
}

impl Collector {
    fn take(
        &mut self,
        event: &Event,
        tracks: &HashMap<u64, Track>,
        stall: u64,
        words: &mut Words,
    ) -> Result<(), String> {
        // The checker has looked the track up.
        let track = &tracks[&event.track];
        let at = *self.by_track.entry(track.run).or_insert_with(|| {
            self.runs.push(Run::new(tracks, track.run, stall));
            self.runs.len() - 1
        });
        let run = &mut self.runs[at];
        run.end = run.end.max(event.at);
        match track.of {
            Of::Vp => {
                if run.on_vp(event) {
                    self.spans += 1;
                }
            }
            Of::Micro => run.on_micro(event, track, words)?,
            Of::Process => run.summary = event.summary().or(run.summary),
            Of::Group | Of::Thread | Of::Core => {}
        }
        Ok(())
    }

    /// Merges short spans until at most `most` are left, or one in each lane.
    fn coarsen(&mut self, most: usize) {
        while self.spans > most && self.resolution < u64::MAX / 2 {
            self.resolution = (self.resolution * 2).max(1000);
            let lanes = self.runs.iter_mut().flat_map(|run| &mut run.lanes);
            self.spans = 0;
            for lane in lanes {
                lane.coarsen(self.resolution);
                self.spans += lane.spans.len();
            }
        }
    }
}

impl Run {
    /// Creates the run with track `run`, whose VPs are all described by now.
    fn new(tracks: &HashMap<u64, Track>, run: u64, stall: u64) -> Run {
        let of_run = tracks.iter().filter(|(_, track)| track.of == Of::Vp && track.run == run);
        let mut lanes: Vec<Lane> = of_run
            .map(|(uuid, track)| Lane {
                track: *uuid,
                name: track.name.to_string(),
                ..Lane::default()
            })
            .collect();
        lanes.sort_by_key(|lane| lane.track);
        Run {
            track: run,
            name: tracks.get(&run).map_or_else(String::new, |track| track.name.to_string()),
            micros: Vec::new(),
            by_track: HashMap::new(),
            by_label: HashMap::new(),
            lane_by_track: lanes.iter().enumerate().map(|(i, lane)| (lane.track, i)).collect(),
            lanes,
            contention: Contention::default(),
            latency: Histogram::default(),
            by_cause: BTreeMap::new(),
            by_level: BTreeMap::new(),
            longest: Longest::new(MOST_LONGEST),
            stalls: 0,
            stall,
            end: 0,
            summary: None,
        }
    }

    /// Returns the index of the VP or microprocess with this track.
    pub(super) fn lane_of(&self, track: u64) -> Option<usize> {
        self.lane_by_track.get(&track).copied()
    }

    /// Returns the index of the microprocess with this track.
    pub(super) fn micro_of(&self, track: u64) -> Option<u32> {
        self.by_track.get(&track).copied()
    }

    /// Takes an event of a VP. Returns whether a span has ended.
    fn on_vp(&mut self, event: &Event) -> bool {
        let Some(&lane) = self.lane_by_track.get(&event.track) else { return false };
        let lane = &mut self.lanes[lane];
        match event.kind {
            SLICE_BEGIN => {
                let ended = lane.end(event.at);
                // A label of a microprocess ends with its ID, so none is the word for idleness.
                let runs = match self.by_label.get(&event.name) {
                    Some(micro) => Runs::Micro(*micro),
                    None => Runs::Idle,
                };
                lane.open = Some((event.at, runs));
                ended
            }
            SLICE_END => lane.end(event.at),
            _ => false,
        }
    }

    fn on_micro(&mut self, event: &Event, track: &Track, words: &mut Words) -> Result<(), String> {
        let index = *self.by_track.entry(event.track).or_insert_with(|| {
            let index = self.micros.len() as u32;
            self.by_label.insert(track.name.clone(), index);
            self.micros.push(Micro::new(track.name.clone(), event.at));
            index
        });
        match event.kind {
            SLICE_BEGIN => {
                let state = State::from_name(&event.name).ok_or_else(|| {
                    format!(
                        "the state {:?}, which this version does not know: another version of \
                         Kumihimo wrote the trace; use its kumi",
                        &*event.name
                    )
                })?;
                self.leave(index, event.at);
                self.enter(index, state, event, words);
            }
            SLICE_END => self.leave(index, event.at),
            _ => {}
        }
        let micro = &mut self.micros[index as usize];
        micro.last = micro.last.max(event.at);
        Ok(())
    }

    fn enter(&mut self, index: u32, state: State, event: &Event, words: &mut Words) {
        let micro = &mut self.micros[index as usize];
        (micro.state, micro.since) = (Some(state), event.at);
        micro.level = event.number("level").map_or(micro.level, |n| u8::try_from(n).ok());
        match state {
            State::Ready => {
                // A microprocess that moves to another VP is still waiting.
                if micro.runnable.is_none() {
                    let why = words.get(event.text("why").unwrap_or("-"));
                    micro.runnable = Some((event.at, why));
                }
                return;
            }
            State::Running => {
                micro.runs += 1;
                if let Some((since, why)) = micro.runnable.take() {
                    self.waited(index, since, event.at, why);
                }
                return;
            }
            State::Parked => {
                micro.parks += 1;
                let lock = event.number("lock");
                let reason = match (event.text("for").unwrap_or("?"), lock) {
                    // Suspension and futexes share a number in records.
                    ("resume", Some(_)) => "futex",
                    (reason, _) => reason,
                };
                let holder = event.text("holder").map(|holder| self.name(holder));
                let micro = &mut self.micros[index as usize];
                micro.wait = Some(Wait { reason: words.get(reason), lock, holder });
            }
            State::Blocked => micro.blocks += 1,
            State::Unbound | State::Sticky => {}
        }
        self.micros[index as usize].runnable = None;
    }

    /// Returns the text of a label, shared with the microprocess if that is known.
    fn name(&self, label: &str) -> Rc<str> {
        self.by_label.get_key_value(label).map_or_else(|| label.into(), |(known, _)| known.clone())
    }

    /// Accounts the time of the present state, which ends.
    fn leave(&mut self, index: u32, at: u64) {
        let micro = &mut self.micros[index as usize];
        let (since, time) = (micro.since, at.saturating_sub(micro.since));
        match micro.state.take() {
            Some(State::Running) => micro.running += time,
            Some(State::Parked) => {
                micro.parked += time;
                if let Some(Wait { reason, lock, holder }) = micro.wait.take() {
                    let place = Place { from: since, to: at, micro: index };
                    let label = micro.label.clone();
                    let (holder, wait) = (holder.as_ref(), (time, &place));
                    self.contention.add(&reason, lock, holder, &label, wait);
                }
            }
            Some(State::Blocked | State::Unbound | State::Sticky) => micro.outside += time,
            Some(State::Ready) | None => {}
        }
    }

    /// Counts a time from runnable to running.
    fn waited(&mut self, index: u32, from: u64, to: u64, why: Rc<str>) {
        let time = to.saturating_sub(from);
        let micro = &mut self.micros[index as usize];
        micro.latency = micro.latency.saturating_add(time);
        micro.latencies += 1;
        micro.longest_latency = micro.longest_latency.max(time);
        self.latency.add(time);
        self.by_cause.entry(why).or_default().add(time);
        if let Some(level) = micro.level {
            self.by_level.entry(level).or_default().add(time);
        }
        self.stalls += u64::from(time >= self.stall);
        self.longest.add(time, Place { from, to, micro: index });
    }

    /// Ends everything that the trace leaves open.
    fn close(&mut self) {
        let end = self.end;
        for lane in &mut self.lanes {
            lane.end(end);
        }
        for index in 0..self.micros.len() as u32 {
            self.leave(index, end);
            if let Some((since, why)) = self.micros[index as usize].runnable.take()
                && end > since
            {
                self.waited(index, since, end, why);
            }
        }
    }
}

impl Micro {
    fn new(label: Rc<str>, at: u64) -> Micro {
        Micro {
            label,
            state: None,
            since: at,
            wait: None,
            runnable: None,
            level: None,
            runs: 0,
            running: 0,
            latency: 0,
            latencies: 0,
            longest_latency: 0,
            parks: 0,
            parked: 0,
            blocks: 0,
            outside: 0,
            first: at,
            last: at,
        }
    }
}
