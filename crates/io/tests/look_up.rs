//! A look-up of a name may take seconds, so it leaves the virtual processor to others; a numeric
//! address needs none.

use std::net::{Ipv4Addr, SocketAddr};

use kumihimo_io::net::{TcpListener, TcpStream, UdpSocket};
use kumihimo_runtime::runtime::{Runtime, metrics};
use kumihimo_runtime::thread;

/// With one kernel thread there is no spare, and each call that would need one is counted.
fn left_the_vp() -> u64 {
    metrics().expect("it runs").blocking_inline
}

#[test]
fn numeric_addresses_are_not_looked_up() {
    Runtime::builder().vps(1).max_kernel_threads(1).build().expect("a runtime").run(|| {
        if !thread::current().is_microprocess() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("numeric");
        let at = listener.local_addr().expect("bound");
        let SocketAddr::V4(v4) = at else { panic!("asked for IPv4") };
        let (text, borrowed) = (at.to_string(), &at);
        let connected = [
            TcpStream::connect(at),
            TcpStream::connect(borrowed),
            TcpStream::connect(v4),
            TcpStream::connect(&[at][..]),
            TcpStream::connect((Ipv4Addr::LOCALHOST, at.port())),
            TcpStream::connect((at.ip(), at.port())),
            TcpStream::connect(&*text),
            TcpStream::connect(&text),
            TcpStream::connect(text.clone()),
            TcpStream::connect(("127.0.0.1", at.port())),
            TcpStream::connect((String::from("127.0.0.1"), at.port())),
        ];
        for stream in connected {
            assert_eq!(stream.expect("it listens").peer_addr().expect("connected"), at);
        }
        drop(TcpListener::bind("[::1]:0"));
        let udp = UdpSocket::bind("127.0.0.1:0").expect("numeric");
        udp.send_to(b"x", at).expect("sent");
        udp.send_to(b"x", &*text).expect("sent");
        udp.connect(at).expect("numeric");
        assert_eq!(left_the_vp(), 0);

        let name = format!("localhost:{}", at.port());
        for (n, stream) in
            [TcpStream::connect(&*name), TcpStream::connect(("localhost", at.port()))]
                .into_iter()
                .enumerate()
        {
            drop(stream.expect("localhost has a name"));
            assert!(left_the_vp() > n as u64, "a name is looked up");
        }
        let before = left_the_vp();
        udp.send_to(b"x", &*name).expect("localhost has a name");
        udp.connect(("localhost", at.port())).expect("localhost has a name");
        drop(UdpSocket::bind("localhost:0").expect("localhost has a name"));
        assert_eq!(left_the_vp(), before + 3);
        assert!(TcpStream::connect("127.0.0.1").is_err(), "no port");
    });
}
