//! `kumi metrics`: metrics of every address space, for Prometheus.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use kumihimo_machine::handler::{Metric, Space};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric as Sample, MetricFamily, MetricType};
use prometheus::{Encoder, TextEncoder};
use serde::Serialize;

use crate::ask::machines::{At, Found, Label, Where};
use crate::ask::{self, Place};
use crate::text::{code, json_line, written};

#[derive(clap::Args)]
pub struct Args {
    /// Address spaces (12), also of another machine (build7/12); all of the user's by default
    #[arg(value_name = "SPACE")]
    spaces: Vec<At<Place>>,
    /// Print one JSON object a line, each a metric of an address space
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    on: Where,
}

/// What an address space has replied.
type Seen = (Option<Label>, Space, Vec<Metric>);

/// Labels that the command adds. An address space's own label of the same name becomes
/// `exported_...`, as in Prometheus itself.
const OURS: [&str; 3] = ["space", "pid", "program"];
/// The label of the machine, if one was named.
const MACHINE: &str = "machine";

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    label: Option<&'a Label>,
    space: u16,
    pid: u32,
    program: &'a str,
    #[serde(flatten)]
    metric: &'a Metric,
}

/// Prints the metrics. Exit code 1 if an address space did not reply, or replied with invalid
/// names.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let (found, mut whole) = args.on.spaces(&args.spaces)?;
    let asked = ask::each(found, |Found { label, place, neighbour }| -> Result<_, ask::Trouble> {
        Ok((label.clone(), ask::space_at(neighbour, *place)?, neighbour.metrics()?))
    });
    let (seen, have_all_answered) = ask::answers(asked);
    whole &= have_all_answered;
    let mut out = BufWriter::new(io::stdout().lock());
    let done = if args.json {
        show_json(&mut out, &seen)
    } else {
        let (families, refused) = families(&seen);
        for why in &refused {
            ask::complain(why);
        }
        whole &= refused.is_empty();
        encode(&mut out, &families)
    };
    written(done.and_then(|()| out.flush()).map(|()| code(whole)))
}

fn show_json(out: &mut impl Write, seen: &[Seen]) -> io::Result<()> {
    for (label, space, metrics) in seen {
        let label = label.as_ref();
        for metric in metrics {
            let (number, pid) = (space.id.location().space(), space.pid);
            json_line(out, &Line { label, space: number, pid, program: &space.program, metric })?;
        }
    }
    Ok(())
}

fn encode(out: &mut impl Write, families: &[MetricFamily]) -> io::Result<()> {
    TextEncoder::new().encode(families, out).map_err(|e| match e {
        prometheus::Error::Io(e) => e,
        other => io::Error::other(other),
    })
}

/// Merges the metrics of all address spaces into families, sorted by name, and lists invalid ones.
/// Help and type are those of the first occurrence.
fn families(seen: &[Seen]) -> (Vec<MetricFamily>, Vec<String>) {
    let mut families: BTreeMap<&str, MetricFamily> = BTreeMap::new();
    let mut refused = Vec::new();
    for (label, space, metrics) in seen {
        let number = space.id.location().space();
        for metric in metrics {
            if !is_name(&metric.name, true) {
                refused.push(format!(
                    "address space {number}: {:?} is not a valid metric name: ignored",
                    metric.name
                ));
                continue;
            }
            if metric.samples.is_empty() {
                continue;
            }
            let family = match families.entry(&metric.name) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(place) => {
                    let mut family = MetricFamily::default();
                    family.set_name(metric.name.clone());
                    family.set_help(metric.help.clone());
                    family.set_field_type(if metric.counter {
                        MetricType::COUNTER
                    } else {
                        MetricType::GAUGE
                    });
                    place.insert(family)
                }
            };
            let counts = family.get_field_type() == MetricType::COUNTER;
            for (labels, value) in &metric.samples {
                match sample(label.as_ref(), space, labels, *value, counts) {
                    Ok(sample) => family.mut_metric().push(sample),
                    Err(label) => refused.push(format!(
                        "address space {number}: {label:?} of {} is not a valid label name: ignored",
                        metric.name
                    )),
                }
            }
        }
    }
    (families.into_values().filter(|family| !family.get_metric().is_empty()).collect(), refused)
}

/// Converts one metric to a sample. Fails with an invalid label.
fn sample<'a>(
    machine: Option<&Label>,
    space: &Space,
    labels: &'a [(String, String)],
    value: f64,
    counts: bool,
) -> Result<Sample, &'a str> {
    let ours =
        [space.id.location().space().to_string(), space.pid.to_string(), space.program.clone()];
    let mut all: Vec<LabelPair> =
        OURS.iter().zip(ours).map(|(name, value)| pair((*name).to_owned(), value)).collect();
    if let Some(machine) = machine {
        all.push(pair(MACHINE.to_owned(), machine.name().to_owned()));
    }
    for (name, value) in labels {
        if !is_name(name, false) {
            return Err(name);
        }
        let is_ours =
            OURS.contains(&name.as_str()) || machine.is_some() && name.as_str() == MACHINE;
        let name = if is_ours { format!("exported_{name}") } else { name.clone() };
        all.push(pair(name, value.clone()));
    }
    let mut sample = Sample::from_label(all);
    if counts {
        let mut counter = Counter::default();
        counter.set_value(value);
        sample.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        sample.set_gauge(gauge);
    }
    Ok(sample)
}

fn pair(name: String, value: String) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name);
    pair.set_value(value);
    pair
}

/// Returns whether `text` is a valid metric name (which may contain colons) or label name.
fn is_name(text: &str, of_metric: bool) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || of_metric && c == ':';
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(number: u16, program: &str) -> Space {
        let text = format!(
            r#"{{"id":"{number}.space.0.1","pid":{number}00,"program":{},"version":"","vps":2,"living":0,"queue":"","policy":"","events":"","locking":""}}"#,
            serde_json::to_string(program).unwrap()
        );
        serde_json::from_str(&text).unwrap()
    }

    fn metric(name: &str, help: &str, counter: bool, samples: &[(&[(&str, &str)], f64)]) -> Metric {
        let owned = |labels: &[(&str, &str)]| {
            labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
        };
        let samples = samples.iter().map(|(labels, value)| (owned(labels), *value)).collect();
        Metric { name: name.to_owned(), help: help.to_owned(), counter, samples }
    }

    fn text(seen: &[Seen]) -> (String, Vec<String>) {
        let (families, refused) = families(seen);
        let mut out = Vec::new();
        encode(&mut out, &families).unwrap();
        (String::from_utf8(out).unwrap(), refused)
    }

    #[test]
    fn metric_family_is_declared_once() {
        let switches = |n| {
            metric(
                "kumihimo_vp_switches_total",
                "Switches.",
                true,
                &[(&[("vp", "0")], n), (&[("vp", "1")], 2.0)],
            )
        };
        let seen = [
            (
                None,
                space(1, "/bin/a"),
                vec![switches(7.0), metric("kumihimo_living", "", false, &[(&[], 0.5)])],
            ),
            (None, space(2, "/bin/b"), vec![switches(1e15)]),
        ];
        let want = "# TYPE kumihimo_living gauge\n\
                    kumihimo_living{space=\"1\",pid=\"100\",program=\"/bin/a\"} 0.5\n\
                    # HELP kumihimo_vp_switches_total Switches.\n\
                    # TYPE kumihimo_vp_switches_total counter\n\
                    kumihimo_vp_switches_total{space=\"1\",pid=\"100\",program=\"/bin/a\",vp=\"0\"} 7\n\
                    kumihimo_vp_switches_total{space=\"1\",pid=\"100\",program=\"/bin/a\",vp=\"1\"} 2\n\
                    kumihimo_vp_switches_total{space=\"2\",pid=\"200\",program=\"/bin/b\",vp=\"0\"} 1000000000000000\n\
                    kumihimo_vp_switches_total{space=\"2\",pid=\"200\",program=\"/bin/b\",vp=\"1\"} 2\n";
        assert_eq!(text(&seen), (want.to_owned(), vec![]));
    }

    #[test]
    fn label_values_are_escaped() {
        let help = "a \\ and\na line";
        let seen = [(
            None,
            space(1, "/a\"b\\c\nd"),
            vec![metric("x", help, false, &[(&[("pid", "\"\n")], 1.0)])],
        )];
        let want = "# HELP x a \\\\ and\\na line\n# TYPE x gauge\n\
                    x{space=\"1\",pid=\"100\",program=\"/a\\\"b\\\\c\\nd\",exported_pid=\"\\\"\\n\"} 1\n";
        assert_eq!(text(&seen), (want.to_owned(), vec![]));
    }

    #[test]
    fn names_invalid_in_prometheus_are_left_out() {
        let seen = [(
            None,
            space(1, "/a"),
            vec![
                metric("no name", "", true, &[(&[], 1.0)]),
                metric("", "", true, &[(&[], 1.0)]),
                metric("x\ny 1", "", true, &[(&[], 1.0)]),
                metric("empty", "", true, &[]),
                metric(
                    "good:1",
                    "",
                    true,
                    &[(&[("bad-label", "v")], 1.0), (&[("9", "v")], 1.0), (&[], 3.0)],
                ),
                metric("bad", "", true, &[(&[("a:b", "v")], 1.0)]),
            ],
        )];
        let (said, refused) = text(&seen);
        assert_eq!(
            said,
            "# TYPE good:1 counter\ngood:1{space=\"1\",pid=\"100\",program=\"/a\"} 3\n"
        );
        assert_eq!(refused.len(), 6, "{refused:?}");
    }
}
