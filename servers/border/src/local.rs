//! The socket of the border, for programs of this user: lists of machines, and exchanges with
//! control sockets of other machines. See `kumihimo_machine::border` for the protocol.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kumihimo_machine::border::{Ask, Greeting, SpaceNumber};
use kumihimo_machine::handler::Refused;
use kumihimo_machine::protocol::{LONGEST_REQUEST, PROTOCOL, put, put_end, put_error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use crate::engine::{Failure, Opening, PARTS_AHEAD};
use crate::peers::Peers;

/// Largest number of clients at a time; others wait to be accepted.
const MOST_CLIENTS: usize = 256;
/// Time for a request, after which a client is closed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time after an error of accept, such as a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Largest part of a request that is passed on.
const PART: usize = 16 << 10;

/// Serves until the future is dropped.
pub async fn serve(listener: OwnedFd, peers: Arc<Peers>) -> std::io::Result<()> {
    let listener = UnixListener::from_std(listener.into())?;
    let room = Arc::new(Semaphore::new(MOST_CLIENTS));
    let own = rustix::process::geteuid().as_raw();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        // The mode of the socket admits no other user; the kernel's word is checked nevertheless.
        let uid = stream.peer_cred().map(|peer| peer.uid());
        if !uid.is_ok_and(|uid| uid == own || uid == 0) {
            continue;
        }
        let peers = Arc::clone(&peers);
        tokio::spawn(async move {
            // An error means that the client has gone.
            let _ = client(stream, &peers).await;
            drop(place);
        });
    }
}

/// Serves one client.
async fn client(mut stream: UnixStream, peers: &Peers) -> std::io::Result<()> {
    let mut answer = Vec::new();
    let (version, border) = (env!("CARGO_PKG_VERSION").to_owned(), peers.own().to_owned());
    put(&mut answer, &Greeting { protocol: PROTOCOL, version, border });
    stream.write_all(&answer).await?;
    let mut pending = Vec::new();
    loop {
        let line = match timeout(PATIENCE, line(&mut stream, &mut pending)).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) | Err(_) => return Ok(()),
            Ok(Err(e)) => return Err(e),
        };
        let mut answer = Vec::new();
        match Ask::parse(&line) {
            Ok(Ask::Machines) => {
                let rows = peers.rows().await;
                rows.iter().for_each(|row| put(&mut answer, row));
                put_end(&mut answer, rows.len() as u64);
            }
            Ok(Ask::Spaces { machine, epoch }) => match spaces(peers, &machine, epoch).await {
                Ok(numbers) => {
                    numbers
                        .iter()
                        .for_each(|space| put(&mut answer, &SpaceNumber { space: *space }));
                    put_end(&mut answer, numbers.len() as u64);
                }
                Err(failure) => put_error(&mut answer, &refused(&machine, failure)),
            },
            Ok(Ask::Control { machine, epoch, space }) => {
                let opening = Opening { epoch, space };
                let (to, input) = mpsc::channel(PARTS_AHEAD);
                let opened = match peers.reach(&machine, epoch).await {
                    Ok(reachable) => reachable.link.control(opening, input).await,
                    Err(failure) => Err(failure),
                };
                match opened {
                    Ok(incoming) => return exchange(stream, pending, to, incoming, &machine).await,
                    Err(failure) => put_error(&mut answer, &refused(&machine, failure)),
                }
            }
            Err(refused) => put_error(&mut answer, &refused),
        }
        stream.write_all(&answer).await?;
    }
}

async fn spaces(
    peers: &Peers,
    machine: &str,
    epoch: kumihimo_machine::border::Epoch,
) -> Result<Vec<u16>, Failure> {
    peers.reach(machine, epoch).await?.link.spaces(epoch).await
}

/// Returns the refusal that a client reads.
fn refused(machine: &str, failure: Failure) -> Refused {
    match failure {
        Failure::Unreachable(text) => Refused::Unreachable(text),
        Failure::Gone(text) => Refused::Failed(format!(
            "the connection to machine {machine} ended before the answer: {text}"
        )),
        Failure::Refused(refused) => refused,
    }
}

/// Reads a line without its end; `None` at the end of the stream.
async fn line(stream: &mut UnixStream, pending: &mut Vec<u8>) -> std::io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let rest = pending.split_off(end + 1);
            let mut line = std::mem::replace(pending, rest);
            line.pop();
            return Ok(Some(line));
        }
        if pending.len() > LONGEST_REQUEST {
            let mut answer = Vec::new();
            let text = format!("a request of more than {LONGEST_REQUEST} bytes");
            put_error(&mut answer, &Refused::Invalid(text));
            stream.write_all(&answer).await?;
            return Ok(None);
        }
        if stream.read_buf(pending).await? == 0 {
            return Ok(None);
        }
    }
}

/// Passes bytes to another machine and back, until either side ends.
async fn exchange(
    mut stream: UnixStream,
    pending: Vec<u8>,
    to: mpsc::Sender<Bytes>,
    mut incoming: crate::engine::Incoming,
    machine: &str,
) -> std::io::Result<()> {
    let (mut reader, mut writer) = stream.split();
    let requests = async {
        if !pending.is_empty() {
            // A failure means that the answers end, too.
            let _ = to.send(Bytes::from(pending)).await;
        }
        loop {
            let mut buffer = vec![0; PART];
            let length = reader.read(&mut buffer).await?;
            buffer.truncate(length);
            if length == 0 || to.send(Bytes::from(buffer)).await.is_err() {
                break;
            }
        }
        // The client has sent its last request. Its answer is still to come.
        drop(to);
        std::future::pending::<std::io::Result<()>>().await
    };
    let answers = async {
        while let Some(part) = incoming.recv().await {
            match part {
                Ok(bytes) => writer.write_all(&bytes).await?,
                Err(failure) => {
                    let mut line = Vec::new();
                    put_error(&mut line, &refused(machine, failure));
                    return writer.write_all(&line).await;
                }
            }
        }
        Ok(())
    };
    tokio::select! {
        failed = requests => failed,
        done = answers => done,
    }
}
