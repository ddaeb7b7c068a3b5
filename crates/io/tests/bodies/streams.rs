//! Pipes, and copying from one thing to another.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use kumihimo_io::fs::{self, File, OpenOptions};
use kumihimo_io::io::{self, PipeReader, PipeWriter, pipe};
use kumihimo_io::net::UnixStream;
use kumihimo_runtime::thread;

use super::Env;
use super::files::Place;

pub fn a_pipe(env: Env) {
    let (mut reader, mut writer) = pipe().unwrap();
    let reads = env.spawn(move || {
        let (mut a, mut b) = ([0; 3], [0; 4]);
        assert_eq!(reader.read(&mut []).unwrap(), 0);
        reader.read_exact(&mut a).unwrap();
        assert_eq!(
            reader.read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]).unwrap(),
            5
        );
        assert_eq!((&a, &b[..2]), (b"def", &b"gh"[..]));
        assert_eq!(reader.read(&mut a).unwrap(), 0, "all writers are gone");
    });
    thread::yield_now();
    writer.write_all(b"abc").unwrap();
    assert_eq!(writer.write(&[]).unwrap(), 0);
    assert_eq!(writer.write_vectored(&[IoSlice::new(b"def"), IoSlice::new(b"gh")]).unwrap(), 5);
    writer.flush().unwrap();
    drop(writer);
    reads();
}

/// Ten times what fits: the writer waits for room again and again.
pub fn bulk(env: Env) {
    let (mut reader, mut writer) = pipe().unwrap();
    let bytes: Vec<u8> = (0..700_000u32).map(|n| (n % 251) as u8).collect();
    let expected = bytes.clone();
    let writes = env.spawn(move || writer.write_all(&bytes).unwrap());
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert_eq!(all, expected);
    writes();
}

/// What fits into PIPE_BUF is never torn by another writer.
pub fn many_writers(env: Env) {
    let (mut reader, writer) = pipe().unwrap();
    let writers: Vec<_> = (0..8u8)
        .map(|n| {
            let mut writer = writer.try_clone().unwrap();
            env.spawn(move || (0..50).for_each(|_| writer.write_all(&[n; 1000]).unwrap()))
        })
        .collect();
    drop(writer);
    let mut counts = [0; 8];
    let mut part = [0; 1000];
    while reader.read(&mut part[..1]).unwrap() == 1 {
        reader.read_exact(&mut part[1..]).unwrap();
        assert!(part.iter().all(|b| *b == part[0]));
        counts[usize::from(part[0])] += 1;
    }
    writers.into_iter().for_each(|join| join());
    assert_eq!(counts, [50; 8]);
}

/// Readers of one pipe share what comes; none waits for ever.
pub fn many_readers(env: Env) {
    let (reader, mut writer) = pipe().unwrap();
    let (mut sums, mut sum) = pipe().unwrap();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (mut reader, mut sum) = (reader.try_clone().unwrap(), sum.try_clone().unwrap());
            env.spawn(move || {
                let mut buf = [0; 7];
                let mut n = 0u32;
                loop {
                    match reader.read(&mut buf).unwrap() {
                        0 => break,
                        got => n += got as u32,
                    }
                }
                sum.write_all(&n.to_ne_bytes()).unwrap();
            })
        })
        .collect();
    for _ in 0..200 {
        writer.write_all(&[1; 50]).unwrap();
        thread::yield_now();
    }
    drop(writer);
    readers.into_iter().for_each(|join| join());
    sum.flush().unwrap();
    let mut total = 0;
    for _ in 0..4 {
        let mut n = [0; 4];
        sums.read_exact(&mut n).unwrap();
        total += u32::from_ne_bytes(n);
    }
    assert_eq!(total, 10_000);
}

pub fn without_a_reader(env: Env) {
    let (reader, mut writer) = pipe().unwrap();
    let full = env.spawn(move || {
        let e = loop {
            if let Err(e) = writer.write_all(&[0; 10_000]) {
                break e;
            }
        };
        assert_eq!(e.kind(), ErrorKind::BrokenPipe);
        assert_eq!(writer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
    thread::yield_now();
    drop(reader);
    full();
}

pub fn a_deadline_ends_both(_: Env) {
    let (mut reader, mut writer) = pipe().unwrap();
    let soon = || Instant::now() + Duration::from_millis(5);
    thread::scope_until(soon(), |_| {
        assert_eq!(reader.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    });
    thread::scope_until(soon(), |_| {
        let e = writer.write_all(&vec![0; 1 << 20]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::TimedOut);
    });
    assert!(reader.read(&mut [0; 10]).unwrap() == 10, "what was written is there");
}

/// The open file is never made nonblocking: others share it.
pub fn flags_stay(env: Env) {
    let (mut reader, mut writer) = pipe().unwrap();
    let fd = reader.as_raw_fd();
    let writes = env.spawn(move || {
        thread::yield_now();
        writer.write_all(b"x").unwrap();
    });
    reader.read_exact(&mut [0]).unwrap();
    writes();
    // SAFETY: F_GETFL takes no pointer.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_NONBLOCK, 0);
    let (std_reader, std_writer) = std::io::pipe().unwrap();
    let (mut reader, mut writer) = (PipeReader::from(std_reader), PipeWriter::from(std_writer));
    writer.write_all(b"y").unwrap();
    reader.read_exact(&mut [0]).unwrap();
    drop((std::io::PipeReader::from(reader), std::io::PipeWriter::from(writer)));
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|n| (n % 253) as u8).collect()
}

/// Every pair of ends that stays in the kernel, and some that do not.
pub fn copy_between_anything(env: Env) {
    let place = Place::new();
    let all = bytes(300_000);
    fs::write(place.at("a"), &all).unwrap();
    let open = || File::open(place.at("a")).unwrap();
    let make = |name: &str| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(place.at(name))
            .unwrap()
    };
    let size = all.len() as u64;

    // From position to position.
    let (mut from, mut to) = (open(), make("b"));
    from.seek(io::SeekFrom::Start(1000)).unwrap();
    to.write_all(b"head").unwrap();
    assert_eq!(io::copy(&mut from, &mut to).unwrap(), size - 1000);
    let copied = fs::read(place.at("b")).unwrap();
    assert!(copied[..4] == *b"head" && copied[4..] == all[1000..]);
    // By reference, and onto the end.
    let appends = OpenOptions::new().append(true).open(place.at("b")).unwrap();
    assert_eq!(io::copy(&mut &open(), &mut &appends).unwrap(), size);
    assert_eq!(fs::metadata(place.at("b")).unwrap().len(), 2 * size + 4 - 1000);

    // File, pipe, pipe, file.
    let ((mut r1, mut w1), (mut r2, mut w2)) = (pipe().unwrap(), pipe().unwrap());
    let mut from = open();
    let first = env.spawn(move || assert_eq!(io::copy(&mut from, &mut w1).unwrap(), size));
    let second = env.spawn(move || assert_eq!(io::copy(&mut r1, &mut w2).unwrap(), size));
    assert_eq!(io::copy(&mut r2, &mut make("c")).unwrap(), size);
    first();
    second();
    assert_eq!(fs::read(place.at("c")).unwrap(), all);

    // A FIFO is a file that is a pipe.
    let path = place.fifo("f");
    let mut from = open();
    let at = path.clone();
    let writes = env.spawn(move || {
        let mut fifo = OpenOptions::new().write(true).open(at).unwrap();
        assert_eq!(io::copy(&mut from, &mut fifo).unwrap(), size);
    });
    assert_eq!(io::copy(&mut File::open(&path).unwrap(), &mut make("d")).unwrap(), size);
    writes();
    assert_eq!(fs::read(place.at("d")).unwrap(), all);

    // A socket, a buffer and what is behind a pointer go through memory.
    let (mut a, mut b) = UnixStream::pair().unwrap();
    let mut from = open();
    let sends = env.spawn(move || assert_eq!(io::copy(&mut from, &mut a).unwrap(), size));
    let mut memory = Vec::new();
    let reader: &mut dyn Read = &mut b;
    assert_eq!(io::copy(reader, &mut memory).unwrap(), size);
    sends();
    assert_eq!(memory, all);
    // What has no size.
    assert!(io::copy(&mut File::open("/proc/self/status").unwrap(), &mut make("e")).unwrap() > 0);
    // Errors of the writer.
    let full =
        io::copy(&mut open(), &mut OpenOptions::new().write(true).open("/dev/full").unwrap());
    assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
    let (gone, mut writer) = pipe().unwrap();
    drop(gone);
    assert_eq!(io::copy(&mut open(), &mut writer).unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// A file is copied into a pipe, which holds all of it: nobody reads meanwhile, and what is written
/// to the file later does not reach the pipe.
pub fn file_in_a_pipe_is_a_copy(_: Env) {
    let place = Place::new();
    let all = bytes(65_536);
    fs::write(place.at("a"), &all).unwrap();
    let mut file = OpenOptions::new().read(true).write(true).open(place.at("a")).unwrap();
    let (mut reader, mut writer) = pipe().unwrap();
    assert_eq!(io::copy(&mut file, &mut writer).unwrap(), 65_536);
    drop(writer);
    fs::unix::FileExt::write_all_at(&file, &[0; 65_536], 0).unwrap();
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert!(read == all);
}

/// The end of a pipe is seen although the other pipe is full.
pub fn copy_that_fills_a_pipe_ends(_: Env) {
    let all = bytes(65_536);
    let ((mut r1, mut w1), (mut r2, mut w2)) = (pipe().unwrap(), pipe().unwrap());
    w1.write_all(&all).unwrap();
    drop(w1);
    assert_eq!(io::copy(&mut r1, &mut w2).unwrap(), 65_536);
    drop(w2);
    let mut read = Vec::new();
    r2.read_to_end(&mut read).unwrap();
    assert!(read == all);
}
