use super::*;

fn heads() -> impl Iterator<Item = u64> {
    (0..3 * RECORDS).step_by(8).chain([u64::MAX - 7, 1 << 63, 1 << 32])
}

#[test]
fn quiet_leaves_no_room_and_listening_after_it_room_for_a_record_and_a_note() {
    for head in heads() {
        let quiet = full(head, 0);
        assert_eq!((room(head, quiet), quiet % 8), (0, QUIET));
        // Whether it was switched while it was quiet is not known.
        let both = armed(head, quiet);
        assert!(
            (RECORD + NOTE..RECORD + NOTE + 8).contains(&room(head, both)) && both % 8 == FOR_BOTH
        );
        assert_eq!(armed(head, both), both);
        assert_eq!(full(head, both), quiet);
    }
}

/// The kernel's side: whether a record is written, which rings.
struct Model {
    head: u64,
    tail: u64,
    dropped: bool,
}

impl Model {
    fn switch(&mut self) -> bool {
        let needed = if self.dropped { RECORD + NOTE } else { RECORD };
        let fits = room(self.head, self.tail) >= needed;
        self.head = self.head.wrapping_add(if fits { needed } else { 0 });
        self.dropped = !fits;
        fits
    }
}

/// Every sequence of twelve steps: switched out or in, armed by either side, quiet. A switch
/// after arming rings, unless one has since.
#[test]
fn the_first_switch_after_arming_rings_whatever_came_before() {
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
fn one_bell_for_each_sleep_once_it_is_known_what_was_dropped() {
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
fn it_works_here_or_says_why_not() {
    match Perf::probe() {
        Ok(perf) => drop(perf.watch_this_thread().expect("as in the probe")),
        Err(refused) => assert!(!refused.why.is_empty() && !refused.remedy.is_empty()),
    }
}
