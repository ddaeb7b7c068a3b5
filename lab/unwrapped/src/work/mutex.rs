//! `mutex`: pairs that pass a turn by a mutex and a condition variable of std.

use std::sync::{Arc, Condvar, Mutex};

use super::Work;
use crate::plan::Plan;
use crate::threads::Body;

/// The side whose turn it is, and the number of turns.
#[derive(Default)]
struct Pair {
    turn: Mutex<(bool, usize)>,
    changed: Condvar,
}

/// One body for each side of each pair.
pub fn turns(plan: &Plan) -> Work {
    let rounds = plan.rounds;
    let pairs: Vec<_> = (0..plan.count).map(|_| Arc::new(Pair::default())).collect();
    let side = |pair: &Arc<Pair>, own| {
        let pair = pair.clone();
        Box::new(move || pair.take_turns(own, rounds)) as Body
    };
    let bodies = pairs.iter().flat_map(|pair| [side(pair, false), side(pair, true)]).collect();
    let end = move |_: &_| {
        for pair in &pairs {
            assert_eq!(pair.turn.lock().expect("not poisoned").1, 2 * rounds, "turns of a pair");
        }
        format!(" turns:={}", pairs.len() * rounds)
    };
    Work { end: Box::new(end), ..Work::of(bodies) }
}

impl Pair {
    fn take_turns(&self, own: bool, rounds: usize) {
        for _ in 0..rounds {
            let turn = self.turn.lock().expect("not poisoned");
            let mut turn =
                self.changed.wait_while(turn, |(whose, _)| *whose != own).expect("not poisoned");
            *turn = (!own, turn.1 + 1);
            self.changed.notify_one();
        }
    }
}
