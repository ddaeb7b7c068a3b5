//! A server where descriptors and microprocesses run out. Changes the whole process's limits: a
//! test program of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use kumihimo_io::net::{Cause, Server, TcpListener, TcpStream};
use kumihimo_runtime::runtime::Runtime;
use kumihimo_runtime::thread;
use socket2::{Domain, Socket, Type};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn serve(mut stream: TcpStream) {
    // A served client may be gone by now.
    let _ = stream.write_all(b"hello");
    let _ = stream.read(&mut [0]);
}

fn answer(stream: &mut impl Read) -> String {
    let mut buf = [0; 100];
    let n = stream.read(&mut buf).expect("an answer");
    String::from_utf8_lossy(&buf[..n]).into_owned()
}

fn sockets() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("procfs");
    all.filter(|fd| {
        let to = fd.as_ref().ok().and_then(|fd| std::fs::read_link(fd.path()).ok());
        to.is_some_and(|to| to.to_string_lossy().starts_with("socket:"))
    })
    .count()
}

fn lower_descriptor_limit(to: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is live in both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = to.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// Those that come are told so, one by one; when there are descriptors again, they are served.
#[test]
fn a_server_without_descriptors() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    Runtime::builder().vps(2).build().expect("a runtime").run(|| {
        let before = sockets();
        let (tell, told) = mpsc::channel();
        let server = Server::new()
            .refusal("full")
            .on_trouble(move |t| tell.send((t.cause, t.to_string())).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at: SocketAddr = listener.local_addr().unwrap();
        thread::scope(|s| {
            let serving = s.spawn(|| server.serve(&listener, |stream, _| serve(stream)));
            let mut first = TcpStream::connect(at).unwrap();
            assert_eq!(answer(&mut first), "hello");
            let mut clients: Vec<_> =
                (0..40).map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()).collect();
            lower_descriptor_limit(200);
            let mut files = Vec::new();
            let (mut refused, mut served) = (Vec::new(), Vec::new());
            while refused.len() < 4 {
                while let Ok(file) = File::open("/dev/null") {
                    files.push(file);
                }
                let mut client = clients.pop().expect("most of them are refused");
                thread::blocking(|| client.connect(&at.into()).unwrap());
                match thread::blocking(|| answer(&mut client)).as_str() {
                    "full" => refused.push(client),
                    // The runtime has given one of its own back meanwhile.
                    "hello" => served.push(client),
                    other => panic!("{other:?}"),
                }
            }
            // For one more, and what the runtime has done without: a kernel thread has two or
            // three.
            files.truncate(files.len() - 16);
            let mut last = clients.pop().expect("one more");
            thread::blocking(|| last.connect(&at.into()).unwrap());
            assert_eq!(thread::blocking(|| answer(&mut last)), "hello");
            let (count, all) = (served.len() as u64 + 2, refused.len() as u64);
            drop((first, clients, refused, served, last, files));
            server.drain(Duration::from_secs(3600));
            let tally = serving.join().unwrap().unwrap();
            assert_eq!((tally.served, tally.refused), (count, all));
        });
        let all: Vec<_> = told.try_iter().collect();
        assert!(
            !all.is_empty() && all.iter().all(|(cause, _)| *cause == Cause::Descriptors),
            "{all:?}"
        );
        assert!(all[0].1.contains(&at.to_string()) && all[0].1.contains("ulimit -n"), "{all:?}");
        drop((server, listener));
        assert_eq!(sockets(), before);
    });
}

#[test]
fn a_server_without_microprocesses() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // This one, the one that serves, the one that accepts: room for two connections.
    Runtime::builder().vps(2).max_microprocesses(5).build().expect("a runtime").run(|| {
        if kumihimo_runtime::runtime::metrics().expect("a runtime runs").tls == "kernel" {
            return eprintln!(
                "\n[skip] a_server_without_microprocesses: kernel threads stand in for microprocesses here, without a limit"
            );
        }
        let (tell, told) = mpsc::channel();
        let server =
            Server::new().on_trouble(move |t| tell.send((t.cause, t.to_string())).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        thread::scope(|s| {
            let serving = s.spawn(|| server.serve(&listener, |stream, _| serve(stream)));
            let mut streams: Vec<_> = (0..3).map(|_| TcpStream::connect(at).unwrap()).collect();
            assert_eq!(answer(&mut streams[0]), "hello");
            assert_eq!(answer(&mut streams[1]), "hello");
            // Closed without a reply: no microprocess could be created for it.
            assert_eq!(answer(&mut streams[2]), "");
            drop(streams);
            server.drain(Duration::from_secs(3600));
            let tally = serving.join().unwrap().unwrap();
            assert_eq!((tally.served, tally.refused), (2, 1));
        });
        let all: Vec<_> = told.try_iter().collect();
        assert_eq!(all.len(), 1);
        assert!(
            all[0].0 == Cause::Microprocesses && all[0].1.contains("max_microprocesses"),
            "{all:?}"
        );
    });
}
