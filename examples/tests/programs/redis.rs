//! Tests of `redis_client` with a real server.

use std::net::{TcpListener, TcpStream};

use kumihimo_tests::servers::Redis;
use kumihimo_tests::skip;

use crate::program::{output, run};

const CLIENT: &str = env!("CARGO_BIN_EXE_redis_client");

#[test]
fn words_are_counted_in_a_redis_server() {
    let Some(server) = Redis::start() else {
        return skip(
            "words_are_counted_in_a_redis_server",
            "no redis-server: apt-get install redis-server",
        );
    };
    for _ in 0..3 {
        assert_eq!(output(CLIENT, &[server.address()]), "many 100\ntimes 50\nwords 50\n");
    }
}

#[test]
fn missing_server_is_reported() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(TcpStream::connect(closed).is_err());
    let refused = run(CLIENT, &[&closed.to_string()]);
    assert!(!refused.status.success() && refused.stderr.contains("refused"), "{refused:?}");
}
