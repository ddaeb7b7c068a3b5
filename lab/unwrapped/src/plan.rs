//! Parameters of one run.

use std::time::Duration;

use kumihimo_bench_kit::{Request, raise_descriptors};

/// Kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The crate `redis`, unmodified, against a real server.
    Redis,
    /// A server on `std::net` that parses with the crate `httparse`.
    Http,
    /// Pairs that pass a byte back and forth through pipes.
    Pipe,
    /// Like `pipe`, with a lock and a yield of the contender in some turns.
    Mix,
    /// Requests over `std::net` whose replies take seconds.
    Long,
    /// The same by the crate `ureq`, unmodified.
    Ureq,
    /// Sleeps of std, more than the limit on kernel threads.
    Full,
    /// Pairs that pass a turn by a mutex and a condition variable of std.
    Mutex,
    /// Page faults on uncached files.
    Fault,
    /// Like `redis`, beside a thread of higher priority that computes for a tenth of the time.
    Levels,
}

impl Kind {
    /// All workloads.
    pub const ALL: [Kind; 10] = [
        Kind::Redis,
        Kind::Http,
        Kind::Pipe,
        Kind::Mix,
        Kind::Long,
        Kind::Ureq,
        Kind::Full,
        Kind::Mutex,
        Kind::Fault,
        Kind::Levels,
    ];

    /// Name of the workload: the value of the key `work`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Redis => "redis",
            Kind::Http => "http",
            Kind::Pipe => "pipe",
            Kind::Mix => "mix",
            Kind::Long => "long",
            Kind::Ureq => "ureq",
            Kind::Full => "full",
            Kind::Mutex => "mutex",
            Kind::Fault => "fault",
            Kind::Levels => "levels",
        }
    }

    /// The workload with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Argument of `kumi-lab bench-peer` for this workload; `None` if the workload needs no peer.
    #[must_use]
    pub fn peer(self) -> Option<&'static str> {
        match self {
            Kind::Redis | Kind::Levels => Some("redis"),
            Kind::Http => Some("http"),
            Kind::Long | Kind::Ureq => Some("long"),
            _ => None,
        }
    }

    /// Number of bodies or pairs of bodies, and rounds of each.
    fn size(self) -> (usize, usize) {
        match self {
            Kind::Redis | Kind::Levels => (400, 100),
            Kind::Http => (100, 400),
            Kind::Pipe | Kind::Mutex => (8, 20_000),
            Kind::Mix => (8, 10_000),
            Kind::Long | Kind::Ureq => (5_000, 1),
            Kind::Full => (100, 1),
            Kind::Fault => (8, 5_000),
        }
    }

    fn length(self) -> Duration {
        Duration::from_millis(if self.is_one_wait() { 2_000 } else { 1_000 })
    }

    /// Whether each body waits once, for a reply that takes seconds.
    fn is_one_wait(self) -> bool {
        matches!(self, Kind::Long | Kind::Ureq)
    }

    fn limit(self) -> Limit {
        if self == Kind::Full { Limit::Of(64) } else { Limit::Default }
    }
}

/// Limit on the kernel threads that run bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The contender's default.
    Default,
    /// A number.
    Of(usize),
    /// Far more than the number of bodies.
    OutOfReach,
}

/// Keys of a request that are part of a row's identity.
const KEYS: [&str; 7] = ["work", "every", "limit", "events", "way", "control", "connections"];

/// Default time limit of a workload in seconds.
const PATIENCE: u64 = 60;

/// Parameters of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workload.
    pub kind: Kind,
    /// Number of bodies or pairs of bodies.
    pub count: usize,
    /// Commands, requests, turns or faults of each.
    pub rounds: usize,
    /// Duration of a wait in `long`, `ureq` or `full`.
    pub length: Duration,
    /// In `mix`, one turn of this many has a lock and a yield.
    pub every: usize,
    /// Limit on the kernel threads that run bodies.
    pub limit: Limit,
    /// Port of the peer on 127.0.0.1; 0 if there is none.
    pub port: u16,
    pub(crate) patience: Duration,
    pub(crate) keys: String,
}

impl Plan {
    /// Parses `work`, `count`, `rounds`, `ms`, `every`, `limit` (a number or `none`), `port` and
    /// `patience` (seconds). `share=N` reduces the workload to a part in N. Raises the limit on
    /// descriptors.
    ///
    /// # Errors
    /// If the workload is unknown or needs a peer. `refused: WHY` if there are too few descriptors.
    ///
    /// # Panics
    /// If a number is invalid.
    pub fn of(request: &Request) -> Result<Plan, String> {
        let name = request.get("work").ok_or("unwrapped needs work=, for example work=redis")?;
        let kind = Kind::from_name(name).ok_or_else(|| format!("work={name}: unknown workload"))?;
        let port = request.value("port", 0);
        if let (Some(peer), 0) = (kind.peer(), port) {
            return Err(format!(
                "work={name} needs port=, where `kumi-lab bench-peer {peer}` listens; `kumi bench unwrapped` starts both"
            ));
        }
        let share = request.value("share", 1).max(1);
        let (count, rounds) = kind.size();
        // Waits have no rounds, so their number or duration is reduced.
        let (count, rounds) = if kind.is_one_wait() {
            (count / share, rounds)
        } else {
            (count, (rounds / share).max(1))
        };
        let length = if kind == Kind::Full { kind.length() / share as u32 } else { kind.length() };
        let count = request.value("count", count).max(1);
        let limit = match request.get("limit") {
            None => kind.limit(),
            Some("none") => Limit::OutOfReach,
            Some(_) => Limit::Of(request.value("limit", 0).max(1)),
        };
        let plan = Plan {
            kind,
            count,
            rounds: request.value("rounds", rounds).max(1),
            length: Duration::from_millis(request.value("ms", length.as_millis() as u64)),
            every: request.value("every", 1).max(1),
            limit,
            port,
            patience: Duration::from_secs(request.value("patience", PATIENCE)),
            keys: keys(request),
        };
        plan.check_descriptors(raise_descriptors())?;
        Ok(plan)
    }

    /// The limit for a contender that always has one; `None` for its default.
    #[must_use]
    pub fn most_kernel_threads(&self) -> Option<usize> {
        match self.limit {
            Limit::Default => None,
            Limit::Of(most) => Some(most),
            Limit::OutOfReach => Some(2 * self.count + 1_000),
        }
    }

    /// Size of the pool, if a limit means a pool; `None` if each body has its own thread.
    pub(crate) fn pool(&self) -> Option<usize> {
        match self.limit {
            Limit::Of(most) => Some(most),
            Limit::Default | Limit::OutOfReach => None,
        }
    }

    /// A body of `long` or `ureq` needs its socket, and two descriptors for its kernel thread's
    /// event source.
    fn check_descriptors(&self, limit: u64) -> Result<(), String> {
        let needed = 3 * self.count as u64 + 1_000;
        if self.kind.is_one_wait() && limit < needed {
            return Err(format!(
                "refused: ulimit -n is {limit}, and {} waits need {needed}",
                self.count
            ));
        }
        Ok(())
    }
}

fn keys(request: &Request) -> String {
    let given = KEYS.iter().filter_map(|key| Some(format!("{key}={}", request.get(key)?)));
    given.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        Plan::of(&Request::parse(line.split(' ').map(str::to_owned)).expect("a request"))
    }

    #[test]
    fn works_have_the_sizes_of_the_figures() {
        let redis = plan("unwrapped work=redis port=1 events=bpf way=thread").expect("a plan");
        assert_eq!((redis.count, redis.rounds, redis.most_kernel_threads()), (400, 100, None));
        assert_eq!(redis.keys, "work=redis events=bpf way=thread");
        let full = plan("unwrapped work=full").expect("a plan");
        assert_eq!((full.count, full.pool(), full.length), (100, Some(64), Duration::from_secs(1)));
        let mix = plan("unwrapped work=mix every=4 share=10").expect("a plan");
        assert_eq!((mix.count, mix.rounds, mix.every), (8, 1_000, 4));
        let long = plan("unwrapped work=long limit=none count=20 port=1").expect("a plan");
        assert_eq!((long.pool(), long.keys.as_str()), (None, "work=long limit=none"));
        assert!(long.most_kernel_threads().is_some_and(|most| most > 20));
    }

    #[test]
    fn unknown_works_and_missing_peers_are_errors() {
        assert!(plan("unwrapped").is_err() && plan("unwrapped work=nothing").is_err());
        assert!(
            plan("unwrapped work=http").expect_err("no port").contains("kumi-lab bench-peer http")
        );
    }

    #[test]
    fn too_few_descriptors_are_refused() {
        let long = plan("unwrapped work=long count=10 port=1").expect("a plan");
        assert!(long.check_descriptors(1_030).is_ok());
        assert!(
            long.check_descriptors(1_029).expect_err("too few").starts_with("refused: ulimit -n")
        );
    }

    #[test]
    fn names_of_works_are_unique() {
        assert!(Kind::ALL.iter().all(|&kind| Kind::from_name(kind.name()) == Some(kind)));
    }
}
