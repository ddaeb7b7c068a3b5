//! Pipes, and buffers around them.

use std::io::{BufRead, BufReader, BufWriter, ErrorKind, IoSlice, Read, Write};

use kumihimo::io::{self, PipeReader, PipeWriter};

use crate::Beside;
use crate::beside::behaviours;

behaviours!(
    bytes_go_through_a_pipe,
    pipe_ends_with_its_last_writer,
    pipe_without_a_reader_breaks,
    full_pipe_waits,
    clones_of_both_ends,
    small_writes_stay_whole,
    lines_through_a_pipe,
    buffered_writer_writes_when_flushed,
    buffered_writer_writes_when_dropped,
    buffered_writer_keeps_what_a_broken_pipe_refuses,
    split_and_limited_reads,
    pipe_converts_to_std_and_back,
    read_exact_of_a_short_pipe_fails,
    vectored_write_to_a_pipe,
);

fn pipe() -> (PipeReader, PipeWriter) {
    io::pipe().unwrap()
}

fn rest(mut reader: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    all
}

fn bytes_go_through_a_pipe(beside: Beside) {
    let (mut reader, mut writer) = pipe();
    let reads = beside.spawn(move || {
        let mut four = [0; 4];
        reader.read_exact(&mut four).unwrap();
        four
    });
    writer.write_all(b"abcd").unwrap();
    assert_eq!(&reads.result(), b"abcd");
}

fn pipe_ends_with_its_last_writer(beside: Beside) {
    let (reader, mut writer) = pipe();
    let mut clone = writer.try_clone().unwrap();
    let reads = beside.spawn(move || rest(reader));
    writer.write_all(b"1").unwrap();
    drop(writer);
    clone.write_all(b"2").unwrap();
    drop(clone);
    assert_eq!(reads.result(), b"12");
}

fn pipe_without_a_reader_breaks(beside: Beside) {
    let (reader, mut writer) = pipe();
    beside.spawn(move || drop(reader)).result();
    assert_eq!(writer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

fn full_pipe_waits(beside: Beside) {
    let (reader, mut writer) = pipe();
    let writes = beside.spawn(move || writer.write_all(&[7; 300_000]).unwrap());
    assert!(rest(reader) == [7; 300_000]);
    writes.result();
}

fn clones_of_both_ends(beside: Beside) {
    let (reader, writer) = pipe();
    let (mut clone, mut other) = (reader.try_clone().unwrap(), writer.try_clone().unwrap());
    drop((reader, writer));
    let writes = beside.spawn(move || other.write_all(b"z").unwrap());
    clone.read_exact(&mut [0]).unwrap();
    writes.result();
    assert_eq!(clone.read(&mut [0]).unwrap(), 0);
}

fn small_writes_stay_whole(beside: Beside) {
    let (reader, writer) = pipe();
    let writers: Vec<_> = (0..4u8)
        .map(|n| {
            let mut writer = writer.try_clone().unwrap();
            beside.spawn(move || (0..100).for_each(|_| writer.write_all(&[n; 100]).unwrap()))
        })
        .collect();
    drop(writer);
    let all = rest(reader);
    writers.into_iter().for_each(|writer| writer.result());
    assert_eq!(all.len(), 40_000);
    assert!(all.chunks(100).all(|chunk| chunk.iter().all(|&byte| byte == chunk[0])));
}

fn lines_through_a_pipe(beside: Beside) {
    let (reader, mut writer) = pipe();
    let writes = beside.spawn(move || writer.write_all(b"one\r\ntwo\n\nlast").unwrap());
    let lines: Vec<_> = BufReader::new(reader).lines().map(Result::unwrap).collect();
    assert_eq!(lines, ["one", "two", "", "last"]);
    writes.result();
}

fn buffered_writer_writes_when_flushed(_: Beside) {
    let (mut reader, writer) = pipe();
    let mut writer = BufWriter::with_capacity(8, writer);
    writer.write_all(b"abc").unwrap();
    assert_eq!(writer.buffer(), b"abc");
    writer.flush().unwrap();
    let mut three = [0; 3];
    reader.read_exact(&mut three).unwrap();
    assert_eq!((&three, writer.buffer().len()), (b"abc", 0));
    writer.write_all(b"longer than it is").unwrap();
    reader.read_exact(&mut [0; 17]).unwrap();
}

fn buffered_writer_writes_when_dropped(beside: Beside) {
    let (reader, writer) = pipe();
    let writes = beside.spawn(move || BufWriter::new(writer).write_all(b"kept").unwrap());
    writes.result();
    assert_eq!(rest(reader), b"kept");
}

fn buffered_writer_keeps_what_a_broken_pipe_refuses(_: Beside) {
    let (reader, writer) = pipe();
    let mut writer = BufWriter::new(writer);
    writer.write_all(b"refused").unwrap();
    drop(reader);
    assert_eq!(writer.flush().unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(writer.into_parts().1.unwrap(), b"refused");
}

fn split_and_limited_reads(_: Beside) {
    let (reader, mut writer) = pipe();
    writer.write_all(b"a,b,c,rest").unwrap();
    drop(writer);
    let mut reader = BufReader::with_capacity(3, reader);
    let (mut part, mut limited) = (Vec::new(), Vec::new());
    assert_eq!(reader.read_until(b',', &mut part).unwrap(), 2);
    assert_eq!(reader.by_ref().take(3).read_to_end(&mut limited).unwrap(), 3);
    assert_eq!((&*part, &*limited, rest(reader)), (&b"a,"[..], &b"b,c"[..], b",rest".to_vec()));
}

fn pipe_converts_to_std_and_back(_: Beside) {
    let (reader, mut writer) = pipe();
    writer.write_all(b"1").unwrap();
    let mut of_std = std::io::PipeWriter::from(writer);
    of_std.write_all(b"2").unwrap();
    let mut writer = PipeWriter::from(of_std);
    writer.write_all(b"3").unwrap();
    drop(writer);
    assert_eq!(rest(PipeReader::from(std::io::PipeReader::from(reader))), b"123");
}

fn read_exact_of_a_short_pipe_fails(beside: Beside) {
    let (mut reader, mut writer) = pipe();
    beside.spawn(move || writer.write_all(b"ab").unwrap()).result();
    assert_eq!(reader.read_exact(&mut [0; 3]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

fn vectored_write_to_a_pipe(_: Beside) {
    let (reader, mut writer) = pipe();
    let parts = [IoSlice::new(b""), IoSlice::new(b"ab"), IoSlice::new(b"c")];
    assert_eq!(writer.write_vectored(&parts).unwrap(), 3);
    drop(writer);
    assert_eq!(rest(reader), b"abc");
}
