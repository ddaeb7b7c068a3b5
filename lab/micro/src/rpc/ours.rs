//! The only module that uses gates, for `rpc` and `inversion`.

use std::time::{Duration, Instant};

use kumihimo::gate::{self, Gate, Options, Placement, RawGate, Region};
use kumihimo_bench_kit::Request;
use kumihimo_bench_kit::rpc::{Answer, Plan};

/// Name of the gates of `rpc` and of `inversion`, which use different run-time directories.
const NAME: &str = "bench";

/// The way in which a payload is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Copied with the call.
    Copy,
    /// In a region, one for each caller. The region is sealed, so only the call's number beside it
    /// changes.
    Region,
}

impl By {
    pub fn of(request: &Request) -> Result<By, String> {
        match request.get("by").unwrap_or("copy") {
            "copy" => Ok(By::Copy),
            "region" => Ok(By::Region),
            other => Err(format!("by={other}: expected `copy` or `region`")),
        }
    }
}

fn said(what: &str) -> impl Fn(gate::Error) -> String + '_ {
    move |e| format!("{what}: {e}")
}

/// A gate that is served until this value is dropped.
pub struct Serving(#[expect(dead_code, reason = "it is held")] gate::Serving);

impl Serving {
    /// Replies with `answer` to each payload, at the caller's priority.
    pub fn begin(
        plan: &Plan,
        by: By,
        answer: impl Fn(&[u8]) -> Answer + Send + Sync + 'static,
    ) -> Result<Serving, String> {
        let handler = move |asked: &[u8], context: &gate::Context<'_>, reply: &mut Vec<u8>| {
            let answer = match by {
                By::Copy => answer(asked),
                By::Region => renumbered(
                    asked,
                    context.regions()?.first().map_or(&[], |region| region),
                    &answer,
                ),
            };
            reply.extend_from_slice(&answer.to_bytes());
            Ok(Vec::new())
        };
        RawGate::serve(NAME, &options(plan), handler).map(Serving).map_err(said("serve"))
    }
}

/// Options for as many concurrent calls as callers, with all copied payloads inline.
fn options(plan: &Plan) -> Options {
    Options::new().in_flight(plan.callers.max(2) as u32)
}

/// The reply to a payload in a region, with the number of the call `asked`, if the region's
/// checksum is correct.
fn renumbered(asked: &[u8], region: &[u8], answer: impl Fn(&[u8]) -> Answer) -> Answer {
    let (Some(number), Some(lies)) = (asked.first_chunk(), region.first_chunk()) else {
        return answer(&[]);
    };
    let [number, lies] = [number, lies].map(|word| u64::from_ne_bytes(*word));
    match answer(region) {
        right if right.number == lies => {
            Answer { number, sum: right.sum.wrapping_sub(lies).wrapping_add(number) }
        }
        wrong => wrong,
    }
}

/// The connection of one caller. All callers of a process share one client.
pub struct Line {
    gate: RawGate,
    by: By,
    corrupt: Option<u64>,
    region: Option<Region>,
    reply: Vec<u8>,
}

impl Clone for Line {
    fn clone(&self) -> Line {
        Line {
            gate: self.gate.clone(),
            by: self.by,
            corrupt: self.corrupt,
            region: None,
            reply: Vec::new(),
        }
    }
}

impl Line {
    /// Connects to the gate of that name, by default the one of [`Serving`], with the placement of
    /// the plan.
    pub fn connect(plan: &Plan, by: By, gate: Option<&str>) -> Result<Line, String> {
        let placement = match plan.placement.as_str() {
            "handoff" => Placement::Handoff,
            "scheduled" => Placement::Scheduled,
            "spin" => Placement::Spin,
            _ => Placement::Adaptive,
        };
        let gate = RawGate::connect_with(gate.unwrap_or(NAME), &options(plan).placement(placement))
            .map_err(said("connect"))?;
        Ok(Line { gate, by, corrupt: plan.corrupt(), region: None, reply: Vec::new() })
    }

    /// Makes one call.
    #[inline]
    pub fn call(&mut self, payload: &[u8]) -> Result<Answer, String> {
        match self.by {
            By::Copy => self.gate.call(payload, &mut self.reply),
            By::Region => self.call_by_region(payload),
        }
        .map_err(said("call"))?;
        self.reply
            .as_slice()
            .try_into()
            .map(Answer::from_bytes)
            .map_err(|_| "a reply of wrong length".to_owned())
    }

    fn call_by_region(&mut self, payload: &[u8]) -> Result<(), gate::Error> {
        let number = &payload[..8];
        // A corrupted call sends another payload.
        let falsified = self.corrupt.is_some_and(|corrupt| number == corrupt.to_ne_bytes());
        let region = match self.region.take() {
            Some(region) if !falsified => region,
            _ => Region::copy_of(payload)?,
        };
        let regions = [region];
        self.gate.call_with(number, &regions, &mut self.reply)?;
        self.region = regions.into_iter().next();
        Ok(())
    }
}

/// A server for `inversion`. A call takes the time `work`, at the caller's priority if `inherit` is
/// set, otherwise at that of the serving microprocess.
pub struct Slow(#[expect(dead_code, reason = "it is held")] gate::Serving);

impl Slow {
    pub fn begin(inherit: bool, work: impl Fn() + Send + Sync + 'static) -> Result<Slow, String> {
        let serving = Gate::serve_with(
            NAME,
            &Options::new().inherit(inherit),
            move |(), _: &gate::Context<'_>| {
                work();
                Ok(())
            },
        );
        serving.map(Slow).map_err(said("serve"))
    }
}

/// The client of that server, in another process.
pub struct Slowly(Gate<(), ()>);

impl Slowly {
    pub fn connect() -> Result<Slowly, String> {
        Gate::connect(NAME).map(Slowly).map_err(said("connect"))
    }

    /// Duration of one call.
    pub fn call(&self) -> Result<Duration, String> {
        let begun = Instant::now();
        self.0.call(&()).map_err(said("call"))?;
        Ok(begun.elapsed())
    }
}
