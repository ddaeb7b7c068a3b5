//! Request and answer of `kumi profile`: the address space samples itself, and sends what it has
//! found several times a second until the client has enough.
//!
//! Stacks are sent as addresses. The client adds up equal ones and resolves names, so that the
//! examined process needs neither the time nor the memory for that. A client ends a profile by
//! closing its side of the connection, and receives the rest.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Allowed rates.
pub const RATES: RangeInclusive<u32> = 1..=1000;
/// Default rate of samples of running microprocesses: not a divisor of common periods.
pub const CPU_RATE: u32 = 99;
/// Default rate of looks at waiting microprocesses.
pub const OFF_CPU_RATE: u32 = 10;

/// What is profiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileKind {
    /// CPU time, by the stack that used it.
    #[default]
    Cpu,
    /// Time between park and wake, by the stack that parked.
    OffCpu,
    /// The stacks of all microprocesses at one moment.
    Stacks,
}

/// A request for a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileQuery {
    /// What is profiled.
    #[serde(default)]
    pub kind: ProfileKind,
    /// Samples per second of CPU time, or looks per second; within [`RATES`]. Not used for
    /// [`ProfileKind::Stacks`].
    pub rate: u32,
    /// Length of the profile. `None`: until the client ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<u64>,
}

/// A part of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileItem {
    /// A loaded file, before the first stack.
    Module(ProfileModule),
    /// A stack, before its first samples. Replaces an earlier one of the same number.
    Stack {
        /// Number of the stack in this answer.
        number: u32,
        /// The stack.
        #[serde(flatten)]
        stack: ProfileStack,
    },
    /// What a stack has used since it was last sent.
    Samples {
        /// Number of the stack.
        stack: u32,
        /// The samples.
        #[serde(flatten)]
        sums: ProfileSums,
    },
    /// The state of the whole so far.
    Progress(ProfileProgress),
}

/// A file whose code is loaded in the address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileModule {
    /// The file's path. Empty for code without a file.
    pub path: String,
    /// Whether it is the program itself.
    #[serde(default)]
    pub is_program: bool,
    /// Difference between addresses in memory and addresses in the file.
    pub bias: u64,
    /// First address in memory.
    pub start: u64,
    /// Address after the last one.
    pub end: u64,
}

/// A stack with what distinguishes it from others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProfileStack {
    /// Addresses in the calls, innermost first.
    pub frames: Vec<u64>,
    /// Beginning of the microprocess's name, without its number. Empty without a name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it waits for, or its state. Empty in a profile of CPU time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Whether outer frames are missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// Samples of one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileSums {
    /// Number of samples or looks, or of microprocesses.
    pub samples: u64,
    /// Time in nanoseconds: CPU time, time of waits, or the time for which the waits have lasted.
    pub ns: u64,
}

/// The state of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileProgress {
    /// Time since the beginning, in nanoseconds.
    pub elapsed_ns: u64,
    /// Number of samples so far.
    pub samples: u64,
    /// Number of samples lost because they were not read in time. The next sample of the same
    /// kernel thread has their weight.
    #[serde(default)]
    pub lost: u64,
    /// CPU time that the whole process has used since the beginning.
    #[serde(default)]
    pub process_cpu_ns: u64,
    /// CPU time of these that the profiler itself has used.
    #[serde(default)]
    pub profiler_cpu_ns: u64,
}

/// Everything that has arrived of a profile.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What is profiled.
    pub kind: ProfileKind,
    /// The loaded files.
    pub modules: Vec<ProfileModule>,
    /// The sums of each stack.
    pub stacks: HashMap<ProfileStack, ProfileSums>,
    /// The last state.
    pub progress: ProfileProgress,
    /// The stacks by their number in the answer.
    numbered: HashMap<u32, ProfileStack>,
}

impl Recording {
    /// Starts an empty recording.
    #[must_use]
    pub fn new(kind: ProfileKind) -> Recording {
        Recording { kind, ..Recording::default() }
    }

    /// Adds an item. Samples of a stack that was not sent count for an empty one.
    pub fn add(&mut self, item: ProfileItem) {
        match item {
            ProfileItem::Module(module) => self.modules.push(module),
            ProfileItem::Stack { number, stack } => drop(self.numbered.insert(number, stack)),
            ProfileItem::Samples { stack, sums } => {
                let stack = self.numbered.get(&stack).cloned().unwrap_or_default();
                let all = self.stacks.entry(stack).or_default();
                all.samples = all.samples.saturating_add(sums.samples);
                all.ns = all.ns.saturating_add(sums.ns);
            }
            ProfileItem::Progress(progress) => self.progress = progress,
        }
    }

    /// Returns the sums over all stacks.
    #[must_use]
    pub fn total(&self) -> ProfileSums {
        self.stacks.values().fold(ProfileSums::default(), |all, one| ProfileSums {
            samples: all.samples.saturating_add(one.samples),
            ns: all.ns.saturating_add(one.ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_adds_up_what_arrives() {
        let stack = |frame| ProfileStack { frames: vec![frame], ..ProfileStack::default() };
        let of =
            |stack, samples, ns| ProfileItem::Samples { stack, sums: ProfileSums { samples, ns } };
        let mut recording = Recording::new(ProfileKind::OffCpu);
        for item in [
            ProfileItem::Stack { number: 0, stack: stack(7) },
            of(0, 1, 10),
            of(0, 2, 20),
            // The address space has forgotten its stacks and counts from 0 again.
            ProfileItem::Stack { number: 0, stack: stack(8) },
            of(0, 1, 5),
            of(9, 1, u64::MAX),
        ] {
            let line = serde_json::to_string(&item).expect("serialises");
            let same: ProfileItem = serde_json::from_str(&line).expect("is read");
            assert_eq!(same, item);
            recording.add(item);
        }
        assert_eq!(recording.stacks[&stack(7)], ProfileSums { samples: 3, ns: 30 });
        assert_eq!(recording.stacks[&stack(8)], ProfileSums { samples: 1, ns: 5 });
        assert_eq!(recording.total(), ProfileSums { samples: 5, ns: u64::MAX });
    }
}
