//! Gates between two processes of one container.

use std::io::{BufRead, BufReader, Read, Write};

use kumihimo::gate::Gate;
use kumihimo::thread;
use kumihimo_tests::container::is_inside;
use kumihimo_tests::process::{has_vps, start};

use crate::in_each;

const NAME: &str = "gates::calls_between_processes_return_their_replies";

#[test]
fn calls_between_processes_return_their_replies() {
    if std::env::var("KUMI_TEST_SIDE").is_ok() {
        return serve();
    }
    if !is_inside() && !has_vps(NAME) {
        return;
    }
    in_each(NAME, || {
        let mut server = start(NAME, &[("KUMI_TEST_SIDE", "server")]);
        let mut lines = BufReader::new(server.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("serving") {
            line.clear();
            if lines.read_line(&mut line).expect("it writes") == 0 {
                let mut said = String::new();
                let _ = server.stderr.take().expect("a pipe").read_to_string(&mut said);
                panic!("the server ended: {said}");
            }
        }
        let adder = Gate::<(u64, u64), u64>::connect("container-adder").expect("it is there");
        for i in 0..1000 {
            assert_eq!(adder.call(&(i, 1)).expect("a reply"), i + 1);
        }
        // The server ends with its input.
        drop(server.stdin.take());
        let ended = thread::blocking(|| server.wait_with_output()).expect("it ends");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    });
}

fn serve() {
    let _serving = Gate::serve("container-adder", |(a, b): (u64, u64)| a + b).expect("it serves");
    println!("serving");
    std::io::stdout().flush().expect("standard output is open");
    thread::blocking(|| {
        let _ = std::io::stdin().read(&mut [0]);
    });
}
