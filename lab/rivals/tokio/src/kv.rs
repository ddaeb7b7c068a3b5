//! `kv`: a key-value server that follows good practice with Tokio: one thread, a task for each
//! connection, requests parsed in place, and one write for the replies to all requests that arrived
//! together. Supports the commands that redis-benchmark uses. Prints its port, and ends with its
//! standard input.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::{BorrowedFrame, RangeFrame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Table = Arc<Mutex<HashMap<Box<[u8]>, Bytes, foldhash::quality::RandomState>>>;

pub fn serve() {
    // On a single core, the current-thread scheduler is the fastest.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        println!("listening {}", listener.local_addr().expect("bound").port());
        let table = Table::default();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("accept");
                tokio::spawn(converse(stream, table.clone()));
            }
        });
        let waiting = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        waiting.await.expect("no panic").expect("stdin");
    });
}

async fn converse(mut stream: TcpStream, table: Table) {
    stream.set_nodelay(true).expect("nodelay");
    let (mut input, mut output) = (BytesMut::with_capacity(16 << 10), BytesMut::with_capacity(16 << 10));
    loop {
        match stream.read_buf(&mut input).await {
            Ok(n) if n > 0 => {}
            _ => return,
        }
        loop {
            match decode_range(&input) {
                Ok(Some((frame, length))) => {
                    answer(&frame, &input, &table, &mut output);
                    input.advance(length);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        if !output.is_empty() && stream.write_all(&output).await.is_err() {
            return;
        }
        output.clear();
        input.reserve(16 << 10);
    }
}

fn answer(frame: &RangeFrame, input: &[u8], table: &Table, output: &mut BytesMut) {
    let RangeFrame::Array(words) = frame else { return error(output, "ERR unknown command") };
    let word = |i: usize| match words.get(i) {
        Some(RangeFrame::BulkString((from, to))) => Some(&input[*from..*to]),
        _ => None,
    };
    let is = |name: &[u8]| word(0).is_some_and(|word| word.eq_ignore_ascii_case(name));
    let put = |output: &mut BytesMut, frame| drop(extend_encode_borrowed(output, &frame, false));
    let locked = || table.lock().unwrap_or_else(PoisonError::into_inner);
    match (word(1), word(2)) {
        (Some(key), None) if is(b"get") => match locked().get(key) {
            Some(value) => put(output, BorrowedFrame::BulkString(value)),
            None => put(output, BorrowedFrame::Null),
        },
        (Some(key), Some(value)) if is(b"set") => {
            let value = Bytes::copy_from_slice(value);
            let mut table = locked();
            match table.get_mut(key) {
                Some(old) => *old = value,
                None => drop(table.insert(key.into(), value)),
            }
            output.extend_from_slice(b"+OK\r\n");
        }
        (None, _) if is(b"ping") => output.extend_from_slice(b"+PONG\r\n"),
        // The server settings that redis-benchmark prints.
        (Some(_), Some(name)) if is(b"config") => {
            let pair = [BorrowedFrame::BulkString(name), BorrowedFrame::BulkString(b"")];
            put(output, BorrowedFrame::Array(&pair));
        }
        _ if is(b"command") => output.extend_from_slice(b"*0\r\n"),
        _ => error(output, "ERR unknown command"),
    }
}

fn error(output: &mut BytesMut, text: &str) {
    let _ = extend_encode_borrowed(output, &BorrowedFrame::Error(text), false);
}
