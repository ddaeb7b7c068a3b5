//! TCP.

use std::io::{BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use kumihimo::net::{Shutdown, TcpListener, TcpStream};

use crate::Beside;
use crate::beside::behaviours;

const SOON: Duration = Duration::from_millis(10);

behaviours!(
    bytes_go_both_ways,
    end_of_stream_reads_as_nothing,
    read_of_nothing_returns_nothing,
    write_to_a_gone_peer_fails,
    connect_to_a_closed_port_is_refused,
    connect_without_an_address_is_invalid,
    bind_twice_is_refused,
    bind_to_a_foreign_address_is_refused,
    names_of_both_ends_agree,
    listener_serves_many,
    incoming_yields_connections,
    shutdown_of_writing_ends_the_peers_reading,
    shutdown_of_reading_ends_a_waiting_read,
    clone_shares_the_stream,
    clone_reads_while_another_writes,
    dropped_clone_leaves_the_stream_open,
    accepting_from_a_clone_of_the_listener,
    vectored_read_and_write,
    peek_leaves_the_bytes,
    read_times_out,
    write_times_out,
    timeouts_are_stored,
    timeout_of_zero_is_invalid,
    connect_timeout_of_zero_is_invalid,
    connect_with_a_limit,
    nonblocking_read_would_block,
    nonblocking_accept_would_block,
    options_are_stored,
    stream_formats_with_its_addresses,
    lines_through_a_buffer,
    several_addresses_are_tried,
);

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listen();
    let client = TcpStream::connect(addr).unwrap();
    (client, listener.accept().unwrap().0)
}

fn bytes_go_both_ways(beside: Beside) {
    let (listener, addr) = listen();
    let serves = beside.spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut four = [0; 4];
        stream.read_exact(&mut four).unwrap();
        four.reverse();
        stream.write_all(&four).unwrap();
    });
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(b"abcd").unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"dcba");
    serves.result();
}

fn end_of_stream_reads_as_nothing(beside: Beside) {
    let (client, mut server) = pair();
    beside.spawn(move || drop(client)).result();
    assert_eq!(server.read(&mut [0; 4]).unwrap(), 0);
    assert_eq!(server.read(&mut [0; 4]).unwrap(), 0, "and again");
}

fn read_of_nothing_returns_nothing(_: Beside) {
    let (_client, mut server) = pair();
    assert_eq!(server.read(&mut []).unwrap(), 0);
    assert_eq!(server.write(&[]).unwrap(), 0);
}

fn write_to_a_gone_peer_fails(beside: Beside) {
    let (client, mut server) = pair();
    beside.spawn(move || drop(client)).result();
    let error = loop {
        // The first write is answered by a reset.
        if let Err(e) = server.write(&[1; 100]) {
            break e;
        }
    };
    assert!(matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    ));
}

fn connect_to_a_closed_port_is_refused(_: Beside) {
    let (listener, addr) = listen();
    drop(listener);
    // The port may be taken by another test meanwhile, which then serves or refuses.
    if let Err(e) = TcpStream::connect(addr) {
        assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
    }
    assert!(TcpStream::connect("127.0.0.1:1").is_err());
}

fn connect_without_an_address_is_invalid(_: Beside) {
    let none: [SocketAddr; 0] = [];
    assert_eq!(TcpStream::connect(&none[..]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(TcpListener::bind(&none[..]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(TcpStream::connect("no port").unwrap_err().kind(), ErrorKind::InvalidInput);
}

fn bind_twice_is_refused(beside: Beside) {
    let (_listener, addr) = listen();
    let again = beside.spawn(move || TcpListener::bind(addr).map(drop).unwrap_err().kind());
    assert_eq!(again.result(), ErrorKind::AddrInUse);
}

fn bind_to_a_foreign_address_is_refused(_: Beside) {
    let foreign = TcpListener::bind("192.0.2.1:0").map(drop).unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::AddrNotAvailable);
}

fn names_of_both_ends_agree(_: Beside) {
    let (listener, addr) = listen();
    let client = TcpStream::connect(addr).unwrap();
    let (server, peer) = listener.accept().unwrap();
    assert_eq!((client.peer_addr().unwrap(), server.local_addr().unwrap()), (addr, addr));
    assert_eq!((client.local_addr().unwrap(), server.peer_addr().unwrap()), (peer, peer));
}

fn listener_serves_many(beside: Beside) {
    let (listener, addr) = listen();
    let clients: Vec<_> = (0..8u8)
        .map(|n| {
            beside.spawn(move || {
                let mut stream = TcpStream::connect(addr).unwrap();
                stream.write_all(&[n]).unwrap();
                let mut answer = [0];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [n + 100]);
            })
        })
        .collect();
    for _ in 0..8 {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0];
        stream.read_exact(&mut asked).unwrap();
        stream.write_all(&[asked[0] + 100]).unwrap();
    }
    clients.into_iter().for_each(|client| client.result());
}

fn incoming_yields_connections(beside: Beside) {
    let (listener, addr) = listen();
    let connects = beside.spawn(move || {
        (0..3u8).for_each(|n| TcpStream::connect(addr).unwrap().write_all(&[n]).unwrap());
    });
    for (n, stream) in (0..3).zip(listener.incoming()) {
        let mut all = Vec::new();
        stream.unwrap().read_to_end(&mut all).unwrap();
        assert_eq!(all, [n]);
    }
    connects.result();
}

fn shutdown_of_writing_ends_the_peers_reading(beside: Beside) {
    let (mut client, mut server) = pair();
    let reads = beside.spawn(move || {
        let mut all = String::new();
        server.read_to_string(&mut all).unwrap();
        server.write_all(b"answer").unwrap();
        all
    });
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    assert_eq!((reads.result().as_str(), all.as_str()), ("question", "answer"));
}

fn shutdown_of_reading_ends_a_waiting_read(beside: Beside) {
    let (client, server) = pair();
    let mut clone = client.try_clone().unwrap();
    let reads = beside.spawn(move || clone.read(&mut [0; 9]).unwrap());
    client.shutdown(Shutdown::Read).unwrap();
    assert_eq!(reads.result(), 0);
    drop(server);
}

fn clone_shares_the_stream(beside: Beside) {
    let (client, mut server) = pair();
    let mut clone = client.try_clone().unwrap();
    drop(client);
    beside.spawn(move || clone.write_all(b"by the clone").unwrap()).result();
    let mut all = String::new();
    server.read_to_string(&mut all).unwrap();
    assert_eq!(all, "by the clone");
}

fn clone_reads_while_another_writes(beside: Beside) {
    let (mut client, mut server) = pair();
    let mut clone = client.try_clone().unwrap();
    let reads = beside.spawn(move || {
        let mut byte = [0];
        clone.read_exact(&mut byte).unwrap();
        byte
    });
    client.write_all(&[3]).unwrap();
    let mut byte = [0];
    server.read_exact(&mut byte).unwrap();
    server.write_all(&[byte[0] + 1]).unwrap();
    assert_eq!(reads.result(), [4]);
}

fn dropped_clone_leaves_the_stream_open(_: Beside) {
    let (mut client, mut server) = pair();
    drop(client.try_clone().unwrap());
    client.write_all(&[1]).unwrap();
    server.read_exact(&mut [0]).unwrap();
}

fn accepting_from_a_clone_of_the_listener(beside: Beside) {
    let (listener, addr) = listen();
    let clone = listener.try_clone().unwrap();
    assert_eq!(clone.local_addr().unwrap(), addr);
    drop(listener);
    let accepts = beside.spawn(move || clone.accept().unwrap().1);
    let client = TcpStream::connect(addr).unwrap();
    assert_eq!(accepts.result(), client.local_addr().unwrap());
}

fn vectored_read_and_write(_: Beside) {
    let (mut client, mut server) = pair();
    let parts = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")];
    assert_eq!(client.write_vectored(&parts).unwrap(), 5);
    let (mut first, mut second) = ([0; 1], [0; 4]);
    let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    assert_eq!(server.read_vectored(&mut parts).unwrap(), 5);
    assert_eq!((&first, &second), (b"a", b"bcde"));
}

fn peek_leaves_the_bytes(beside: Beside) {
    let (mut client, mut server) = pair();
    let sends = beside.spawn(move || (client.write_all(b"xyz").unwrap(), client));
    let mut bytes = [0; 3];
    while server.peek(&mut bytes).unwrap() < 3 {}
    assert_eq!(&bytes, b"xyz");
    let mut again = [0; 3];
    server.read_exact(&mut again).unwrap();
    assert_eq!(&again, b"xyz");
    drop(sends.result());
    assert_eq!(server.peek(&mut bytes).unwrap(), 0, "the end");
}

fn read_times_out(_: Beside) {
    let (mut client, mut server) = pair();
    server.set_read_timeout(Some(SOON)).unwrap();
    let begun = Instant::now();
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(begun.elapsed() >= SOON, "it does not end early");
    client.write_all(&[5]).unwrap();
    server.set_read_timeout(None).unwrap();
    let mut byte = [0];
    server.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [5]);
}

fn write_times_out(_: Beside) {
    let (mut client, _server) = pair();
    client.set_write_timeout(Some(SOON)).unwrap();
    let error = loop {
        if let Err(e) = client.write(&[0; 1 << 16]) {
            break e;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

fn timeouts_are_stored(_: Beside) {
    let (client, _server) = pair();
    let clone = client.try_clone().unwrap();
    assert_eq!((client.read_timeout().unwrap(), client.write_timeout().unwrap()), (None, None));
    client.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    client.set_write_timeout(Some(Duration::from_secs(4))).unwrap();
    assert_eq!(clone.read_timeout().unwrap(), Some(Duration::from_secs(3)));
    assert_eq!(clone.write_timeout().unwrap(), Some(Duration::from_secs(4)));
}

fn timeout_of_zero_is_invalid(_: Beside) {
    let (client, _server) = pair();
    let refused = [
        client.set_read_timeout(Some(Duration::ZERO)),
        client.set_write_timeout(Some(Duration::ZERO)),
    ];
    assert!(refused.iter().all(|r| r.as_ref().unwrap_err().kind() == ErrorKind::InvalidInput));
}

fn connect_timeout_of_zero_is_invalid(_: Beside) {
    let (_listener, addr) = listen();
    let refused = TcpStream::connect_timeout(&addr, Duration::ZERO).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

fn connect_with_a_limit(_: Beside) {
    let (listener, addr) = listen();
    let client = TcpStream::connect_timeout(&addr, Duration::from_secs(3600)).unwrap();
    assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());
}

fn nonblocking_read_would_block(_: Beside) {
    let (mut client, mut server) = pair();
    server.set_nonblocking(true).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    server.set_nonblocking(false).unwrap();
    client.write_all(&[1]).unwrap();
    server.read_exact(&mut [0]).unwrap();
}

fn nonblocking_accept_would_block(_: Beside) {
    let (listener, addr) = listen();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().map(drop).unwrap_err().kind(), ErrorKind::WouldBlock);
    listener.set_nonblocking(false).unwrap();
    let _client = TcpStream::connect(addr).unwrap();
    assert!(listener.accept().is_ok());
}

fn options_are_stored(_: Beside) {
    let (client, _server) = pair();
    for on in [true, false] {
        client.set_nodelay(on).unwrap();
        assert_eq!(client.nodelay().unwrap(), on);
    }
    client.set_ttl(33).unwrap();
    assert_eq!(client.ttl().unwrap(), 33);
    for linger in [Some(Duration::from_secs(2)), None] {
        client.set_linger(linger).unwrap();
        assert_eq!(client.linger().unwrap(), linger);
    }
    assert!(client.take_error().unwrap().is_none());
}

fn stream_formats_with_its_addresses(_: Beside) {
    let (client, server) = pair();
    for stream in [client, server] {
        let formatted = format!("{stream:?}");
        assert_eq!(formatted, format!("{:?}", std::net::TcpStream::from(stream)));
    }
}

fn lines_through_a_buffer(beside: Beside) {
    let (client, server) = pair();
    let sends = beside.spawn(move || {
        let mut client = client;
        (0..100).for_each(|n| writeln!(client, "line {n}").unwrap());
    });
    let lines: Vec<String> = BufReader::new(server).lines().map(Result::unwrap).collect();
    assert!(lines.len() == 100 && lines[99] == "line 99");
    sends.result();
}

fn several_addresses_are_tried(_: Beside) {
    let (listener, addr) = listen();
    let addrs = [SocketAddr::from(([127, 0, 0, 1], 1)), addr];
    let client = TcpStream::connect(&addrs[..]).unwrap();
    assert_eq!(client.peer_addr().unwrap(), addr);
    drop(listener);
}
