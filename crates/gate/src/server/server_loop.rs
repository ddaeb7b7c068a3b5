//! A server that is a loop of one microprocess: receive, reply, receive.

use std::marker::PhantomData;

use kumihimo_runtime::{park, thread};
use serde::{Serialize, de::DeserializeOwned};

use crate::call_chain;
use crate::error::{Error, ErrorKind};
use crate::lane::Chain;
use crate::options::Options;
use crate::server::request::{Context, read_request, send_reply};
use crate::server::server_link::Request;
use crate::server::service::Work;
use crate::server::serving::{self, Serving};
use crate::wire::codec::{Codec, Typed};
use crate::wire::type_hash;

/// A server that is a loop of one microprocess: see [`Gate::listen`](crate::Gate::listen).
#[derive(Debug)]
pub struct Server<Q, R> {
    serving: Serving,
    /// The microprocess that has joined as a worker, and its index.
    me: Option<(u64, usize)>,
    _types: PhantomData<fn(Q) -> R>,
}

/// A request that a [`Server`] has received and not yet answered. Dropping it fails the caller with
/// `Cancelled`.
#[derive(Debug)]
pub struct Item<Q> {
    /// What is asked.
    pub request: Q,
    received: Option<ReceivedRequest>,
}

struct ReceivedRequest {
    request: Request,
    before: Chain,
}

impl std::fmt::Debug for ReceivedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceivedRequest").finish_non_exhaustive()
    }
}

impl<Q> Item<Q> {
    /// The caller, and how it called.
    ///
    /// # Panics
    /// Never: an item that is there has not been answered.
    #[must_use]
    pub fn context(&self) -> Context<'_> {
        let received = self.received.as_ref().expect("not answered yet");
        Context { request: &received.request }
    }
}

impl<Q> Drop for Item<Q> {
    fn drop(&mut self) {
        if let Some(received) = self.received.take() {
            call_chain::leave(received.before);
            received.request.link.reply_error(
                received.request.cell,
                &Error::new(ErrorKind::Cancelled, "the server dropped the request"),
            );
        }
    }
}

impl<Q: Serialize + DeserializeOwned, R: Serialize + DeserializeOwned> Server<Q, R> {
    pub(crate) fn open(name: &str, options: &Options) -> Result<Server<Q, R>, Error> {
        Ok(Server {
            serving: serving::open(name, options, Some(type_hash::of::<Q, R>()), true)?,
            me: None,
            _types: PhantomData,
        })
    }

    /// The gate's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.serving.name()
    }

    /// Waits for the next request, the one of the highest priority. The caller runs at that
    /// priority until it receives again. Blocks the microprocess; a cancellation point.
    ///
    /// # Errors
    /// `Gone`: the gate was closed. A request that is not of type `Q` is refused here and not
    /// returned.
    pub fn receive(&mut self) -> Result<Item<Q>, Error> {
        let service = &self.serving.service;
        let current = park::current().id();
        let me = match self.me {
            Some((who, me)) if who == current => me,
            before => {
                if let Some((_, me)) = before {
                    service.leave(me);
                }
                let me = service.join();
                self.me = Some((current, me));
                me
            }
        };
        let mut asked = Vec::new();
        loop {
            let Work::Handle(request) = service.receive(me, false).0 else {
                thread::blocking(|| service.unpublish());
                return Err(service.closed_error());
            };
            service.begin_handler();
            let taken = read_request(&request, &mut asked)
                .and_then(|whole| Typed::<Q>::decode(whole.as_deref().unwrap_or(&asked)));
            match taken {
                Ok(value) => {
                    let before = call_chain::enter(&request.header.chain, service.word);
                    return Ok(Item {
                        request: value,
                        received: Some(ReceivedRequest { request, before }),
                    });
                }
                Err(error) => request.link.reply_error(request.cell, &error),
            }
        }
    }

    /// Answers a request. Blocks the microprocess only while a reply too large for the lane is
    /// passed as a region.
    ///
    /// # Errors
    /// `Gone`: the caller has ended. `Invalid`, `TooLarge`: the reply cannot be sent; the caller is
    /// told.
    pub fn reply(&mut self, mut item: Item<Q>, reply: &R) -> Result<(), Error> {
        let Some(ReceivedRequest { request, before }) = item.received.take() else { return Ok(()) };
        call_chain::leave(before);
        let mut answer = Vec::with_capacity(64);
        let encoded = Typed::<R>::encode(reply, &mut answer);
        let failed = encoded.clone();
        send_reply(&request, encoded.map(|()| Vec::new()), &answer);
        failed
    }

    /// Answers a request and waits for the next one, in one call (P0, section 4): the core of this
    /// server goes over to the caller that waits for the reply. Blocks the microprocess until there
    /// is a request; a cancellation point.
    ///
    /// # Errors
    /// As [`receive`](Server::receive). That the caller of the first has ended is no error.
    pub fn reply_and_receive(&mut self, item: Item<Q>, reply: &R) -> Result<Item<Q>, Error> {
        let _ = self.reply(item, reply);
        self.receive()
    }
}

impl<Q, R> Drop for Server<Q, R> {
    fn drop(&mut self) {
        if let Some((_, me)) = self.me.take() {
            self.serving.service.leave(me);
        }
    }
}
