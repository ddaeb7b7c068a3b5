//! Runs the tools that come with Redis against Kumihimo's server.

mod beside;

use std::process::{Command, Stdio};

use beside::Served;

/// Returns whether `tool` is installed. Reports `test` as skipped otherwise.
fn is_here(test: &str, tool: &str) -> bool {
    let here = Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !here {
        kumihimo_tests::skip(test, &format!("no {tool} (apt-get install redis-tools)"));
    }
    here
}

fn cli(server: &Served, args: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(["-p", &server.port.to_string()])
        .args(args)
        .output()
        .expect("redis-cli");
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn redis_cli() {
    if !is_here("redis_cli", "redis-cli") {
        return;
    }
    let server = Served::start(&[]);
    for (args, said) in [
        (&["set", "a", "1"][..], "OK\n"),
        (&["incr", "a"], "2\n"),
        (&["--no-raw", "get", "a"], "\"2\"\n"),
        (&["--no-raw", "get", "b"], "(nil)\n"),
        (&["--no-raw", "lpush", "l", "x", "y"], "(integer) 2\n"),
        (&["--no-raw", "lrange", "l", "0", "-1"], "1) \"y\"\n2) \"x\"\n"),
        (&["-3", "--no-raw", "config", "get", "databases"], "1# \"databases\" => \"16\"\n"),
        (&["-3", "--no-raw", "get", "b"], "(nil)\n"),
        (
            &["--no-raw", "incr", "l"],
            "(error) WRONGTYPE Operation against a key holding the wrong kind of value\n",
        ),
        (&["-n", "3", "dbsize"], "0\n"),
        (&["--scan", "--pattern", "a*"], "a\n"),
    ] {
        let output = Command::new("redis-cli")
            .args(["-p", &server.port.to_string()])
            .args(args)
            .output()
            .expect("redis-cli");
        assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{args:?}");
    }
    let commands = cli(&server, &["command", "count"]).trim().parse::<usize>().expect("a number");
    assert_eq!(cli(&server, &["command", "list"]).lines().count(), commands);
    assert!(
        cli(&server, &["command", "docs", "get"]).contains("Returns the string value of a key")
    );
    assert!(cli(&server, &["info", "keyspace"]).contains("db0:keys=2,expires=0"));
    assert!(cli(&server, &["client", "list"]).contains("cmd=client"));
    cli(&server, &["shutdown"]);
    assert!(server.ended().0.success());
}

/// Runs every benchmark of `redis-benchmark` that the server supports, with the given pipeline
/// depth.
fn benchmark(test: &str, pipeline: &str) {
    if !is_here(test, "redis-benchmark") {
        return;
    }
    let server = Served::start(&[]);
    let tests = "ping,set,get,incr,lpush,rpush,lpop,rpop,lrange,mset";
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port.to_string(), "-t", tests, "-n", "2000", "-P", pipeline, "-q"])
        .output()
        .expect("redis-benchmark");
    let said = String::from_utf8_lossy(&output.stdout).replace('\r', "\n");
    assert!(output.status.success(), "{output:?}");
    for name in [
        "PING_INLINE",
        "PING_MBULK",
        "SET",
        "GET",
        "INCR",
        "LPUSH",
        "RPUSH",
        "LPOP",
        "RPOP",
        "LRANGE_100",
        "LRANGE_300",
        "LRANGE_500",
        "LRANGE_600",
        "MSET (10 keys)",
    ] {
        let line = said
            .lines()
            .find(|line| line.starts_with(name) && line.contains("requests per second"));
        assert!(line.is_some(), "{name}: {said}");
    }
    assert!(!said.to_lowercase().contains("error"), "{said}");
    assert!(!String::from_utf8_lossy(&output.stderr).to_lowercase().contains("err"), "{output:?}");
}

#[test]
fn redis_benchmark() {
    benchmark("redis_benchmark", "1");
}

#[test]
fn redis_benchmark_with_pipelines() {
    benchmark("redis_benchmark_with_pipelines", "16");
}
