//! Options of `kumi top` that select rows and their order.

use clap::ValueEnum;
use kumihimo_machine::top::{MOST_ROWS, TopGroupSort, TopGrouping, TopSort};

use super::settings::Settings;
use crate::ask::Place;
use crate::ask::machines::At;

/// Number of rows that are printed by default.
const ROWS: u32 = 20;

/// Selection and order of the rows.
#[derive(clap::Args)]
pub struct Shown {
    /// Address spaces (12) or process IDs, also of another machine (build7/12); all of the user's
    /// by default
    #[arg(value_name = "SPACE|PID")]
    pub spaces: Vec<At<Place>>,
    /// Print one screen as text and end
    #[arg(long)]
    pub once: bool,
    /// Print one screen as one JSON object a line and end
    #[arg(long)]
    pub json: bool,
    /// Sort key; numbers sort from the highest down [default: cpu; of groups: count]. Groups have
    /// the keys count, cpu, wait-time and name
    #[arg(long, value_name = "KEY")]
    sort: Option<Sort>,
    /// Reverse the order
    #[arg(long)]
    pub reverse: bool,
    /// Show only microprocesses whose ID, name, state or wait contains this text
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Show groups in place of microprocesses
    #[arg(long, value_name = "BY")]
    group: Option<Grouping>,
    /// Number of rows of each address space that are printed [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROWS)))]
    limit: Option<u32>,
    /// Show histograms of the wake-up latency and the run-queue length of each virtual processor
    #[arg(long)]
    pub histograms: bool,
    /// Account CPU time exactly meanwhile: each switch of the programs reads the clock
    #[arg(long)]
    pub exact: bool,
}

impl Shown {
    /// Whether a screen is printed, rather than shown live.
    pub fn is_printed(&self) -> bool {
        self.once || self.json
    }

    /// Returns an error if an option has no effect on the live screen.
    pub fn check_live(&self) -> Result<(), String> {
        if self.limit.is_some() {
            return Err(
                "--limit needs --once or --json: the live screen shows as many rows as fit"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Returns an error if the sort key is not one of what is shown.
    pub fn check_sort(&self) -> Result<(), String> {
        match (self.sort, self.group) {
            (Some(sort), Some(_)) if sort.of_groups().is_none() => Err(format!(
                "--sort {}: groups have the keys count, cpu, wait-time and name",
                sort.name()
            )),
            (Some(Sort::Count), None) => {
                Err("--sort count: microprocesses have no count; use it with --group".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The sort key of microprocesses, if one was given.
    pub fn sort(&self) -> Option<TopSort> {
        self.sort.filter(|_| self.group.is_none())?.of_microprocesses()
    }

    /// The order of groups, if one was given.
    pub fn group_sort(&self) -> Option<TopGroupSort> {
        self.sort.filter(|_| self.group.is_some())?.of_groups()
    }

    /// The grouping, if one was given.
    pub fn group(&self) -> Option<TopGrouping> {
        self.group.map(TopGrouping::from)
    }

    /// Number of rows to print.
    pub fn limit(&self) -> u32 {
        self.limit.unwrap_or(ROWS)
    }

    /// Replaces remembered settings by the options that were given.
    pub fn replace(&self, settings: &mut Settings) {
        settings.sort = self.sort().unwrap_or(settings.sort);
        settings.group_sort = self.group_sort().unwrap_or(settings.group_sort);
        settings.backwards |= self.reverse;
        if let Some(group) = self.group() {
            settings.group = group;
            settings.usage = false;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Cpu,
    Id,
    Name,
    State,
    Priority,
    Vp,
    WaitsFor,
    WaitTime,
    Switches,
    Stack,
    Count,
}

impl Sort {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn of_microprocesses(self) -> Option<TopSort> {
        Some(match self {
            Sort::Cpu => TopSort::Cpu,
            Sort::Id => TopSort::Id,
            Sort::Name => TopSort::Name,
            Sort::State => TopSort::State,
            Sort::Priority => TopSort::Priority,
            Sort::Vp => TopSort::Vp,
            Sort::WaitsFor => TopSort::WaitsFor,
            Sort::WaitTime => TopSort::WaitTime,
            Sort::Switches => TopSort::Switches,
            Sort::Stack => TopSort::Stack,
            Sort::Count => return None,
        })
    }

    fn of_groups(self) -> Option<TopGroupSort> {
        Some(match self {
            Sort::Count => TopGroupSort::Count,
            Sort::Cpu => TopGroupSort::Cpu,
            Sort::WaitTime => TopGroupSort::WaitTime,
            Sort::Name => TopGroupSort::What,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Grouping {
    /// By the object of the wait
    WaitsFor,
    /// By the name without the number at its end
    Name,
    /// By the same names as a tree: http/conn is below http
    Tree,
    /// By stack
    Stack,
}

impl From<Grouping> for TopGrouping {
    fn from(grouping: Grouping) -> TopGrouping {
        match grouping {
            Grouping::WaitsFor => TopGrouping::WaitsFor,
            Grouping::Name => TopGrouping::Name,
            Grouping::Tree => TopGrouping::Tree,
            Grouping::Stack => TopGrouping::Stack,
        }
    }
}
