//! std 1.95's documentation examples for UnixDatagram. See main.rs.

pub fn unix_datagram_overview() {
    use kumihimo::net::unix::UnixDatagram;

    fn main() -> std::io::Result<()> {
        let socket = UnixDatagram::bind("/path/to/my/socket")?;
        socket.send_to(b"hello world", "/path/to/other/socket")?;
        let mut buf = [0; 100];
        let (count, address) = socket.recv_from(&mut buf)?;
        println!("socket {:?} sent {:?}", address, &buf[..count]);
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_bind() {
    use kumihimo::net::unix::UnixDatagram;

    let sock = match UnixDatagram::bind("/path/to/the/socket") {
        Ok(sock) => sock,
        Err(e) => {
            println!("Couldn't bind: {e:?}");
            return
        }
    };
}

pub fn unix_datagram_bind_addr() {
    use kumihimo::net::unix::{UnixDatagram};

    fn main() -> std::io::Result<()> {
        let sock1 = UnixDatagram::bind("path/to/socket")?;
        let addr = sock1.local_addr()?;

        let sock2 = match UnixDatagram::bind_addr(&addr) {
            Ok(sock) => sock,
            Err(err) => {
                println!("Couldn't bind: {err:?}");
                return Err(err);
            }
        };
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_unbound() {
    use kumihimo::net::unix::UnixDatagram;

    let sock = match UnixDatagram::unbound() {
        Ok(sock) => sock,
        Err(e) => {
            println!("Couldn't unbound: {e:?}");
            return
        }
    };
}

pub fn unix_datagram_pair() {
    use kumihimo::net::unix::UnixDatagram;

    let (sock1, sock2) = match UnixDatagram::pair() {
        Ok((sock1, sock2)) => (sock1, sock2),
        Err(e) => {
            println!("Couldn't unbound: {e:?}");
            return
        }
    };
}

pub fn unix_datagram_connect() {
    use kumihimo::net::unix::UnixDatagram;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        match sock.connect("/path/to/the/socket") {
            Ok(sock) => sock,
            Err(e) => {
                println!("Couldn't connect: {e:?}");
                return Err(e)
            }
        };
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_connect_addr() {
    use kumihimo::net::unix::{UnixDatagram};

    fn main() -> std::io::Result<()> {
        let bound = UnixDatagram::bind("/path/to/socket")?;
        let addr = bound.local_addr()?;

        let sock = UnixDatagram::unbound()?;
        match sock.connect_addr(&addr) {
            Ok(sock) => sock,
            Err(e) => {
                println!("Couldn't connect: {e:?}");
                return Err(e)
            }
        };
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_try_clone() {
    use kumihimo::net::unix::UnixDatagram;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::bind("/path/to/the/socket")?;
        let sock_copy = sock.try_clone().expect("try_clone failed");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_local_addr() {
    use kumihimo::net::unix::UnixDatagram;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::bind("/path/to/the/socket")?;
        let addr = sock.local_addr().expect("Couldn't get local address");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_peer_addr() {
    use kumihimo::net::unix::UnixDatagram;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        sock.connect("/path/to/the/socket")?;

        let addr = sock.peer_addr().expect("Couldn't get peer address");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_recv_from() {
    use kumihimo::net::unix::UnixDatagram;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        let mut buf = vec![0; 10];
        let (size, sender) = sock.recv_from(buf.as_mut_slice())?;
        println!("received {size} bytes from {sender:?}");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_recv() {
    use kumihimo::net::unix::UnixDatagram;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::bind("/path/to/the/socket")?;
        let mut buf = vec![0; 10];
        sock.recv(buf.as_mut_slice()).expect("recv function failed");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_send_to() {
    use kumihimo::net::unix::UnixDatagram;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        sock.send_to(b"omelette au fromage", "/some/sock").expect("send_to function failed");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_send_to_addr() {
    use kumihimo::net::unix::{UnixDatagram};

    fn main() -> std::io::Result<()> {
        let bound = UnixDatagram::bind("/path/to/socket")?;
        let addr = bound.local_addr()?;

        let sock = UnixDatagram::unbound()?;
        sock.send_to_addr(b"bacon egg and cheese", &addr).expect("send_to_addr function failed");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_send() {
    use kumihimo::net::unix::UnixDatagram;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        sock.connect("/some/sock").expect("Couldn't connect");
        sock.send(b"omelette au fromage").expect("send_to function failed");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_set_read_timeout() {
    use kumihimo::net::unix::UnixDatagram;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        sock.set_read_timeout(Some(Duration::new(1, 0)))
            .expect("set_read_timeout function failed");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_set_read_timeout_2() {
    use std::io;
    use kumihimo::net::unix::UnixDatagram;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        let result = socket.set_read_timeout(Some(Duration::new(0, 0)));
        let err = result.unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::InvalidInput);
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_set_write_timeout() {
    use kumihimo::net::unix::UnixDatagram;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        sock.set_write_timeout(Some(Duration::new(1, 0)))
            .expect("set_write_timeout function failed");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_set_write_timeout_2() {
    use std::io;
    use kumihimo::net::unix::UnixDatagram;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        let result = socket.set_write_timeout(Some(Duration::new(0, 0)));
        let err = result.unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::InvalidInput);
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_read_timeout() {
    use kumihimo::net::unix::UnixDatagram;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        sock.set_read_timeout(Some(Duration::new(1, 0)))
            .expect("set_read_timeout function failed");
        assert_eq!(sock.read_timeout()?, Some(Duration::new(1, 0)));
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_write_timeout() {
    use kumihimo::net::unix::UnixDatagram;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        sock.set_write_timeout(Some(Duration::new(1, 0)))
            .expect("set_write_timeout function failed");
        assert_eq!(sock.write_timeout()?, Some(Duration::new(1, 0)));
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_set_nonblocking() {
    use kumihimo::net::unix::UnixDatagram;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        sock.set_nonblocking(true).expect("set_nonblocking function failed");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_take_error() {
    use kumihimo::net::unix::UnixDatagram;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        if let Ok(Some(err)) = sock.take_error() {
            println!("Got error: {err:?}");
        }
        Ok(())
    }
    main().unwrap()
}

pub fn unix_datagram_shutdown() {
    use kumihimo::net::unix::UnixDatagram;
    use kumihimo::net::Shutdown;

    fn main() -> std::io::Result<()> {
        let sock = UnixDatagram::unbound()?;
        sock.shutdown(Shutdown::Both).expect("shutdown function failed");
        Ok(())
    }
    main().unwrap()
}
