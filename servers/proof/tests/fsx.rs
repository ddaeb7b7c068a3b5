//! Random reads, writes, truncations and holes in one file, compared with a byte vector, like the
//! program fsx.

use kumihimo_proof::ext2::{FORMATS, Format, Mounted};
use kumihimo_proof::watch::Watchdog;
use kumihimo_proof::{compare::Subject, images, paths};
use kumihimo_tests::{Random, Round, rounds};

/// Operations in a round.
const OPERATIONS: u64 = 3000;
const PUNCH: u32 = 3;
const ZERO: u32 = 16;

/// Largest file size: beyond the first indirect block for small block sizes.
fn most(format: &Format) -> u64 {
    format.block as u64 * 400
}

fn small(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

struct File {
    mounted: Mounted,
    bytes: Vec<u8>,
    most: u64,
    log: Vec<String>,
}

impl File {
    fn step(&mut self, random: &mut Random) {
        let store = self.mounted.store();
        let open = paths::open(store, "file").expect("the file");
        let most = if random.one_in(4) { 60_000 } else { 5000 };
        let (at, length) = (random.below(self.most), 1 + random.below(most));
        let end = (at + length).min(self.most);
        let (from, to) = (small(at), small(end));
        let size = self.bytes.len();
        match random.below(16) {
            0..=5 => {
                let fill = u8::try_from(random.below(255)).expect("a byte") + 1;
                let what: Vec<u8> = (from..to)
                    .map(|at| fill.wrapping_add(u8::try_from(at % 7).expect("below 7")))
                    .collect();
                self.log.push(format!("write {from}..{to}"));
                assert_eq!(open.write(at, &what), Ok(what.len()));
                self.bytes.resize(size.max(to), 0);
                self.bytes[from..to].copy_from_slice(&what);
            }
            6..=10 => {
                let mut read = vec![0xaa; to - from];
                let count = open.read(at, &mut read).expect("read");
                let expected = &self.bytes[from.min(size)..to.min(size)];
                assert!(
                    &read[..count] == expected,
                    "read {from}..{to}: {:?}",
                    first(&read[..count], expected)
                );
            }
            11 => {
                self.log.push(format!("truncate {from}"));
                open.truncate(at).expect("truncate");
                self.bytes.resize(from, 0);
            }
            12 => {
                self.log.push(format!("punch {from}..{to}"));
                open.allocate(PUNCH, at, end - at).expect("punch");
                self.bytes[from.min(size)..to.min(size)].fill(0);
            }
            13 => {
                self.log.push(format!("zero {from}..{to}"));
                open.allocate(ZERO, at, end - at).expect("zero");
                self.bytes.resize(size.max(to), 0);
                self.bytes[from..to].fill(0);
            }
            14 => {
                self.log.push(format!("allocate {from}..{to}"));
                open.allocate(0, at, end - at).expect("allocate");
                self.bytes.resize(size.max(to), 0);
            }
            _ => {
                self.log.push("sync".to_owned());
                open.sync(random.one_in(2)).expect("sync");
            }
        }
        if random.one_in(200) {
            drop(open);
            self.log.push("remount".to_owned());
            self.mounted.remount().expect("remount");
            self.whole();
        }
    }

    fn whole(&self) {
        let contents = paths::contents(self.mounted.store(), "file").expect("the file");
        assert!(
            contents == self.bytes,
            "the whole file: {:?} of {}",
            first(&contents, &self.bytes),
            self.bytes.len()
        );
    }
}

/// The first difference between two slices.
fn first(one: &[u8], other: &[u8]) -> (usize, Option<usize>) {
    (one.len(), one.iter().zip(other).position(|(one, other)| one != other))
}

impl Drop for File {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("operations before: {:?}", &self.log[self.log.len().saturating_sub(60)..]);
        }
    }
}

#[test]
fn file_contents_match_plain_bytes() {
    let name = "file_contents_match_plain_bytes";
    if !images::programs(name) {
        return;
    }
    let watchdog = Watchdog::new(name);
    for Round { number, mut random } in rounds(name) {
        for format in &FORMATS {
            watchdog.step(format!("round {number}, {}", format.name));
            println!("round {number}, {}", format.name);
            let mounted = Mounted::new(format.image(), format, 256 << 10, true).expect("mounted");
            drop(paths::create(mounted.store(), "file").expect("a file"));
            let mut file = File { mounted, bytes: Vec::new(), most: most(format), log: Vec::new() };
            (0..OPERATIONS).for_each(|_| file.step(&mut random));
            file.mounted.remount().expect("remount");
            file.whole();
        }
    }
}
