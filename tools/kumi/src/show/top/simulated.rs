//! Simulated address spaces and keys for the tests of `kumi top`.

use std::collections::BTreeMap;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use kumihimo_machine::handler::{Metric, Microprocess, Resource, Space, State};
use kumihimo_machine::top::{TopGroup, TopGrouping, TopPart, TopQuery, TopSort};

use super::answer::Answer;
use super::keys::Wish;
use super::message::{List, Listed, Look, Rows, Sight};
use super::model::Model;
use super::settings::Settings;
use crate::show::ps::example;

/// A simulated address space.
pub struct Program {
    pub number: u16,
    pub living: u64,
    pub rows: Vec<Microprocess>,
    pub metrics: Vec<Metric>,
    pub resources: Vec<Resource>,
    /// False for an older version.
    pub has_counters: bool,
    /// Why it does not reply.
    pub trouble: Option<String>,
    pub generation: u32,
}

impl Program {
    /// An address space with some microprocesses, each given by its slot and state.
    pub fn new(number: u16, living: u64, some: &[(u32, State)]) -> Program {
        let rows = some.iter().map(|(slot, state)| Microprocess {
            name: Some(format!("worker-{slot}")),
            ..example(&format!("{number}.{slot}.1"), *state)
        });
        Program {
            number,
            living,
            rows: rows.collect(),
            metrics: Vec::new(),
            resources: Vec::new(),
            has_counters: true,
            trouble: None,
            generation: 1,
        }
    }

    fn space(&self) -> Space {
        let (number, generation) = (self.number, self.generation);
        let text = format!(
            r#"{{"id":"{number}.space.0.{generation}","pid":{number}00,"program":"/bin/prog{number}","version":"0.1.0","vps":2,"living":{},"queue":"","policy":"","events":"","locking":""}}"#,
            self.living
        );
        serde_json::from_str(&text).expect("a space")
    }

    fn itself(&self) -> Result<(Space, Vec<Metric>), String> {
        match &self.trouble {
            Some(why) => Err(why.clone()),
            None => Ok((self.space(), self.metrics.clone())),
        }
    }

    /// The answer to a query. Groups are by the part of the name before the hyphen, and every such
    /// group has a stack of its own.
    pub fn answer(&self, query: &TopQuery) -> Answer {
        let prefix = |one: &Microprocess| {
            let name = one.name.clone().unwrap_or_default();
            name.split_once('-').map_or(name.clone(), |(prefix, _)| prefix.to_owned())
        };
        let stack = |prefix: &str| prefix.len() as u64;
        let mut all = self.rows.clone();
        for part in &query.within {
            all.retain(|one| match part {
                TopPart::Name(what) | TopPart::Tree(what) => prefix(one) == *what,
                TopPart::WaitsFor(what) => one.waits_for.as_ref() == Some(what),
                TopPart::Stack(of) => stack(&prefix(one)) == *of,
            });
        }
        let mut groups: BTreeMap<String, u64> = BTreeMap::new();
        all.iter().for_each(|one| *groups.entry(prefix(one)).or_default() += 1);
        let mut answer = Answer::from_list(query, all);
        answer.has_counters = self.has_counters;
        if query.group != TopGrouping::None && self.has_counters {
            answer.rows.clear();
            answer.totals.groups = groups.len() as u64;
            let group = |(what, count): (String, u64)| TopGroup {
                stack: (query.group == TopGrouping::Stack).then(|| stack(&what)),
                what: if query.group == TopGrouping::Stack {
                    format!("     0: {what}::wait\n           at a.rs:1\n     1: main\n")
                } else {
                    what
                },
                count,
                cpu: Some(0.5),
                waiting_ns: 1,
                depth: 0,
            };
            let window = groups.into_iter().skip(query.skip as usize).take(query.limit as usize);
            answer.groups = window.map(group).collect();
        }
        answer
    }

    /// The answer to a list that the model wants.
    pub fn listed(&self, list: &List) -> Listed {
        let rows = if list.usage {
            Rows::Usage(self.resources.clone())
        } else {
            Rows::Top(self.answer(&list.query(1, true)))
        };
        Listed { list: list.clone(), rows }
    }
}

/// Queries all, some seconds after the start, and what the model wants then.
pub fn look(model: &mut Model, seconds: u64, programs: &[Program]) {
    let wanted = model.wanted();
    let sights = programs.iter().map(|program| Sight {
        number: program.number,
        itself: Some(program.itself()),
        listed: wanted
            .iter()
            .find(|list| list.number == program.number && program.trouble.is_none())
            .map(|list| program.listed(list)),
    });
    let sights = Ok(sights.collect());
    model.look(Look { at: Duration::from_secs(seconds), sights, board: None, whole: true });
    answer(model, programs);
}

/// Answers what the model wants until it wants nothing else, as the main loop does.
pub fn answer(model: &mut Model, programs: &[Program]) {
    let mut answered = Vec::new();
    loop {
        let wanted = model.wanted();
        if wanted == answered {
            return;
        }
        let sights = wanted.iter().filter_map(|list| {
            let program = programs.iter().find(|program| program.number == list.number)?;
            let listed = program.trouble.is_none().then(|| program.listed(list));
            Some(Sight { number: list.number, itself: None, listed })
        });
        let sights = Ok(sights.collect());
        model.look(Look { at: Duration::ZERO, sights, board: None, whole: false });
        answered = wanted;
    }
}

/// Presses keys: characters, and names of keys in angle brackets.
pub fn press(model: &mut Model, keys: &str) -> Option<Wish> {
    let mut wish = None;
    let mut rest = keys;
    while let Some(c) = rest.chars().next() {
        let named = [
            ("<up>", KeyCode::Up),
            ("<down>", KeyCode::Down),
            ("<left>", KeyCode::Left),
            ("<right>", KeyCode::Right),
            ("<enter>", KeyCode::Enter),
            ("<esc>", KeyCode::Esc),
            ("<back>", KeyCode::Backspace),
            ("<end>", KeyCode::End),
            ("<page>", KeyCode::PageDown),
        ];
        let (code, used) = match named.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, code)) => (*code, name.len()),
            None => (KeyCode::Char(c), c.len_utf8()),
        };
        rest = &rest[used..];
        wish = model.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    wish
}

/// A model of the highest screen that a test needs.
pub fn model() -> Model {
    let mut model = Model::of(Settings { sort: TopSort::Id, ..Settings::default() });
    model.fit(20);
    model
}
