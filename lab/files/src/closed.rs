//! Clients in a closed loop: each starts its next operation when the last one is done. Operations:
//! `stat`, `pread`, `create`.

use std::fs::File;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::Lateness;
use kumihimo_bench_kit::work::Dice;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat, unlinkat};

use super::aligned::Aligned;
use super::fileread;
use super::outcome::Outcome;
use super::tree::{BLOCK, CACHED, CACHED_BYTES, CLIENTS, MADE, SMALL, SMALLS, small};

/// One operation of a client. One call of `create` makes a file and unlinks it.
pub trait Operation: Send {
    fn once(&mut self) -> Result<(), String>;
}

/// The operation `name` for one client.
pub fn operation(name: &str, root: &Path, client: usize) -> Result<Box<dyn Operation>, String> {
    match name {
        "stat" => Ok(Box::new(Stat::new(root, client)?)),
        "pread" => Ok(Box::new(Pread::new(&root.join(CACHED), CACHED_BYTES, 1, client)?)),
        "create" => Ok(Box::new(Create::new(root, client)?)),
        other => Err(format!("{other}: unknown operation")),
    }
}

fn directory(path: &Path) -> Result<OwnedFd, String> {
    openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// fstatat(2) of one of the small files by name.
struct Stat {
    directory: OwnedFd,
    names: Vec<String>,
    dice: Dice,
}

impl Stat {
    fn new(root: &Path, client: usize) -> Result<Stat, String> {
        let names = (0..SMALLS).map(small).collect();
        Ok(Stat { directory: directory(&root.join(SMALL))?, names, dice: Dice::new(client as u64) })
    }
}

impl Operation for Stat {
    fn once(&mut self) -> Result<(), String> {
        let name = &self.names[self.dice.below(SMALLS as u64) as usize];
        let stat = statat(&self.directory, name.as_str(), AtFlags::empty())
            .map_err(|e| format!("stat {name}: {e}"))?;
        if stat.st_size == BLOCK as i64 {
            Ok(())
        } else {
            Err(format!("{name} has {} bytes", stat.st_size))
        }
    }
}

/// Reads several blocks of a file at once, bypassing the page cache.
pub struct Pread {
    file: File,
    blocks: u64,
    buffer: Aligned,
    dice: Dice,
}

impl Pread {
    pub fn new(path: &Path, bytes: u64, at_once: usize, client: usize) -> Result<Pread, String> {
        let (blocks, dice) = (bytes / BLOCK as u64 - at_once as u64 + 1, Dice::new(client as u64));
        Ok(Pread {
            file: fileread::open(path)?,
            blocks,
            buffer: Aligned::new(at_once * BLOCK),
            dice,
        })
    }
}

impl Operation for Pread {
    fn once(&mut self) -> Result<(), String> {
        fileread::block(&self.file, self.dice.below(self.blocks), &mut self.buffer)
    }
}

/// Creates a file in the client's own directory and removes it.
struct Create {
    directory: OwnedFd,
    count: u64,
}

impl Create {
    fn new(root: &Path, client: usize) -> Result<Create, String> {
        if client >= CLIENTS {
            return Err(format!("create: at most {CLIENTS} clients are supported"));
        }
        Ok(Create { directory: directory(&root.join(MADE).join(client.to_string()))?, count: 0 })
    }
}

impl Operation for Create {
    fn once(&mut self) -> Result<(), String> {
        self.count += 1;
        let name = format!("n{}", self.count);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(&self.directory, name.as_str(), flags, Mode::from_raw_mode(0o644));
        drop(file.map_err(|e| format!("create {name}: {e}"))?);
        unlinkat(&self.directory, name.as_str(), AtFlags::empty())
            .map_err(|e| format!("unlink {name}: {e}"))
    }
}

/// `clients` kernel threads run `stat`, `pread` or `create` on the mount `root` for `length`.
/// Operations in progress at the end count, and so does their time.
///
/// # Errors
/// If the operation is unknown, fails, or returns a wrong result.
pub fn run(name: &str, root: &Path, clients: usize, length: Duration) -> Result<Outcome, String> {
    let operations =
        (0..clients).map(|client| operation(name, root, client)).collect::<Result<Vec<_>, _>>()?;
    let gate = Barrier::new(clients);
    let (late, seconds) = thread::scope(|scope| {
        let each = |mut operation: Box<dyn Operation>| {
            let gate = &gate;
            scope.spawn(move || -> Result<(Lateness, f64), String> {
                let mut late = Lateness::default();
                gate.wait();
                let begun = Instant::now();
                let mut now = begun;
                while now - begun < length {
                    operation.once()?;
                    let done = Instant::now();
                    late.record(done - now);
                    now = done;
                }
                Ok((late, (now - begun).as_secs_f64()))
            })
        };
        let clients: Vec<_> = operations.into_iter().map(each).collect();
        let (mut all, mut longest) = (Lateness::default(), 0.0f64);
        for client in clients {
            let (late, seconds) = client.join().map_err(|_| "a client panicked")??;
            all.add(&late);
            longest = longest.max(seconds);
        }
        Ok::<_, String>((all, longest))
    })?;
    Ok(Outcome::default().rate(&late, seconds))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn counted_operations_were_performed() {
        let root = std::env::temp_dir().join(format!("kumi-bench-closed-{}", std::process::id()));
        fs::create_dir_all(root.join(MADE).join("0")).unwrap();
        fs::create_dir_all(root.join(SMALL)).unwrap();
        for n in 0..SMALLS {
            fs::write(root.join(SMALL).join(small(n)), [0; BLOCK]).unwrap();
        }
        for name in ["stat", "create"] {
            let outcome = run(name, &root, 1, Duration::from_millis(20)).unwrap();
            assert!(
                outcome.get("ops").unwrap() >= 1.0 && outcome.get("p99").unwrap() > 0.0,
                "{name}: {outcome}"
            );
        }
        assert_eq!(fs::read_dir(root.join(MADE).join("0")).unwrap().count(), 0);
        fs::write(root.join(SMALL).join(small(0)), [0; 1]).unwrap();
        assert!(
            run("stat", &root, 2, Duration::from_millis(200)).unwrap_err().contains("has 1 bytes")
        );
        assert!(run("other", &root, 1, Duration::ZERO).is_err());
        fs::remove_dir_all(root).unwrap();
    }
}
