//! The words of the pages about benchmarks.

use std::collections::{BTreeMap, BTreeSet};

use super::{ALL_ROWS, Run, cells};

/// Pages of the folder that are written by hand.
pub const BY_HAND: [&str; 4] = ["reading.md", "missed.md", "missed-servers.md", "missed-run.md"];

const MARK: &str = "<!-- Written by `cargo xtask book-figures` from lab/results. -->\n\n";

/// What each benchmark measures, and the peers that need a word.
const BENCHES: [(&str, &str); 38] = [
    ("connections", "Growth of a server's resident memory for each connection that is idle."),
    (
        "control",
        "Control from outside: the time to suspend a microprocess, to list 100,000 of them over the \
         control socket, and the cost for a server that is being watched.",
    ),
    (
        "echo",
        "An echo server on the first core and its load on the last: 64 bytes over each connection, \
         the next request after the reply. `floor` is a server in C, epoll or multishot io_uring, \
         whichever is better.",
    ),
    (
        "events",
        "Costs of events on one core: from a block until another microprocess runs, from the end of \
         the block until the microprocess runs again, and what an event source costs when nothing \
         blocks. `floor` is a futex wake or a signal between kernel threads.",
    ),
    (
        "files",
        "Reads of cached files, direct reads (`O_DIRECT`), and the hashing of a tree. `fio` is the \
         peer for direct reads.",
    ),
    (
        "hostile",
        "Latency of other clients while one attacks: descriptors whose close blocks, passed over a \
         gate, and long commands for the key-value server.",
    ),
    (
        "http",
        "A server of HTTP/1.1 on the first core and wrk on the last: the reply to a request is its \
         path. Ours, `std` and `tokio` parse by `httparse` in the same code; `go` is `net/http`, and \
         `axum` stands on hyper and Tokio. `cpu` is the server's for a request, `rss` its most \
         resident memory while the connections are busy.",
    ),
    (
        "inversion",
        "A call whose server is kept from its core by a third process: with and without the \
         arbiter, with and without inheritance of priority.",
    ),
    (
        "kernel-threads",
        "Number of kernel threads and their kernel memory, while microprocesses are blocked in the \
         kernel.",
    ),
    (
        "kv",
        "SET and GET of redis-benchmark against `kumi serve kv` and redis-server, each on one core.",
    ),
    ("latency", "Lateness of one microprocess that sleeps beside 1,000 that compute and yield."),
    ("message", "A request and its reply between two microprocesses: a round trip."),
    ("mutex", "64 contenders for one lock."),
    ("null-fork", "Creation, run and end of a microprocess that does nothing: singly and in bulk."),
    (
        "observe",
        "Cost of the programs that show where time goes: one screen of `kumi top` and its CPU time \
         by the second, for the command and for the watched process, and what `kumi profile` costs an \
         echo server.",
    ),
    ("parked", "Memory of microprocesses that wait: resident, and of the kernel."),
    ("preempt", "Cost of preemption for two microprocesses that hash 256 KiB each, in turns."),
    (
        "priority",
        "Two processes that share the cores by priority, compared with Linux's scheduler and with \
         `nice`.",
    ),
    (
        "priority-io",
        "A server with ten connections of high priority beside 990 of low priority, with priorities \
         and without.",
    ),
    (
        "priority-local",
        "Time from a wake-up to the run of a microprocess of high priority, beside 1,000 of low \
         priority that compute.",
    ),
    (
        "queues",
        "Queue designs of the scheduler: `ring`, which is the product's, and `locked` and `steal`, \
         which exist for comparison.",
    ),
    (
        "report",
        "The page of a trace of a million records: time to make it, size, and what it costs a \
         browser until it can be used.",
    ),
    (
        "remote",
        "Calls from machine to machine by TCP on loopback: ours from a program through two borders to \
         a program, with mutual TLS between the borders; `tonic` directly with mutual TLS; `tcp` and \
         `tarpc` directly without encryption. `delay_us` is the round trip that a relay adds. `part` \
         idle: what two connected borders cost.",
    ),
    (
        "resources",
        "Operations on the resource table by 24 microprocesses under three locking designs; `linux` \
         does the same with processes, mmap and pipes.",
    ),
    (
        "rpc",
        "Calls between two processes through a gate, beside pipes, sockets, futexes, gRPC, tarpc, \
         iceoryx2 and D-Bus.",
    ),
    (
        "run",
        "Unmodified programs under `kumi run`, plainly (`std`), and with their own alternative to a \
         thread per connection: MariaDB's thread pool, Apache's `mpm_event`, Java's virtual threads. \
         Server and load have a core each.",
    ),
    (
        "servers",
        "A file server and a clock in five organisations, and the same ext2 image and folder under \
         fuse2fs, bindfs and mergerfs. `floor` is a FUSE server that answers from memory.",
    ),
    ("sieve", "The prime sieve: a microprocess for each prime, connected by messages."),
    ("skynet", "A tree of a million microprocesses, whose results are added up."),
    ("spin-holder", "Spin locks whose holder sleeps or is preempted, with and without yielding."),
    ("spread", "Time until microprocesses created on one VP are evenly spread over all VPs."),
    (
        "stall",
        "Latency of a server beside microprocesses that block in the kernel or, in the run with \
         `stall=loop`, compute without end.",
    ),
    (
        "syscall-batch",
        "System calls of several microprocesses that enter the kernel together, against plain calls.",
    ),
    ("timer", "100,000 sleepers: lateness of the wake-ups, and CPU time of each."),
    ("trace", "Cost of tracing for an echo server and for hashing."),
    ("transaction", "A transaction of several requests, under each batch policy."),
    (
        "unwrapped",
        "Code that blocks in calls which no runtime wraps: microprocesses against threads of std.",
    ),
    ("yield", "A switch: two microprocesses on each VP yield in turn. `floor` is a bare switch."),
];

/// Command and machine of a run.
fn made(run: &Run) -> String {
    format!(
        "Made by `{}`. Source: `lab/results/{}/report.md` and the rows beside it.\n\nMachine: {}.\n",
        run.command, run.folder, run.machine
    )
}

/// Figures that were reached, of all.
fn reached(run: &Run) -> (usize, usize) {
    let is_reached = |line: &&String| cells(line).get(4).is_some_and(|c| c.starts_with("reached"));
    (run.figures.iter().filter(is_reached).count(), run.figures.len())
}

fn about(bench: &str) -> &'static str {
    BENCHES.iter().find(|(name, _)| *name == bench).map_or("", |(_, text)| text)
}

/// The page with all benchmarks.
pub fn index(benches: &BTreeMap<String, Vec<Run>>) -> String {
    let mut text = format!(
        "# Results\n\n{MARK}Each line is one run of a benchmark, with its page. A figure is a \
         measured value, or its ratio to a peer's, for which a limit was set before the measurement. \
         [How to read the tables](reading.md) explains the rows. [Figures not \
         reached](missed.md) has the reasons of the misses.\n\n\
         | benchmark | measures | figures reached | command |\n| --- | --- | --- | --- |\n"
    );
    let (mut all, mut of) = (0, 0);
    for (bench, runs) in benches {
        for run in runs {
            let (yes, total) = reached(run);
            (all, of) = (all + yes, of + total);
            let figures = if total == 0 { "-".to_owned() } else { format!("{yes} of {total}") };
            text += &format!(
                "| [{bench}]({bench}.md) | {} | {figures} | `{}` |\n",
                about(bench),
                run.command
            );
        }
    }
    text += &format!("\n{all} of {of} figures are reached.\n");
    text
}

/// The page of one benchmark. `charts` has the charts of each run.
pub fn page(bench: &str, runs: &[Run], charts: &[Vec<String>]) -> String {
    let mut text = format!("# {bench}\n\n{MARK}{}\n", about(bench));
    for (run, charts) in runs.iter().zip(charts) {
        let heading = |what: &str| match runs.len() {
            1 => format!("\n## {what}\n\n"),
            _ => format!("\n### {what}\n\n"),
        };
        if runs.len() > 1 {
            text += &format!("\n## {}\n", run.folder);
        }
        text += &format!("\n{}", made(run));
        if !run.figures.is_empty() {
            let (yes, of) = reached(run);
            text += &heading("Figures");
            text += &format!("{yes} of {of} figures are reached.\n\n");
            text += "| figure | vps | to reach | measured |  |\n| --- | --- | --- | --- | --- |\n";
            text += &lines(&run.figures);
        }
        if !charts.is_empty() {
            text += &heading("Plots");
            let images = charts.iter().map(|name| format!("![{name}](plots/{name})\n"));
            text += &images.collect::<Vec<_>>().join("\n");
        }
        medians(&mut text, run, &heading("Medians"));
    }
    text
}

/// Adds the table of medians.
fn medians(text: &mut String, run: &Run, heading: &str) {
    let rows = kept(run);
    if rows.is_empty() {
        return;
    }
    *text += heading;
    if rows.len() < run.medians.len() {
        *text += &format!(
            "{} rows of the metrics that a figure uses, of {} rows in the report.\n\n",
            rows.len(),
            run.medians.len()
        );
    }
    *text += "| metric | runtime | variant | queue | vps | median | min | max | unit | runs | \
              remarks |\n";
    *text += &format!("|{}\n", " --- |".repeat(11));
    *text += &lines(&rows);
}

/// The rows of a page: all, or those of the metrics that a figure uses.
fn kept(run: &Run) -> Vec<String> {
    if run.medians.len() <= ALL_ROWS {
        return run.medians.clone();
    }
    let metric = |line: &str| {
        let first = cells(line).first().copied().unwrap_or_default().to_owned();
        first.split(' ').next().unwrap_or_default().to_owned()
    };
    let used: BTreeSet<String> = run.figures.iter().map(|line| metric(line)).collect();
    run.medians.iter().filter(|line| used.contains(&metric(line))).cloned().collect()
}

fn lines(rows: &[String]) -> String {
    rows.iter().map(|row| format!("{row}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_is_described() {
        let benches = super::super::benches(&crate::workspace::root().join("lab/results")).unwrap();
        for bench in benches.keys() {
            assert!(!about(bench).is_empty(), "{bench} has no description in BENCHES");
        }
    }
}
