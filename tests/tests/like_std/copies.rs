//! `io::copy` with types of Kumihimo gives what std gives with its own: the count, the bytes, what
//! remains in the buffers, the limits, and the positions.

use std::io::ErrorKind;

use crate::Beside;
use crate::beside::behaviours;
use crate::place::Place;

/// Everything that a copy leaves behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    copied: Vec<Result<u64, ErrorKind>>,
    written: Vec<u8>,
    /// In the buffer of the reader, and of the writer.
    in_reader: Vec<u8>,
    in_writer: Vec<u8>,
    positions: Vec<u64>,
    limit: Option<u64>,
    /// Bytes that the reader returns afterwards.
    rest: Vec<u8>,
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|n| (n % 251) as u8).collect()
}

/// The same program over std and over Kumihimo.
macro_rules! programs {
    ($name:ident, $root:ident, $unix:path) => {
        mod $name {
            use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

            use $root::fs::{self, File, OpenOptions};
            use $root::io;
            use $root::net::{TcpListener, TcpStream};
            use $unix as UnixStream;

            use super::{Outcome, Place, bytes};

            /// Fits into a pipe and into a socket, so that one thread can fill and empty them.
            const SIZE: usize = 20_000;

            fn files(place: &Place) -> (File, File) {
                fs::write(place.at("from"), bytes(SIZE)).unwrap();
                let mut options = OpenOptions::new();
                let target = options.read(true).write(true).create(true).truncate(true);
                (File::open(place.at("from")).unwrap(), target.open(place.at("to")).unwrap())
            }

            fn kind(copied: io::Result<u64>) -> Result<u64, io::ErrorKind> {
                copied.map_err(|e| e.kind())
            }

            fn tcp_pair() -> (TcpStream, TcpStream) {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                (client, listener.accept().unwrap().0)
            }

            pub fn limited_buffered_file_to_file() -> Outcome {
                let place = Place::new();
                let (from, mut to) = files(&place);
                let mut reader = BufReader::with_capacity(100, from);
                reader.read_exact(&mut [0; 10]).unwrap();
                let mut limited = reader.take(5000);
                let copied = vec![kind(io::copy(&mut limited, &mut to))];
                let limit = Some(limited.limit());
                let mut reader = limited.into_inner();
                let in_reader = reader.buffer().to_vec();
                let positions = vec![
                    reader.get_mut().stream_position().unwrap(),
                    to.stream_position().unwrap(),
                ];
                let mut rest = Vec::new();
                reader.read_to_end(&mut rest).unwrap();
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, in_reader, positions, limit, rest, ..Outcome::default() }
            }

            pub fn limit_within_the_buffer() -> Outcome {
                let place = Place::new();
                let (from, mut to) = files(&place);
                let mut reader = BufReader::with_capacity(100, from);
                reader.fill_buf().unwrap();
                let copied = vec![
                    kind(io::copy(&mut reader.by_ref().take(30), &mut to)),
                    kind(io::copy(&mut reader.by_ref().take(0), &mut to)),
                    kind(io::copy(&mut reader.by_ref().take(90), &mut to)),
                ];
                let in_reader = reader.buffer().to_vec();
                let positions = vec![reader.get_mut().stream_position().unwrap()];
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, in_reader, positions, ..Outcome::default() }
            }

            pub fn buffered_limited_file() -> Outcome {
                let place = Place::new();
                let (from, mut to) = files(&place);
                let mut reader = BufReader::with_capacity(64, from.take(1000));
                reader.read_exact(&mut [0; 1]).unwrap();
                let copied = vec![kind(io::copy(&mut reader, &mut to))];
                let in_reader = reader.buffer().to_vec();
                let limited = reader.get_mut();
                let limit = Some(limited.limit());
                let positions = vec![limited.get_mut().stream_position().unwrap()];
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, in_reader, positions, limit, ..Outcome::default() }
            }

            pub fn limited_reference_to_a_file() -> Outcome {
                let place = Place::new();
                let (mut from, mut to) = files(&place);
                let mut limited = (&from).take(123);
                let copied = vec![
                    kind(io::copy(&mut limited, &mut to)),
                    kind(io::copy(&mut (&from).take(u64::MAX), &mut &to)),
                ];
                let positions =
                    vec![from.stream_position().unwrap(), to.stream_position().unwrap()];
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, positions, ..Outcome::default() }
            }

            pub fn file_to_a_buffered_file() -> Outcome {
                let place = Place::new();
                let (mut from, to) = files(&place);
                let mut writer = BufWriter::new(to);
                writer.write_all(b"head").unwrap();
                let copied = vec![kind(io::copy(&mut from, &mut writer))];
                let in_writer = writer.buffer().to_vec();
                let written = fs::read(place.at("to")).unwrap();
                writer.write_all(b"tail").unwrap();
                writer.flush().unwrap();
                let positions = vec![writer.get_mut().stream_position().unwrap()];
                let rest = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, in_writer, positions, rest, ..Outcome::default() }
            }

            pub fn buffered_file_to_a_lent_buffered_file() -> Outcome {
                let place = Place::new();
                let (from, to) = files(&place);
                let mut reader = BufReader::new(from);
                reader.read_exact(&mut [0; 7]).unwrap();
                let mut writer = BufWriter::with_capacity(10_000, to);
                writer.write_all(b"head").unwrap();
                let copied = vec![kind(io::copy(&mut &mut reader, &mut &mut writer))];
                let (in_reader, in_writer) = (reader.buffer().to_vec(), writer.buffer().to_vec());
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, in_reader, in_writer, ..Outcome::default() }
            }

            pub fn file_to_an_appending_file() -> Outcome {
                let place = Place::new();
                let (mut from, mut to) = files(&place);
                to.write_all(b"before").unwrap();
                let appends = OpenOptions::new().append(true).open(place.at("to")).unwrap();
                let mut writer = BufWriter::new(appends);
                writer.write_all(b"head").unwrap();
                let copied = vec![kind(io::copy(&mut from, &mut writer))];
                let in_writer = writer.buffer().to_vec();
                let before = fs::read(place.at("to")).unwrap();
                writer.flush().unwrap();
                let written = fs::read(place.at("to")).unwrap();
                let positions = vec![from.stream_position().unwrap(), before.len() as u64];
                Outcome { copied, written, in_writer, positions, ..Outcome::default() }
            }

            pub fn file_to_itself() -> Outcome {
                let place = Place::new();
                let (_, mut to) = files(&place);
                to.write_all(&bytes(300)).unwrap();
                to.seek(SeekFrom::Start(100)).unwrap();
                let mut clone = to.try_clone().unwrap();
                let copied = vec![kind(io::copy(&mut clone, &mut to))];
                let positions = vec![to.stream_position().unwrap()];
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, positions, ..Outcome::default() }
            }

            pub fn overlapping_parts_of_one_file() -> Outcome {
                let place = Place::new();
                let (_, mut to) = files(&place);
                to.write_all(&bytes(3000)).unwrap();
                to.seek(SeekFrom::Start(1000)).unwrap();
                let mut from = File::open(place.at("to")).unwrap().take(2000);
                let copied = vec![kind(io::copy(&mut from, &mut to))];
                let limit = Some(from.limit());
                let positions =
                    vec![from.get_mut().stream_position().unwrap(), to.stream_position().unwrap()];
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, positions, limit, ..Outcome::default() }
            }

            pub fn file_without_a_size() -> Outcome {
                let place = Place::new();
                let (_, to) = files(&place);
                let mut writer = BufWriter::new(to);
                writer.write_all(b"head").unwrap();
                let mut from = File::open("/proc/sys/kernel/ostype").unwrap();
                let copied = vec![kind(io::copy(&mut from, &mut writer))];
                let in_writer = writer.buffer().to_vec();
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, in_writer, ..Outcome::default() }
            }

            pub fn empty_file() -> Outcome {
                let place = Place::new();
                let (_, to) = files(&place);
                fs::write(place.at("from"), "").unwrap();
                let mut from = BufReader::new(File::open(place.at("from")).unwrap());
                let mut writer = BufWriter::new(to);
                writer.write_all(b"head").unwrap();
                let copied = vec![kind(io::copy(&mut from, &mut writer))];
                let in_writer = writer.buffer().to_vec();
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, in_writer, ..Outcome::default() }
            }

            pub fn file_that_was_read_to_its_end() -> Outcome {
                let place = Place::new();
                let (mut from, mut to) = files(&place);
                from.seek(SeekFrom::End(0)).unwrap();
                let first = kind(io::copy(&mut from, &mut to));
                // It grows between two copies.
                OpenOptions::new()
                    .append(true)
                    .open(place.at("from"))
                    .unwrap()
                    .write_all(b"more")
                    .unwrap();
                let copied = vec![first, kind(io::copy(&mut from, &mut to))];
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, ..Outcome::default() }
            }

            pub fn chained_files() -> Outcome {
                let place = Place::new();
                let (from, mut to) = files(&place);
                let (mut first, second) = (BufReader::new(&from), &b"and the end"[..]);
                first.read_exact(&mut [0; 19_000]).unwrap();
                let mut chain = first.chain(second);
                let copied = vec![kind(io::copy(&mut chain, &mut to))];
                let positions = vec![to.stream_position().unwrap()];
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, positions, ..Outcome::default() }
            }

            pub fn reader_behind_a_pointer() -> Outcome {
                let place = Place::new();
                let (from, mut to) = files(&place);
                let mut reader = BufReader::with_capacity(32, from);
                reader.read_exact(&mut [0; 5]).unwrap();
                let mut boxed: Box<dyn Read + '_> = Box::new(&mut reader);
                let pointer: &mut dyn Read = &mut boxed;
                let copied = vec![kind(io::copy(pointer, &mut to))];
                drop(boxed);
                let in_reader = reader.buffer().to_vec();
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, in_reader, ..Outcome::default() }
            }

            pub fn file_to_memory_and_to_nothing() -> Outcome {
                let place = Place::new();
                let (mut from, _) = files(&place);
                let mut reader = BufReader::new((&from).take(10_000));
                reader.read_exact(&mut [0; 3]).unwrap();
                let mut written = Vec::new();
                let copied = vec![
                    kind(io::copy(&mut reader, &mut written)),
                    kind(io::copy(&mut from, &mut io::sink())),
                ];
                let positions = vec![from.stream_position().unwrap()];
                Outcome { copied, written, positions, ..Outcome::default() }
            }

            pub fn file_to_a_device() -> Outcome {
                let place = Place::new();
                let (mut from, _) = files(&place);
                let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
                let mut writer = BufWriter::new(null);
                let copied = vec![kind(io::copy(&mut from, &mut writer))];
                let in_writer = writer.buffer().to_vec();
                let positions = vec![from.stream_position().unwrap()];
                Outcome { copied, in_writer, positions, ..Outcome::default() }
            }

            pub fn pipe_to_a_buffered_file() -> Outcome {
                let place = Place::new();
                let (_, to) = files(&place);
                let (reader, mut writer) = io::pipe().unwrap();
                writer.write_all(&bytes(5000)).unwrap();
                drop(writer);
                let mut reader = BufReader::with_capacity(16, reader);
                reader.read_exact(&mut [0; 3]).unwrap();
                let mut limited = reader.take(4000);
                let mut sink = BufWriter::new(to);
                sink.write_all(b"head").unwrap();
                let copied = vec![kind(io::copy(&mut limited, &mut sink))];
                let limit = Some(limited.limit());
                let mut reader = limited.into_inner();
                let (in_reader, in_writer) = (reader.buffer().to_vec(), sink.buffer().to_vec());
                let mut rest = Vec::new();
                reader.get_mut().read_to_end(&mut rest).unwrap();
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, in_reader, in_writer, limit, rest, ..Outcome::default() }
            }

            pub fn limited_file_to_a_buffered_pipe() -> Outcome {
                let place = Place::new();
                let (from, _) = files(&place);
                let (mut end, writer) = io::pipe().unwrap();
                let mut reader = BufReader::with_capacity(100, from);
                reader.read_exact(&mut [0; 1]).unwrap();
                let mut sink = BufWriter::with_capacity(1000, writer);
                sink.write_all(b"head").unwrap();
                let copied = vec![kind(io::copy(&mut reader.by_ref().take(2500), &mut sink))];
                let (in_reader, in_writer) = (reader.buffer().to_vec(), sink.buffer().to_vec());
                drop(sink);
                let mut written = Vec::new();
                end.read_to_end(&mut written).unwrap();
                Outcome { copied, written, in_reader, in_writer, ..Outcome::default() }
            }

            pub fn pipe_to_pipe() -> Outcome {
                let ((first, mut input), (mut end, target)) =
                    (io::pipe().unwrap(), io::pipe().unwrap());
                input.write_all(&bytes(3000)).unwrap();
                let mut sink = BufWriter::new(target);
                sink.write_all(b"head").unwrap();
                let mut limited = first.take(1000);
                let first_copy = kind(io::copy(&mut limited, &mut sink));
                drop(input);
                let mut first = limited.into_inner();
                let copied = vec![first_copy, kind(io::copy(&mut first, &mut sink))];
                let in_writer = sink.buffer().to_vec();
                drop(sink);
                let mut written = Vec::new();
                end.read_to_end(&mut written).unwrap();
                Outcome { copied, written, in_writer, ..Outcome::default() }
            }

            pub fn buffered_socket_to_a_buffered_file() -> Outcome {
                let place = Place::new();
                let (_, to) = files(&place);
                let (mut client, server) = tcp_pair();
                client.write_all(&bytes(9000)).unwrap();
                drop(client);
                let mut reader = BufReader::new(server);
                reader.read_exact(&mut [0; 4]).unwrap();
                let mut sink = BufWriter::new(to);
                sink.write_all(b"head").unwrap();
                let copied = vec![kind(io::copy(&mut reader, &mut sink))];
                let in_reader = reader.buffer().to_vec();
                sink.flush().unwrap();
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, in_reader, ..Outcome::default() }
            }

            pub fn limited_socket_to_a_buffered_pipe() -> Outcome {
                let (mut client, server) = UnixStream::pair().unwrap();
                let (mut end, target) = io::pipe().unwrap();
                client.write_all(&bytes(6000)).unwrap();
                drop(client);
                let mut reader = BufReader::with_capacity(10, server);
                reader.read_exact(&mut [0; 3]).unwrap();
                let mut limited = reader.take(2000);
                let mut sink = BufWriter::new(target);
                sink.write_all(b"head").unwrap();
                let copied = vec![kind(io::copy(&mut limited, &mut sink))];
                let limit = Some(limited.limit());
                let mut reader = limited.into_inner();
                let (in_reader, in_writer) = (reader.buffer().to_vec(), sink.buffer().to_vec());
                let mut rest = Vec::new();
                reader.get_mut().read_to_end(&mut rest).unwrap();
                drop(sink);
                let mut written = Vec::new();
                end.read_to_end(&mut written).unwrap();
                Outcome { copied, written, in_reader, in_writer, limit, rest, ..Outcome::default() }
            }

            pub fn pipe_to_a_buffered_socket() -> Outcome {
                let (client, mut server) = UnixStream::pair().unwrap();
                let (mut first, mut input) = io::pipe().unwrap();
                input.write_all(&bytes(3000)).unwrap();
                drop(input);
                let mut sink = BufWriter::new(client);
                sink.write_all(b"head").unwrap();
                let copied = vec![kind(io::copy(&mut first, &mut sink))];
                let in_writer = sink.buffer().to_vec();
                drop(sink);
                let mut written = Vec::new();
                server.read_to_end(&mut written).unwrap();
                Outcome { copied, written, in_writer, ..Outcome::default() }
            }

            pub fn file_to_a_buffered_socket() -> Outcome {
                let place = Place::new();
                let (from, _) = files(&place);
                let (client, mut server) = tcp_pair();
                let mut sink = BufWriter::new(client);
                sink.write_all(b"head").unwrap();
                let copied = vec![kind(io::copy(&mut (&from).take(9000), &mut sink))];
                let in_writer = sink.buffer().to_vec();
                drop(sink);
                let mut written = Vec::new();
                server.read_to_end(&mut written).unwrap();
                Outcome { copied, written, in_writer, ..Outcome::default() }
            }

            pub fn target_that_fails() -> Outcome {
                let place = Place::new();
                let (mut from, _) = files(&place);
                let reads = File::open(place.at("to")).unwrap();
                let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
                let (end, gone) = io::pipe().unwrap();
                drop(end);
                let (mut readable, mut input) = io::pipe().unwrap();
                input.write_all(b"lost").unwrap();
                drop(input);
                let copied = vec![
                    kind(io::copy(&mut from, &mut &reads)),
                    kind(io::copy(&mut readable, &mut &gone)),
                    kind(io::copy(&mut (&from).take(0), &mut &full)),
                    kind(io::copy(&mut from, &mut &full)),
                ];
                Outcome { copied, ..Outcome::default() }
            }

            pub fn source_that_fails() -> Outcome {
                let place = Place::new();
                let (_, mut to) = files(&place);
                let mut directory = File::open(place.path()).unwrap();
                let mut unreadable = OpenOptions::new().write(true).open(place.at("from")).unwrap();
                let copied = vec![
                    kind(io::copy(&mut directory, &mut to)),
                    kind(io::copy(&mut unreadable, &mut to)),
                ];
                Outcome { copied, ..Outcome::default() }
            }

            pub fn nonblocking_fifo() -> Outcome {
                use std::os::unix::fs::OpenOptionsExt;
                let place = Place::new();
                let (_, mut to) = files(&place);
                super::make_fifo(&place.at("fifo"));
                let mut options = OpenOptions::new();
                let mut reader = options
                    .read(true)
                    .custom_flags(libc::O_NONBLOCK)
                    .open(place.at("fifo"))
                    .unwrap();
                let mut input = OpenOptions::new().write(true).open(place.at("fifo")).unwrap();
                input.write_all(b"some bytes").unwrap();
                let copied = vec![kind(io::copy(&mut reader, &mut to))];
                let written = fs::read(place.at("to")).unwrap();
                Outcome { copied, written, ..Outcome::default() }
            }
        }
    };
}

fn make_fifo(path: &std::path::Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .expect("a FIFO");
}

programs!(of_std, std, std::os::unix::net::UnixStream);
programs!(of_kumihimo, kumihimo, kumihimo::net::UnixStream);

/// A body for each program, which compares both.
macro_rules! as_in_std {
    ($($program:ident),* $(,)?) => {
        $(fn $program(_: Beside) {
            let expected = kumihimo::thread::blocking(of_std::$program);
            assert_eq!(of_kumihimo::$program(), expected);
        })*
        behaviours!($($program),*);
    };
}

as_in_std!(
    limited_buffered_file_to_file,
    limit_within_the_buffer,
    buffered_limited_file,
    limited_reference_to_a_file,
    file_to_a_buffered_file,
    buffered_file_to_a_lent_buffered_file,
    file_to_an_appending_file,
    file_to_itself,
    overlapping_parts_of_one_file,
    file_without_a_size,
    empty_file,
    file_that_was_read_to_its_end,
    chained_files,
    reader_behind_a_pointer,
    file_to_memory_and_to_nothing,
    file_to_a_device,
    pipe_to_a_buffered_file,
    limited_file_to_a_buffered_pipe,
    pipe_to_pipe,
    buffered_socket_to_a_buffered_file,
    limited_socket_to_a_buffered_pipe,
    pipe_to_a_buffered_socket,
    file_to_a_buffered_socket,
    target_that_fails,
    source_that_fails,
    nonblocking_fifo,
);
