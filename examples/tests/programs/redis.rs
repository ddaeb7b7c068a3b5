//! Tests of `redis_client` with a real server.

use std::net::{TcpListener, TcpStream};

use kumihimo_tests::skip;

use crate::program::{Folder, Server, is_installed, output, run};

const CLIENT: &str = env!("CARGO_BIN_EXE_redis_client");

#[test]
fn words_are_counted_in_a_redis_server() {
    if !is_installed("redis-server") {
        return skip(
            "words_are_counted_in_a_redis_server",
            "no redis-server: apt-get install redis-server",
        );
    }
    let folder = Folder::new("redis");
    // Redis cannot choose a free port itself. The test picks one and tries again if another process
    // takes it in between.
    let (_server, address) = loop {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = address.port().to_string();
        let settings = [
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            &folder.file(""),
        ];
        let mut server = Server::start("redis-server", &settings);
        // Read the log until the server listens or ends.
        let ready = loop {
            let line = server.line();
            if line.contains("Ready to accept connections") || (line.is_empty() && !server.is_up())
            {
                break !line.is_empty();
            }
        };
        if ready {
            break (server, address.to_string());
        }
    };
    for _ in 0..3 {
        assert_eq!(output(CLIENT, &[&address]), "many 100\ntimes 50\nwords 50\n");
    }
}

#[test]
fn missing_server_is_reported() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(TcpStream::connect(closed).is_err());
    let refused = run(CLIENT, &[&closed.to_string()]);
    assert!(!refused.status.success() && refused.stderr.contains("refused"), "{refused:?}");
}
