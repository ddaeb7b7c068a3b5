//! std 1.95's documentation examples for UnixStream and UnixListener. See main.rs.

pub fn unix_stream_overview() {
    use kumihimo::net::unix::UnixStream;
    use std::io::prelude::*;

    fn main() -> std::io::Result<()> {
        let mut stream = UnixStream::connect("/path/to/my/socket")?;
        stream.write_all(b"hello world")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        println!("{response}");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_connect() {
    use kumihimo::net::unix::UnixStream;

    let socket = match UnixStream::connect("/tmp/sock") {
        Ok(sock) => sock,
        Err(e) => {
            println!("Couldn't connect: {e:?}");
            return
        }
    };
}

pub fn unix_stream_connect_addr() {
    use kumihimo::net::unix::{UnixListener, UnixStream};

    fn main() -> std::io::Result<()> {
        let listener = UnixListener::bind("/path/to/the/socket")?;
        let addr = listener.local_addr()?;

        let sock = match UnixStream::connect_addr(&addr) {
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

pub fn unix_stream_pair() {
    use kumihimo::net::unix::UnixStream;

    let (sock1, sock2) = match UnixStream::pair() {
        Ok((sock1, sock2)) => (sock1, sock2),
        Err(e) => {
            println!("Couldn't create a pair of sockets: {e:?}");
            return
        }
    };
}

pub fn unix_stream_try_clone() {
    use kumihimo::net::unix::UnixStream;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        let sock_copy = socket.try_clone().expect("Couldn't clone socket");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_local_addr() {
    use kumihimo::net::unix::UnixStream;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        let addr = socket.local_addr().expect("Couldn't get local address");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_peer_addr() {
    use kumihimo::net::unix::UnixStream;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        let addr = socket.peer_addr().expect("Couldn't get peer address");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_set_read_timeout() {
    use kumihimo::net::unix::UnixStream;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        socket.set_read_timeout(Some(Duration::new(1, 0))).expect("Couldn't set read timeout");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_set_read_timeout_2() {
    use std::io;
    use kumihimo::net::unix::UnixStream;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        let result = socket.set_read_timeout(Some(Duration::new(0, 0)));
        let err = result.unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::InvalidInput);
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_set_write_timeout() {
    use kumihimo::net::unix::UnixStream;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        socket.set_write_timeout(Some(Duration::new(1, 0)))
            .expect("Couldn't set write timeout");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_set_write_timeout_2() {
    use std::io;
    use kumihimo::net::unix::UnixStream;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        let result = socket.set_write_timeout(Some(Duration::new(0, 0)));
        let err = result.unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::InvalidInput);
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_read_timeout() {
    use kumihimo::net::unix::UnixStream;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        socket.set_read_timeout(Some(Duration::new(1, 0))).expect("Couldn't set read timeout");
        assert_eq!(socket.read_timeout()?, Some(Duration::new(1, 0)));
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_write_timeout() {
    use kumihimo::net::unix::UnixStream;
    use std::time::Duration;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        socket.set_write_timeout(Some(Duration::new(1, 0)))
            .expect("Couldn't set write timeout");
        assert_eq!(socket.write_timeout()?, Some(Duration::new(1, 0)));
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_set_nonblocking() {
    use kumihimo::net::unix::UnixStream;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        socket.set_nonblocking(true).expect("Couldn't set nonblocking");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_take_error() {
    use kumihimo::net::unix::UnixStream;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        if let Ok(Some(err)) = socket.take_error() {
            println!("Got error: {err:?}");
        }
        Ok(())
    }
    main().unwrap()
}

pub fn unix_stream_shutdown() {
    use kumihimo::net::unix::UnixStream;
    use kumihimo::net::Shutdown;

    fn main() -> std::io::Result<()> {
        let socket = UnixStream::connect("/tmp/sock")?;
        socket.shutdown(Shutdown::Both).expect("shutdown function failed");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_listener_overview() {
    use kumihimo::thread;
    use kumihimo::net::unix::{UnixStream, UnixListener};

    fn handle_client(stream: UnixStream) {
        // ...
    }

    fn main() -> std::io::Result<()> {
        let listener = UnixListener::bind("/path/to/the/socket")?;

        // accept connections and process them, spawning a new thread for each one
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => {
                    /* connection succeeded */
                    thread::spawn(|| handle_client(stream));
                }
                Err(err) => {
                    /* connection failed */
                    break;
                }
            }
        }
        Ok(())
    }
    main().unwrap()
}

pub fn unix_listener_bind() {
    use kumihimo::net::unix::UnixListener;

    let listener = match UnixListener::bind("/path/to/the/socket") {
        Ok(sock) => sock,
        Err(e) => {
            println!("Couldn't connect: {e:?}");
            return
        }
    };
}

pub fn unix_listener_bind_addr() {
    use kumihimo::net::unix::{UnixListener};

    fn main() -> std::io::Result<()> {
        let listener1 = UnixListener::bind("path/to/socket")?;
        let addr = listener1.local_addr()?;

        let listener2 = match UnixListener::bind_addr(&addr) {
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

pub fn unix_listener_accept() {
    use kumihimo::net::unix::UnixListener;

    fn main() -> std::io::Result<()> {
        let listener = UnixListener::bind("/path/to/the/socket")?;

        match listener.accept() {
            Ok((socket, addr)) => println!("Got a client: {addr:?}"),
            Err(e) => println!("accept function failed: {e:?}"),
        }
        Ok(())
    }
    main().unwrap()
}

pub fn unix_listener_try_clone() {
    use kumihimo::net::unix::UnixListener;

    fn main() -> std::io::Result<()> {
        let listener = UnixListener::bind("/path/to/the/socket")?;
        let listener_copy = listener.try_clone().expect("try_clone failed");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_listener_local_addr() {
    use kumihimo::net::unix::UnixListener;

    fn main() -> std::io::Result<()> {
        let listener = UnixListener::bind("/path/to/the/socket")?;
        let addr = listener.local_addr().expect("Couldn't get local address");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_listener_set_nonblocking() {
    use kumihimo::net::unix::UnixListener;

    fn main() -> std::io::Result<()> {
        let listener = UnixListener::bind("/path/to/the/socket")?;
        listener.set_nonblocking(true).expect("Couldn't set non blocking");
        Ok(())
    }
    main().unwrap()
}

pub fn unix_listener_take_error() {
    use kumihimo::net::unix::UnixListener;

    fn main() -> std::io::Result<()> {
        let listener = UnixListener::bind("/tmp/sock")?;

        if let Ok(Some(err)) = listener.take_error() {
            println!("Got error: {err:?}");
        }
        Ok(())
    }
    main().unwrap()
}

pub fn unix_listener_incoming() {
    use kumihimo::thread;
    use kumihimo::net::unix::{UnixStream, UnixListener};

    fn handle_client(stream: UnixStream) {
        // ...
    }

    fn main() -> std::io::Result<()> {
        let listener = UnixListener::bind("/path/to/the/socket")?;

        for stream in listener.incoming() {
            match stream {
                Ok(stream) => {
                    thread::spawn(|| handle_client(stream));
                }
                Err(err) => {
                    break;
                }
            }
        }
        Ok(())
    }
    main().unwrap()
}
