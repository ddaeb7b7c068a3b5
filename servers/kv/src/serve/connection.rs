//! One connection: read, run every command that has arrived whole, write all replies at once, and
//! again.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use kumihimo::sync::Arc;
use kumihimo::sync::atomic::Ordering::Relaxed;
use kumihimo::thread;

use crate::clients::Client;
use crate::clients::stream::Stream;
use crate::commands::lists;
use crate::data::key::now;
use crate::protocol::request::{Found, Requests};
use crate::server::Server;
use crate::session::wait::Wait;
use crate::session::{After, Session};

/// Replies are sent when nothing more is to be run, or when they are as long as this.
const MOST_REPLY: usize = 64 << 10;
/// What an idle connection keeps of the room for its replies.
const SMALL_REPLY: usize = 16 << 10;
/// After that time without a command a connection gives back the large buffers that it used.
const IDLE: Duration = Duration::from_secs(1);
/// How much one that waits in `BLPOP` may send meanwhile.
const MOST_AHEAD: usize = 1 << 20;

/// Serves `client` until one side ends it.
pub fn serve(server: &Arc<Server>, client: &Arc<Client>) {
    let mut connection = Connection {
        stream: Arc::clone(client.stream()),
        session: Session::new(server, Arc::clone(client)),
        requests: Requests::default(),
        counted: 0,
        timed: false,
    };
    let ended = connection.converse();
    let session = &mut connection.session;
    if ended.is_err() {
        // A microprocess that waits in a write of ours wakes, too.
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
    /// What its buffers were counted with.
    counted: usize,
    /// Whether reads are timed.
    timed: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.session.server.databases.shared.count(self.counted, 0);
    }
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
            self.count();
            if !self.read()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Runs what has arrived.
    fn run_all(&mut self) -> io::Result<()> {
        while self.session.after == After::Next {
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

    /// Sends the replies, once what they tell of is as safe as is wanted.
    fn send(&mut self) -> io::Result<()> {
        let session = &mut self.session;
        if let Some(from) = session.changed_from.take()
            && let Some(log) = session.server.databases.shared.log.get()
            && let Err(error) = log.settle()
        {
            // It may or may not be in the log in the end: the client must not hear that it is.
            session.reply.bytes.truncate(from);
            session.reply.error(&error);
            session.after = After::Close;
        }
        if session.outbox.is_some() {
            session.hand_over();
        } else if !session.reply.bytes.is_empty() {
            (&*self.stream).write_all(&session.reply.bytes)?;
            if session.reply.bytes.capacity() > SMALL_REPLY {
                session.reply.bytes = Default::default();
            } else {
                session.reply.bytes.clear();
            }
        }
        Ok(())
    }

    /// Reads what there is, or waits for it.
    fn read(&mut self) -> io::Result<bool> {
        // Timed only while there is something to give back: setting the time is a system call.
        if self.requests.is_large() != self.timed {
            self.timed = !self.timed;
            self.stream.set_read_timeout(self.timed.then_some(IDLE))?;
        }
        match self.requests.fill(&*self.stream) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.requests.shrink();
                self.count();
                self.read()
            }
            read => read,
        }
    }

    /// Waits for an item for a `BLPOP`. Meanwhile another microprocess reads, so that the end of
    /// the connection is seen: an item must not go to a client that has gone.
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
                // Not timed: a client that waits here is not idle.
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
            // Cancelled: nobody has gone.
            reader.join().unwrap_or(true)
        });
        blocked(false);
        if stays { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    /// Counts what the buffers take beyond the least.
    fn count(&mut self) {
        let now = self.requests.footprint() + self.session.reply.bytes.capacity();
        if now != self.counted {
            self.session.server.databases.shared.count(self.counted, now);
            self.counted = now;
        }
    }
}
