//! `gate-null` and `gate-64`: a client calls a gate of a server. Both processes share one core.

use std::path::Path;

use super::super::child::{Cores, Running, Trouble, make};
use super::super::verdict::Better;
use super::{Sample, Scratch, child, numbers};

const WARM_UP_MS: &str = "60";
const SLICE_MS: &str = "50";
const SLICES: usize = 9;

/// Measures several slices with `callers` callers between fresh processes of one build, and returns
/// the best.
pub fn measure(callers: usize, kumi: &Path) -> Result<Sample, Trouble> {
    let (directory, place) = (Scratch::in_memory()?, Scratch::in_memory()?);
    make(place.path())?;
    let start = |side: &str| {
        let [side, callers, place] = [
            format!("side={side}"),
            format!("callers={callers}"),
            format!("place={}", place.path().display()),
        ];
        let args = [
            "bytes=64",
            "placement=adaptive",
            "check=whole",
            "by=copy",
            "as=threads",
            &callers,
            &side,
            &place,
        ];
        let mut running = Running::start(child(kumi, &directory, "rpc", &args, 1), Cores::Last(1))?;
        running.hear_word("ready")?;
        Ok::<_, Trouble>(running)
    };
    let server = start("server")?;
    let mut client = start("client")?;
    let mut calls = slice(&mut client, WARM_UP_MS)?.calls;
    let mut sample = Sample::default();
    for _ in 0..SLICES {
        let slice = slice(&mut client, SLICE_MS)?;
        sample.note("p50", Better::Lower, slice.p50);
        sample.note("calls", Better::Higher, slice.calls / slice.seconds);
        calls += slice.calls;
    }
    let instructions = server.instructions().zip(client.instructions()).map(|(a, b)| a + b);
    Ok(sample.counted(instructions, calls))
}

struct Slice {
    calls: f64,
    seconds: f64,
    p50: f64,
}

fn slice(client: &mut Running, ms: &str) -> Result<Slice, Trouble> {
    client.tell(ms)?;
    let said = client.hear()?;
    let [calls, seconds, p50, _p99] =
        numbers(&said).ok_or_else(|| client.nonsense(&said, "CALLS SECONDS P50 P99"))?;
    if calls < 1.0 || seconds <= 0.0 {
        return Err(client.nonsense(&said, "at least one call"));
    }
    Ok(Slice { calls, seconds, p50 })
}
