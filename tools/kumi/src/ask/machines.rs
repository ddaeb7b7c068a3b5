//! Machines named on the command line: this one, others through the border, or all.

use std::fmt;
use std::str::FromStr;

use kumihimo_machine::border::{Epoch, MachineName};
use kumihimo_machine::client::{Machine, Neighbour};
use kumihimo_resource::id::Id;
use serde::Serialize;

use super::{Place, Whose, complain, neighbours};
use crate::text::short;

/// One machine, or all that the border knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// This machine and all others.
    All,
    /// One machine.
    One(MachineName),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Which, String> {
        match text {
            "all" => Ok(Which::All),
            name => name.parse().map(Which::One).map_err(|e| format!("{e}")),
        }
    }
}

/// Selects machines and the address spaces of a user there.
#[derive(clap::Args)]
pub struct Where {
    /// Use the address spaces of this machine, which the border (kumi border) reaches: its name, or
    /// all
    #[arg(long, value_name = "NAME|all")]
    machine: Option<Which>,
    #[command(flatten)]
    whose: Whose,
}

/// A target, with the machine that it names: `build7/12.42.7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// The machine, if one is named.
    pub machine: Option<MachineName>,
    /// The target there.
    pub of: T,
}

impl<T: FromStr<Err = String>> FromStr for At<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<At<T>, String> {
        // A number before the slash is that of an address space.
        if let Some((machine, of)) = text.split_once('/')
            && machine.starts_with(|first: char| first.is_ascii_alphabetic())
        {
            let machine = machine.parse().map_err(|e| format!("{e}"))?;
            return Ok(At { machine: Some(machine), of: of.parse()? });
        }
        Ok(At { machine: None, of: text.parse()? })
    }
}

impl<T: fmt::Display> fmt::Display for At<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(machine) = &self.machine {
            write!(f, "{machine}/")?;
        }
        write!(f, "{}", self.of)
    }
}

/// What lines of output say about a machine that was named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Label {
    /// Name of the machine.
    machine: String,
    /// Epoch of its run-time directory.
    epoch: Epoch,
}

/// A machine and what its lines of output say.
#[derive(Clone, Debug)]
pub struct Host {
    /// `None` if no machine was named.
    pub label: Option<Label>,
    /// The machine.
    pub machine: Machine,
}

/// Machines with the targets there.
pub type Hosts<T> = Vec<(Host, Vec<T>)>;

/// A row of output, in JSON with the machine if one was named.
#[derive(Serialize)]
pub struct Labelled<'a, T> {
    #[serde(flatten)]
    label: Option<&'a Label>,
    #[serde(flatten)]
    row: &'a T,
}

impl<'a, T> Labelled<'a, T> {
    /// Joins the machine to the row.
    pub fn new(label: Option<&'a Label>, row: &'a T) -> Labelled<'a, T> {
        Labelled { label, row }
    }
}

/// An ID with its machine: `build7/12.42.7`.
pub struct FullId<'a>(pub Option<&'a Label>, pub Id);

impl fmt::Display for FullId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(label) = self.0 {
            write!(f, "{}/", label.machine)?;
        }
        write!(f, "{}", short(self.1))
    }
}

/// The beginning of a line about an address space: `machine build7, ` or nothing.
pub struct Prefix<'a>(pub Option<&'a Label>);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |label| write!(f, "machine {}, ", label.machine))
    }
}

impl Label {
    /// Name of the machine.
    pub fn name(&self) -> &str {
        &self.machine
    }
}

impl Where {
    /// Checks that there is a run-time directory.
    pub fn check(&self) -> Result<(), String> {
        self.whose.machine().map(drop)
    }

    /// The machine of these options, which must be one.
    pub fn one(&self) -> Result<Host, String> {
        let own = self.whose.machine()?;
        match &self.machine {
            None => Ok(Host { label: None, machine: own }),
            Some(Which::One(name)) => named(&own, name),
            Some(Which::All) => Err("--machine all: name one machine".to_owned()),
        }
    }

    /// The machine of a target.
    pub fn of<T>(&self, target: &At<T>) -> Result<Host, String> {
        match &target.machine {
            Some(name) => named(&self.whose.machine()?, name),
            None => self.one(),
        }
    }

    /// The machines with the targets there. Without targets, those of the options. Machines that
    /// are not reachable are reported on standard error; the flag is then false.
    pub fn hosts<T: Clone>(&self, of: &[At<T>]) -> Result<(Hosts<T>, bool), String> {
        let own = self.whose.machine()?;
        let (mut hosts, mut whole) = (Vec::new(), true);
        let mut add = |host: Result<Host, String>, of: Vec<T>| match host {
            Ok(host) => hosts.push((host, of)),
            Err(why) => {
                complain(&why);
                whole = false;
            }
        };
        let unnamed: Vec<T> =
            of.iter().filter(|at| at.machine.is_none()).map(|at| at.of.clone()).collect();
        if of.is_empty() || !unnamed.is_empty() {
            match &self.machine {
                None => add(Ok(Host { label: None, machine: own.clone() }), unnamed),
                Some(Which::One(name)) => add(named(&own, name), unnamed),
                Some(Which::All) => {
                    for row in own.machines().map_err(|e| e.to_string())? {
                        let found = own.machine_of(&row, None).map_err(|e| e.to_string());
                        add(found.map(|found| host(&row.name, found)), unnamed.clone());
                    }
                }
            }
        }
        let mut names: Vec<&MachineName> = Vec::new();
        for name in of.iter().filter_map(|at| at.machine.as_ref()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for name in names {
            let of = of.iter().filter(|at| at.machine.as_ref() == Some(name));
            add(named(&own, name), of.map(|at| at.of.clone()).collect());
        }
        Ok((hosts, whole))
    }

    /// The address spaces at the given places, or all, of the machines of these options. What
    /// cannot be reached is reported on standard error; the flag is then false.
    pub fn spaces(&self, of: &[At<Place>]) -> Result<(Vec<Found>, bool), String> {
        let (hosts, mut whole) = self.hosts(of)?;
        let is_one = hosts.len() == 1;
        let mut all = Vec::new();
        for (Host { label, machine }, places) in hosts {
            let (found, has_all) = match neighbours(&machine, &places) {
                Err(why) if is_one => return Err(why),
                Err(why) => {
                    complain(&why);
                    (Vec::new(), false)
                }
                Ok(found) => found,
            };
            whole &= has_all;
            let found = found.into_iter();
            all.extend(found.map(|(place, neighbour)| Found {
                label: label.clone(),
                place,
                neighbour,
            }));
        }
        Ok((all, whole))
    }
}

/// An address space that was found.
pub struct Found {
    /// The machine, if one was named.
    pub label: Option<Label>,
    /// The place at which it was looked for.
    pub place: Place,
    /// Its connection.
    pub neighbour: Neighbour,
}

fn named(own: &Machine, name: &MachineName) -> Result<Host, String> {
    let found = own.machine(name).map_err(|e| e.to_string())?;
    Ok(host(&name.name, found))
}

fn host(name: &str, (machine, epoch): (Machine, Epoch)) -> Host {
    Host { label: Some(Label { machine: name.to_owned(), epoch }), machine }
}

#[cfg(test)]
mod tests {
    use super::super::{One, Target};
    use super::*;

    #[test]
    fn targets_with_machines_are_parsed() {
        let at: At<Target> = "build7/12.42.7".parse().unwrap();
        assert_eq!(at.machine.map(|name| name.name), Some("build7".to_owned()));
        let at: At<One> = "build7@00000000000000ff/12/worker".parse().unwrap();
        assert_eq!(at.to_string(), "build7@00000000000000ff/12/worker");
        let at: At<One> = "12/worker".parse().unwrap();
        assert_eq!((at.machine, at.of), (None, One::Name(12, "worker".to_owned())));
        for (wrong, why) in [
            ("Build7/12.42.7", "not a valid machine name"),
            ("build7@1/12.42.7", "no epoch"),
            ("build7/", ""),
            ("all/12.42.7", "every machine"),
        ] {
            let error = wrong.parse::<At<One>>().expect_err(wrong);
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
