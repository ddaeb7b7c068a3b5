//! Table of the stacks of a profile, with the samples that were not sent yet.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use kumihimo_machine::handler::ProfileClient;
use kumihimo_machine::profile::{ProfileItem, ProfileStack, ProfileSums};

/// Number of stacks above which the table is emptied after it was sent. The client keeps the sums.
const MOST: usize = 50_000;

/// The stacks of a profile.
#[derive(Default)]
pub(crate) struct Table {
    numbers: HashMap<Rc<ProfileStack>, u32>,
    stacks: Vec<(Rc<ProfileStack>, ProfileSums)>,
    /// Number of stacks that the client has.
    defined: usize,
    samples: u64,
    /// How often the table was emptied.
    generation: u32,
}

impl Table {
    /// Returns the number of a stack, which is valid within one [`Table::generation`].
    pub(crate) fn number(&mut self, stack: ProfileStack) -> u32 {
        if let Some(number) = self.numbers.get(&stack) {
            return *number;
        }
        let number = self.stacks.len() as u32;
        let stack = Rc::new(stack);
        self.numbers.insert(stack.clone(), number);
        self.stacks.push((stack, ProfileSums::default()));
        number
    }

    /// Adds to the stack of this number.
    pub(crate) fn add(&mut self, number: u32, samples: u64, ns: u64) {
        let sums = &mut self.stacks[number as usize].1;
        sums.samples += samples;
        sums.ns = sums.ns.saturating_add(ns);
        self.samples += samples;
    }

    /// Returns the number of samples since the beginning.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns a number that changes whenever the numbers of stacks begin anew.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Sends what was added since the last call.
    pub(crate) fn send(&mut self, client: &mut dyn ProfileClient) -> io::Result<()> {
        for (number, (stack, sums)) in (0..).zip(&mut self.stacks) {
            if number as usize >= self.defined {
                client.send(ProfileItem::Stack { number, stack: ProfileStack::clone(stack) })?;
            }
            if *sums != ProfileSums::default() {
                let sums = std::mem::take(sums);
                client.send(ProfileItem::Samples { stack: number, sums })?;
            }
        }
        self.defined = self.stacks.len();
        if self.stacks.len() > MOST {
            self.numbers.clear();
            self.stacks.clear();
            self.defined = 0;
            self.generation = self.generation.wrapping_add(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kumihimo_machine::profile::{ProfileKind, Recording};

    use super::*;

    struct Client(Recording, usize);

    impl ProfileClient for Client {
        fn send(&mut self, item: ProfileItem) -> io::Result<()> {
            self.0.add(item);
            self.1 += 1;
            Ok(())
        }

        fn wait(&mut self, _: Duration) -> bool {
            true
        }
    }

    fn stack(frame: usize) -> ProfileStack {
        ProfileStack { frames: vec![frame as u64], ..ProfileStack::default() }
    }

    #[test]
    fn stack_is_sent_once_and_its_samples_as_they_come() {
        let (mut table, mut client) = (Table::default(), Client(Recording::default(), 0));
        for round in 1..=3 {
            let number = table.number(stack(7));
            table.add(number, 1, 10);
            table.send(&mut client).expect("it takes everything");
            assert_eq!(client.1, 1 + round);
        }
        table.send(&mut client).expect("it takes everything");
        assert_eq!(client.1, 4, "nothing was added");
        assert_eq!(client.0.stacks[&stack(7)], ProfileSums { samples: 3, ns: 30 });
    }

    #[test]
    fn full_table_is_emptied_without_loss() {
        let mut table = Table::default();
        let mut client = Client(Recording::new(ProfileKind::Cpu), 0);
        for n in 0..=MOST {
            let number = table.number(stack(n));
            table.add(number, 1, 1);
        }
        table.send(&mut client).expect("it takes everything");
        assert_eq!(table.generation(), 1);
        let number = table.number(stack(MOST));
        table.add(number, 1, 1);
        table.send(&mut client).expect("it takes everything");
        assert_eq!(client.0.stacks[&stack(MOST)], ProfileSums { samples: 2, ns: 2 });
        assert_eq!(client.0.total().samples, MOST as u64 + 2);
        assert_eq!(table.samples(), MOST as u64 + 2);
    }
}
