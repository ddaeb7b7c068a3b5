//! A load program: reads commands line by line and replies with one line each.
//!
//! Two load programs that are to start at the same time report that they are ready, and wait for
//! one more line.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Duration;

use super::outcome::Outcome;
use super::slow::Readers;
use super::{clock, closed, commands, fileread, slow, stream};

/// Executes commands from standard input until it ends. `root` is the mount of the files, `clock`
/// the mount of the time.
///
/// - `fileread READS SEED`, `time REQUESTS`: `ready=1`; after one more line, `ms user_ms
///   system_ms`.
/// - `stat`, `pread`, `create CLIENTS MS`: `ops rate p50 p99 max` (us).
/// - `stream-read`, `stream-write`: `mb_s`.
/// - `warm`: makes the server read all data for `pread`: `mb_s`.
/// - `slow READERS BLOCKS`: starts so many readers of so many blocks each; 0 stops them: `readers`.
/// - `reads`: their rate since the last `reads`: `rate`.
/// - `beside MS`: operations that are not slow, beside the readers: results as of `stat`.
/// - `commands SHIM TIMES`: microseconds of each command, by its name.
///
/// The reply to a failed command is `failed: WHY`.
///
/// # Errors
/// As reading and writing the standard streams.
pub fn obey(root: &Path, clock: &Path) -> io::Result<()> {
    println!("ready");
    let mut readers = None;
    let mut lines = io::stdin().lock().lines();
    while let Some(line) = lines.next() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut go = || {
            println!("{}", Outcome::default().with("ready", 1.0));
            lines.next();
        };
        match follow(&words, root, clock, &mut readers, &mut go) {
            Ok(outcome) => println!("{outcome}"),
            Err(why) => println!("failed: {why}"),
        }
        io::stdout().flush()?;
    }
    Ok(())
}

fn follow(
    words: &[&str],
    root: &Path,
    clock: &Path,
    readers: &mut Option<Readers>,
    go: &mut dyn FnMut(),
) -> Result<Outcome, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text}: not a number"));
    let ms = |text: &str| number(text).map(Duration::from_millis);
    match words {
        ["fileread", reads, seed] => fileread::run(root, number(reads)?, number(seed)?, go),
        ["time", requests] => clock::run(clock, number(requests)?, go),
        ["stream-read"] => stream::read(root),
        ["stream-write"] => stream::write(root),
        ["warm"] => stream::warm(root),
        ["reads"] => {
            readers.as_mut().map(Readers::rate).ok_or_else(|| "no readers are running".to_owned())
        }
        ["slow", count, blocks] => {
            if let Some(readers) = readers.take() {
                readers.end()?;
            }
            let (count, blocks) = (number(count)? as usize, number(blocks)? as usize);
            *readers = if count == 0 { None } else { Some(Readers::begin(root, count, blocks)?) };
            Ok(Outcome::default().with("readers", count as f64))
        }
        ["beside", length] => slow::run(root, ms(length)?),
        ["commands", shim, times] => {
            commands::run(root, clock, Path::new(shim), number(times)? as u32)
        }
        [operation, clients, length] => {
            closed::run(operation, root, number(clients)? as usize, ms(length)?)
        }
        _ => Err(format!("{words:?}: unknown command")),
    }
}
