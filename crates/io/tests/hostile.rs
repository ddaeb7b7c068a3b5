//! Hostile peers and misused descriptors: each in a microprocess beside microprocesses, beside std
//! threads, and on a std thread; one at a time, so that sockets can be counted before and after.

mod bodies;

use std::io::{ErrorKind, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, Once, PoisonError};

use bodies::{Env, datagrams, hostile, udp};
use kumihimo_io::net::{SocketBuilder, TcpListener, TcpStream, UdpSocket};
use kumihimo_runtime::runtime::Runtime;

fn sockets() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("procfs");
    all.filter(|fd| {
        let to = fd.as_ref().ok().and_then(|fd| std::fs::read_link(fd.path()).ok());
        to.is_some_and(|to| to.to_string_lossy().starts_with("socket:"))
    })
    .count()
}

/// Of all that open sockets.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn everywhere(body: fn(Env)) {
    // The control socket comes with the first runtime and stays.
    static BEGUN: Once = Once::new();
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    BEGUN.call_once(|| drop(Runtime::builder().vps(1).build().expect("a runtime")));
    let before = sockets();
    bodies::everywhere(body);
    assert_eq!(sockets(), before);
}

#[test]
fn a_peer_that_trickles() {
    everywhere(hostile::a_trickle);
}

#[test]
fn a_peer_that_never_reads() {
    everywhere(hostile::a_peer_that_never_reads);
}

#[test]
fn a_peer_that_half_closes() {
    everywhere(hostile::a_half_closed_peer);
}

#[test]
fn no_signal_for_a_broken_pipe() {
    everywhere(hostile::no_signal_for_a_broken_pipe);
}

#[test]
fn addresses_in_use() {
    everywhere(hostile::addresses_in_use);
}

#[test]
fn deadlines_in_the_past() {
    everywhere(hostile::deadlines_in_the_past);
}

#[test]
fn closing_while_another_waits() {
    everywhere(hostile::closing_while_another_waits);
}

#[test]
fn descriptor_closed_by_other_code_fails_cleanly() {
    everywhere(hostile::descriptor_closed_by_other_code_fails_cleanly);
}

#[test]
fn descriptors_of_another_kind() {
    everywhere(hostile::descriptors_of_another_kind);
}

#[test]
fn datagrams_that_do_not_fit_or_arrive() {
    everywhere(udp::udp_connected);
    everywhere(udp::udp_bad_addresses);
    everywhere(udp::udp_refused);
}

#[test]
fn datagram_sender_waits_for_a_busy_receiver() {
    everywhere(datagrams::datagrams_wait_for_room);
    everywhere(datagrams::datagram_timeouts);
}

/// Runs `f` on a kernel thread whose sockets are in a network of their own, with a loopback
/// interface. False if this user may not.
fn in_a_network_of_its_own(f: fn()) -> bool {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = std::thread::spawn(move || {
        // SAFETY: concerns this kernel thread only.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return false;
        }
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
        // SAFETY: all-zero is a valid ifreq, its name NUL-terminated; the call reads it.
        unsafe {
            let mut lo: libc::ifreq = std::mem::zeroed();
            lo.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
            lo.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
            assert_eq!(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const lo), 0);
        }
        f();
        true
    });
    thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

fn skip(test: &str, why: &str) {
    let line = format!("\n[skip] {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
}

#[test]
fn privileged_ports() {
    let may = in_a_network_of_its_own(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "1024")
            .expect("our own network's");
        // SAFETY: the raw call concerns this kernel thread only, which ends after this.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
        for e in [
            TcpListener::bind("127.0.0.1:80").unwrap_err(),
            SocketBuilder::new().listen("127.0.0.1:80").unwrap_err(),
            UdpSocket::bind("127.0.0.1:80").unwrap_err(),
        ] {
            assert_eq!(e.kind(), ErrorKind::PermissionDenied);
            assert!(e.to_string().contains("cannot bind 127.0.0.1:80: "), "{e}");
            assert!(e.to_string().contains("CAP_NET_BIND_SERVICE"), "{e}");
        }
        TcpListener::bind("127.0.0.1:1024").unwrap();
    });
    if !may {
        skip("privileged_ports", "needs CAP_SYS_ADMIN, for a network of its own");
    }
}

#[test]
fn without_ipv6() {
    let may = in_a_network_of_its_own(|| {
        if let Err(e) = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1") {
            assert_eq!(e.kind(), ErrorKind::NotFound, "off altogether: {e}");
        }
        for e in
            [TcpListener::bind("[::1]:0").unwrap_err(), UdpSocket::bind("[::1]:0").unwrap_err()]
        {
            assert!(
                matches!(
                    e.kind(),
                    ErrorKind::AddrNotAvailable | ErrorKind::Unsupported | ErrorKind::Other
                ),
                "{e:?}"
            );
            assert!(e.to_string().contains("cannot bind [::1]:0: "), "{e}");
        }
        // What has an IPv4 address as well is reached by that.
        let listener = TcpListener::bind(&[addr("[::1]:0"), addr("127.0.0.1:0")][..]).unwrap();
        let at = listener.local_addr().unwrap();
        TcpStream::connect(&[SocketAddr::from((Ipv6Addr::LOCALHOST, at.port())), at][..]).unwrap();
        TcpStream::connect(("localhost", at.port())).unwrap();
        assert!(TcpStream::connect((Ipv6Addr::LOCALHOST, at.port())).is_err());
    });
    if !may {
        skip("without_ipv6", "needs CAP_SYS_ADMIN, for a network of its own");
    }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}
