//! The page "A slow server, step by step" of the book: each of its commands finds its fault in the
//! example `slow_server`.

use std::process::Child;

use kumihimo_tests::process::{is_child, start};
use kumihimo_tests::until;
use serde_json::Value;

use super::double::Folder;
use super::real::one_to_one;

#[path = "../../../../examples/src/bin/slow_server.rs"]
mod slow_server;

const TEST: &str = "slow::faults_of_the_example_are_found_as_the_book_says";

/// The server, until it is dropped.
struct Slow(Child);

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command until its output satisfies `is`: it may come before the server has begun.
fn shows(folder: &Folder, args: &[&str], is: impl Fn(&str) -> bool) {
    let mut said = String::new();
    let looks = || {
        let (code, out, complaints) = folder.kumi(args);
        said = format!("{out}{complaints}");
        code == 0 && is(&out)
    };
    until(&args.join(" "), || (), looks);
    assert!(!said.is_empty());
}

fn values(json: &str) -> Vec<Value> {
    json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The groups of `kumi top --json` in their order, with their count.
fn groups(json: &str) -> Vec<(String, u64)> {
    let group = |value: &Value| {
        let group = value.get("group")?;
        Some((group["what"].as_str()?.to_owned(), group["count"].as_u64()?))
    };
    values(json).iter().filter_map(group).collect()
}

/// The stacks of a folded profile that contain a function and end in an object of a wait, and their
/// part of the whole.
fn part(folded: &str, has: &str) -> f64 {
    let stacks: Vec<(&str, f64)> = folded
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(stack, weight)| (stack, weight.parse().expect("a weight")))
        .collect();
    let total: f64 = stacks.iter().map(|(_, weight)| weight).sum();
    let of: f64 =
        stacks.iter().filter(|(stack, _)| stack.contains(has)).map(|(_, weight)| weight).sum();
    of / total
}

#[test]
fn faults_of_the_example_are_found_as_the_book_says() {
    if is_child(TEST) {
        return slow_server::main().expect("it runs until it is killed");
    }
    if one_to_one(TEST) {
        return;
    }
    let folder = Folder::new("slow");
    let server = Slow(start(TEST, &[("KUMI_DIR", folder.path().to_str().expect("text"))]));
    let pid = server.0.id().to_string();

    // 1. Which microprocess computes?
    shows(&folder, &["top", "--json", "--sort", "cpu", "--limit", "1", &pid], |out| {
        let rows = values(out);
        let first = rows.iter().find_map(|row| row.get("microprocess"));
        first.is_some_and(|row| row["name"] == "report")
    });
    // 2. For what do the others wait?
    let by_name = ["top", "--json", "--group", "name", "--sort", "wait-time", &pid];
    shows(&folder, &by_name, |out| {
        let all = groups(out);
        let has = |name: &str, n| all.contains(&(name.to_owned(), n));
        has("audit", 40) && has("order", 24) && has("report", 1)
    });
    let by_wait = ["top", "--json", "--group", "waits-for", "--sort", "count", &pid];
    shows(&folder, &by_wait, |out| {
        groups(out).first().is_some_and(|(what, _)| what.contains("mutex"))
    });
    // 3. What holds the lock, and what does the holder do?
    shows(&folder, &["locks", &pid], |out| {
        let line = out.lines().find(|line| line.starts_with("mutex"));
        line.is_some_and(|line| line.contains("(flush)") && line.contains("clock"))
    });
    // 4. Where in the code do they wait?
    let off_cpu = ["profile", "--off-cpu", "--seconds", "2", "--format", "folded", &pid];
    shows(&folder, &off_cpu, |out| {
        let (lock, peer) = (part(out, "write_entry"), part(out, "ask_for_price"));
        out.contains("[mutex]") && out.contains("[descriptor]") && lock > 0.3 && peer > 0.2
    });
    // 5. Where does the first one compute?
    let cpu = ["profile", "--seconds", "2", "--format", "folded", &pid];
    shows(&folder, &cpu, |out| part(out, "summarise") > 0.5);
}
