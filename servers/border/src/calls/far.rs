//! Calls of other machines: checked against their rights, and performed by a microprocess each.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use kumihimo::future::block_on;
use kumihimo::gate::{Error, ErrorKind, Options, RawGate};
use kumihimo::thread::{Builder, Thread, scope_until};
use kumihimo_gate::remote_call::{BORDER, BORDER_STREAMS, RemoteKind};
use kumihimo_machine::gates::check_name;
use kumihimo_policy::Priority;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::seen::Seen;
use crate::engine::{Call, PARTS_AHEAD, Reply, Room, ServedItems};
use crate::locked;
use crate::rights::{Allowed, Rights};
use crate::tls::identity::Identity;

/// Largest number of gates to which connections are kept.
const MOST_CLIENTS: usize = 1024;

/// A connection to a gate belongs to one identity, which the server learns from it.
type Key = (String, String, Option<u64>);

/// Calls that other machines make here.
pub struct Far {
    /// The run-time directory.
    directory: PathBuf,
    allowed: Arc<Allowed>,
    clients: Mutex<HashMap<Key, RawGate>>,
    seen: Mutex<Seen>,
    /// Room for the calls of each identity.
    rooms: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Far {
    /// Performs calls in the run-time directory.
    pub fn new(directory: PathBuf, allowed: Arc<Allowed>) -> Arc<Far> {
        Arc::new(Far {
            directory,
            allowed,
            clients: Mutex::default(),
            seen: Mutex::default(),
            rooms: Mutex::default(),
        })
    }

    /// Returns the size of the largest request of an identity.
    pub fn largest(&self, from: &Identity) -> usize {
        self.allowed.of(from).map_or(0, |rights| rights.bytes)
    }

    /// Waits for room for a call. Further calls wait here, and by HTTP/2 in the other border.
    pub async fn room(self: Arc<Self>, from: Arc<Identity>) -> Room {
        let arrived = Instant::now();
        let Some(rights) = self.allowed.of(&from) else { return Room { arrived, place: None } };
        let room = Arc::clone(
            locked(&self.rooms)
                .entry(rights.name.clone())
                .or_insert_with(|| Arc::new(Semaphore::new(rights.calls))),
        );
        Room { arrived, place: room.acquire_owned().await.ok() }
    }

    /// Performs a call. When the future is dropped, the call is cancelled.
    pub async fn call(self: Arc<Self>, from: Arc<Identity>, call: Call, room: Room) -> Reply {
        let admitted = self.admit(&from, &call, room)?;
        if call.kind == RemoteKind::Stream {
            return Err(Error::new(ErrorKind::Invalid, "a stream is not called"));
        }
        let (done, outcome) = oneshot::channel();
        let (rights, deadline) = (admitted.rights.clone(), admitted.deadline);
        let _cancels = admitted.spawn(move || {
            // The border no longer waits for a call that was cancelled.
            let _ = done.send(self.perform(&rights, &call, deadline));
        })?;
        outcome.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Cancelled, "cancelled")))
    }

    /// Serves a stream, which dropping the items cancels.
    pub async fn stream(
        self: Arc<Self>,
        from: Arc<Identity>,
        call: Call,
        room: Room,
    ) -> Result<ServedItems, Error> {
        let admitted = self.admit(&from, &call, room)?;
        if call.kind != RemoteKind::Stream {
            return Err(Error::new(ErrorKind::Invalid, "a call is not a stream"));
        }
        let (to, items) = mpsc::channel(PARTS_AHEAD);
        let (rights, deadline) = (admitted.rights.clone(), admitted.deadline);
        let cancels = admitted.spawn(move || {
            let read = || {
                let mut stream = self.client(&rights, &call)?.stream(&call.bytes)?;
                while let Some(item) = stream.next_bytes() {
                    // The border no longer waits for a stream that was cancelled.
                    if block_on(to.send(Ok(Bytes::from(item?)))).is_err() {
                        break;
                    }
                }
                Ok(())
            };
            let outcome = match deadline {
                Some(deadline) => scope_until(deadline, |_| read()),
                None => read(),
            };
            if let Err(error) = outcome {
                let _ = block_on(to.send(Err(error)));
            }
        })?;
        Ok(Box::pin(ReceiverStream::new(items).map(move |item| {
            // The guard lives as long as the items.
            let _ = &cancels;
            item
        })))
    }

    /// Checks a call. The deadline is by the clock of this machine, and its time begins when the
    /// call arrives.
    fn admit(&self, from: &Identity, call: &Call, room: Room) -> Result<Admitted, Error> {
        let deadline = call.left.and_then(|left| room.arrived.checked_add(left));
        let rights = self.check(from, call)?.clone();
        let place = room.place.ok_or_else(|| failed("the border is ending"))?;
        if !locked(&self.seen).is_first(from.location(), call.id) {
            let text = "this call has come before, and is not performed again";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let level = call.level.min(rights.level);
        Ok(Admitted { rights, level, deadline, place })
    }

    fn check(&self, from: &Identity, call: &Call) -> Result<&Rights, Error> {
        let invalid =
            |e: kumihimo_machine::client::Error| Error::new(ErrorKind::Invalid, e.to_string());
        // A name with a machine would lead on to a third one, with the rights of this border.
        check_name(&call.gate).map_err(invalid)?;
        let denied = || {
            let text = format!("{from} may not call gate {:?} here", call.gate);
            Error::new(ErrorKind::NotPermitted, text)
        };
        let rights = self.allowed.of(from).ok_or_else(denied)?;
        if [BORDER, BORDER_STREAMS].contains(&call.gate.as_str()) || !rights.may_call(&call.gate) {
            return Err(denied());
        }
        if call.bytes.len() > rights.bytes {
            let text = format!(
                "a request of {} bytes, and {} are the most that {from} may send here",
                call.bytes.len(),
                rights.bytes
            );
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        Ok(rights)
    }

    /// Performs a call. Runs as a microprocess.
    fn perform(&self, rights: &Rights, call: &Call, deadline: Option<Instant>) -> Reply {
        let gate = self.client(rights, call)?;
        let mut reply = Vec::new();
        match (call.kind, deadline) {
            (RemoteKind::Probe | RemoteKind::Stream, _) => {}
            (RemoteKind::Send, _) => gate.send(&call.bytes)?,
            (RemoteKind::Call, None) => gate.call(&call.bytes, &mut reply)?,
            (RemoteKind::Call, Some(deadline)) => {
                let left = deadline.saturating_duration_since(Instant::now());
                gate.call_within(&call.bytes, &mut reply, left)?;
            }
        }
        Ok(Bytes::from(reply))
    }

    /// Returns a connection to the gate. The server compares the types when it is made.
    fn client(&self, rights: &Rights, call: &Call) -> Result<RawGate, Error> {
        let key = (rights.name.clone(), call.gate.clone(), call.types);
        if call.kind != RemoteKind::Probe
            && let Some(client) = locked(&self.clients).get(&key)
        {
            return Ok(client.clone());
        }
        let options = Options::new().directory(&self.directory).origin(&rights.name);
        let client = RawGate::connect_as(&call.gate, &options, call.types)?;
        let mut clients = locked(&self.clients);
        let before = match clients.len() {
            MOST_CLIENTS.. => std::mem::take(&mut *clients),
            _ => HashMap::new(),
        };
        clients.insert(key, client.clone());
        drop(clients);
        // Closes connections, which may take a while.
        drop(before);
        Ok(client)
    }
}

fn failed(text: &str) -> Error {
    Error::new(ErrorKind::Io, text)
}

/// A call that may be performed.
struct Admitted {
    rights: Rights,
    level: u8,
    deadline: Option<Instant>,
    place: OwnedSemaphorePermit,
}

impl Admitted {
    /// Performs it as a microprocess at its level.
    fn spawn(self, perform: impl FnOnce() + Send + 'static) -> Result<InProgress, Error> {
        let worker = Builder::new()
            .name("remote call".to_owned())
            .priority(Priority::new(self.level).unwrap_or_default())
            .spawn(move || {
                // Until it ends: a peer that cancels its calls at once begins no more at a time.
                let _place = self.place;
                perform();
            })
            .map_err(|e| Error::new(ErrorKind::Exhausted, e.to_string()))?;
        Ok(InProgress(worker.thread().clone()))
    }
}

/// A call in progress. Dropping it cancels its microprocess, which has no effect after its end.
struct InProgress(Thread);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kumihimo_machine::directory::Directory;
    use rustls::pki_types::CertificateDer;

    use super::*;

    fn identity() -> Identity {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["build8".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        Identity::of(Some(&CertificateDer::from(certificate.der().to_vec()))).expect("names")
    }

    fn call(id: u128, gate: &str, bytes: usize) -> Call {
        Call {
            id,
            kind: RemoteKind::Call,
            gate: gate.to_owned(),
            types: None,
            level: 63,
            left: None,
            bytes: Bytes::from(vec![0; bytes]),
        }
    }

    #[test]
    fn replayed_and_forbidden_calls_are_refused() {
        let path = std::env::temp_dir().join(format!("kumihimo-far-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Directory::own(&path).expect("a directory");
        let rights = Rights {
            name: "build8".to_owned(),
            call: vec!["a*".to_owned(), "kumihimo.*".to_owned()],
            calls: 1,
            bytes: 100,
            ..Rights::default()
        };
        let far = Far::new(path.clone(), Arc::new(Allowed(vec![rights])));
        let from = Arc::new(identity());
        let runtime = tokio::runtime::Runtime::new().expect("kernel threads");
        let kind = |call: Call| {
            let reply = runtime.block_on(async {
                let room = Arc::clone(&far).room(Arc::clone(&from)).await;
                Arc::clone(&far).call(Arc::clone(&from), call, room).await
            });
            reply.expect_err("nothing is served").kind()
        };
        assert_eq!(kind(call(1, "adder", 100)), ErrorKind::NotFound);
        assert_eq!(kind(call(1, "adder", 100)), ErrorKind::Invalid);
        assert_eq!(kind(call(2, "adder", 101)), ErrorKind::TooLarge);
        assert_eq!(kind(call(3, "b", 0)), ErrorKind::NotPermitted);
        // Neither the border's own gate, nor a gate of a third machine.
        assert_eq!(kind(call(4, BORDER, 0)), ErrorKind::NotPermitted);
        assert_eq!(kind(call(5, "a/b", 0)), ErrorKind::Invalid);
        // What was refused before it was performed may come again.
        assert_eq!(kind(call(2, "adder", 0)), ErrorKind::NotFound);
        fs::remove_dir_all(&path).expect("its own folder");
    }
}
