//! Examples of clients, with the servers that they are for.

use std::net::TcpListener;

use kumihimo_tests::servers::{Postgres, Redis};
use kumihimo_tests::skip;

use crate::held::{Held, failure};

const REDIS: &str = env!("CARGO_BIN_EXE_unmodified_redis");
const R2D2: &str = env!("CARGO_BIN_EXE_unmodified_r2d2");
const POSTGRES: &str = env!("CARGO_BIN_EXE_unmodified_postgres");

fn redis(test: &str) -> Option<(Redis, String)> {
    let server = Redis::start();
    if server.is_none() {
        skip(test, "no redis-server: apt-get install redis-server");
    }
    server.map(|server| {
        let url = format!("redis://{}/", server.address());
        (server, url)
    })
}

#[test]
fn thousand_connections_wait_in_redis() {
    let Some((_server, url)) = redis("thousand_connections_wait_in_redis") else { return };
    let mut program = Held::start(REDIS, &[&url]);
    program.assert_waits("1000 waiting in BLPOP");
    let rest = "Enter gives them work.\nThe sum of the replies is 500500.\n";
    assert_eq!(program.release(), rest);
}

#[test]
fn thousand_threads_wait_in_a_pool_of_r2d2() {
    let Some((_server, url)) = redis("thousand_threads_wait_in_a_pool_of_r2d2") else { return };
    let mut program = Held::start(R2D2, &[&url]);
    program.assert_waits("1000 waiting in Pool::get");
    let rest = "Enter returns the connections.\n1000 increments over 8 connections\n";
    assert_eq!(program.release(), rest);
}

#[test]
fn thousand_sessions_wait_in_postgres() {
    let Some(server) = Postgres::start(&["max_connections=1010"]) else {
        return skip(
            "thousand_sessions_wait_in_postgres",
            "no PostgreSQL: apt-get install postgresql",
        );
    };
    let mut program = Held::start(POSTGRES, &[&server.url()]);
    program.assert_waits("1000 waiting in epoll_wait");
    let rest = "Enter releases the lock.\n1000 processes of the server had the lock.\n";
    assert_eq!(program.release(), rest);
}

#[test]
fn missing_servers_are_reported() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for program in [REDIS, R2D2] {
        let trouble = failure(program, &[&format!("redis://{closed}/")]);
        assert!(trouble.contains("refused"), "{trouble}");
    }
    let url = format!("postgres://tester@{closed}/postgres");
    let trouble = failure(POSTGRES, &[&url]);
    assert!(trouble.contains("refused"), "{trouble}");
}
