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
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::{ErrorKind, Gate, Server};
/// use kumihimo::thread;
///
/// // One microprocess has the state, without a lock.
/// let server = thread::spawn(|| {
///     let mut server: Server<u64, u64> = Gate::listen("total")?;
///     let mut total = 0;
///     let mut item = server.receive()?;
///     loop {
///         total += item.request;
///         if total > 10 {
///             return server.reply(item, &total);
///         }
///         item = server.reply_and_receive(item, &total)?;
///     }
/// });
///
/// let total = loop {
///     match Gate::<u64, u64>::connect("total") {
///         Err(error) if error.kind() == ErrorKind::NotFound => thread::yield_now(),
///         connected => break connected?,
///     }
/// };
/// assert_eq!((total.call(&4)?, total.call(&7)?), (4, 11));
/// server.join().unwrap()?;
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
#[derive(Debug)]
pub struct Server<Q, R> {
    serving: Serving,
    /// The microprocess that has joined as a worker, and its index.
    me: Option<(u64, usize)>,
    _types: PhantomData<fn(Q) -> R>,
}

/// A request that a [`Server`] has received and not yet answered. Dropping it fails the caller with
/// `Cancelled`.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::{ErrorKind, Gate};
/// use kumihimo::thread;
///
/// let mut server = Gate::<u32, u32>::listen("picky")?;
/// let client = thread::spawn(|| Gate::<u32, u32>::connect("picky")?.call(&7));
/// let item = server.receive()?;
/// assert_eq!(item.request, 7);
/// // Without a reply, the caller gets an error.
/// drop(item);
/// assert_eq!(client.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    /// use kumihimo::thread;
    ///
    /// let mut server = Gate::<(), u8>::listen("level")?;
    /// let client = thread::spawn(|| Gate::<(), u8>::connect("level")?.call(&()));
    /// let item = server.receive()?;
    /// let level = item.context().priority();
    /// server.reply(item, &level)?;
    /// assert_eq!(client.join().unwrap()?, level);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    ///
    /// let server = Gate::<u32, u32>::listen("square")?;
    /// assert_eq!(server.name(), "square");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    /// use kumihimo::thread;
    ///
    /// let mut server = Gate::<u32, u32>::listen("square")?;
    /// let client = thread::spawn(|| Gate::<u32, u32>::connect("square")?.call(&6));
    /// let item = server.receive()?;
    /// assert_eq!(item.request, 6);
    /// server.reply(item, &36)?;
    /// assert_eq!(client.join().unwrap()?, 36);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    /// use kumihimo::thread;
    ///
    /// let mut server = Gate::<u32, String>::listen("text")?;
    /// let client = thread::spawn(|| Gate::<u32, String>::connect("text")?.call(&6));
    /// let item = server.receive()?;
    /// let text = item.request.to_string();
    /// server.reply(item, &text)?;
    /// assert_eq!(client.join().unwrap()?, "6");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    /// use kumihimo::thread;
    ///
    /// let mut server = Gate::<u32, u32>::listen("next")?;
    /// let client = thread::spawn(|| {
    ///     let next = Gate::<u32, u32>::connect("next")?;
    ///     next.call(&next.call(&1)?)
    /// });
    /// let first = server.receive()?;
    /// let second = server.reply_and_receive(first, &2)?;
    /// assert_eq!(second.request, 2);
    /// server.reply(second, &3)?;
    /// assert_eq!(client.join().unwrap()?, 3);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
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
