//! Answers to the queries of `kumi top`.

use kumihimo_machine::handler::Microprocess;
use kumihimo_machine::top::{TopGroup, TopItem, TopQuery, TopRow, TopSort, TopTotals};

use crate::show::ps::{Key, STATES};
use crate::text::short;

/// The answer of one address space.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Totals over all that pass the filter.
    pub totals: TopTotals,
    /// Microprocesses from the position that was requested.
    pub rows: Vec<TopRow>,
    /// Groups from that position, if groups were requested.
    pub groups: Vec<TopGroup>,
    /// Whether the address space counts. An older version does not: it has no groups either.
    pub has_counters: bool,
}

impl Answer {
    /// Collects the parts of an answer.
    pub fn of(items: Vec<TopItem>) -> Answer {
        let mut answer = Answer { has_counters: true, ..Answer::default() };
        for item in items {
            match item {
                TopItem::Totals(totals) => answer.totals = totals,
                TopItem::Row(row) => answer.rows.push(*row),
                TopItem::Group(group) => answer.groups.push(group),
            }
        }
        answer
    }

    /// Answers a query from the whole list, for an address space of an older version. Groups are
    /// not made, and counters are unknown.
    pub fn from_list(query: &TopQuery, mut all: Vec<Microprocess>) -> Answer {
        let mut totals = TopTotals { living: all.len() as u64, ..TopTotals::default() };
        let filter = query.filter.to_lowercase();
        all.retain(|one| contains(one, &filter));
        totals.matching = all.len() as u64;
        for (count, state) in totals.states.iter_mut().zip(STATES) {
            *count = all.iter().filter(|one| one.state == state).count() as u64;
        }
        let key = match query.sort {
            TopSort::Name => Key::Name,
            TopSort::State => Key::State,
            TopSort::Priority => Key::Priority,
            TopSort::Vp => Key::Vp,
            TopSort::WaitsFor => Key::WaitsFor,
            TopSort::Id | TopSort::Cpu | TopSort::WaitTime | TopSort::Switches | TopSort::Stack => {
                Key::Id
            }
        };
        key.sort(&mut all);
        if query.backwards {
            all.reverse();
        }
        if let Some(find) = &query.find {
            let text = find.text.to_lowercase();
            let mut from = all.iter().enumerate().skip(find.from as usize);
            totals.found = from.find(|(_, one)| contains(one, &text)).map(|(at, _)| at as u64);
        }
        let window = all.into_iter().skip(query.skip as usize).take(query.limit as usize);
        let rows = window.map(uncounted).collect();
        Answer { totals, rows, groups: Vec::new(), has_counters: false }
    }
}

/// A row without counters.
fn uncounted(microprocess: Microprocess) -> TopRow {
    TopRow {
        microprocess,
        cpu: None,
        cpu_ns: 0,
        switch_rate: None,
        switches: 0,
        preemptions: 0,
        waiting_ns: None,
        waits: Vec::new(),
        wake_latency_ns: None,
        stack_bytes: None,
    }
}

/// Returns whether a row contains a text, which is in lower case.
fn contains(one: &Microprocess, text: &str) -> bool {
    let texts = [one.name.as_deref(), one.waits_for.as_deref()];
    texts.into_iter().flatten().any(|part| part.to_lowercase().contains(text))
        || one.state.to_string().contains(text)
        || short(one.id).to_string().contains(text)
}

#[cfg(test)]
mod tests {
    use kumihimo_machine::handler::State;
    use kumihimo_machine::top::TopFind;

    use super::*;
    use crate::show::ps::example;

    #[test]
    fn list_of_an_older_version_is_sorted_filtered_and_searched() {
        let all: Vec<Microprocess> = (0..9)
            .map(|slot| Microprocess {
                name: Some(format!("Worker-{}", 9 - slot)),
                ..example(&format!("3.{slot}.1"), State::Waiting)
            })
            .chain([example("3.20.1", State::Running)])
            .collect();
        let query = TopQuery {
            sort: TopSort::Name,
            filter: "WORKER".to_owned(),
            find: Some(TopFind { text: "r-7".to_owned(), from: 2 }),
            skip: 1,
            limit: 2,
            ..TopQuery::default()
        };
        let answer = Answer::from_list(&query, all.clone());
        let names: Vec<_> =
            answer.rows.iter().filter_map(|row| row.microprocess.name.as_deref()).collect();
        assert_eq!(names, ["Worker-2", "Worker-3"]);
        let totals = &answer.totals;
        assert_eq!((totals.living, totals.matching, totals.found), (10, 9, Some(6)));
        assert_eq!((totals.states, answer.has_counters), ([0, 0, 9, 0, 0], false));
        let beyond = TopFind { text: "r-7".to_owned(), from: 7 };
        let query = TopQuery { find: Some(beyond), limit: 100, backwards: true, ..query };
        let answer = Answer::from_list(&query, all);
        assert_eq!((answer.totals.found, answer.rows.len()), (None, 8));
        assert_eq!(answer.rows[0].microprocess.name.as_deref(), Some("Worker-8"));
    }
}
