//! Chapter 14: a server that was written for kernel threads, plainly and under `kumi run`.

use std::time::Duration;

use kumihimo_bench_kit::raise_descriptors;

use crate::bench::contender::{Trouble, interposed};
use crate::bench::runs::unmodified::setup::Setup;
use crate::bench::runs::unmodified::{OURS, PLAIN, Program, Slice, show};
use crate::tour::page::text;
use crate::tour::page::watch::Watch;
use crate::tour::{Args, Figures, check, one_to_one};

/// Connections, and those of them with an outstanding request.
const CONNECTIONS: usize = 500;
const ACTIVE: usize = 50;
/// Number of descriptors for other purposes.
const OTHERS: usize = 100;

/// Servers with a thread per connection, of which the chapter shows the first one that starts. The
/// last one is compiled from a file of this repository.
const SERVERS: [(Program, &str); 4] = [
    (Program::Mariadb, "MariaDB, with selects of a row by its key"),
    (Program::Apache, "Apache (mpm_worker), with a small file"),
    (Program::Python, "Python's ThreadingHTTPServer"),
    (Program::CEcho, "an echo server in C, compiled just now"),
];

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    if one_to_one() {
        text::say(
            "Left out: microprocesses are kernel threads here, so `kumi run` changes nothing.",
        );
        return Ok(());
    }
    if !interposed::is_there() {
        text::say(
            "Left out: the libraries of `kumi run` are not beside this program (cargo build --release \
             -p kumihimo-run -p kumihimo-preload).",
        );
        return Ok(());
    }
    let limit = usize::try_from(raise_descriptors()).unwrap_or(usize::MAX);
    let count = CONNECTIONS.min(limit.saturating_sub(OTHERS)).max(1);
    let load = (count, ACTIVE.min(count));
    let setup = Setup::new().map_err(said)?;
    let (mut absent, mut failed) = (Vec::new(), false);
    for (program, name) in SERVERS {
        let watch = Watch::open("a server");
        match show(&setup, program, PLAIN, load) {
            Ok(plain) => {
                let ours = show(&setup, program, OURS, load).map_err(said)?;
                drop(watch);
                return print(name, load, &plain, &ours, figures);
            }
            Err(trouble) => {
                failed |= matches!(trouble, Trouble::Failed(_));
                absent.push(format!("{}: {}", program.name(), said(trouble)));
            }
        }
    }
    let absent = format!("no server can be shown. {}", absent.join("; "));
    if failed {
        return Err(absent);
    }
    text::say(&format!("Left out: {absent}"));
    Ok(())
}

fn said(trouble: Trouble) -> String {
    match trouble {
        Trouble::Failed(why) | Trouble::Refused(why) => why,
    }
}

fn print(
    name: &str,
    (count, active): (usize, usize),
    plain: &Slice,
    ours: &Slice,
    figures: &mut Figures,
) -> Result<(), String> {
    text::say(&format!(
        "`kumi run PROGRAM` starts a program that was written for kernel threads, without recompiling it, and its \
         threads are microprocesses. The server here is {name}. It has a thread for each connection and runs on one \
         core; of {} connections, {active} have a request at a time. Once as it is, and once under `kumi run`:",
        text::number(count as u64),
    ));
    println!();
    let row = |name: &str, shown: &Slice| {
        vec![
            name.to_owned(),
            text::number(shown.usage.kernel_threads as u64),
            text::bytes(shown.usage.rss),
            cost(shown),
            text::number(shown.rps as u64),
        ]
    };
    text::table(
        &["", "kernel threads", "memory", "CPU time a request", "requests/s"],
        &[row("the program itself", plain), row("under kumi run", ours)],
    );
    let replies = plain.all + ours.all;
    println!();
    text::say(&format!("{} replies were compared and correct.", text::number(replies as u64)));
    figures.add(
        format!(
            "an unmodified server, {} connections, CPU time a request",
            text::number(count as u64)
        ),
        cost(plain),
        cost(ours),
    );
    check(ours.dropped == 0.0, || format!("{} connections were closed", ours.dropped))?;
    check(ours.usage.kernel_threads < plain.usage.kernel_threads, || {
        format!(
            "{} kernel threads under kumi run, {} without",
            ours.usage.kernel_threads, plain.usage.kernel_threads
        )
    })
}

fn cost(shown: &Slice) -> String {
    text::time(Duration::from_secs_f64(shown.cpu / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::runs::unmodified::server::Usage;

    fn shown(kernel_threads: usize, dropped: f64) -> Slice {
        Slice {
            rps: 1e4,
            p50: 1.0,
            p99: 2.0,
            all: 1e4,
            dropped,
            cpu: 12.0,
            usage: Usage::of(Duration::ZERO, 1 << 20, kernel_threads),
        }
    }

    #[test]
    fn closed_connections_and_kernel_threads_are_failures() {
        let mut figures = Figures::default();
        let mut of = |threads, dropped| {
            print("a server", (500, 50), &shown(501, 0.0), &shown(threads, dropped), &mut figures)
        };
        assert!(of(7, 0.0).is_ok());
        assert!(of(7, 1.0).is_err() && of(501, 0.0).is_err());
        assert!(figures.0.iter().all(|row| row[1] == "12.0 us"));
    }
}
