//! The columns of microprocesses and spans: numbers of varying length, compressed together.
//!
//! A column has its values one after the other, so that similar ones stand side by side. The
//! page's script `columns.js` reads them in the order in which they are written here.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::collect::{Collected, Micro, Run};
use super::lanes::{Lane, Runs};

/// Numbers of what a span shows; that of a microprocess is its index plus [`FIRST`].
const IDLE: u64 = 0;
const SEVERAL: u64 = 1;
const FIRST: u64 = 2;

/// Writes all columns of all runs, compressed.
///
/// # Errors
/// As writing to `out`.
pub(super) fn write(all: &Collected, out: &mut dyn Write) -> io::Result<()> {
    let mut columns = Columns { out: ZlibEncoder::new(out, Compression::default()), bytes: vec![] };
    for run in &all.runs {
        columns.micros(run)?;
        for lane in &run.lanes {
            columns.lane(lane)?;
        }
    }
    columns.pass_on(0)?;
    columns.out.finish().map(drop)
}

struct Columns<W: Write> {
    out: ZlibEncoder<W>,
    bytes: Vec<u8>,
}

impl<W: Write> Columns<W> {
    fn micros(&mut self, run: &Run) -> io::Result<()> {
        let all = &run.micros;
        self.column(all.iter().map(|micro| micro.label.len() as u64))?;
        for micro in all {
            self.bytes.extend(micro.label.as_bytes());
            self.pass_on(1 << 16)?;
        }
        let of: [fn(&Micro) -> u64; 12] = [
            |micro| micro.level.map_or(0, |level| u64::from(level) + 1),
            |micro| micro.runs,
            |micro| micro.running,
            |micro| micro.latencies,
            |micro| micro.latency,
            |micro| micro.longest_latency,
            |micro| micro.parks,
            |micro| micro.parked,
            |micro| micro.blocks,
            |micro| micro.outside,
            |micro| micro.first,
            |micro| micro.last,
        ];
        of.iter().try_for_each(|of| self.column(all.iter().map(of)))
    }

    fn lane(&mut self, lane: &Lane) -> io::Result<()> {
        let spans = &lane.spans;
        let before = |i: usize| if i == 0 { 0 } else { spans[i - 1].to };
        // A file that is no trace of ours may contain spans that overlap: they then touch.
        self.column((0..spans.len()).map(|i| spans[i].from.saturating_sub(before(i))))?;
        self.column((0..spans.len()).map(|i| spans[i].to - spans[i].from.max(before(i))))?;
        self.column(spans.iter().map(|span| match span.runs {
            Runs::Idle => IDLE,
            Runs::Several => SEVERAL,
            Runs::Micro(index) => u64::from(index) + FIRST,
        }))?;
        let several = || spans.iter().filter(|span| span.runs == Runs::Several);
        self.column(several().map(|span| span.busy))?;
        self.column(several().map(|span| span.count.into()))
    }

    fn column(&mut self, values: impl Iterator<Item = u64>) -> io::Result<()> {
        for mut value in values {
            while value >= 0x80 {
                self.bytes.push(value as u8 | 0x80);
                value >>= 7;
            }
            self.bytes.push(value as u8);
            self.pass_on(1 << 16)?;
        }
        Ok(())
    }

    /// Writes the collected bytes if there are `least` of them.
    fn pass_on(&mut self, least: usize) -> io::Result<()> {
        if self.bytes.len() >= least {
            self.out.write_all(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}
