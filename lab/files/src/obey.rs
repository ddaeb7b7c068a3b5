//! A program that loads: told line by line what to do, and answering with a line each.
//!
//! Two that are to begin at once say that they are ready before they do, and wait for one line
//! more.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Duration;

use super::outcome::Outcome;
use super::slow::Readers;
use super::{clock, closed, commands, fileread, slow, stream};

/// Obeys the standard input until it ends: `root` is the mount of the files, `clock` that of the
/// time.
///
/// - `fileread READS SEED`, `time REQUESTS`: `ready=1`; after one more line,
///   `ms user_ms system_ms`.
/// - `stat`, `pread`, `create CLIENTS MS`: `ops rate p50 p99 max` (us).
/// - `stream-read`, `stream-write`: `mb_s`.
/// - `warm`: has the server read all that `pread` will: `mb_s`.
/// - `slow READERS BLOCKS`: that many read from now on, so much at once; 0: none: `readers`.
/// - `reads`: by those, since the last `reads`: `rate`.
/// - `beside MS`: what is not slow: as `stat`.
/// - `commands SHIM TIMES`: a command's microseconds, by its name.
///
/// What fails is answered by `failed: WHY`.
///
/// # Errors
/// Of the streams.
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
        ["reads"] => readers.as_mut().map(Readers::rate).ok_or_else(|| "nobody reads".to_owned()),
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
        _ => Err(format!("{words:?}: not understood")),
    }
}
