//! The loop of one connection: read, run every complete command in the buffer, write all replies
//! together, repeat.

use std::io::{self, ErrorKind};
use std::time::Duration;

use kumihimo::sync::Arc;
use kumihimo::sync::atomic::Ordering::Relaxed;
use kumihimo::thread;

use crate::budget::{SMALL_REPLY, Share};
use crate::clients::Client;
use crate::clients::stream::Stream;
use crate::commands::lists;
use crate::data::key::now;
use crate::protocol::request::{Found, Requests};
use crate::server::Server;
use crate::session::wait::Wait;
use crate::session::{After, Session};

/// Replies are sent when no complete command is left, or when they reach this size.
const MOST_REPLY: usize = 64 << 10;
/// After this time without a command, a connection frees its large buffers.
const IDLE: Duration = Duration::from_secs(1);
/// Limit on the bytes that a client may send while it waits in `BLPOP`.
const MOST_AHEAD: usize = 1 << 20;

/// Serves `client` until either side closes the connection.
pub fn serve(server: &Arc<Server>, client: &Arc<Client>) {
    let mut connection = Connection {
        stream: Arc::clone(client.stream()),
        session: Session::new(server, Arc::clone(client)),
        requests: Requests::limited(Share::new(&client.account)),
        timed: false,
    };
    let ended = connection.converse();
    let session = &mut connection.session;
    if ended.is_err() {
        // Wakes the microprocess that sends the outbox, which may be blocked in a write.
        client.kill();
    }
    session.unsubscribe_all();
    if let (Some(outbox), Some(sender)) = (&session.outbox, session.sender.take()) {
        outbox.end();
        let _ = sender.join();
    }
    session.show();
}

struct Connection {
    stream: Arc<Stream>,
    session: Session,
    requests: Requests,
    /// True if the socket has a read timeout.
    timed: bool,
}

impl Connection {
    fn converse(&mut self) -> io::Result<()> {
        loop {
            self.session.now = now();
            self.run_all()?;
            self.send()?;
            match self.session.after {
                After::Next => {}
                After::Close => return Ok(()),
                After::Drop => return Err(ErrorKind::ConnectionAborted.into()),
            }
            self.session.show();
            if !self.read()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Runs every complete command in the buffer.
    fn run_all(&mut self) -> io::Result<()> {
        while self.session.after == After::Next {
            self.requests.unauthenticated = !self.session.authenticated;
            match self.requests.next() {
                Found::Command => {
                    self.session.run(self.requests.args());
                    self.requests.done();
                    if let Some(wait) = self.session.wait.take() {
                        self.send()?;
                        if self.session.after == After::Next {
                            self.wait(wait)?;
                        }
                    }
                    if self.session.outbox.is_some() || self.session.reply.bytes.len() > MOST_REPLY
                    {
                        self.send()?;
                    }
                }
                Found::Unfinished => break,
                Found::Malformed(error) => {
                    self.session.reply.error(&error);
                    self.session.after = After::Close;
                }
            }
        }
        Ok(())
    }

    /// Sends the replies, once the changes that they acknowledge are as durable as the sync policy
    /// requires.
    fn send(&mut self) -> io::Result<()> {
        let session = &mut self.session;
        if let Some(from) = session.changed_from.take()
            && let Some(log) = session.server.databases.shared.log.get()
            && let Err(error) = log.settle()
        {
            // The change may or may not reach the log. The client must not receive an
            // acknowledgement.
            session.reply.bytes.truncate(from);
            session.reply.error(&error);
            session.after = After::Close;
        }
        if session.outbox.is_some() {
            session.hand_over();
        } else if !session.reply.bytes.is_empty() {
            self.stream.send(&session.reply.bytes)?;
            if session.reply.bytes.capacity() > SMALL_REPLY {
                session.reply.bytes = Default::default();
            } else {
                session.reply.bytes.clear();
            }
            session.reply.release();
        }
        Ok(())
    }

    /// Reads the bytes that are available, or waits for some.
    fn read(&mut self) -> io::Result<bool> {
        // A timeout is set only while there is memory to free, because setting it takes a system
        // call.
        if self.requests.is_large() != self.timed {
            self.timed = !self.timed;
            self.stream.set_read_timeout(self.timed.then_some(IDLE))?;
        }
        match self.requests.fill(&*self.stream) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.requests.shrink();
                self.read()
            }
            Err(e) if e.kind() == ErrorKind::OutOfMemory => {
                // The request does not fit.
                self.session.reply.error(&format!("Protocol error: {e}"));
                self.session.after = After::Close;
                if let Some(client) = &self.session.client {
                    self.session.server.clients.make_room(client);
                }
                Ok(true)
            }
            read => read,
        }
    }

    /// Waits for the item of a `BLPOP`. Meanwhile another microprocess reads from the socket to
    /// detect the end of the connection: an item must not be delivered to a client that has
    /// disconnected.
    fn wait(&mut self, wait: Wait) -> io::Result<()> {
        let Connection { stream, session, requests, .. } = self;
        let waiter = Arc::clone(&wait.waiter);
        let client = session.client.clone();
        let blocked = |yes| {
            if let Some(client) = &client {
                client.blocked.store(yes, Relaxed);
            }
        };
        blocked(true);
        session.show();
        let stays = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // No timeout: a client that waits in `BLPOP` is not idle.
                while requests.unfinished() < MOST_AHEAD {
                    if !requests.fill(&**stream).unwrap_or(false) {
                        waiter.over();
                        return false;
                    }
                }
                true
            });
            lists::finish(wait, session);
            reader.cancel();
            // `Err` means that the reader was cancelled, so the client is still connected.
            reader.join().unwrap_or(true)
        });
        blocked(false);
        if stays { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }
}
