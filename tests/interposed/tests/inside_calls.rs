//! The runtime makes its own system calls without the functions of the C library that
//! `kumihimo::interpose!` replaces.
//!
//! This program defines each of them as a jump to the next definition, and notes a call by the
//! runtime: in a section without events, or on a kernel thread between two microprocesses.
//!
//! Calls by way of std are left, which `crates/interpose` leaves to the C library there: locks wait
//! by `syscall`, loops that spin yield, descriptors are closed (in builds for tests after a look
//! whether they are open), and ended kernel threads of the pool are detached.

use std::ffi::{CStr, c_char};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kumihimo::net::{TcpListener, TcpStream, UdpSocket};
use kumihimo::sync::{Condvar, Mutex, mpsc};
use kumihimo::{fs, io, process, thread};
use kumihimo_runtime::park::is_in_runtime;

/// Whether calls are counted.
static COUNTS: AtomicBool = AtomicBool::new(false);

/// Calls that the program makes itself, to see that they are noted at all.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// What the runtime has called: the address of a name, and of the caller.
static FOUND: [(AtomicUsize, AtomicUsize); 64] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 64];

extern "C" fn note(name: *const c_char, caller: usize, second: usize) {
    if !COUNTS.load(Ordering::Relaxed) {
        return;
    }
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: a string of this program, terminated by NUL.
    let is_look = second as i32 == libc::F_GETFD && unsafe { CStr::from_ptr(name) } == c"fcntl";
    if is_look || !is_in_runtime() {
        return;
    }
    for (found, at) in &FOUND {
        match at.compare_exchange(0, caller, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return found.store(name.expose_provenance(), Ordering::Relaxed),
            Err(known) if known == caller => return,
            Err(_) => {}
        }
    }
}

extern "C" fn next(name: *const c_char) -> usize {
    // SAFETY: a string, terminated by NUL.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name) }.expose_provenance()
}

macro_rules! counting {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                std::arch::naked_asm!(
                    "push rax",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "lea rdi, [rip + 3f]",
                    "mov rsi, [rsp + 56]",
                    "mov rdx, [rsp + 32]",
                    "call {note}",
                    "lea rdi, [rip + 3f]",
                    "call {next}",
                    "mov r11, rax",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "pop rax",
                    "jmp r11",
                    concat!("3: .asciz \"", stringify!($name), "\""),
                    note = sym note,
                    next = sym next,
                )
            }
        )*
    };
}

counting! {
    pthread_join gettid getrusage
    pthread_mutex_lock pthread_mutex_unlock pthread_cond_wait pthread_cond_signal
    fcntl socket connect accept4 eventfd epoll_create1 setsockopt dup3 pipe2 timerfd_create
    read readv recv recvfrom recvmsg write writev send sendto sendmsg
    poll ppoll select epoll_wait
    sigaction signal raise pthread_kill tgkill sigpending pause signalfd
    nanosleep clock_nanosleep usleep sleep
}

fn kumihimo_threads() {
    let lock = Arc::new((Mutex::new(0), Condvar::new()));
    let (sender, receiver) = mpsc::channel();
    let threads: Vec<_> = (0..200)
        .map(|n| {
            let (lock, sender) = (lock.clone(), sender.clone());
            thread::spawn(move || {
                for _ in 0..20 {
                    *lock.0.lock().unwrap() += 1;
                    thread::yield_now();
                }
                lock.1.notify_all();
                sender.send(n).unwrap();
                thread::sleep(Duration::from_millis(5));
                thread::park_timeout(Duration::from_millis(1));
            })
        })
        .collect();
    let all = lock.1.wait_while(lock.0.lock().unwrap(), |sum| *sum < 4000).unwrap();
    drop(all);
    assert_eq!(receiver.iter().take(200).sum::<u32>(), 199 * 100);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn sockets() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    let server = thread::spawn(move || {
        for _ in 0..50 {
            let (mut stream, _) = listener.accept().unwrap();
            thread::spawn(move || {
                let mut bytes = [0; 64];
                while let Ok(n @ 1..) = stream.read(&mut bytes) {
                    stream.write_all(&bytes[..n]).unwrap();
                }
            });
        }
    });
    let clients: Vec<_> = (0..50)
        .map(|_| {
            thread::spawn(move || {
                let mut stream = TcpStream::connect(at).unwrap();
                for _ in 0..20 {
                    stream.write_all(b"there and back").unwrap();
                    stream.read_exact(&mut [0; 14]).unwrap();
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.join().unwrap();
    let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    near.set_read_timeout(Some(Duration::from_millis(2)))?;
    assert!(near.recv_from(&mut [0; 8]).is_err());
    far.send_to(b"datagram", near.local_addr()?)?;
    assert_eq!(near.recv_from(&mut [0; 8])?.0, 8);
    Ok(())
}

fn files_and_children() -> io::Result<()> {
    let path = std::env::temp_dir().join(format!("kumihimo-inside-{}", std::process::id()));
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let path = path.with_extension(n.to_string());
            thread::spawn(move || {
                for _ in 0..10 {
                    fs::write(&path, b"text").unwrap();
                    assert_eq!(fs::read(&path).unwrap(), b"text");
                }
                fs::remove_file(&path).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(process::Command::new("true").status()?.success());
    Ok(())
}

/// Threads that compute, so that others are preempted, and those that block in the kernel.
fn preemption() {
    let until = Instant::now() + Duration::from_millis(150);
    let threads: Vec<_> = (0..6)
        .map(|n| {
            thread::spawn(move || {
                while Instant::now() < until {
                    if n == 0 {
                        thread::blocking(|| std::thread::sleep(Duration::from_millis(2)));
                    }
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The symbol at the caller's address, by the debugging information of this program.
fn place(caller: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let base = maps.split('-').next().and_then(|text| usize::from_str_radix(text, 16).ok());
    let offset = caller.wrapping_sub(base.unwrap_or_default());
    let own = std::env::current_exe().unwrap_or_default();
    let mut tool = std::process::Command::new("addr2line");
    let told = tool.args(["-f", "-i", "-C", "-e"]).arg(own).arg(format!("{offset:#x}")).output();
    let told = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned());
    format!("{offset:#x}\n{}", told.unwrap_or_default())
}

#[test]
fn runtime_calls_no_replaced_function() {
    let runtime = kumihimo::runtime::Runtime::builder().vps(2).build().expect("a runtime");
    COUNTS.store(true, Ordering::Relaxed);
    runtime.run(|| {
        kumihimo_threads();
        sockets().expect("sockets");
        files_and_children().expect("files");
        preemption();
    });
    COUNTS.store(false, Ordering::Relaxed);
    assert_ne!(CALLS.load(Ordering::Relaxed), 0, "std's calls for the program are seen");
    let found: Vec<String> = FOUND
        .iter()
        .map(|(name, caller)| (name.load(Ordering::Relaxed), caller.load(Ordering::Relaxed)))
        .filter(|(name, _)| *name != 0)
        .map(|(name, caller)| {
            // SAFETY: a string of this program, terminated by NUL.
            let name = unsafe { CStr::from_ptr(std::ptr::with_exposed_provenance(name)) };
            format!("{} from {}", name.to_string_lossy(), place(caller))
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
