//! Measures the cost of a context switch in the queue, in ns for exchange + pop + push + surplus,
//! per design.
//!
//! Run `cargo run --release -p kumihimo-queue --example hot` on an otherwise idle machine.

use std::{hint::black_box, ptr::NonNull, time::Instant};

use kumihimo_queue::{Capacity, Design, Links, Node, Origin, Place, Set};

#[repr(align(128))]
struct Item {
    links: Links<Item>,
}

// SAFETY: `links` returns the one field; items are leaked, so they are neither moved nor freed.
unsafe impl Node for Item {
    fn links(&self) -> &Links<Item> {
        &self.links
    }
}

fn item() -> NonNull<Item> {
    NonNull::from(Box::leak(Box::new(Item { links: Links::new() })))
}

/// Returns the median of 11 runs, in ns per turn.
fn time(turns: u32, mut f: impl FnMut(u32)) -> f64 {
    let mut runs: Vec<f64> = (0..11)
        .map(|_| {
            let start = Instant::now();
            f(turns);
            start.elapsed().as_nanos() as f64 / f64::from(turns)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[5]
}

fn main() {
    const TURNS: u32 = 2_000_000;
    println!(
        "{:<8}{:>5}{:>8}{:>12}{:>12}{:>12}{:>12}",
        "design", "vps", "queued", "yield ns", "pushpop ns", "fork ns", "bulk ns"
    );
    for design in Design::ALL {
        for (vps, queued) in [(1, 1), (2, 1), (2, 100), (2, 10_000), (8, 1)] {
            let set = Set::new(design, vps, Capacity::default());
            // Seen with two VPs, the second one as loaded as the first, so no item is given away.
            // SAFETY: this thread is the carrier of all VPs; items are pushed while they are in no
            // queue, and are never freed.
            unsafe {
                for vp in 0..vps {
                    let q = set.local(vp);
                    for _ in 0..queued {
                        q.push(item(), Place::back(32), Origin::Yield);
                    }
                    for _ in 0..64 {
                        let _ = q.exchange();
                    }
                }
                let q = black_box(set.local(0));
                let mut current = item();
                let yields = time(TURNS, |turns| {
                    for _ in 0..turns {
                        let _ = black_box(q.exchange());
                        if let Some((next, _)) = q.pop_at_least(32) {
                            q.push(current, Place::back(32), Origin::Yield);
                            current = black_box(next);
                        }
                        let _ = black_box(q.surplus(false));
                    }
                });
                let push_pop = time(TURNS, |turns| {
                    for _ in 0..turns {
                        q.push(current, Place::back(32), Origin::Yield);
                        if let Some((next, _)) = q.pop() {
                            current = black_box(next);
                        }
                    }
                });
                // Fork and join while another VP idles: the child is made visible and taken back.
                let fork = time(TURNS / 4, |turns| {
                    for _ in 0..turns {
                        q.push(current, Place::back(32), Origin::Spawn);
                        let _ = black_box(q.surplus(vps > 1));
                        let _ = black_box(q.exchange());
                        if let Some((next, _)) = q.pop() {
                            current = black_box(next);
                        }
                    }
                });
                // Many items at once, which no VP takes yet; then the VP runs them one after the
                // other.
                let many: Vec<_> = (0..100_000).map(|_| item()).collect();
                let bulk = time(100_000, |_| {
                    for &item in &many {
                        q.push(item, Place::back(40), Origin::Spawn);
                        let _ = black_box(q.surplus(false));
                    }
                    // Items that went to the other VP return through the remaining VPs.
                    let mut left = many.len();
                    while left > 0 {
                        while q.pop_at_least(40).is_some() {
                            left -= 1;
                        }
                        for vp in (0..vps).rev() {
                            let other = set.local(vp);
                            let _ = other.exchange();
                            other.pull();
                            while other.pop_at_least(40).is_some() {
                                left -= 1;
                            }
                        }
                    }
                });
                println!(
                    "{:<8}{vps:>5}{queued:>8}{yields:>12.2}{push_pop:>12.2}{fork:>12.2}{bulk:>12.2}",
                    design.name()
                );
            }
        }
    }
}
