//! Power cuts: possible contents of a medium when the power fails, and the contents that must be
//! recoverable afterwards.

mod ledger;
mod load;

pub use ledger::Ledger;
pub use load::{Load, Size};

use kumihimo_tests::Random;

use crate::disks::Event;

/// Unit that a medium writes atomically.
const SECTOR: usize = 512;

/// Selects which writes since the last flush reached the medium.
#[derive(Clone, Copy, Debug)]
enum Luck {
    All,
    None,
    /// Each write with this probability, in eighths.
    Some(u64),
    /// All writes except one.
    AllBut(usize),
    Only(usize),
    /// The first writes only.
    First(usize),
}

/// Image after a power cut that follows `position` events. Flushed writes are complete. Of each
/// later write, any subset of its sectors may be present. A sector that was written several times
/// may be in any of these states, which covers every possible reordering.
///
/// # Panics
/// If the events do not fit the image.
#[must_use]
pub fn cut(image: &[u8], events: &[Event], position: usize, random: &mut Random) -> Vec<u8> {
    let mut image = image.to_vec();
    let mut apply = |offset: u64, bytes: &[u8]| {
        let offset = usize::try_from(offset).expect("an offset in the image");
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    let events = &events[..position];
    let flushed =
        events.iter().rposition(|event| matches!(event, Event::Flush)).map_or(0, |last| last + 1);
    for event in &events[..flushed] {
        if let Event::Write(offset, bytes) = event {
            apply(*offset, bytes);
        }
    }
    let loose = &events[flushed..];
    let any = |random: &mut Random| {
        usize::try_from(random.below(loose.len().max(1) as u64)).expect("small")
    };
    let luck = match random.below(8) {
        0 => Luck::All,
        1 => Luck::None,
        2 => Luck::Some(1),
        3 => Luck::Some(4),
        4 => Luck::Some(7),
        5 => Luck::AllBut(any(random)),
        6 => Luck::Only(any(random)),
        _ => Luck::First(any(random)),
    };
    let torn = random.one_in(2);
    for (number, event) in loose.iter().enumerate() {
        let Event::Write(offset, bytes) = event else { continue };
        let whole = match luck {
            Luck::All => true,
            Luck::None => false,
            Luck::Some(chances) => random.below(8) < chances,
            Luck::AllBut(one) => one != number,
            Luck::Only(one) => one == number,
            Luck::First(count) => number < count,
        };
        // The write that was in progress at the cut: some of its sectors are present.
        if torn
            && bytes.len() > SECTOR
            && random.one_in(3)
            && !matches!(luck, Luck::All | Luck::None)
        {
            for (sector, piece) in bytes.chunks(SECTOR).enumerate() {
                if random.one_in(2) {
                    apply(offset + (sector * SECTOR) as u64, piece);
                }
            }
        } else if whole {
            apply(*offset, bytes);
        }
    }
    image
}

#[cfg(test)]
mod tests;
