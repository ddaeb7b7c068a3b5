//! Requests to the time server through a gate instead of a mount: the cost of a request from one
//! server to another in each organisation.

use kumihimo::gate::Gate;
use kumihimo_bench_files::{Outcome, Spent};
use kumihimo_clock::Reading;

use crate::bench::contender::{Contender, Trouble};
use crate::bench::report::row::Sample;
use crate::bench::runs::servers::mounted::Mounted;
use crate::bench::runs::servers::serving::Setting;
use crate::bench::runs::servers::{Bench, sample};

const NAME: &str = "clock";
const SETTING: Setting = Setting { cache: "4m", delay: "0us", gate: Some(NAME) };
const CALLS: u32 = 3_000;
const WARM_UP: u32 = 100;

/// Runs the load once. Returns microseconds for a call.
pub fn once(bench: &Bench, contender: &Contender, cores: usize) -> Result<Vec<Sample>, Trouble> {
    let mounted = Mounted::start(bench, contender, SETTING, cores)?;
    let outcome = mounted.caller(NAME, CALLS)?;
    let each = outcome.get("ms")? * 1e3 / f64::from(CALLS);
    Ok(vec![sample(contender, cores, &format!("gate_request {each} us"))?])
}

/// The load generator's side: calls by a kernel thread, one after the other. Each returned time
/// must be later than the one before.
pub fn call(name: &str, calls: u32) -> Result<Outcome, String> {
    let told = |e| format!("gate {name}: {e}");
    let clock = Gate::<Reading, i64>::connect(name).map_err(told)?;
    let mut last = 0;
    let mut ask = || match clock.call(&Reading::Now).map_err(told)? {
        now if now > last => {
            last = now;
            Ok(())
        }
        now => Err(format!("gate {name}: {now} after {last}")),
    };
    (0..WARM_UP).try_for_each(|_| ask())?;
    let spent = Spent::begin()?;
    (0..calls).try_for_each(|_| ask())?;
    spent.end()
}
