//! TCP sockets, by their descriptors.
//!
//! A descriptor lets a C program use the socket with setsockopt(2), getsockname(2) and libraries.
//! The table finds the runtime's socket by the descriptor. A closed socket leaves the table at
//! once, and its descriptor is closed when the last function that uses it has returned, so that the
//! number belongs to no other file meanwhile.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, PoisonError};

use kumihimo::net::{TcpListener, TcpStream};
use kumihimo::sync::{Mutex, MutexGuard};
use kumihimo::thread;

use crate::error::{Failure, catch_failure, io_failure};
use crate::gate::bytes::{self, non_null_mut};
use crate::time;

const PARTS: usize = 64;
type Part = BTreeMap<c_int, Arc<Entry>>;
static SOCKETS: [Mutex<Part>; PARTS] = [const { Mutex::new(BTreeMap::new()) }; PARTS];

struct Entry {
    socket: Socket,
    is_closed: AtomicBool,
}

enum Socket {
    Stream(TcpStream),
    Listener(TcpListener),
}

impl Entry {
    fn stream(&self) -> Result<&TcpStream, Failure> {
        match &self.socket {
            Socket::Stream(stream) => Ok(stream),
            Socket::Listener(_) => Err(Failure::new(libc::ENOTCONN, "the socket is a listener")),
        }
    }

    fn listener(&self) -> Result<&TcpListener, Failure> {
        match &self.socket {
            Socket::Listener(listener) => Ok(listener),
            Socket::Stream(_) => Err(Failure::invalid("the socket is no listener")),
        }
    }

    /// Converts an error of the socket, which may be a consequence of `kumi_tcp_close`.
    fn failure(&self, error: &io::Error, what: &str) -> Failure {
        if self.is_closed.load(Acquire) { closed() } else { io_failure(error, what) }
    }
}

fn closed() -> Failure {
    Failure::constant(libc::EBADF, c"the socket was closed while the caller used it")
}

fn part(socket: c_int) -> MutexGuard<'static, Part> {
    // No code panics while it holds the lock.
    SOCKETS[socket.unsigned_abs() as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_socket(socket: c_int) -> Failure {
    Failure::new(libc::EBADF, format!("{socket} is no open socket of kumi_tcp_"))
}

fn find(socket: c_int) -> Result<Arc<Entry>, Failure> {
    part(socket).get(&socket).cloned().ok_or_else(|| no_socket(socket))
}

fn enter(socket: Socket) -> c_int {
    let descriptor = match &socket {
        Socket::Stream(stream) => stream.as_raw_fd(),
        Socket::Listener(listener) => listener.as_raw_fd(),
    };
    let entry = Arc::new(Entry { socket, is_closed: AtomicBool::new(false) });
    let stale = part(descriptor).insert(descriptor, entry);
    // The program has closed the descriptor of this entry by close(2), which the manual forbids. To
    // drop the entry would close the new socket.
    std::mem::forget(stale);
    descriptor
}

/// Runs an operation of a socket within a time limit.
fn within<T>(timeout_ns: i64, f: impl FnOnce() -> io::Result<T>) -> Result<io::Result<T>, Failure> {
    Ok(match time::deadline(timeout_ns)? {
        None => f(),
        Some(deadline) => thread::scope_until(deadline, |_| f()),
    })
}

/// Clears the place for a descriptor.
///
/// # Safety
/// `out` is NULL, or valid for writes.
unsafe fn place<'a>(out: *mut c_int) -> Result<&'a mut c_int, Failure> {
    // SAFETY: the caller's contract.
    let out = unsafe { non_null_mut(out, "the place for the socket") }?;
    *out = -1;
    Ok(out)
}

/// Listens. See kumihimo/tcp.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_tcp_listen(out: *mut c_int, address: *const c_char) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (out, address) = unsafe { (place(out)?, bytes::text(address, "address")?) };
        let listener = TcpListener::bind(address).map_err(|error| address_failure(&error))?;
        *out = enter(Socket::Listener(listener));
        Ok(())
    })
}

/// Accepts a connection. See kumihimo/tcp.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_tcp_accept(
    out: *mut c_int,
    listener: c_int,
    timeout_ns: i64,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let out = unsafe { place(out) }?;
        let entry = find(listener)?;
        let listener = entry.listener()?;
        let (stream, _) = within(timeout_ns, || listener.accept())?
            .map_err(|error| entry.failure(&error, "cannot accept a connection"))?;
        *out = enter(Socket::Stream(stream));
        Ok(())
    })
}

/// Connects. See kumihimo/tcp.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_tcp_connect(
    out: *mut c_int,
    address: *const c_char,
    timeout_ns: i64,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (out, address) = unsafe { (place(out)?, bytes::text(address, "address")?) };
        let stream = within(timeout_ns, || TcpStream::connect(address))?
            .map_err(|error| address_failure(&error))?;
        *out = enter(Socket::Stream(stream));
        Ok(())
    })
}

/// Converts an error of an address. A look-up that finds nothing has neither a number nor a kind.
fn address_failure(error: &io::Error) -> Failure {
    let failure = io_failure(error, "cannot use the address");
    if failure.number == libc::EIO && error.raw_os_error().is_none() {
        return failure.with_number(libc::EADDRNOTAVAIL);
    }
    failure
}

/// Stores a count in a place that may be NULL.
///
/// # Safety
/// `out` is NULL, or valid for writes.
unsafe fn store(out: *mut usize, count: usize) {
    if !out.is_null() {
        // SAFETY: the caller's contract.
        unsafe { out.write(count) };
    }
}

/// Reads. See kumihimo/tcp.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_tcp_read(
    socket: c_int,
    data: *mut c_void,
    length: usize,
    count: *mut usize,
    timeout_ns: i64,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let count = unsafe { non_null_mut(count, "count") }?;
        *count = 0;
        // SAFETY: the interface's contract: the caller's bytes, which no other thread uses.
        let data = unsafe { bytes::slice_mut(data, length, "data") }?;
        let entry = find(socket)?;
        let mut stream = entry.stream()?;
        let read = within(timeout_ns, || stream.read(data))?
            .map_err(|error| entry.failure(&error, "cannot read"))?;
        if read == 0 && entry.is_closed.load(Acquire) {
            return Err(closed());
        }
        *count = read;
        Ok(())
    })
}

/// Writes all bytes. See kumihimo/tcp.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_tcp_write(
    socket: c_int,
    data: *const c_void,
    length: usize,
    count: *mut usize,
    timeout_ns: i64,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        unsafe { store(count, 0) };
        // SAFETY: the interface's contract.
        let data = unsafe { bytes::slice(data, length, "data") }?;
        let entry = find(socket)?;
        let mut stream = entry.stream()?;
        let written = within(timeout_ns, || {
            let mut written = 0;
            while written < data.len() {
                match stream.write(&data[written..])? {
                    0 => return Err(ErrorKind::WriteZero.into()),
                    more => written += more,
                }
                // SAFETY: the interface's contract. Stored here because a cancellation unwinds.
                unsafe { store(count, written) };
            }
            Ok(())
        })?;
        written.map_err(|error| entry.failure(&error, "cannot write"))
    })
}

/// Ends one direction or both. See kumihimo/tcp.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_tcp_shutdown(socket: c_int, how: c_int) -> c_int {
    catch_failure(|| {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Failure::invalid(format!("{how} is no direction of shutdown(2)"))),
        };
        let entry = find(socket)?;
        entry.stream()?.shutdown(how).map_err(|error| entry.failure(&error, "cannot shut down"))
    })
}

/// Closes a socket. See kumihimo/tcp.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_tcp_close(socket: c_int) -> c_int {
    catch_failure(|| {
        let removed = part(socket).remove(&socket);
        let entry = removed.ok_or_else(|| no_socket(socket))?;
        entry.is_closed.store(true, Release);
        if Arc::strong_count(&entry) > 1 {
            // Ends the waits of the threads that use the socket. The last of them closes it.
            // SAFETY: the descriptor is open while the entry exists.
            unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
        }
        Ok(())
    })
}
