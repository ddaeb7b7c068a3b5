//! Cells of `run`: unmodified programs, plainly, under `kumi run`, and with their own alternative
//! to a thread per connection.

use super::Options;

/// Number of rounds. Most of the time are the starts of the servers.
pub const RUNS: usize = 3;

/// Unmodified programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// An echo server in C with a thread per connection.
    CEcho,
    /// MariaDB: point selects.
    Mariadb,
    /// Apache: a small file over persistent connections.
    Apache,
    /// An echo server in Java with a thread per connection.
    Java,
    /// CPython's server of HTTP with a thread per connection.
    Python,
    Memcached,
    Redis,
    /// Compression of a file by four threads.
    Xz,
    /// An uncontended lock and unlock.
    Locks,
    /// Threads that wait.
    Threads,
}

/// A program with its load, and what it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub program: Program,
    pub load: Load,
    /// Names of the runtimes in the rows. The first is `kumihimo`.
    pub runtimes: &'static [&'static str],
}

/// The load of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A closed loop over connections, of which some have an outstanding request.
    Connections { count: usize, active: usize },
    /// A new connection for each request, beside queries that compute.
    Fresh { hogs: usize },
    /// None: the program runs to its end.
    Alone,
}

/// The runtime under `kumi run`.
pub const OURS: &str = "kumihimo";
/// The program as it is, on kernel threads.
pub const PLAIN: &str = "std";
/// MariaDB's thread pool.
pub const POOL: &str = "pool";
/// Apache's event-driven module.
pub const EVENT: &str = "mpm-event";
/// Java's virtual threads.
pub const VIRTUAL: &str = "java-virtual";

impl Program {
    /// Value of the key `program`.
    pub fn name(self) -> &'static str {
        match self {
            Program::CEcho => "c-echo",
            Program::Mariadb => "mariadb",
            Program::Apache => "apache",
            Program::Java => "java",
            Program::Python => "python",
            Program::Memcached => "memcached",
            Program::Redis => "redis",
            Program::Xz => "xz",
            Program::Locks => "locks",
            Program::Threads => "threads",
        }
    }

    fn runtimes(self) -> &'static [&'static str] {
        match self {
            Program::Mariadb => &[OURS, PLAIN, POOL],
            Program::Apache => &[OURS, PLAIN, EVENT],
            Program::Java => &[OURS, PLAIN, VIRTUAL],
            _ => &[OURS, PLAIN],
        }
    }
}

impl Cell {
    /// Keys of the cell's rows.
    pub fn keys(&self) -> String {
        let program = self.program.name();
        match self.load {
            Load::Connections { count, active } => {
                format!("program={program} connections={count} active={active}")
            }
            Load::Fresh { hogs } => format!("program={program} load=fresh hogs={hogs}"),
            Load::Alone => format!("program={program}"),
        }
    }
}

/// The cells of the targets, and with `--full` those with fewer connections or more activity.
pub fn unmodified(options: &Options) -> Vec<Cell> {
    let of = |program: Program, load| {
        let all = program.runtimes();
        Cell { program, load, runtimes: if options.rivals { all } else { &all[..1] } }
    };
    let served = |program, count, active| of(program, Load::Connections { count, active });
    let mut cells = vec![
        served(Program::CEcho, 1_000, 1_000),
        served(Program::CEcho, 10_000, 10_000),
        served(Program::Mariadb, 10_000, 100),
        of(Program::Mariadb, Load::Fresh { hogs: 6 }),
        served(Program::Apache, 8_000, 100),
        served(Program::Java, 2_000, 2_000),
        served(Program::Python, 1_000, 1_000),
        served(Program::Memcached, 1, 1),
        served(Program::Redis, 1, 1),
        of(Program::Xz, Load::Alone),
        of(Program::Locks, Load::Alone),
        of(Program::Threads, Load::Alone),
    ];
    if options.full {
        cells.extend([
            served(Program::CEcho, 100, 100),
            served(Program::Mariadb, 100, 100),
            served(Program::Mariadb, 10_000, 10_000),
            served(Program::Java, 100, 100),
            served(Program::Python, 50, 50),
        ]);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(rivals: bool, full: bool) -> Options {
        Options { vps: vec![1], rivals, full, runs: 1, queue: "ring".into(), seed: 1 }
    }

    #[test]
    fn cells_have_unique_keys_and_begin_with_kumi_run() {
        let cells = unmodified(&options(true, true));
        let mut keys: Vec<String> = cells.iter().map(Cell::keys).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), cells.len());
        assert!(cells.iter().all(|cell| cell.runtimes[0] == OURS && cell.runtimes[1] == PLAIN));
    }

    #[test]
    fn programs_run_alone_without_rivals() {
        let cells = unmodified(&options(false, false));
        assert_eq!(cells.len(), 12);
        assert!(cells.iter().all(|cell| cell.runtimes == [OURS]));
    }
}
