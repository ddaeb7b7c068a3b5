//! Calls of programs of this machine: sent to the borders of other machines.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kumihimo::future::block_on;
use kumihimo::gate::{Context, Error, ErrorKind, Options, RawGate, Serving, Sink};
use kumihimo_gate::remote_call::{ANY, BORDER, BORDER_STREAMS, RemoteCall, RemoteKind};
use kumihimo_machine::handler::Refused;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::engine::{Call, Failure, Reply};
use crate::locked;
use crate::peers::{Peers, Reachable};

/// Size of the largest request, with its destination.
const LARGEST: usize = (64 << 20) + 1024;
/// Time for which it is known which machines serve a gate.
const KNOWN: Duration = Duration::from_secs(1);

/// A gate and the hash of its types.
type GateTypes = (String, Option<u64>);

/// Calls that programs of this machine make.
struct Near {
    peers: Arc<Peers>,
    /// Where the connections are served.
    runtime: Handle,
    /// The first half of the ids of calls.
    border: u64,
    next: AtomicU64,
    /// The machines that serve a gate, and since when that is known.
    serving: Mutex<HashMap<GateTypes, (Instant, Vec<String>)>>,
}

/// Serves the programs of this machine until the value is dropped. `border` is random.
///
/// # Errors
/// Returns the errors of serving a gate.
pub fn serve(peers: Arc<Peers>, border: u64) -> Result<[Serving; 2], Error> {
    let near = Arc::new(Near {
        peers,
        runtime: Handle::current(),
        border,
        next: AtomicU64::new(0),
        serving: Mutex::default(),
    });
    let options = Options::new().largest(LARGEST);
    let calls = Arc::clone(&near);
    let calls = RawGate::serve(BORDER, &options, move |request, context, reply| {
        let outcome = calls.handle(request, context)?;
        reply.extend_from_slice(&outcome);
        Ok(Vec::new())
    })?;
    let streams =
        RawGate::serve_stream(BORDER_STREAMS, &options, move |request, context, sink| {
            near.handle_stream(request, context, sink)
        })?;
    Ok([calls, streams])
}

impl Near {
    /// Reads a request of a program.
    fn read(&self, request: &[u8], context: &Context<'_>) -> Result<(String, Call), Error> {
        let RemoteCall { kind, machine, gate, types, payload } = RemoteCall::decode(request)?;
        let call = Call {
            id: u128::from(self.border) << 64,
            kind,
            gate: gate.to_owned(),
            types,
            level: context.priority(),
            left: context.deadline().map(|at| at.saturating_duration_since(Instant::now())),
            bytes: Bytes::copy_from_slice(payload),
        };
        Ok((machine.to_owned(), call))
    }

    /// Performs what waits for a connection, on the calling microprocess: a task of Tokio would
    /// cost two wake-ups of kernel threads a call. The microprocess may be unwound by a cancelled
    /// call, which drops `call`.
    fn perform<T>(&self, call: impl Future<Output = T>) -> T {
        // The timers that it makes are Tokio's, which finds them by a thread-local variable. Each
        // microprocess has its own.
        let _runtime = self.runtime.enter();
        block_on(call)
    }

    /// Handles one request. Runs as a microprocess.
    fn handle(self: &Arc<Self>, request: &[u8], context: &Context<'_>) -> Reply {
        let (machine, call) = self.read(request, context)?;
        let near = Arc::clone(self);
        self.perform(async move {
            match machine.as_str() {
                ANY => near.call_any(call).await,
                name => near.call_machine(name, call).await,
            }
        })
    }

    /// Handles the request for a stream. Runs as a microprocess.
    fn handle_stream(
        self: &Arc<Self>,
        request: &[u8],
        context: &Context<'_>,
        sink: &Sink<'_, ()>,
    ) -> Result<(), Error> {
        let (machine, call) = self.read(request, context)?;
        let near = Arc::clone(self);
        let mut items = self.perform(async move {
            let names = match machine.as_str() {
                ANY => near.serving(&(call.gate.clone(), call.types), &call).await,
                _ => vec![machine],
            };
            let none = format!("no machine that is reachable serves gate {:?}", call.gate);
            let mut last = Error::new(ErrorKind::NotFound, none);
            for name in names {
                let begun = match near.peers.reach_name(&name).await {
                    Ok(reachable) => reachable.link.stream(near.numbered(&call)).await,
                    Err(failure) => Err(failure),
                };
                match begun {
                    Ok(items) => return Ok(items),
                    Err(failure @ Failure::Unreachable(_)) => last = error(&name, failure),
                    Err(failure) => return Err(error(&name, failure)),
                }
            }
            Err(last)
        })?;
        // Dropping the items, also by unwinding, ends the stream of the other machine.
        while let Some(item) = block_on(items.recv()) {
            sink.send_bytes(&item.reply?)?;
        }
        Ok(())
    }

    /// Gives a call its number: each attempt to send it is another call.
    fn numbered(&self, call: &Call) -> Call {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        Call { id: call.id | u128::from(count), ..call.clone() }
    }

    async fn call_machine(&self, name: &str, call: Call) -> Reply {
        let reachable = self.peers.reach_name(name).await.map_err(|e| error(name, e))?;
        self.send(&reachable, &call).await.unwrap_or_else(|e| Err(error(name, e)))
    }

    async fn send(&self, to: &Reachable, call: &Call) -> Result<Reply, Failure> {
        let _busy = to.begin_call();
        to.link.call(self.numbered(call)).await
    }

    /// Calls the less busy of two machines that serve the gate, and another one only if that was
    /// certainly not reached.
    async fn call_any(self: Arc<Self>, call: Call) -> Reply {
        let key = (call.gate.clone(), call.types);
        let mut names = self.serving(&key, &call).await;
        let none = || {
            let text = format!("no machine that is reachable serves gate {:?}", call.gate);
            Error::new(ErrorKind::NotFound, text)
        };
        let mut last = none();
        while !names.is_empty() {
            let count = self.next.fetch_add(1, Ordering::Relaxed) as usize;
            let (one, other) = (count % names.len(), (count / names.len() + 1) % names.len());
            let busy = |at: usize| self.peers.busy(&names[at]);
            let name = names.swap_remove(if busy(other) < busy(one) { other } else { one });
            let sent = match self.peers.reach_name(&name).await {
                Ok(reachable) => self.send(&reachable, &call).await,
                Err(failure) => Err(failure),
            };
            match sent {
                // Neither was the gate reached.
                Ok(Err(e)) if e.kind() == ErrorKind::NotFound => {
                    locked(&self.serving).remove(&key);
                    last = e;
                }
                Ok(reply) => return reply,
                Err(failure @ Failure::Unreachable(_)) => last = error(&name, failure),
                Err(failure) => return Err(error(&name, failure)),
            }
        }
        Err(last)
    }

    /// Returns the machines that serve a gate, which are asked once a second at most.
    async fn serving(self: &Arc<Self>, key: &GateTypes, call: &Call) -> Vec<String> {
        if let Some((since, names)) = locked(&self.serving).get(key)
            && since.elapsed() < KNOWN
        {
            return names.clone();
        }
        let mut asked = JoinSet::new();
        for name in self.peers.reachable() {
            let near = Arc::clone(self);
            let probe = Call { kind: RemoteKind::Probe, bytes: Bytes::new(), ..call.clone() };
            asked.spawn(async move {
                let reachable = near.peers.reach_name(&name).await.ok()?;
                let reply = near.send(&reachable, &probe).await.ok()?;
                reply.is_ok().then_some(name)
            });
        }
        let names: Vec<String> = asked.join_all().await.into_iter().flatten().collect();
        let mut serving = locked(&self.serving);
        serving.retain(|_, (since, _)| since.elapsed() < KNOWN);
        serving.insert(key.clone(), (Instant::now(), names.clone()));
        names
    }
}

/// Returns the error that the caller gets.
fn error(machine: &str, failure: Failure) -> Error {
    let (kind, text) = match failure {
        Failure::Unreachable(text) => (ErrorKind::Unreachable, text),
        Failure::Gone(text) => {
            let text = format!(
                "the connection to machine {machine} ended before the reply, so that the request may or may not have been carried out: {text}"
            );
            (ErrorKind::Gone, text)
        }
        Failure::Refused(refused) => {
            let kind = match refused {
                Refused::Denied(_) => ErrorKind::NotPermitted,
                Refused::Busy(_) => ErrorKind::Exhausted,
                Refused::Unsupported(_) => ErrorKind::Version,
                Refused::Invalid(_) | Refused::Wrong(_) => ErrorKind::Invalid,
                _ => ErrorKind::Io,
            };
            (kind, refused.to_string())
        }
    };
    Error::new(kind, text)
}
