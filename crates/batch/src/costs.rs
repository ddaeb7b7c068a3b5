//! What entering the kernel costs on this machine, and what a request in a batch costs: the D and t
//! of the paper (section 4.4), measured.
//!
//! A plain call of kind k takes `D + w`, with the work w of the kernel. In a batch of N it takes
//! `E/N + t + w`: its part of the one entry, putting the request and taking its outcome, the same
//! work. The paper has E = D. Here E and t + w are fitted from batches of four and of many, and D
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

/// Of one kind of call, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// A plain call: D + w.
    pub plain: f64,
    /// The entry of a batch, E.
    pub entry: f64,
    /// Each call in a batch besides that: t + w.
    pub each: f64,
}

impl Cost {
    /// What a call costs in a batch of `n`: equation 4, with the work.
    pub fn batched(&self, n: usize) -> f64 {
        self.each + self.entry / n.max(1) as f64
    }

    /// The smallest batch in which a call costs less than a plain one although it costs `more`
    /// nanoseconds besides: equation 5. `None`: no batch does.
    pub fn pays_from(&self, more: f64) -> Option<usize> {
        let gain = self.plain - self.each - more;
        (gain > 0.0).then(|| ((self.entry / gain) as usize + 1).max(2))
    }

    /// The paper's t: putting a request and taking its outcome, without the work. `entry` is D.
    pub fn put(&self, entry: f64) -> f64 {
        self.each - (self.plain - entry)
    }
}

/// Of all kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// One kernel entry and its return: D.
    pub entry: f64,
    /// By [`Kind`]; `None`: never in a batch.
    pub kinds: [Option<Cost>; KINDS],
}

/// Calls in the larger batch, and in the smaller one: fewer would not enter together.
const MANY: usize = 32;
const SOME: usize = 4;
/// The best of so many rounds counts: what disturbs makes them longer only.
const ROUNDS: usize = 7;
/// Bytes of a message, and of a block of the file.
const MESSAGE: usize = 64;
const BLOCK: usize = 4096;

impl Costs {
    /// No batch pays: for a back end that enters the kernel once for each request.
    pub fn none() -> Costs {
        Costs { entry: 0.0, kinds: [None; KINDS] }
    }

    /// What `kind` costs, if it may be in a batch.
    pub fn of(&self, kind: Kind) -> Option<&Cost> {
        self.kinds[kind as usize].as_ref()
    }

    /// Measures through `batch`: some 2 ms of the calling kernel thread, three descriptors for that
    /// time.
    ///
    /// # Errors
    /// No descriptors left; no `/proc`.
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
        // With those merged that always can be; the others' calls are of different objects.
        costs.kinds[Kind::Nop as usize] = Some(trial.cost(Kind::Nop, batch)?);
        // As a send to a stream: no connection is at hand here, and a datagram differs in its work
        // only.
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
        // E/SOME + each, and E/MANY + each.
        let entry = ((some - many) / (1.0 / SOME as f64 - 1.0 / MANY as f64)).max(0.0);
        Ok(Cost { plain, entry, each: many - entry / MANY as f64 })
    }

    /// Nanoseconds that `run` takes for each of its calls.
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
    fn a_batch_pays_as_equation_5_says() {
        let cost = Cost { plain: 100.0, entry: 100.0, each: 40.0 };
        assert_eq!(cost.pays_from(0.0), Some(2));
        assert_eq!(cost.pays_from(40.0), Some(6));
        assert_eq!(cost.pays_from(60.0), None);
        assert!(cost.batched(6) + 40.0 < cost.plain && cost.batched(5) + 40.0 >= cost.plain);
        assert_eq!(cost.put(100.0), 40.0);
    }

    #[test]
    fn what_is_measured_is_of_calls_that_succeed() {
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
