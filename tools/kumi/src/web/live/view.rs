//! Views: what a page asks for, as JSON in the query of the stream of events.

use kumihimo_machine::locks::MOST_LOCKS;
use kumihimo_machine::top::{MOST_PARTS, TopGroupSort, TopGrouping, TopPart, TopQuery, TopSort};
use serde::{Deserialize, Serialize};

/// Largest number of rows on one page.
pub const MOST_SHOWN: u32 = 500;

/// A view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "show", rename_all = "kebab-case")]
pub enum View {
    /// All address spaces.
    Spaces,
    /// Microprocesses of an address space.
    Microprocesses {
        /// Number of the address space.
        space: u16,
        /// Sort key.
        #[serde(default)]
        sort: TopSort,
        /// Which ones.
        #[serde(flatten)]
        list: List,
    },
    /// Groups of microprocesses of an address space.
    Groups {
        /// Number of the address space.
        space: u16,
        /// What the members of a group have in common.
        by: TopGrouping,
        /// Sort key.
        #[serde(default)]
        sort: TopGroupSort,
        /// Which ones.
        #[serde(flatten)]
        list: List,
    },
    /// Locks of an address space.
    Locks {
        /// Number of the address space.
        space: u16,
        /// Number of locks, and of chains.
        limit: u32,
    },
    /// Histograms of an address space.
    Latency {
        /// Number of the address space.
        space: u16,
    },
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// Whether the order is reversed.
    #[serde(default)]
    backwards: bool,
    /// Only rows that contain this text.
    #[serde(default)]
    filter: String,
    /// Only members of these groups.
    #[serde(default)]
    within: Vec<Part>,
    /// Number of rows before the first one.
    #[serde(default)]
    skip: u32,
    /// Number of rows.
    limit: u32,
}

/// A group. The identity of a stack is text here: a number in a script has 53 bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Part {
    WaitsFor(String),
    Name(String),
    Tree(String),
    Stack(String),
}

impl View {
    /// Reads a view.
    ///
    /// # Errors
    /// A line about what is wrong.
    pub fn parse(text: &str) -> Result<View, String> {
        let view: View = serde_json::from_str(text).map_err(|e| format!("invalid view: {e}"))?;
        if let Some(list) = view.list() {
            if list.limit == 0 || list.limit > MOST_SHOWN {
                return Err(format!("invalid view: limit is 1 to {MOST_SHOWN}"));
            }
            if list.within.len() > MOST_PARTS {
                return Err(format!("invalid view: at most {MOST_PARTS} groups in groups"));
            }
            for part in &list.within {
                part.top()?;
            }
        }
        match &view {
            View::Locks { limit, .. } if !(1..=MOST_LOCKS.min(MOST_SHOWN)).contains(limit) => {
                Err(format!("invalid view: limit is 1 to {MOST_SHOWN}"))
            }
            View::Groups { by: TopGrouping::None, .. } => {
                Err("invalid view: groups have something in common".to_owned())
            }
            _ => Ok(view),
        }
    }

    /// The same text for the same view.
    pub fn key(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Number of the address space, if the view is of one.
    pub fn space(&self) -> Option<u16> {
        match self {
            View::Spaces => None,
            View::Microprocesses { space, .. }
            | View::Groups { space, .. }
            | View::Locks { space, .. }
            | View::Latency { space } => Some(*space),
        }
    }

    fn list(&self) -> Option<&List> {
        match self {
            View::Microprocesses { list, .. } | View::Groups { list, .. } => Some(list),
            _ => None,
        }
    }

    /// The query for this view, if it is one of lists or histograms.
    pub fn query(&self, session: u64) -> Option<TopQuery> {
        let query = TopQuery { session, ..TopQuery::default() };
        let query = match self {
            View::Spaces | View::Locks { .. } => return None,
            View::Latency { .. } => return Some(query),
            View::Microprocesses { sort, .. } => TopQuery { sort: *sort, ..query },
            View::Groups { by, sort, .. } => TopQuery { group: *by, group_sort: *sort, ..query },
        };
        let list = self.list()?;
        Some(TopQuery {
            backwards: list.backwards,
            filter: list.filter.clone(),
            within: list.within.iter().filter_map(|part| part.top().ok()).collect(),
            skip: list.skip,
            limit: list.limit,
            ..query
        })
    }
}

impl Part {
    fn top(&self) -> Result<TopPart, String> {
        Ok(match self {
            Part::WaitsFor(text) => TopPart::WaitsFor(text.clone()),
            Part::Name(text) => TopPart::Name(text.clone()),
            Part::Tree(text) => TopPart::Tree(text.clone()),
            Part::Stack(text) => TopPart::Stack(
                text.parse().map_err(|_| format!("invalid view: {text:?} is no stack"))?,
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_become_queries() {
        let text = r#"{"show":"microprocesses","space":3,"sort":"wait-time","backwards":true,
            "filter":"<script>","within":[{"stack":"18446744073709551615"},{"name":"a"}],
            "skip":100,"limit":50}"#;
        let view = View::parse(text).expect("valid");
        assert_eq!((view.space(), View::parse(&view.key())), (Some(3), Ok(view.clone())));
        let query = view.query(7).expect("a list");
        assert_eq!((query.session, query.sort, query.skip), (7, TopSort::WaitTime, 100));
        assert_eq!((query.limit, query.backwards, query.filter.as_str()), (50, true, "<script>"));
        assert_eq!(query.within, [TopPart::Stack(u64::MAX), TopPart::Name("a".to_owned())]);

        let groups = View::parse(r#"{"show":"groups","space":3,"by":"stack","limit":9}"#);
        let query = groups.expect("valid").query(0).expect("a list");
        assert_eq!((query.group, query.limit), (TopGrouping::Stack, 9));
        assert_eq!(View::parse(r#"{"show":"spaces"}"#).expect("valid").query(0), None);
        let latency = View::parse(r#"{"show":"latency","space":1}"#).expect("valid");
        assert_eq!(latency.query(0).expect("totals").limit, 0);
    }

    #[test]
    fn invalid_views_are_refused() {
        for text in [
            "",
            "[]",
            r#"{"show":"dance"}"#,
            r#"{"show":"latency","space":70000}"#,
            r#"{"show":"latency"}"#,
            r#"{"show":"locks","space":1,"limit":0}"#,
            r#"{"show":"locks","space":1,"limit":501}"#,
            r#"{"show":"microprocesses","space":1}"#,
            r#"{"show":"microprocesses","space":1,"limit":0}"#,
            r#"{"show":"microprocesses","space":1,"limit":501}"#,
            r#"{"show":"microprocesses","space":1,"limit":9,"sort":"beauty"}"#,
            r#"{"show":"microprocesses","space":1,"limit":9,"within":[{"stack":"-1"}]}"#,
            r#"{"show":"groups","space":1,"by":"none","limit":9}"#,
        ] {
            assert!(View::parse(text).is_err(), "{text}");
        }
        let parts = vec![r#"{"name":"a"}"#; MOST_PARTS + 1].join(",");
        let many = format!(r#"{{"show":"microprocesses","space":1,"limit":9,"within":[{parts}]}}"#);
        assert!(View::parse(&many).is_err());
    }
}
