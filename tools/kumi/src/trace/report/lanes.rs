//! The lanes of a timeline: what each VP ran, and when.
//!
//! A lane holds its spans in the order of time. If all lanes together exceed their limit, short
//! spans that lie close to each other become one that stands for several, with their number and the
//! time that something ran. So a trace of any length fits, the sums stay exact, and only detail
//! below the resolution is lost.

use serde::Serialize;

/// A place on the timeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Place {
    pub(super) from: u64,
    pub(super) to: u64,
    /// Index of the microprocess concerned.
    pub(super) micro: u32,
}

/// What a span shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// The VP is idle.
    Idle,
    /// Several short spans, most of them too short to show.
    Several,
    /// The microprocess with this index in the run's table.
    Micro(u32),
}

/// A time during which a VP ran something, or was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Nanoseconds since the start of the run.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Time of it in which a microprocess ran.
    pub(super) busy: u64,
    pub(super) runs: Runs,
    /// Number of spans that it stands for.
    pub(super) count: u32,
}

impl Span {
    pub(super) fn new(from: u64, to: u64, runs: Runs) -> Span {
        let busy = if runs == Runs::Idle { 0 } else { to - from };
        Span { from, to, busy, runs, count: 1 }
    }
}

/// The spans of one VP.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) track: u64,
    pub(super) name: String,
    pub(super) spans: Vec<Span>,
    /// The span that has not ended: its start, and what it shows.
    pub(super) open: Option<(u64, Runs)>,
}

impl Lane {
    /// Ends the open span. Returns whether there was one.
    pub(super) fn end(&mut self, at: u64) -> bool {
        let open = self.open.take();
        // Times never decrease in a trace, but the file may be any.
        self.spans.extend(open.map(|(from, runs)| Span::new(from, at.max(from), runs)));
        open.is_some()
    }

    /// Merges spans that end within `resolution` of the start of the first one.
    pub(super) fn coarsen(&mut self, resolution: u64) {
        let mut kept: Vec<Span> = Vec::with_capacity(self.spans.len() / 2);
        for span in self.spans.drain(..) {
            match kept.last_mut() {
                Some(last) if span.to.saturating_sub(last.from) <= resolution => {
                    if last.runs != span.runs {
                        last.runs = Runs::Several;
                    }
                    last.to = span.to.max(last.to);
                    last.busy += span.busy;
                    last.count = last.count.saturating_add(span.count);
                }
                _ => kept.push(span),
            }
        }
        kept.shrink_to_fit();
        self.spans = kept;
    }
}
