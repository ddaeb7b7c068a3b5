//! Measures the cost of a kernel entry on this machine, and of a request in a batch: the paper's D
//! and t (P2, 4.4).
//!
//! A plain call of kind k takes `D + w`, where w is the kernel's work. In a batch of N it takes
//! `E/N + t + w`: its share of the entry, the handling of request and outcome, and the same work.
//! The paper has E = D. Here E and t + w are fitted from batches of four and of many calls, and D
//! is a call without work.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::batch::{Batch, alone};
use crate::call::Call;
use crate::counters::Counters;
use crate::op::{KINDS, Kind, Op};
use crate::order::{FIRST_COME, Order};

/// The costs of one kind of call, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// A plain call: D + w.
    pub plain: f64,
    /// The entry of a batch, E.
    pub entry: f64,
    /// Each call in a batch, without the entry: t + w.
    pub each: f64,
}

impl Cost {
    /// Returns the cost of a call in a batch of `n`: equation 4, with the work.
    pub fn batched(&self, n: usize) -> f64 {
        self.each + self.entry / n.max(1) as f64
    }

    /// Returns the smallest batch in which a call costs less than a plain one, although it costs
    /// `more` nanoseconds in addition: equation 5. Returns `None` if there is none.
    pub fn pays_from(&self, more: f64) -> Option<usize> {
        let gain = self.plain - self.each - more;
        (gain > 0.0).then(|| ((self.entry / gain) as usize + 1).max(2))
    }

    /// Returns the paper's t: the handling of request and outcome, without the work. `entry` is D.
    pub fn put(&self, entry: f64) -> f64 {
        self.each - (self.plain - entry)
    }
}

/// The costs of all kinds of calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// A kernel entry and the return: D.
    pub entry: f64,
    /// By [`Kind`]; `None` if calls of that kind are never batched.
    pub kinds: [Option<Cost>; KINDS],
}

/// The number of calls in the larger batch.
const MANY: usize = 32;
/// The number of calls in the smaller batch: fewer would not enter together.
const SOME: usize = 4;
/// The number of rounds, of which the fastest counts: disturbances only make a round longer.
const ROUNDS: usize = 7;
/// The number of bytes of a message.
const MESSAGE: usize = 64;
/// The number of bytes of a block of the file.
const BLOCK: usize = 4096;

impl Costs {
    /// Returns costs with which no batch pays, for a back end that enters the kernel once for each
    /// request.
    pub fn none() -> Costs {
        Costs { entry: 0.0, kinds: [None; KINDS] }
    }

    /// Returns the cost of `kind`, if calls of that kind may be batched.
    pub fn of(&self, kind: Kind) -> Option<&Cost> {
        self.kinds[kind as usize].as_ref()
    }

    /// Measures the costs with `batch`. Takes some 2 ms of the calling kernel thread, and three
    /// descriptors for that time.
    ///
    /// # Errors
    /// No descriptor is left, or there is no `/proc`.
    pub fn measure(batch: &mut Batch) -> io::Result<Costs> {
        let mut costs = Costs::none();
        if batch.backend() != "uring" {
            return Ok(costs);
        }
        let (near, far) = UnixStream::pair()?;
        let mut trial = Trial {
            near,
            far,
            file: File::open("/proc/self/exe")?,
            rooms: vec![vec![0; BLOCK]; MANY],
        };
        let order = std::mem::replace(&mut batch.order, Order { by_content: false, ..FIRST_COME });
        for kind in [Kind::Recv, Kind::Send, Kind::Read] {
            costs.kinds[kind as usize] = Some(trial.cost(kind, batch)?);
        }
        batch.order = order;
        // Measured with merging, since nops can always be merged. The other kinds' calls use
        // different objects.
        costs.kinds[Kind::Nop as usize] = Some(trial.cost(Kind::Nop, batch)?);
        // As for a send to a stream: no connection is available here, and a datagram differs only
        // in its work.
        costs.kinds[Kind::Datagram as usize] = costs.kinds[Kind::Send as usize];
        costs.entry = costs.kinds[Kind::Nop as usize].map_or(0.0, |nop| nop.plain);
        Ok(costs)
    }
}

struct Trial {
    near: UnixStream,
    far: UnixStream,
    file: File,
    rooms: Vec<Vec<u8>>,
}

impl Trial {
    fn cost(&mut self, kind: Kind, batch: &mut Batch) -> io::Result<Cost> {
        let counters = Counters::default();
        let (mut plain, mut some, mut many) = (f64::MAX, f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            plain = plain.min(self.time(kind, |calls| {
                for call in calls {
                    alone(&mut call.op);
                }
            })?);
            some = some.min(self.time(kind, |calls| {
                for calls in calls.chunks_mut(SOME) {
                    batch.run(calls, &counters);
                }
            })?);
            many = many.min(self.time(kind, |calls| batch.run(calls, &counters))?);
        }
        // `some` is E/SOME + each, and `many` is E/MANY + each.
        let entry = ((some - many) / (1.0 / SOME as f64 - 1.0 / MANY as f64)).max(0.0);
        Ok(Cost { plain, entry, each: many - entry / MANY as f64 })
    }

    /// Returns the nanoseconds that `run` takes for each of its calls.
    fn time(&mut self, kind: Kind, run: impl FnOnce(&mut [&mut Call<'_>])) -> io::Result<f64> {
        if kind == Kind::Recv {
            self.near.write_all(&[7; MESSAGE * MANY])?;
        }
        let file = self.file.as_fd();
        let mut calls: Vec<Call<'_>> = self
            .rooms
            .iter_mut()
            .enumerate()
            .map(|(i, room)| {
                let op = match kind {
                    Kind::Recv => {
                        Op::Recv { socket: self.far.as_fd(), into: &mut room[..MESSAGE], flags: 0 }
                    }
                    Kind::Send => Op::Send { socket: self.near.as_fd(), from: &room[..MESSAGE] },
                    Kind::Read => Op::ReadAt { file, into: room, at: (i % 4 * 2 * BLOCK) as u64 },
                    _ => Op::Nop,
                };
                Call::new(op, 0)
            })
            .collect();
        let mut calls: Vec<_> = calls.iter_mut().collect();
        let begin = Instant::now();
        run(&mut calls);
        let took = begin.elapsed().as_nanos() as f64 / MANY as f64;
        drop(calls);
        if kind == Kind::Send {
            self.far.read_exact(&mut [0; MESSAGE * MANY])?;
        }
        Ok(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Uring;
    use crate::backend::plain::Plain;

    #[test]
    fn batch_pays_from_the_size_of_equation_5() {
        let cost = Cost { plain: 100.0, entry: 100.0, each: 40.0 };
        assert_eq!(cost.pays_from(0.0), Some(2));
        assert_eq!(cost.pays_from(40.0), Some(6));
        assert_eq!(cost.pays_from(60.0), None);
        assert!(cost.batched(6) + 40.0 < cost.plain && cost.batched(5) + 40.0 >= cost.plain);
        assert_eq!(cost.put(100.0), 40.0);
    }

    #[test]
    fn measured_costs_are_those_of_successful_calls() {
        assert_eq!(Costs::measure(&mut Batch::new(Box::new(Plain))).unwrap(), Costs::none());
        let Ok(uring) = Uring::new(64) else { return println!("skipped: no uring here") };
        let mut batch = Batch::new(Box::new(uring));
        let costs = Costs::measure(&mut batch).unwrap();
        assert_eq!(batch.order, Order::default());
        assert!(costs.entry > 0.0);
        for kind in [Kind::Nop, Kind::Recv, Kind::Send, Kind::Datagram, Kind::Read] {
            let cost = costs.of(kind).unwrap();
            assert!(cost.plain > 0.0 && cost.entry >= 0.0, "{kind:?}: {cost:?}");
            println!(
                "{kind:?} {cost:?} t {} pays from {:?}",
                cost.put(costs.entry),
                cost.pays_from(0.0)
            );
        }
        assert!(
            Kind::ALL
                .iter()
                .filter(|kind| kind.is_always_plain())
                .all(|&kind| costs.of(kind).is_none())
        );
    }
}
