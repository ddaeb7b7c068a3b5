//! Chapter 11: two processes with a gate between them, compared with a Unix socket and gRPC; and a
//! call whose server is kept from the core by a third process, without and with the arbiter.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::Duration;

use kumihimo_bench_kit::Request;
use kumihimo_bench_kit::rpc::{ANSWER, Answer, Plan, Side, by_threads, serve, until_told};

use crate::bench::child;
use crate::bench::contender::rivals;
use crate::bench::contender::{Contender, Programs, Runtime, Trouble};
use crate::bench::runs::inversion;
use crate::bench::runs::rpc::{Pair, Slice, WARM_UP_MS};
use crate::tour::page::text;
use crate::tour::page::watch::Watch;
use crate::tour::{Args, Figures, check, in_runtime, one_to_one};

const BYTES: usize = 64;
const SLICE_MS: u64 = 200;
const MANY: usize = 64;
/// Number of calls of each inversion.
const CALLS: usize = 100;
/// Length of the longest bar.
const COLUMNS: usize = 56;

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    if one_to_one() {
        text::say(
            "Left out: microprocesses are kernel threads on this machine, so the kernel schedules caller and \
             server.",
        );
        return Ok(());
    }
    if let Err(why) = in_runtime(|| Ok(kumihimo::machine::number()))? {
        text::say(&format!("Left out: other processes cannot find this process: {why}."));
        return Ok(());
    }
    let programs = programs();
    text::say(&format!(
        "A gate is a name under which a process serves calls of other processes. Request and reply are in shared \
         memory. On one core, the caller hands its core to the server. Two processes on one core: one calls the \
         other with {BYTES} bytes, the other verifies their checksum, and the caller waits for the reply. Median \
         duration of a call:",
    ));
    println!();
    let mut ways = vec![Way::Gate, Way::Socket];
    ways.extend(programs.contains_key(&Runtime::Rpc).then_some(Way::Grpc));
    let one = measured(&ways, 1, &programs)?;
    let p50 = |slice: &Slice| Duration::from_secs_f64(slice.p50 / 1e6);
    bars(one.iter().map(|(way, slice)| (way.name(), slice.p50, text::time(p50(slice)))));
    println!();
    text::say(&format!(
        "{MANY} concurrent callers, which share one lane and one wake-up. Calls per second:"
    ));
    println!();
    let many = measured(&ways, MANY, &programs)?;
    let rate = |slice: &Slice| slice.calls / slice.seconds;
    bars(
        many.iter().map(|(way, slice)| (way.name(), rate(slice), text::number(rate(slice) as u64))),
    );
    println!();
    if !ways.contains(&Way::Grpc) {
        text::say(
            "(To compare with gRPC, by tonic, build it with `kumi bench rpc --rivals`. This takes some minutes.)",
        );
        println!();
    }
    figures.add(
        "a call to another process, one core, p50",
        text::time(p50(&one[1].1)),
        text::time(p50(&one[0].1)),
    );
    let rates = [&many[1].1, &many[0].1].map(|slice| text::number(rate(slice) as u64));
    let [socket, gate] = rates;
    figures.add(format!("calls to another process, {MANY} callers, calls/s"), socket, gate);
    inverted(&programs, figures)
}

/// `kumi` itself, and the rivals that are already built.
fn programs() -> Programs {
    let mut programs = rivals::programs(false, &[]);
    programs.extend(rivals::there(Runtime::Rpc).map(|program| (Runtime::Rpc, Ok(program))));
    programs
}

/// Transport of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Gate,
    /// A Unix socket with a kernel thread for each caller on either side.
    Socket,
    Grpc,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Gate => "gate",
            Way::Socket => "Unix socket, threads",
            Way::Grpc => "gRPC, Unix socket",
        }
    }

    fn begin(self, callers: usize, programs: &Programs) -> Result<Pair, Trouble> {
        let (placement, callers_as) = match self {
            Way::Gate => ("adaptive", "microprocesses"),
            Way::Socket => ("scheduled", "threads"),
            Way::Grpc => ("scheduled", "futures"),
        };
        let line = format!(
            "callers={callers} bytes={BYTES} placement={placement} check=whole by=copy as={callers_as} transport=grpc-uds"
        );
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match self {
            Way::Gate => Pair::start(&contender(Runtime::Kumihimo, args), programs, 1),
            Way::Grpc => Pair::start(&contender(Runtime::Rpc, args), programs, 1),
            Way::Socket => Pair::begin(1, |more| {
                let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
                command.args(["tour", "--socket"]).args(&args).args(more);
                Ok(command)
            }),
        }
    }
}

fn contender(runtime: Runtime, args: Vec<String>) -> Contender {
    let (variant, queue) = match runtime {
        Runtime::Kumihimo => ("full", child::default_queue()),
        _ => ("-", "-"),
    };
    Contender { runtime, variant, queue: queue.to_owned(), args, at_most: 1 }
}

/// Measures the transports one after the other.
fn measured(
    ways: &[Way],
    callers: usize,
    programs: &Programs,
) -> Result<Vec<(Way, Slice)>, String> {
    let _watch = Watch::open("two processes");
    let one = |way: &Way| {
        let mut pair = way.begin(callers, programs)?;
        pair.slice(WARM_UP_MS)?;
        Ok((*way, pair.slice(SLICE_MS)?))
    };
    ways.iter()
        .map(|way| one(way).map_err(|why| format!("{}: {}", way.name(), said(why))))
        .collect()
}

fn said(why: Trouble) -> String {
    match why {
        Trouble::Failed(why) | Trouble::Refused(why) => why,
    }
}

/// Draws rows with a name, a bar, and a figure that determines the bar's length.
pub fn bars(rows: impl Iterator<Item = (&'static str, f64, String)>) {
    drawn(&rows.collect::<Vec<_>>()).iter().for_each(|line| println!("{line}"));
}

fn drawn(rows: &[(&str, f64, String)]) -> Vec<String> {
    let most = rows.iter().map(|row| row.1).fold(f64::MIN_POSITIVE, f64::max);
    let wide = rows.iter().map(|row| row.0.chars().count()).max().unwrap_or(0);
    let line = |(name, value, figure): &(&str, f64, String)| {
        let bar = "#".repeat(((value / most * COLUMNS as f64).round() as usize).max(1));
        format!("  {name:<wide$}  {bar} {figure}")
    };
    rows.iter().map(line).collect()
}

/// Cases with and without the arbiter, and with and without inheritance through the gate.
const CASES: [(&str, &str, &str); 3] = [
    ("no arbiter", "off", "off"),
    ("arbiter, no inheritance", "on", "off"),
    ("arbiter and inheritance", "on", "on"),
];

fn inverted(programs: &Programs, figures: &mut Figures) -> Result<(), String> {
    text::say(&format!(
        "All processes of a board have a common scale of priorities, unless the arbiter is off (KUMI_ARBITER=off). \
         Three processes on one core: a process of high priority calls a gate of a process of low priority, whose \
         handler computes for 0.5 ms. A process of medium priority computes almost all the time, so the server gets \
         no core, and the caller waits. This does not happen if the server inherits the caller's priority for the \
         duration of the call. Of {CALLS} calls, 99 % take no longer than:",
    ));
    println!();
    let mut late = BTreeMap::new();
    for (name, arbiter, inherit) in CASES {
        let _watch = Watch::open("three processes");
        let args =
            [format!("inherit={inherit}"), format!("arbiter={arbiter}"), format!("calls={CALLS}")];
        let samples = inversion::once(&contender(Runtime::Kumihimo, args.into()), programs, 1);
        let samples = samples.map_err(|why| format!("{name}: {}", said(why)))?;
        let p99 = samples.iter().find(|sample| sample.identity.metric == "p99");
        late.insert(name, p99.ok_or("no p99")?.value);
    }
    let time = |us: f64| text::time(Duration::from_secs_f64(us / 1e6));
    bars(CASES.iter().map(|(name, ..)| (*name, late[name], time(late[name]))));
    figures.add(
        "a call of 0.5 ms with a competing process of medium priority, p99",
        "",
        time(late[CASES[2].0]),
    );
    check(late.values().all(|late| *late >= 500.0), || {
        "a call was shorter than its handler".to_owned()
    })
}

/// One side of calls over a Unix socket with std's threads, one for each caller on either side.
pub fn child(line: Vec<String>) -> Result<(), String> {
    let request =
        Request::parse(std::iter::once("rpc".to_owned()).chain(line)).map_err(|e| e.to_string())?;
    let plan = Plan::of(&request)?;
    let path = plan.place.join("socket");
    let at_path = |e: std::io::Error| format!("{}: {e}", path.display());
    match plan.side {
        Side::Server => {
            let listener = UnixListener::bind(&path).map_err(at_path)?;
            println!("ready");
            let its = plan.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let (stream, plan) = (stream.expect("accept"), its.clone());
                    std::thread::spawn(move || answer(&plan, &stream));
                }
            });
            until_told();
            Ok(())
        }
        Side::Client => by_threads(&plan, |_| UnixStream::connect(&path).map_err(at_path), call),
    }
}

/// Replies until the caller disconnects.
fn answer(plan: &Plan, mut stream: &UnixStream) {
    let mut payload = vec![0; plan.bytes];
    while stream.read_exact(&mut payload).is_ok() {
        if stream.write_all(&serve(&payload, plan.check).to_bytes()).is_err() {
            break;
        }
    }
}

fn call(stream: &mut UnixStream, payload: &[u8]) -> Result<Answer, String> {
    let mut answer = [0; ANSWER];
    let done = stream.write_all(payload).and_then(|()| stream.read_exact(&mut answer));
    done.map_err(|e| e.to_string())?;
    Ok(Answer::from_bytes(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_a_bar_is_proportional_to_its_value() {
        let lines = drawn(&[
            ("one", 100.0, "100 us".into()),
            ("another", 25.0, "25 us".into()),
            ("none", 0.0, "0".into()),
        ]);
        let lengths: Vec<usize> = lines.iter().map(|line| line.matches('#').count()).collect();
        assert_eq!(lengths, [COLUMNS, COLUMNS / 4, 1]);
        assert!(
            lines[0].starts_with("  one      #") && lines[0].ends_with("# 100 us"),
            "{lines:?}"
        );
        assert!(lines.iter().all(|line| line.len() <= 100));
    }
}
