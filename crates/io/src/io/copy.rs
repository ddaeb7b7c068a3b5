//! Copying from a reader to a writer, inside the kernel if both are descriptors.

mod ends;
mod shapes;
mod splice;

use std::io::{self, ErrorKind, Read, Write};

use crate::fs::{KernelCopy, copy_ranges, send_file};
use ends::{FileType, Sink, Source};

/// Copies from `reader` to `writer` until the end, and returns the number of bytes.
///
/// Between two of Kumihimo's own descriptors ([`File`](crate::fs::File), pipes, a child's standard
/// streams, sockets, the locks of the standard streams, and references to them) the results are
/// those of std between its own: `BufReader`, `BufWriter` and `Take` around a descriptor are seen
/// through. The bytes in their buffers are written first, in order, and no more is read than a
/// `Take` allows.
///
/// The other bytes stay in the kernel: copy_file_range(2) or sendfile(2) from file to file,
/// splice(2) from a pipe. Other types, and sockets (splice(2) has no nonblocking mode for them),
/// are copied through a buffer. So is a file into a pipe or a socket: splice(2) would put the
/// file's own pages there, and what is written to the file later would reach the pipe's reader.
/// Blocks the microprocess, or its kernel thread, as reader and writer do; a cancellation point.
///
/// # Errors
/// Of the reader or the writer; `Interrupted` is retried.
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, Read, Write};
///
/// let (mut source, mut input) = io::pipe()?;
/// let (mut output, mut target) = io::pipe()?;
/// input.write_all(b"braided cord")?;
/// drop(input);
///
/// assert_eq!(io::copy(&mut source, &mut target)?, 12);
/// drop(target);
/// let mut copied = String::new();
/// output.read_to_string(&mut copied)?;
/// assert_eq!(copied, "braided cord");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn copy<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: Read + ?Sized,
    W: Write + ?Sized,
{
    let copied = match (shapes::source(reader), shapes::sink(writer)) {
        (Some(source), Some(sink)) => match copy_in_kernel(source, sink)? {
            Copied::All(copied) => return Ok(copied),
            Copied::Part(copied) => copied,
        },
        _ => 0,
    };
    Ok(copied + io::copy(reader, writer)?)
}

/// The number of bytes that were copied past the buffers.
enum Copied {
    /// The source has ended, or its limit is reached.
    All(u64),
    /// The rest is to be copied by reads and writes.
    Part(u64),
}

/// Empties the buffers, then copies from descriptor to descriptor. The methods, their order and
/// their conditions are std's, because they determine what remains in the buffers.
fn copy_in_kernel(source: &mut dyn Source, sink: &mut dyn Sink) -> io::Result<Copied> {
    let mut copied = source.drain(sink, u64::MAX)?;
    // What a `BufWriter` holds goes first.
    sink.flush()?;
    let (from, to) = (source.end().file_type(), sink.end().file_type());
    for method in Method::ALL.into_iter().filter(|method| method.applies(from, to)) {
        let limit = source.limit();
        let outcome = match method {
            Method::Ranges => copy_ranges(source.end().as_fd(), sink.end().as_fd(), limit),
            Method::SendFile => send_file(source.end().as_fd(), sink.end().as_fd(), limit),
            Method::Splice => splice::copy(source.end(), sink.end(), limit),
            Method::ReadAndWrite => read_and_write(source.innermost(), sink, limit),
        };
        let (KernelCopy::Ended(n) | KernelCopy::Unsupported(n) | KernelCopy::Failed(n, _)) =
            outcome;
        source.taken(n);
        copied += n;
        match outcome {
            KernelCopy::Ended(_) => return Ok(Copied::All(copied)),
            KernelCopy::Unsupported(_) => {}
            KernelCopy::Failed(_, e) => return Err(e),
        }
    }
    Ok(Copied::Part(copied))
}

/// A way from descriptor to descriptor.
#[derive(Clone, Copy)]
enum Method {
    /// copy_file_range(2).
    Ranges,
    /// sendfile(2).
    SendFile,
    /// splice(2).
    Splice,
    /// read(2) and write(2), with a buffer that is empty at the end: where std's calls would block
    /// the kernel thread.
    ReadAndWrite,
}

impl Method {
    const ALL: [Method; 4] =
        [Method::Ranges, Method::SendFile, Method::Splice, Method::ReadAndWrite];

    /// Whether it serves these types of files, and what is written to the source afterwards cannot
    /// reach the target.
    fn applies(self, from: FileType, to: FileType) -> bool {
        use FileType::{BlockDevice, Empty, Fifo, Other, Regular, Socket};
        match self {
            Method::Ranges => matches!((from, to), (Regular, Regular | Empty)),
            Method::SendFile => {
                matches!((from, to), (Regular | BlockDevice, Regular | Empty | BlockDevice))
            }
            Method::Splice => from == Fifo && to != Socket,
            Method::ReadAndWrite => matches!(
                (from, to),
                (Regular | BlockDevice, Other) | (Fifo, Socket) | (Socket, Fifo)
            ),
        }
    }
}

/// Bytes of one read.
const PART: usize = 16 << 10;

fn read_and_write(source: &mut dyn Read, sink: &mut dyn Sink, limit: u64) -> KernelCopy {
    let mut part = vec![0; PART];
    let mut copied = 0;
    while copied < limit {
        let len = usize::try_from(limit - copied).map_or(PART, |rest| rest.min(PART));
        let n = match source.read(&mut part[..len]) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return KernelCopy::Failed(copied, e),
        };
        copied += n as u64;
        if let Err(e) = sink.write_all(&part[..n]) {
            return KernelCopy::Failed(copied, e);
        }
    }
    match sink.flush() {
        Ok(()) => KernelCopy::Ended(copied),
        Err(e) => KernelCopy::Failed(copied, e),
    }
}
