//! getaddrinfo(3) with a slow name server.

use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Once};
use std::time::Duration;

use crate::case::case;
use crate::fuse::own_mounts;

/// Address of the name.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

/// A loopback address for this process only: port 53 may be in use on the others.
fn server_address() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | high, middle, low)
}

/// Mounts a file with this text over `path`, for this process.
fn put_over(path: &str, text: &str) {
    let own = std::env::temp_dir().join(format!("kumihimo-names-{}", std::process::id()));
    std::fs::write(&own, text).expect("a file");
    let (from, to) = (
        CString::new(own.to_str().expect("UTF-8")).expect("no NUL"),
        CString::new(path).expect("no NUL"),
    );
    // SAFETY: strings that live on; null where mount(2) ignores the argument.
    let r = unsafe {
        libc::mount(from.as_ptr(), to.as_ptr(), std::ptr::null(), libc::MS_BIND, std::ptr::null())
    };
    assert_eq!(r, 0, "{path}: {}", io::Error::last_os_error());
    // The mount keeps the file alive.
    std::fs::remove_file(&own).expect("it is there");
}

/// Makes this process use the test's name server. Only once, because nothing can be mounted over a
/// file without a name.
fn configure() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        // The longest supported timeout. The resolver repeats the query after it.
        put_over(
            "/etc/resolv.conf",
            &format!("nameserver {}\noptions timeout:30 attempts:5\n", server_address()),
        );
        if std::fs::exists("/etc/nsswitch.conf").expect("a directory") {
            put_over("/etc/nsswitch.conf", "hosts: files dns\n");
        }
    });
}

/// Response to a DNS query (RFC 1035) with one question: one address, or none if the query asks for
/// another type.
fn answer_to(query: &[u8]) -> Vec<u8> {
    let name = 12 + query[12..].iter().position(|byte| *byte == 0).expect("a name ends");
    let question = &query[12..name + 5];
    let is_address = question[question.len() - 4..] == [0, 1, 0, 1];
    let mut answer = query[..2].to_vec();
    // A response, recursion available, no error; one question, zero or one answer.
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    answer.extend(question);
    if is_address {
        // The name of the question, type A, class IN, one minute, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(ADDRESS.octets());
    }
    answer
}

/// Responds to every query until the end.
fn serve(socket: &UdpSocket, end: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let mut query = [0; 512];
    while !end.load(SeqCst) {
        match socket.recv_from(&mut query) {
            Ok((n, from)) => _ = socket.send_to(&answer_to(&query[..n]), from).expect("room"),
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}"),
        }
    }
}

#[test]
fn getaddrinfo_stalls_no_one() {
    case("names::getaddrinfo_stalls_no_one", |case| {
        let server = match own_mounts().and_then(|()| {
            UdpSocket::bind((server_address(), 53))
                .map_err(|e| format!("{}, port 53: {e}", server_address()))
        }) {
            Ok(server) => server,
            Err(why) => return case.skip(&why),
        };
        configure();
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let got = case.blocked(
            move || {
                let all = ("slow.kumihimo.test", 80).to_socket_addrs().map(Vec::from_iter);
                end.store(true, SeqCst);
                all
            },
            move || serve(&server, &ended),
        );
        assert_eq!(got.expect("a known name"), [SocketAddr::new(IpAddr::V4(ADDRESS), 80)]);
    });
}
