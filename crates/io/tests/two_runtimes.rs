//! A socket outlives the runtime in which it first waited; the set that its descriptor was in does
//! not.

use std::io::{Read, Write};

use kumihimo_io::net::{TcpListener, TcpStream};
use kumihimo_runtime::runtime::Runtime;
use kumihimo_runtime::thread;

#[test]
fn socket_can_wait_in_a_later_runtime() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let mut kept: Vec<(TcpStream, TcpStream)> = Vec::new();
    // The number of VPs changes, so that a set of another runtime has the same index, or there is
    // none with it.
    for vps in [2, 1, 3, 1] {
        let runtime = Runtime::builder().vps(vps).build().unwrap();
        runtime.run(|| {
            // Both wait before they have what they wait for.
            thread::scope(|s| {
                let accepting = s.spawn(|| listener.accept().unwrap().0);
                let client = s.spawn(move || {
                    let mut client = TcpStream::connect(addr).unwrap();
                    client.read_exact(&mut [0]).unwrap();
                    client
                });
                let mut served = accepting.join().unwrap();
                served.write_all(b"x").unwrap();
                kept.push((client.join().unwrap(), served));
            });
            for (client, served) in &mut kept {
                thread::scope(|s| {
                    s.spawn(|| client.read_exact(&mut [0]).unwrap());
                    thread::yield_now();
                    served.write_all(b"y").unwrap();
                });
            }
        });
    }
    // On a plain thread as well.
    for (mut client, mut served) in kept {
        client.write_all(b"z").unwrap();
        served.read_exact(&mut [0]).unwrap();
    }
}
