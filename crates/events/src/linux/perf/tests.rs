use super::*;

fn heads() -> impl Iterator<Item = u64> {
    (0..3 * records()).step_by(8).chain([u64::MAX - 7, 1 << 63, 1 << 32])
}

#[test]
fn quiet_leaves_no_room_and_arming_leaves_room_for_a_record_and_a_note() {
    for head in heads() {
        let quiet = full(head, 0);
        assert_eq!((room(head, quiet), quiet % 8), (0, QUIET));
        // It is not known whether a switch was dropped while the event was quiet.
        let both = armed(head, quiet);
        assert!(
            (RECORD + NOTE..RECORD + NOTE + 8).contains(&room(head, both)) && both % 8 == FOR_BOTH
        );
        assert_eq!(armed(head, both), both);
        assert_eq!(full(head, both), quiet);
    }
}

/// A model of the kernel's side.
struct Model {
    head: u64,
    tail: u64,
    dropped: bool,
}

impl Model {
    /// Writes the record of a switch if it fits. Returns whether it rings.
    fn switch(&mut self) -> bool {
        let needed = if self.dropped { RECORD + NOTE } else { RECORD };
        let fits = room(self.head, self.tail) >= needed;
        self.head = self.head.wrapping_add(if fits { needed } else { 0 });
        self.dropped = !fits;
        fits
    }
}

/// Runs every sequence of twelve steps: a switch, arming, quiet. The first switch after arming must
/// ring.
#[test]
fn first_switch_after_arming_rings_in_every_sequence() {
    for mut steps in 0..3u32.pow(12) {
        let mut kernel =
            Model { head: u64::MAX - 63, tail: full(u64::MAX - 63, 0), dropped: false };
        let mut is_armed = false;
        for _ in 0..12 {
            match steps % 3 {
                0 => {
                    let rings = kernel.switch();
                    assert!(rings || !is_armed);
                    is_armed = false;
                }
                1 => {
                    kernel.tail = armed(kernel.head, kernel.tail);
                    is_armed = true;
                }
                _ => {
                    kernel.tail = full(kernel.head, kernel.tail);
                    is_armed = false;
                    assert_eq!(room(kernel.head, kernel.tail), 0);
                }
            }
            steps /= 3;
        }
    }
}

#[test]
fn each_sleep_rings_once_after_dropped_records_are_noted() {
    let mut kernel = Model { head: 0, tail: full(0, 0), dropped: false };
    let bells: Vec<_> = (0..6)
        .map(|_| {
            kernel.tail = armed(kernel.head, kernel.tail);
            [kernel.switch(), kernel.switch()]
        })
        .collect();
    assert_eq!(bells[0], [true, true]);
    assert!(bells[1..].iter().all(|bells| *bells == [true, false]), "{bells:?}");
}

#[test]
fn probe_succeeds_or_names_the_reason_and_the_remedy() {
    match Perf::probe() {
        Ok(perf) => drop(perf.watch_this_thread().expect("as in the probe")),
        Err(refused) => assert!(!refused.why.is_empty() && !refused.remedy.is_empty()),
    }
}
