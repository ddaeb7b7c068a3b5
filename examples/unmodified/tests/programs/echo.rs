//! The program of the book's guide.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::held::Held;

/// Within the usual soft limit of descriptors, which the clients share with the other tests.
const COUNT: u32 = 400;

#[test]
fn connections_wait_in_the_guides_program_on_few_kernel_threads() {
    let mut server = Held::start(env!("CARGO_BIN_EXE_unmodified_echo"), &["127.0.0.1:0"]);
    let address = server.line().strip_prefix("listening on ").expect("an address").to_owned();
    // Each is served before the next one comes: std's listener lets 128 wait for accept(2), and of
    // more, Linux may reset some.
    let connections: Vec<TcpStream> = (0..COUNT)
        .map(|number| {
            let mut stream = TcpStream::connect(&address).expect("it listens");
            stream.write_all(&number.to_le_bytes()).expect("it reads");
            let mut reply = [0; 4];
            stream.read_exact(&mut reply).expect("it replies");
            assert_eq!(reply, number.to_le_bytes());
            stream
        })
        .collect();
    // Each connection has a thread, which waits in read(2).
    server.wait_for_few_kernel_threads();
    drop(connections);
    server.kill();
}
