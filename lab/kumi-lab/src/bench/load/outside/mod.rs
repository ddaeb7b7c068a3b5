//! Peer of `stall`, a separate process and the same for every contender: the load, and the objects
//! for which the stallers wait.

mod fuse;
mod load;
mod stalls;

pub use load::precise;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use kumihimo_bench_stall::{LONG_US, PAGE, PAGES, Place, STALLERS};
use rustix::fs::{Advice, CWD, FileType, Mode, fadvise, mknodat, statfs};

/// TMPFS_MAGIC, see statfs(2).
const TMPFS: i64 = 0x0102_1994;
/// Priority above every contender, so that requests are sent in time.
const NICE: i32 = -20;

#[derive(clap::Args)]
pub struct Args {
    /// An empty directory that is not on a tmpfs
    directory: PathBuf,
    /// Kind of stall
    kind: String,
    /// Requests a second; 0 means as fast as they are accepted
    rate: f64,
    /// Total number of requests
    count: usize,
}

/// Creates all files, prints `ready` (or `refused: WHY`), and serves until its standard input ends.
pub fn run(args: Args) -> Result<(), String> {
    let place = Place::new(args.directory);
    let said = |e: io::Error| format!("outside: {}: {e}", place.directory().display());
    // Without the privilege, all processes compete alike.
    let nice = rustix::process::setpriority_process(None, NICE).is_ok();
    load::listen(&place, args.rate, args.count).map_err(said)?;
    let mut slow = None;
    match args.kind.as_str() {
        "none" | "loop" => {}
        "read" | "blocking" => pipes(&place, stalls::answer).map_err(said)?,
        "flock" => {
            for path in (0..STALLERS).flat_map(|i| place.locks(i)) {
                File::create(path).map_err(said)?;
            }
            pipes(&place, stalls::hold).map_err(said)?;
        }
        "fuse" | "fault" => {
            if args.kind == "fault" {
                if statfs(place.directory()).map_err(|e| said(e.into()))?.f_type == TMPFS {
                    println!(
                        "refused: {} is on a tmpfs, whose pages do not come from a disk",
                        place.directory().display()
                    );
                    return Ok(());
                }
                pages(&place).map_err(said)?;
            }
            std::fs::create_dir(place.mount()).map_err(said)?;
            match fuse::Mount::new(place.mount()) {
                Ok(mount) => slow = Some(mount),
                Err(e) => {
                    println!("refused: no FUSE (/dev/fuse and root are needed): {e}");
                    return Ok(());
                }
            }
        }
        other => return Err(format!("outside: {other}: unknown kind of stall")),
    }
    println!("ready {}", if nice { "nice" } else { "fair" });
    io::stdout().flush().map_err(|e| e.to_string())?;
    io::copy(&mut io::stdin(), &mut io::sink()).map_err(|e| e.to_string())?;
    // The threads wait for a contender that has ended. They end with the process.
    drop(slow);
    Ok(())
}

/// Creates the FIFOs of all stallers, with a kernel thread for each. Returns when all threads have
/// dropped their `ready`.
fn pipes(
    place: &Place,
    serve: fn(&Place, usize, mpsc::Sender<()>) -> io::Result<()>,
) -> io::Result<()> {
    for path in (0..STALLERS).flat_map(|i| [place.ask(i), place.answer(i)]) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    }
    let (ready, readies) = mpsc::channel();
    for i in 0..STALLERS {
        let (place, ready) = (place.clone(), ready.clone());
        thread::Builder::new().spawn(move || {
            load::precise();
            if let Err(e) = serve(&place, i, ready) {
                eprintln!("outside: staller {i}: {e}");
                std::process::exit(1);
            }
        })?;
    }
    drop(ready);
    for () in readies {}
    Ok(())
}

/// Creates the file of `fault`, on the disk and not in the page cache.
fn pages(place: &Place) -> io::Result<()> {
    let mut file = File::create(place.pages())?;
    file.write_all(&vec![7; STALLERS * PAGES * PAGE])?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Microseconds that a read of page `page` of a slow file takes. Stallers encode the duration in
/// the offset.
fn slowness(mapped: bool, page: u64) -> u64 {
    if mapped { u64::from(LONG_US) } else { page }
}

fn read_word(from: &mut impl Read) -> io::Result<u32> {
    let mut word = [0; 4];
    from.read_exact(&mut word)?;
    Ok(u32::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_delay_is_encoded_in_the_offset() {
        assert_eq!(slowness(false, 1_500), 1_500);
        assert_eq!(slowness(true, 3), u64::from(LONG_US));
        assert_eq!(read_word(&mut [1, 2, 0, 0].as_slice()).unwrap(), 513);
    }
}
