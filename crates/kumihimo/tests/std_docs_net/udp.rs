//! std 1.95's documentation examples for UdpSocket. See main.rs.

pub fn udp_socket_overview() {
    use kumihimo::net::UdpSocket;

    fn main() -> std::io::Result<()> {
        {
            let socket = UdpSocket::bind("127.0.0.1:34254")?;

            // Receives a single datagram message on the socket. If `buf` is too small to hold
            // the message, it will be cut off.
            let mut buf = [0; 10];
            let (amt, src) = socket.recv_from(&mut buf)?;

            // Redeclare `buf` as slice of the received data and send reverse data back to origin.
            let buf = &mut buf[..amt];
            buf.reverse();
            socket.send_to(buf, &src)?;
        } // the socket is closed here
        Ok(())
    }
    main().unwrap()
}

pub fn udp_socket_bind() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:3400").expect("couldn't bind to address");
}

pub fn udp_socket_bind_2() {
    use kumihimo::net::{SocketAddr, UdpSocket};

    let addrs = [
        SocketAddr::from(([127, 0, 0, 1], 3400)),
        SocketAddr::from(([127, 0, 0, 1], 3401)),
    ];
    let socket = UdpSocket::bind(&addrs[..]).expect("couldn't bind to address");
}

pub fn udp_socket_bind_3() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
}

pub fn udp_socket_recv_from() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    let mut buf = [0; 10];
    let (number_of_bytes, src_addr) = socket.recv_from(&mut buf)
                                            .expect("Didn't receive data");
    let filled_buf = &mut buf[..number_of_bytes];
}

pub fn udp_socket_peek_from() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    let mut buf = [0; 10];
    let (number_of_bytes, src_addr) = socket.peek_from(&mut buf)
                                            .expect("Didn't receive data");
    let filled_buf = &mut buf[..number_of_bytes];
}

pub fn udp_socket_send_to() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.send_to(&[0; 10], "127.0.0.1:4242").expect("couldn't send data");
}

pub fn udp_socket_peer_addr() {
    use kumihimo::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.connect("192.168.0.1:41203").expect("couldn't connect to address");
    assert_eq!(socket.peer_addr().unwrap(),
               SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 168, 0, 1), 41203)));
}

pub fn udp_socket_peer_addr_2() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    assert_eq!(socket.peer_addr().unwrap_err().kind(),
               std::io::ErrorKind::NotConnected);
}

pub fn udp_socket_local_addr() {
    use kumihimo::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    assert_eq!(socket.local_addr().unwrap(),
               SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 34254)));
}

pub fn udp_socket_try_clone() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    let socket_clone = socket.try_clone().expect("couldn't clone the socket");
}

pub fn udp_socket_set_read_timeout() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_read_timeout(None).expect("set_read_timeout call failed");
}

pub fn udp_socket_set_read_timeout_2() {
    use std::io;
    use kumihimo::net::UdpSocket;
    use std::time::Duration;

    let socket = UdpSocket::bind("127.0.0.1:34254").unwrap();
    let result = socket.set_read_timeout(Some(Duration::new(0, 0)));
    let err = result.unwrap_err();
    assert_eq!(err.kind(), io::ErrorKind::InvalidInput)
}

pub fn udp_socket_set_write_timeout() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_write_timeout(None).expect("set_write_timeout call failed");
}

pub fn udp_socket_set_write_timeout_2() {
    use std::io;
    use kumihimo::net::UdpSocket;
    use std::time::Duration;

    let socket = UdpSocket::bind("127.0.0.1:34254").unwrap();
    let result = socket.set_write_timeout(Some(Duration::new(0, 0)));
    let err = result.unwrap_err();
    assert_eq!(err.kind(), io::ErrorKind::InvalidInput)
}

pub fn udp_socket_read_timeout() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_read_timeout(None).expect("set_read_timeout call failed");
    assert_eq!(socket.read_timeout().unwrap(), None);
}

pub fn udp_socket_write_timeout() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_write_timeout(None).expect("set_write_timeout call failed");
    assert_eq!(socket.write_timeout().unwrap(), None);
}

pub fn udp_socket_set_broadcast() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_broadcast(false).expect("set_broadcast call failed");
}

pub fn udp_socket_broadcast() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_broadcast(false).expect("set_broadcast call failed");
    assert_eq!(socket.broadcast().unwrap(), false);
}

pub fn udp_socket_set_multicast_loop_v4() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_multicast_loop_v4(false).expect("set_multicast_loop_v4 call failed");
}

pub fn udp_socket_multicast_loop_v4() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_multicast_loop_v4(false).expect("set_multicast_loop_v4 call failed");
    assert_eq!(socket.multicast_loop_v4().unwrap(), false);
}

pub fn udp_socket_set_multicast_ttl_v4() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_multicast_ttl_v4(42).expect("set_multicast_ttl_v4 call failed");
}

pub fn udp_socket_multicast_ttl_v4() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_multicast_ttl_v4(42).expect("set_multicast_ttl_v4 call failed");
    assert_eq!(socket.multicast_ttl_v4().unwrap(), 42);
}

pub fn udp_socket_set_multicast_loop_v6() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_multicast_loop_v6(false).expect("set_multicast_loop_v6 call failed");
}

pub fn udp_socket_multicast_loop_v6() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_multicast_loop_v6(false).expect("set_multicast_loop_v6 call failed");
    assert_eq!(socket.multicast_loop_v6().unwrap(), false);
}

pub fn udp_socket_set_ttl() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_ttl(42).expect("set_ttl call failed");
}

pub fn udp_socket_ttl() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.set_ttl(42).expect("set_ttl call failed");
    assert_eq!(socket.ttl().unwrap(), 42);
}

pub fn udp_socket_take_error() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    match socket.take_error() {
        Ok(Some(error)) => println!("UdpSocket error: {error:?}"),
        Ok(None) => println!("No error"),
        Err(error) => println!("UdpSocket.take_error failed: {error:?}"),
    }
}

pub fn udp_socket_connect() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:3400").expect("couldn't bind to address");
    socket.connect("127.0.0.1:8080").expect("connect function failed");
}

pub fn udp_socket_send() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.connect("127.0.0.1:8080").expect("connect function failed");
    socket.send(&[0, 1, 2]).expect("couldn't send message");
}

pub fn udp_socket_recv() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.connect("127.0.0.1:8080").expect("connect function failed");
    let mut buf = [0; 10];
    match socket.recv(&mut buf) {
        Ok(received) => println!("received {received} bytes {:?}", &buf[..received]),
        Err(e) => println!("recv function failed: {e:?}"),
    }
}

pub fn udp_socket_peek() {
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:34254").expect("couldn't bind to address");
    socket.connect("127.0.0.1:8080").expect("connect function failed");
    let mut buf = [0; 10];
    match socket.peek(&mut buf) {
        Ok(received) => println!("received {received} bytes"),
        Err(e) => println!("peek function failed: {e:?}"),
    }
}

pub fn udp_socket_set_nonblocking() {
    fn wait_for_fd() { kumihimo::thread::yield_now() }
    use std::io;
    use kumihimo::net::UdpSocket;

    let socket = UdpSocket::bind("127.0.0.1:7878").unwrap();
    socket.set_nonblocking(true).unwrap();

    let mut buf = [0; 10];
    let (num_bytes_read, _) = loop {
        match socket.recv_from(&mut buf) {
            Ok(n) => break n,
            Err(ref e) if e.kind() == io::ErrorKind::WouldBlock => {
                // wait until network socket is ready, typically implemented
                // via platform-specific APIs such as epoll or IOCP
                wait_for_fd();
            }
            Err(e) => panic!("encountered IO error: {e}"),
        }
    };
    println!("bytes: {:?}", &buf[..num_bytes_read]);
}
