//! Every interleaving of readers, a writer and the collector of edges, in a model of edge-triggered
//! readiness: nobody waits for ever for what is already there. Each rule is shown to be needed:
//! without it, the model finds the state in which somebody does.

use std::collections::HashSet;

/// How the protocol of an attempt may go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rules {
    /// `seen` before everything else; `drained` and `wait` with that number; an end counts as an
    /// edge that lasts.
    Ours,
    /// An end is an edge like any other: a short read that came with it hides it.
    EndsDoNotLast,
    /// `seen` is asked after `likely_ready` has said no.
    SeenTooLate,
    /// `drained` notes the edges that are known after the system call.
    DrainedTooLate,
    /// The wait asks for an edge that no wait has returned for yet.
    EdgesAreConsumed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Seen,
    Likely,
    Attempt,
    Drained,
    Wait,
    Parked,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Reader {
    at: At,
    seen: u8,
    buffer: u8,
    /// Reads no more once it has so much; `u8::MAX`: reads to the end.
    wants: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    /// Still to be written: 0 is the end of the stream.
    script: Vec<u8>,
    kernel: u8,
    ended: bool,
    /// An edge nobody has fetched from epoll yet; whether an end is part of it.
    ready: Option<bool>,
    /// Fetched, not yet counted.
    fetched: Option<bool>,
    edges: u8,
    consumed: u8,
    lasting: bool,
    drained_at: Option<u8>,
    readers: Vec<Reader>,
}

impl State {
    fn new(script: &[u8], readers: &[(u8, u8)]) -> State {
        let readers = readers
            .iter()
            .map(|&(buffer, wants)| Reader { at: At::Seen, seen: 0, buffer, wants })
            .collect();
        State {
            script: script.to_vec(),
            kernel: 0,
            ended: false,
            ready: None,
            fetched: None,
            edges: 0,
            consumed: 0,
            lasting: false,
            drained_at: None,
            readers,
        }
    }

    fn likely_ready(&self) -> bool {
        self.lasting || self.drained_at != Some(self.edges)
    }

    /// All states one step further.
    fn next(&self, rules: Rules) -> Vec<State> {
        let mut all = Vec::new();
        if let Some((&bytes, rest)) = self.script.split_first() {
            let mut s = State { script: rest.to_vec(), ..self.clone() };
            s.kernel += bytes;
            s.ended |= bytes == 0;
            s.ready = Some(s.ready.unwrap_or(false) | s.ended);
            all.push(s);
        }
        if let (Some(end), None) = (self.ready, self.fetched) {
            all.push(State { ready: None, fetched: Some(end), ..self.clone() });
        }
        if let Some(end) = self.fetched {
            let mut s = State { fetched: None, edges: self.edges + 1, ..self.clone() };
            s.lasting |= end && rules != Rules::EndsDoNotLast;
            for r in s.readers.iter_mut().filter(|r| r.at == At::Parked) {
                (r.at, r.seen) = (At::Attempt, s.edges);
                s.consumed = s.edges;
            }
            all.push(s);
        }
        for i in 0..self.readers.len() {
            let mut s = self.clone();
            if s.step(i, rules) {
                all.push(s);
            }
        }
        all
    }

    fn step(&mut self, i: usize, rules: Rules) -> bool {
        let mut r = self.readers[i];
        match r.at {
            At::Seen => {
                (r.seen, r.at) = (self.edges, At::Likely);
            }
            At::Likely => r.at = if self.likely_ready() { At::Attempt } else { At::Wait },
            At::Attempt => match self.kernel.min(r.buffer) {
                0 if self.ended => r.at = At::Done,
                0 => r.at = At::Wait,
                n => {
                    self.kernel -= n;
                    r.wants = if r.wants == u8::MAX { r.wants } else { r.wants.saturating_sub(n) };
                    r.at = match (n < r.buffer, r.wants) {
                        (true, _) => At::Drained,
                        (false, 0) => At::Done,
                        (false, _) => At::Seen,
                    };
                }
            },
            At::Drained => {
                self.drained_at =
                    Some(if rules == Rules::DrainedTooLate { self.edges } else { r.seen });
                r.at = if r.wants == 0 { At::Done } else { At::Seen };
            }
            At::Wait => {
                if rules == Rules::SeenTooLate {
                    r.seen = self.edges;
                }
                let news = match rules {
                    Rules::EdgesAreConsumed => self.edges != self.consumed,
                    _ => self.edges != r.seen,
                };
                if news {
                    (r.seen, r.at) = (self.edges, At::Attempt);
                    self.consumed = self.edges;
                } else {
                    r.at = At::Parked;
                }
            }
            At::Parked | At::Done => return false,
        }
        self.readers[i] = r;
        true
    }

    /// Somebody waits, and nothing will ever happen, although there are data or the end to be read.
    fn is_stuck(&self) -> bool {
        self.readers.iter().any(|r| r.at == At::Parked) && (self.kernel > 0 || self.ended)
    }
}

/// A state in which somebody is stuck, if there is one, and how many states there are.
fn explore(start: State, rules: Rules) -> (Option<State>, usize) {
    let mut known = HashSet::new();
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        if !known.insert(state.clone()) {
            continue;
        }
        let next = state.next(rules);
        if next.is_empty() && state.is_stuck() {
            return (Some(state), known.len());
        }
        open.extend(next);
    }
    (None, known.len())
}

const ALL: u8 = u8::MAX;

fn stories() -> Vec<State> {
    vec![
        // One reader with a buffer that is never full, and with one that fits exactly.
        State::new(&[1, 1, 0], &[(4, ALL)]),
        State::new(&[2, 1, 2, 0], &[(2, ALL)]),
        // Two messages without an end.
        State::new(&[1, 1], &[(4, 2)]),
        // Two readers to the end.
        State::new(&[1, 2, 0], &[(2, ALL), (2, ALL)]),
        State::new(&[3, 1, 0], &[(1, ALL), (4, ALL)]),
        // One of them leaves with what it wanted; the other one gets the rest.
        State::new(&[2, 0], &[(1, 1), (4, ALL)]),
        State::new(&[2], &[(1, 1), (1, 1)]),
        State::new(&[1, 2], &[(1, 1), (4, 2)]),
    ]
}

#[test]
fn ready_socket_never_leaves_a_waiter_asleep() {
    for story in stories() {
        let (stuck, states) = explore(story, Rules::Ours);
        assert!(stuck.is_none(), "{stuck:#?}");
        assert!(states > 20);
    }
}

#[test]
fn dropping_any_rule_loses_a_wake() {
    for rules in
        [Rules::EndsDoNotLast, Rules::SeenTooLate, Rules::DrainedTooLate, Rules::EdgesAreConsumed]
    {
        let found = stories().into_iter().any(|story| explore(story, rules).0.is_some());
        assert!(found, "{rules:?} does no harm, so the model does not show what it should");
    }
}
