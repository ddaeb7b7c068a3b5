//! std 1.95's documentation examples for TcpStream and TcpListener. See main.rs.

pub fn tcp_stream_overview() {
    use std::io::prelude::*;
    use kumihimo::net::TcpStream;

    fn main() -> std::io::Result<()> {
        let mut stream = TcpStream::connect("127.0.0.1:34254")?;

        stream.write(&[1])?;
        stream.read(&mut [0; 128])?;
        Ok(())
    } // the stream is closed here
    main().unwrap()
}

pub fn tcp_stream_connect() {
    use kumihimo::net::TcpStream;

    if let Ok(stream) = TcpStream::connect("127.0.0.1:8080") {
        println!("Connected to the server!");
    } else {
        println!("Couldn't connect to server...");
    }
}

pub fn tcp_stream_connect_2() {
    use kumihimo::net::{SocketAddr, TcpStream};

    let addrs = [
        SocketAddr::from(([127, 0, 0, 1], 8080)),
        SocketAddr::from(([127, 0, 0, 1], 8081)),
    ];
    if let Ok(stream) = TcpStream::connect(&addrs[..]) {
        println!("Connected to the server!");
    } else {
        println!("Couldn't connect to server...");
    }
}

pub fn tcp_stream_peer_addr() {
    use kumihimo::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    assert_eq!(stream.peer_addr().unwrap(),
               SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 8080)));
}

pub fn tcp_stream_local_addr() {
    use kumihimo::net::{IpAddr, Ipv4Addr, TcpStream};

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    assert_eq!(stream.local_addr().unwrap().ip(),
               IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)));
}

pub fn tcp_stream_shutdown() {
    use kumihimo::net::{Shutdown, TcpStream};

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    stream.shutdown(Shutdown::Both).expect("shutdown call failed");
}

pub fn tcp_stream_try_clone() {
    use kumihimo::net::TcpStream;

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    let stream_clone = stream.try_clone().expect("clone failed...");
}

pub fn tcp_stream_set_read_timeout() {
    use kumihimo::net::TcpStream;

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    stream.set_read_timeout(None).expect("set_read_timeout call failed");
}

pub fn tcp_stream_set_read_timeout_2() {
    use std::io;
    use kumihimo::net::TcpStream;
    use std::time::Duration;

    let stream = TcpStream::connect("127.0.0.1:8080").unwrap();
    let result = stream.set_read_timeout(Some(Duration::new(0, 0)));
    let err = result.unwrap_err();
    assert_eq!(err.kind(), io::ErrorKind::InvalidInput);
}

pub fn tcp_stream_set_write_timeout() {
    use kumihimo::net::TcpStream;

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    stream.set_write_timeout(None).expect("set_write_timeout call failed");
}

pub fn tcp_stream_set_write_timeout_2() {
    use std::io;
    use kumihimo::net::TcpStream;
    use std::time::Duration;

    let stream = TcpStream::connect("127.0.0.1:8080").unwrap();
    let result = stream.set_write_timeout(Some(Duration::new(0, 0)));
    let err = result.unwrap_err();
    assert_eq!(err.kind(), io::ErrorKind::InvalidInput);
}

pub fn tcp_stream_read_timeout() {
    use kumihimo::net::TcpStream;

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    stream.set_read_timeout(None).expect("set_read_timeout call failed");
    assert_eq!(stream.read_timeout().unwrap(), None);
}

pub fn tcp_stream_write_timeout() {
    use kumihimo::net::TcpStream;

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    stream.set_write_timeout(None).expect("set_write_timeout call failed");
    assert_eq!(stream.write_timeout().unwrap(), None);
}

pub fn tcp_stream_peek() {
    use kumihimo::net::TcpStream;

    let stream = TcpStream::connect("127.0.0.1:8000")
                           .expect("Couldn't connect to the server...");
    let mut buf = [0; 10];
    let len = stream.peek(&mut buf).expect("peek failed");
}

pub fn tcp_stream_set_nodelay() {
    use kumihimo::net::TcpStream;

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    stream.set_nodelay(true).expect("set_nodelay call failed");
}

pub fn tcp_stream_nodelay() {
    use kumihimo::net::TcpStream;

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    stream.set_nodelay(true).expect("set_nodelay call failed");
    assert_eq!(stream.nodelay().unwrap_or(false), true);
}

pub fn tcp_stream_set_ttl() {
    use kumihimo::net::TcpStream;

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    stream.set_ttl(100).expect("set_ttl call failed");
}

pub fn tcp_stream_ttl() {
    use kumihimo::net::TcpStream;

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    stream.set_ttl(100).expect("set_ttl call failed");
    assert_eq!(stream.ttl().unwrap_or(0), 100);
}

pub fn tcp_stream_take_error() {
    use kumihimo::net::TcpStream;

    let stream = TcpStream::connect("127.0.0.1:8080")
                           .expect("Couldn't connect to the server...");
    stream.take_error().expect("No error was expected...");
}

pub fn tcp_stream_set_nonblocking() {
    fn wait_for_fd() {}
    use std::io::{self, Read};
    use kumihimo::net::TcpStream;

    let mut stream = TcpStream::connect("127.0.0.1:7878")
        .expect("Couldn't connect to the server...");
    stream.set_nonblocking(true).expect("set_nonblocking call failed");

    let mut buf = vec![];
    loop {
        match stream.read_to_end(&mut buf) {
            Ok(_) => break,
            Err(ref e) if e.kind() == io::ErrorKind::WouldBlock => {
                // wait until network socket is ready, typically implemented
                // via platform-specific APIs such as epoll or IOCP
                wait_for_fd();
            }
            Err(e) => panic!("encountered IO error: {e}"),
        };
    };
    println!("bytes: {buf:?}");
}

pub fn tcp_listener_overview() {
    use kumihimo::net::{TcpListener, TcpStream};

    fn handle_client(stream: TcpStream) {
        // ...
    }

    fn main() -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:80")?;

        // accept connections and process them serially
        for stream in listener.incoming() {
            handle_client(stream?);
        }
        Ok(())
    }
    main().unwrap()
}

pub fn tcp_listener_bind() {
    use kumihimo::net::TcpListener;

    let listener = TcpListener::bind("127.0.0.1:80").unwrap();
}

pub fn tcp_listener_bind_2() {
    use kumihimo::net::{SocketAddr, TcpListener};

    let addrs = [
        SocketAddr::from(([127, 0, 0, 1], 80)),
        SocketAddr::from(([127, 0, 0, 1], 443)),
    ];
    let listener = TcpListener::bind(&addrs[..]).unwrap();
}

pub fn tcp_listener_bind_3() {
    use kumihimo::net::TcpListener;

    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
}

pub fn tcp_listener_local_addr() {
    use kumihimo::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};

    let listener = TcpListener::bind("127.0.0.1:8080").unwrap();
    assert_eq!(listener.local_addr().unwrap(),
               SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 8080)));
}

pub fn tcp_listener_try_clone() {
    use kumihimo::net::TcpListener;

    let listener = TcpListener::bind("127.0.0.1:8080").unwrap();
    let listener_clone = listener.try_clone().unwrap();
}

pub fn tcp_listener_accept() {
    use kumihimo::net::TcpListener;

    let listener = TcpListener::bind("127.0.0.1:8080").unwrap();
    match listener.accept() {
        Ok((_socket, addr)) => println!("new client: {addr:?}"),
        Err(e) => println!("couldn't get client: {e:?}"),
    }
}

pub fn tcp_listener_incoming() {
    use kumihimo::net::{TcpListener, TcpStream};

    fn handle_connection(stream: TcpStream) {
       //...
    }

    fn main() -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:80")?;

        for stream in listener.incoming() {
            match stream {
                Ok(stream) => {
                    handle_connection(stream);
                }
                Err(e) => { /* connection failed */ }
            }
        }
        Ok(())
    }
    main().unwrap()
}

pub fn tcp_listener_set_ttl() {
    use kumihimo::net::TcpListener;

    let listener = TcpListener::bind("127.0.0.1:80").unwrap();
    listener.set_ttl(100).expect("could not set TTL");
}

pub fn tcp_listener_ttl() {
    use kumihimo::net::TcpListener;

    let listener = TcpListener::bind("127.0.0.1:80").unwrap();
    listener.set_ttl(100).expect("could not set TTL");
    assert_eq!(listener.ttl().unwrap_or(0), 100);
}

pub fn tcp_listener_take_error() {
    use kumihimo::net::TcpListener;

    let listener = TcpListener::bind("127.0.0.1:80").unwrap();
    listener.take_error().expect("No error was expected");
}

pub fn tcp_listener_set_nonblocking() {
    fn handle_connection(stream: kumihimo::net::TcpStream) {}
    fn wait_for_fd() {}
    use std::io;
    use kumihimo::net::TcpListener;

    let listener = TcpListener::bind("127.0.0.1:7878").unwrap();
    listener.set_nonblocking(true).expect("Cannot set non-blocking");

    for stream in listener.incoming() {
        match stream {
            Ok(s) => {
                // do something with the TcpStream
                handle_connection(s);
            }
            Err(ref e) if e.kind() == io::ErrorKind::WouldBlock => {
                // wait until network socket is ready, typically implemented
                // via platform-specific APIs such as epoll or IOCP
                wait_for_fd();
                continue;
            }
            Err(e) => panic!("encountered IO error: {e}"),
        }
    }
}
