//! Tracks of the cores: their holders, as this process read them from the slots on the board.

use std::collections::HashMap;
use std::io::Write;

use crate::capture::record::{self, Holder, Kind, Record, Slot};
use crate::format::names::{
    ASKED_CORE, CORE, CORES_GROUP, GIVEN, HAS, LEAVES, LEVEL, MARK, Name, ROW, RUNS, SERIAL, SLOT,
    VP, WANTS,
};
use crate::format::packets::{NameRef, Packets, Value};
use crate::format::perfetto::{INSTANT, SLICE_BEGIN, SLICE_END};

/// The tracks of cores. They exist only if a VP requests a core.
#[derive(Debug, Default)]
pub(crate) struct Cores {
    /// The row of this process on the board.
    row: Option<u64>,
    group: Option<u64>,
    cores: HashMap<u32, Core>,
}

#[derive(Debug)]
struct Core {
    track: u64,
    /// The newest content that was read.
    slot: Option<Slot>,
}

fn number(n: impl Into<u64>) -> Value {
    Value::Number(n.into())
}

/// Returns the arguments that describe a slot.
fn arguments(slot: Slot) -> Vec<(Name, Value)> {
    let mut all = vec![(SERIAL, number(slot.serial))];
    if let Some(Holder { row, vp, mark }) = slot.holder {
        all.extend([(ROW, number(row)), (VP, number(vp)), (MARK, number(mark))]);
    }
    if slot.given {
        all.push((GIVEN, number(1u64)));
    }
    all
}

impl Cores {
    /// Creates the tracks for the process in this row, if it has one.
    pub(crate) fn of(row: Option<u64>) -> Cores {
        Cores { row, ..Cores::default() }
    }

    /// Processes an event of a VP with track `vp`: it requested its core, left it, or changed its
    /// slot.
    pub(crate) fn take(
        &mut self,
        packets: &mut Packets<impl Write>,
        process: u64,
        vp: u64,
        record: &Record,
    ) {
        let slot = Slot::from_bits(record.id);
        let core = self.draw(packets, process, record.arg, slot);
        let mut all = arguments(slot);
        let (track, name) = match record.kind {
            Kind::Slot => (core, SLOT),
            Kind::Leaves => (vp, LEAVES),
            _ => {
                all.extend([(LEVEL, number(record.level)), (WANTS, number(record.wait))]);
                for (bit, name) in [(record::HAS, HAS), (record::RUNS, RUNS)] {
                    if record.cause & bit != 0 {
                        all.push((name, number(1u64)));
                    }
                }
                (vp, ASKED_CORE)
            }
        };
        all.push((CORE, number(record.arg)));
        packets.event(track, INSTANT, NameRef::By(name), &all);
    }

    /// Draws a slice for each period in which one VP holds the core at one level. Returns the
    /// core's track.
    fn draw(
        &mut self,
        packets: &mut Packets<impl Write>,
        process: u64,
        number: u32,
        slot: Slot,
    ) -> u64 {
        let group = *self.group.get_or_insert_with(|| packets.track(CORES_GROUP, Some(process), 3));
        let core = self.cores.entry(number).or_insert_with(|| Core {
            track: packets.track(&format!("core {number}"), Some(group), number.cast_signed()),
            slot: None,
        });
        // One of two VPs at a core may record an earlier reading later.
        let is_older = |old: Slot| (slot.serial.wrapping_sub(old.serial) << 2).cast_signed() < 0;
        if core.slot.is_some_and(is_older) {
            return core.track;
        }
        let before = core.slot.replace(slot).and_then(|slot| slot.holder);
        if before != slot.holder {
            if before.is_some() {
                packets.event(core.track, SLICE_END, NameRef::Nothing, &[]);
            }
            if let Some(holder) = slot.holder {
                let is_own = self.row == Some(holder.row.into());
                let name = match is_own {
                    true => format!("VP {}", holder.vp),
                    false => format!("row {} VP {}", holder.row, holder.vp),
                };
                let mut all = arguments(slot);
                all.extend(
                    holder.mark.checked_sub(2).map(|level| (LEVEL, Value::Number(level.into()))),
                );
                packets.event(core.track, SLICE_BEGIN, NameRef::Text(&name), &all);
            }
        }
        core.track
    }

    /// Closes all slices at the end of the run.
    pub(crate) fn end(&mut self, packets: &mut Packets<impl Write>) {
        for core in std::mem::take(&mut self.cores).into_values() {
            if core.slot.is_some_and(|slot| slot.holder.is_some()) {
                packets.event(core.track, SLICE_END, NameRef::Nothing, &[]);
            }
        }
    }
}
