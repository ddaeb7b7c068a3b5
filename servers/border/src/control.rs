//! What this border serves to others: lists of address spaces, and exchanges with their control
//! sockets.
//!
//! The border connects to control sockets with the rights of its owner. So each request of another
//! machine is parsed here, checked against the rights of its certificate, and written anew: no byte
//! of another machine reaches a control socket.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use kumihimo::gate;
use kumihimo_machine::border::Epoch;
use kumihimo_machine::client::{Error, Machine};
use kumihimo_machine::handler::Refused;
use kumihimo_machine::protocol::{LONGEST_REQUEST, Request, put_error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::calls::far::Far;
use crate::engine::{
    Boxed, Call, Hello, Incoming, Opening, PARTS_AHEAD, Reply, Room, ServedItems, Service,
};
use crate::rights::Allowed;
use crate::tls::identity::Identity;

/// Largest part of an answer.
const PART: usize = 64 << 10;
/// Largest number of exchanges of all machines at a time. A control socket serves fewer itself.
const MOST_EXCHANGES: usize = 256;

/// The service of this machine.
pub struct Control {
    machine: Machine,
    own: Hello,
    allowed: Arc<Allowed>,
    calls: Arc<Far>,
    room: Arc<Semaphore>,
}

impl Control {
    /// Serves the address spaces of `machine`.
    #[must_use]
    pub fn new(machine: Machine, own: Hello, allowed: Allowed) -> Control {
        let (room, allowed) = (Arc::new(Semaphore::new(MOST_EXCHANGES)), Arc::new(allowed));
        let calls = Far::new(machine.path().to_owned(), Arc::clone(&allowed));
        Control { machine, own, allowed, calls, room }
    }

    fn check_epoch(&self, epoch: Epoch) -> Result<(), Refused> {
        if epoch == self.own.epoch {
            return Ok(());
        }
        Err(Refused::Stale(format!("epoch {epoch} has ended: it is now {}", self.own.epoch)))
    }
}

/// Runs a request to the run-time directory or a control socket, which blocks the kernel thread.
async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Refused> {
    let asked = tokio::task::spawn_blocking(ask).await;
    let asked = asked.map_err(|_| Refused::Failed("the border panicked".to_owned()))?;
    asked.map_err(|error| match error {
        Error::Refused(refused) => refused,
        Error::Gone(text) => Refused::Stale(text),
        other => Refused::Failed(other.to_string()),
    })
}

impl Service for Control {
    fn hello(&self, _from: Arc<Identity>, _other: Hello) -> Boxed<Result<Hello, Refused>> {
        // Both sides compare the versions, and the client reports the difference.
        let own = self.own.clone();
        Box::pin(async move { Ok(own) })
    }

    fn spaces(&self, from: Arc<Identity>, epoch: Epoch) -> Boxed<Result<Vec<u16>, Refused>> {
        let checked = self.check_epoch(epoch).and_then(|()| self.allowed.check_observe(&from));
        let machine = self.machine.clone();
        Box::pin(async move {
            checked?;
            let spaces = blocking(move || machine.spaces()).await?;
            // The border itself is not steered from elsewhere.
            let own = kumihimo::machine::number().ok();
            let numbers = spaces.iter().map(|space| space.number());
            Ok(numbers.filter(|number| Some(*number) != own).collect())
        })
    }

    fn control(
        &self,
        from: Arc<Identity>,
        opening: Opening,
        input: Incoming,
    ) -> Boxed<Result<mpsc::Receiver<Bytes>, Refused>> {
        // An identity that may do nothing does not even connect.
        let checked = self.check_epoch(opening.epoch).and_then(|()| {
            let steers = self.allowed.of(&from).is_some_and(|rights| rights.steer);
            if steers { Ok(()) } else { self.allowed.check_observe(&from) }
        });
        let room = Arc::clone(&self.room).try_acquire_owned();
        let (machine, allowed) = (self.machine.clone(), Arc::clone(&self.allowed));
        Box::pin(async move {
            checked?;
            let place = room.map_err(|_| {
                Refused::Busy("too many exchanges of other machines are in progress".to_owned())
            })?;
            if kumihimo::machine::number().is_ok_and(|own| own == opening.space) {
                return Err(Refused::Denied("the border itself is steered by its user".to_owned()));
            }
            let socket = blocking(move || machine.control_socket(opening.space)).await?;
            let socket = unix_stream(socket).map_err(|e| Refused::Failed(e.to_string()))?;
            let (to, output) = mpsc::channel(PARTS_AHEAD);
            tokio::spawn(exchange(socket, allowed, from, input, to, place));
            Ok(output)
        })
    }

    fn room(&self, from: Arc<Identity>) -> Boxed<Room> {
        Box::pin(Arc::clone(&self.calls).room(from))
    }

    fn call(&self, from: Arc<Identity>, call: Call, room: Room) -> Boxed<Reply> {
        Box::pin(Arc::clone(&self.calls).call(from, call, room))
    }

    fn stream(
        &self,
        from: Arc<Identity>,
        call: Call,
        room: Room,
    ) -> Boxed<Result<ServedItems, gate::Error>> {
        Box::pin(Arc::clone(&self.calls).stream(from, call, room))
    }

    fn largest(&self, from: &Identity) -> usize {
        self.calls.largest(from)
    }
}

/// Opens a socket for Tokio.
fn unix_stream(socket: OwnedFd) -> std::io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// Passes requests on, and answers back, until either side ends.
async fn exchange(
    mut socket: UnixStream,
    allowed: Arc<Allowed>,
    from: Arc<Identity>,
    mut input: Incoming,
    output: mpsc::Sender<Bytes>,
    _place: OwnedSemaphorePermit,
) {
    let (mut reader, mut writer) = socket.split();
    let requests = async {
        let mut pending = Vec::new();
        'requests: while let Some(Ok(bytes)) = input.recv().await {
            pending.extend_from_slice(&bytes);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let rest = pending.split_off(end + 1);
                let line = std::mem::replace(&mut pending, rest);
                let request = Request::parse(&line[..end])
                    .and_then(|request| allowed.check(&from, &request).map(|()| request));
                match request {
                    Ok(request) => {
                        // Its last answer may be on the way.
                        if writer.write_all(&request.line()).await.is_err() {
                            break 'requests;
                        }
                    }
                    Err(refused) => {
                        let mut line = Vec::new();
                        put_error(&mut line, &refused);
                        if output.send(line.into()).await.is_err() {
                            return;
                        }
                    }
                }
            }
            if pending.len() > LONGEST_REQUEST {
                let text = format!("a request of more than {LONGEST_REQUEST} bytes");
                let mut line = Vec::new();
                put_error(&mut line, &Refused::Invalid(text));
                let _ = output.send(line.into()).await;
                return;
            }
        }
        // The client has sent its last request. Its answer is still to come.
        let _ = writer.shutdown().await;
        std::future::pending::<()>().await;
    };
    let answers = async {
        let mut part = vec![0; PART];
        loop {
            match reader.read(&mut part).await {
                Ok(length) if length > 0 => {
                    if output.send(Bytes::copy_from_slice(&part[..length])).await.is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = answers => {}
        // The client has gone.
        () = output.closed() => {}
    }
}
