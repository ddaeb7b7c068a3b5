//! Rows: results under one combination of keys.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::stats::{Summary, summary};

/// Combination of keys that identifies a row. Each appears once in a report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    pub bench: String,
    pub metric: String,
    pub runtime: String,
    pub variant: String,
    pub queue: String,
    pub vps: usize,
    pub keys: BTreeMap<String, String>,
}

/// A line that a contender printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub identity: Identity,
    pub value: f64,
    pub unit: String,
    pub notes: BTreeMap<String, String>,
}

impl Sample {
    /// Parses `metric value unit [key=value ...] [key:=value ...]`. Runtime, variant, queue and vps
    /// are those of `from`, unless the line contains other values.
    pub fn parse(line: &str, from: &Identity) -> Result<Self, String> {
        let bad = || format!("not a sample: {line:?}");
        let mut words = line.split_whitespace();
        let metric = words.next().ok_or_else(bad)?.to_owned();
        let value: f64 = words
            .next()
            .and_then(|v| v.parse().ok())
            .filter(|v: &f64| v.is_finite())
            .ok_or_else(bad)?;
        let unit = words.next().ok_or_else(bad)?.to_owned();
        let mut identity = Identity { metric, ..from.clone() };
        let mut notes = BTreeMap::new();
        for word in words {
            if let Some((key, note)) = word.split_once(":=") {
                notes.insert(key.to_owned(), note.to_owned());
                continue;
            }
            let (key, text) = word.split_once('=').ok_or_else(bad)?;
            match key {
                "runtime" => identity.runtime = text.to_owned(),
                "variant" => identity.variant = text.to_owned(),
                "queue" => identity.queue = text.to_owned(),
                "vps" => identity.vps = text.parse().map_err(|_| bad())?,
                _ => {
                    identity.keys.insert(key.to_owned(), text.to_owned());
                }
            }
        }
        Ok(Sample { identity, value, unit, notes })
    }
}

/// A row: an identity with the results of its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub identity: Identity,
    pub unit: String,
    pub summary: Summary,
    /// Values of all samples in the order of the rounds.
    pub values: Vec<f64>,
    pub notes: BTreeMap<String, String>,
}

impl Row {
    /// A flat JSON object of strings and numbers.
    pub fn json(&self) -> Value {
        let id = &self.identity;
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| {
            let taken = object.insert(key.to_owned(), value);
            assert!(taken.is_none(), "{key} occurs twice in a row of {}", id.bench);
        };
        put("bench", id.bench.as_str().into());
        put("metric", id.metric.as_str().into());
        put("runtime", id.runtime.as_str().into());
        put("variant", id.variant.as_str().into());
        put("queue", id.queue.as_str().into());
        put("vps", id.vps.into());
        put("unit", self.unit.as_str().into());
        put("median", self.summary.median.into());
        put("min", self.summary.min.into());
        put("max", self.summary.max.into());
        put("runs", self.summary.runs.into());
        for (key, text) in id.keys.iter().chain(&self.notes) {
            put(key, number_or_text(text));
        }
        Value::Object(object)
    }

    /// Keys and notes as one line, for tables.
    pub fn remarks(&self) -> String {
        let pairs = self.identity.keys.iter().chain(&self.notes);
        pairs.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    }
}

fn number_or_text(text: &str) -> Value {
    if let Ok(n) = text.parse::<i64>() {
        return n.into();
    }
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() => n.into(),
        _ => text.into(),
    }
}

/// Samples by identity, in the order of first occurrence.
#[derive(Debug, Default)]
pub struct Rows {
    order: Vec<Identity>,
    samples: BTreeMap<Identity, Vec<Sample>>,
}

impl Rows {
    /// Adds a sample to its row.
    pub fn add(&mut self, sample: Sample) -> Result<(), String> {
        let samples = self.samples.entry(sample.identity.clone()).or_default();
        match samples.first() {
            None => self.order.push(sample.identity.clone()),
            Some(first) if first.unit != sample.unit => {
                return Err(format!(
                    "{:?} in {} and in {}",
                    sample.identity, first.unit, sample.unit
                ));
            }
            Some(_) => {}
        }
        samples.push(sample);
        Ok(())
    }

    /// All rows. If a note differs between runs, the smallest number is used: `alive_max` must hold
    /// in every run.
    pub fn rows(&self) -> Vec<Row> {
        let row = |identity: &Identity| {
            let samples = &self.samples[identity];
            let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
            let mut notes = BTreeMap::new();
            for (key, text) in samples.iter().flat_map(|s| &s.notes) {
                notes
                    .entry(key.clone())
                    .and_modify(|old: &mut String| {
                        let smaller = matches!((old.parse::<f64>(), text.parse::<f64>()), (Ok(a), Ok(b)) if b < a);
                        if smaller {
                            old.clone_from(text);
                        }
                    })
                    .or_insert_with(|| text.clone());
            }
            Row {
                identity: identity.clone(),
                unit: samples[0].unit.clone(),
                summary: summary(&values).expect("a row has a sample"),
                values,
                notes,
            }
        };
        self.order.iter().map(row).collect()
    }

    /// All samples in the order of arrival, for the raw data of a report.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.order.iter().flat_map(|identity| &self.samples[identity])
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn from(bench: &str, runtime: &str, vps: usize) -> Identity {
        Identity {
            bench: bench.into(),
            metric: String::new(),
            runtime: runtime.into(),
            variant: "full".into(),
            queue: "ring".into(),
            vps,
            keys: BTreeMap::new(),
        }
    }

    #[test]
    fn valid_line_is_parsed() {
        let s = Sample::parse(
            "total 0.5 s order=child alive_max:=7 runtime=floor",
            &from("skynet", "go", 2),
        )
        .unwrap();
        assert_eq!((s.identity.metric.as_str(), s.value, s.unit.as_str()), ("total", 0.5, "s"));
        assert_eq!(s.identity.runtime, "floor");
        assert_eq!(s.identity.keys["order"], "child");
        assert_eq!(s.notes["alive_max"], "7");
        assert!(!s.identity.keys.contains_key("alive_max"));
    }

    #[test]
    fn invalid_lines_are_refused() {
        for line in ["", "total", "total x s", "total NaN s", "total 1", "total 1 s word"] {
            assert!(Sample::parse(line, &from("b", "go", 1)).is_err(), "{line}");
        }
    }

    #[test]
    fn each_combination_of_keys_is_one_row() {
        let mut rows = Rows::default();
        for line in ["a 1 ns", "a 3 ns", "a 2 ns k=1", "a 5 ns alive_max:=9", "b 1 s"] {
            rows.add(Sample::parse(line, &from("x", "go", 1)).unwrap()).unwrap();
        }
        let rows = rows.rows();
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].summary.median, rows[0].summary.runs), (3.0, 3));
        assert_eq!(rows[0].notes["alive_max"], "9");
        let mut keys: Vec<_> = rows.iter().map(|r| r.identity.clone()).collect();
        keys.dedup();
        assert_eq!(keys.len(), 3);
    }

    #[test]
    fn second_unit_of_a_row_is_an_error() {
        let mut rows = Rows::default();
        rows.add(Sample::parse("a 1 ns", &from("x", "go", 1)).unwrap()).unwrap();
        assert!(rows.add(Sample::parse("a 1 s", &from("x", "go", 1)).unwrap()).is_err());
    }

    #[test]
    fn smallest_value_of_a_note_is_kept() {
        let mut rows = Rows::default();
        for line in ["a 1 ns alive_max:=100", "a 1 ns alive_max:=99"] {
            rows.add(Sample::parse(line, &from("x", "go", 1)).unwrap()).unwrap();
        }
        assert_eq!(rows.rows()[0].notes["alive_max"], "99");
    }

    #[test]
    fn json_is_flat() {
        let mut rows = Rows::default();
        rows.add(Sample::parse("a 1.5 ns order=child n=3", &from("x", "go", 1)).unwrap()).unwrap();
        let json = rows.rows()[0].json();
        let object = json.as_object().unwrap();
        assert!(object.values().all(|v| v.is_string() || v.is_number()));
        let keys: Vec<_> = object.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "bench", "metric", "runtime", "variant", "queue", "vps", "unit", "median", "min",
                "max", "runs", "n", "order"
            ]
        );
        assert_eq!(object["n"], 3);
    }
}
