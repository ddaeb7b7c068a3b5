//! Stacks of the holders and waiters of locks, from the lines of `kumi locks --json --backtraces`.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use serde_json::Value;

/// Length of a line that is read: longer ones cannot come from `kumi locks`.
const LONGEST_LINE: u64 = 1 << 20;
/// Number of locks, and of different stacks of each one, that are kept.
const MOST_LOCKS: usize = 20_000;
const MOST_STACKS: usize = 64;
/// Number of stacks of a lock that are shown, for holders and for waiters.
const SHOWN: usize = 3;

/// Different stacks with the number of samples that had them.
type Counts = HashMap<String, u64>;

/// A stack and the number of samples that had it.
pub(super) type Stack = (String, u64);

#[derive(Debug, Default)]
struct OfLock {
    holders: Counts,
    waiters: Counts,
}

/// The stacks by the address of the lock.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    locks: HashMap<u64, OfLock>,
    /// Number of samples: of times that the program was asked.
    pub(super) samples: u64,
    /// IDs of the processes that were asked.
    pub(super) pids: BTreeSet<u32>,
}

/// What one sample says of a lock: its address, its holder and its waiters, by ID.
type Seen = (u64, Option<String>, Vec<String>);

impl Stacks {
    /// Reads a file.
    ///
    /// # Errors
    /// Why it is not a file of such lines, with its name.
    pub(super) fn read(path: &Path) -> Result<Stacks, String> {
        let at = |why: String| format!("{}: {why}", path.display());
        let file = File::open(path).map_err(|e| at(e.to_string()))?;
        Stacks::from(BufReader::new(file)).map_err(at)
    }

    fn from(mut input: impl BufRead) -> Result<Stacks, String> {
        let mut all = Stacks::default();
        let mut seen: Vec<Seen> = Vec::new();
        let mut texts: HashMap<String, String> = HashMap::new();
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            let read = (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut line);
            if read.map_err(|e| e.to_string())? == 0 {
                break;
            }
            let value: Value = serde_json::from_slice(&line).map_err(|e| {
                format!("line {number} is no output of kumi locks --json --backtraces: {e}")
            })?;
            // Each sample begins with the line of its address space.
            if let Some(space) = value.get("space") {
                let pid = space["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
                all.pids.extend(pid);
                all.add(&mut seen, &mut texts);
                all.samples += 1;
            } else if let Some(lock) = value.get("lock") {
                seen.extend(of_lock(lock));
            } else if let Some(one) = value.get("backtrace")
                && let (Some(id), Some(text)) = (one["id"].as_str(), one["text"].as_str())
            {
                // The first line repeats name and state.
                let frames = text.split_once('\n').map_or("", |(_, frames)| frames);
                texts.insert(id.to_owned(), frames.trim_end().to_owned());
            }
        }
        all.add(&mut seen, &mut texts);
        Ok(all)
    }

    /// Adds a sample, which is empty afterwards.
    fn add(&mut self, seen: &mut Vec<Seen>, texts: &mut HashMap<String, String>) {
        for (address, holder, waiters) in seen.drain(..) {
            if self.locks.len() >= MOST_LOCKS && !self.locks.contains_key(&address) {
                continue;
            }
            let lock = self.locks.entry(address).or_default();
            for (counts, of) in
                [(&mut lock.holders, holder.as_slice()), (&mut lock.waiters, waiters.as_slice())]
            {
                for text in of.iter().filter_map(|id| texts.get(id)) {
                    let is_known = counts.contains_key(text);
                    if !text.is_empty() && (is_known || counts.len() < MOST_STACKS) {
                        *counts.entry(text.clone()).or_default() += 1;
                    }
                }
            }
        }
        texts.clear();
    }

    /// Returns the most frequent stacks of the holders and of the waiters of a lock.
    pub(super) fn of(&self, address: u64) -> (Vec<Stack>, Vec<Stack>) {
        let most = |counts: &Counts| {
            let mut all: Vec<Stack> =
                counts.iter().map(|(text, count)| (text.clone(), *count)).collect();
            all.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
            all.truncate(SHOWN);
            all
        };
        let lock = self.locks.get(&address);
        lock.map_or_else(Default::default, |lock| (most(&lock.holders), most(&lock.waiters)))
    }
}

fn of_lock(lock: &Value) -> Option<Seen> {
    let id = |of: &Value| of["id"].as_str().map(str::to_owned);
    let waiters = lock["first"].as_array().into_iter().flatten();
    Some((lock["address"].as_u64()?, id(&lock["holder"]), waiters.filter_map(id).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_belong_to_holders_and_waiters_of_their_sample() {
        let sample = |holder: &str, frame: &str| {
            format!(
                "{{\"space\":{{\"pid\":7}}}}\n\
                 {{\"lock\":{{\"address\":4096,\"holder\":{{\"kind\":\"microprocess\",\"id\":\"{holder}\"}},\
                   \"first\":[{{\"id\":\"w\"}}]}}}}\n\
                 {{\"chain\":{{}}}}\n\
                 {{\"backtrace\":{{\"id\":\"{holder}\",\"text\":\"head\\n  0: {frame}\\n\"}}}}\n\
                 {{\"backtrace\":{{\"id\":\"w\",\"text\":\"head\\n  0: lock\\n\"}}}}\n"
            )
        };
        let text = sample("a", "write") + &sample("b", "read") + &sample("a", "write");
        let all = Stacks::from(text.as_bytes()).expect("lines");
        let stack = |text: &str, count| (text.to_owned(), count);
        assert_eq!((all.samples, all.pids.clone()), (3, BTreeSet::from([7])));
        assert_eq!(
            all.of(4096),
            (vec![stack("  0: write", 2), stack("  0: read", 1)], vec![stack("  0: lock", 3)])
        );
        assert_eq!(all.of(1), Default::default());
    }

    #[test]
    fn other_text_is_refused_with_its_line() {
        let why = Stacks::from(&b"{\"space\":{}}\nno json\n"[..]).expect_err("no lines");
        assert!(why.starts_with("line 2 is no output of kumi locks"), "{why}");
        assert!(Stacks::from(&b""[..]).expect("nothing").locks.is_empty());
        assert!(Stacks::from(&b"{\"lock\":{\"address\":\"x\"}}\n"[..]).is_ok());
    }
}
