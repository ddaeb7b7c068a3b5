//! Runs the example with a real PostgreSQL.

use std::process::{Command, Stdio};

use kumihimo_tests::process::{Ended, finish};
use kumihimo_tests::servers::Postgres;
use kumihimo_tests::skip;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_sqlx_beside_tokio");
const NAME: &str = "microprocesses_query_a_real_server";

fn run(url: &str) -> Ended {
    let mut command = Command::new(EXAMPLE);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(EXAMPLE, command.spawn().expect("the example"))
}

#[test]
fn microprocesses_query_a_real_server() {
    let Some(server) = Postgres::start(&[]) else {
        return skip(NAME, "no PostgreSQL: apt-get install postgresql");
    };
    let Ended { status, stdout, stderr } = run(&server.url());
    assert!(status.success(), "{status}\n{stdout}\n{stderr}");
    // 200 rows, and the sums of 1..=200 and of its squares.
    assert_eq!(stdout, "rows 200, sum 20100, squares 2686700\n");
}

#[test]
fn missing_server_is_reported() {
    let ended = run("postgres://tester@localhost/postgres?host=/nonexistent");
    assert!(!ended.status.success() && ended.stderr.contains("No such file"), "{ended:?}");
}
