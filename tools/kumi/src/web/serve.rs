//! A connection: reads requests, decides whether they are admitted, and answers them.

use std::net::IpAddr;
use std::time::Duration;

use kumihimo::net::Server;
use kumihimo::sync::{Arc, Mutex, TryLockError};
use kumihimo::thread;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::access::attempts::Source;
use super::access::host;
use super::access::sessions::{Sessions, SignIn};
use super::http::request::{Next, Request, Requests};
use super::http::response::{self, Response, begin_events, put_event};
use super::http::tls::Tls;
use super::http::transport::{Socket, Transport};
use super::live::hub::{Hub, MOST_VIEWS, Update};
use super::live::view::View;
use super::{page, requests};

/// Largest time without an event, after which a comment is sent: a browser that has gone is found
/// by writing to it.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// Age at which a browser forgets the cookie, in seconds.
const COOKIE_AGE: u32 = 7 * 86_400;

/// What all connections share.
pub struct Web {
    /// The accepting server.
    pub server: Server,
    /// The browsers that were admitted.
    pub sessions: Sessions,
    /// The views.
    pub hub: Arc<Hub>,
    /// TLS, if it is spoken.
    pub tls: Option<Tls>,
    /// Whether only this machine can connect.
    pub is_local: bool,
    /// Name of the cookie. Cookies are shared by all ports of a host, so its name has the port.
    pub cookie: String,
    /// Held while a profile is taken: names of functions need memory.
    pub profiling: Mutex<()>,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// For the record on standard error.
    pub name: String,
    /// Address, if it has one.
    pub address: Option<IpAddr>,
}

/// What answers a request.
enum Answer {
    Whole(Response),
    /// A stream of events, with the secret of its session.
    Events(Vec<View>, String),
}

/// A response to a script.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Said<'a> {
    Said(&'a str),
    Error(&'a str),
}

impl Web {
    /// Serves a connection until its end.
    pub fn serve(&self, socket: Socket, peer: &Peer) {
        let config = self.tls.as_ref().map(|tls| &tls.config);
        let Ok(mut transport) = Transport::new(socket, config) else { return };
        let mut requests = Requests::default();
        loop {
            // Draining ends connections between two requests at once.
            let next = requests.next(&mut transport, |wait| self.server.idle(wait));
            let (answer, ends) = match next {
                Next::Request(request) => {
                    let ends = request.ends() || self.server.is_draining();
                    (self.answer(&request, peer), ends)
                }
                Next::Malformed(malformed) => {
                    (Answer::Whole(Response::text(malformed.0, malformed.1)), true)
                }
                Next::Gone => return,
            };
            match answer {
                Answer::Whole(response) => {
                    if response.write(&mut transport, ends).is_err() {
                        return;
                    }
                    if ends {
                        return transport.farewell();
                    }
                }
                Answer::Events(views, secret) => {
                    self.events(&mut transport, views, &secret);
                    return transport.farewell();
                }
            }
        }
    }

    fn answer(&self, request: &Request, peer: &Peer) -> Answer {
        let origin = match host::origin(request, self.tls.as_ref(), self.is_local) {
            Ok(origin) => origin,
            Err((status, why)) => return Answer::Whole(Response::text(status, why)),
        };
        match self.route(request, &origin, peer) {
            Ok(answer) => answer,
            Err(response) => Answer::Whole(response),
        }
    }

    /// Finds the handler of a request. Everything but files and sign-in needs a session.
    fn route(&self, request: &Request, origin: &str, peer: &Peer) -> Result<Answer, Response> {
        let refused = |(status, why): host::Refusal| Response::text(status, why);
        let (method, path) = (request.method.as_str(), request.path.as_str());
        let changes = match method {
            "GET" => false,
            "POST" => true,
            _ => return Err(Response::text(405, "use GET or POST").with("Allow", "GET, POST")),
        };
        if !changes && let Some(file) = page::file(path) {
            return Ok(Answer::Whole(file));
        }
        let session = request.cookie(&self.cookie).filter(|secret| self.sessions.is_open(secret));
        // A link leads to the pages from anywhere, and they contain no answer to others' scripts.
        if (method, path) != ("GET", "/") {
            host::is_own_page(request, origin, changes).map_err(refused)?;
        }
        let whole = match (method, path, session) {
            ("GET", "/", session) => self.page(request, session)?,
            ("POST", "/sign-in", _) => self.sign_in(request, peer)?,
            (_, _, None) => return Err(Response::text(403, "sign in first, at /")),
            ("GET", "/events", Some(secret)) => {
                let views = views(request).map_err(|why| Response::text(400, &why))?;
                return Ok(Answer::Events(views, secret.to_owned()));
            }
            ("GET", "/backtrace", Some(_)) => {
                let id = request.parameters("id").next().unwrap_or_default();
                self.asked(|| requests::backtrace(self.hub.machine(), &id))
            }
            ("GET", "/find", Some(_)) => self.find(request)?,
            ("POST", "/act" | "/profile" | "/sign-out", Some(secret)) => {
                let key = request.field("x-page-key").unwrap_or_default();
                if !self.sessions.is_page_key(secret, key) {
                    return Err(Response::text(
                        403,
                        "the page is of an earlier session: reload it",
                    ));
                }
                match path {
                    "/act" => self.act(&body(request)?, peer),
                    "/profile" => self.profile(&body(request)?),
                    _ => {
                        self.sessions.end(secret);
                        Response::json(200, &Said::Said("signed out"))
                            .with("Set-Cookie", &self.set_cookie("", 0))
                    }
                }
            }
            (_, "/act" | "/profile" | "/sign-out" | "/sign-in", _) => {
                return Err(Response::text(405, "use POST").with("Allow", "POST"));
            }
            (_, "/" | "/events" | "/backtrace" | "/find", _) => {
                return Err(Response::text(405, "use GET").with("Allow", "GET"));
            }
            _ => return Err(Response::text(404, "there is nothing here: see /")),
        };
        Ok(Answer::Whole(whole))
    }

    /// The live page, or the sign-in. A token in the query begins a session, and is removed from
    /// the address that the browser remembers.
    fn page(&self, request: &Request, session: Option<&str>) -> Result<Response, Response> {
        if let Some(token) = request.parameters("token").next() {
            let begun = self.sessions.by_token(&token);
            if let Some(secret) = begun.map_err(|why| Response::text(500, &why))? {
                let cookie = self.set_cookie(&secret, COOKIE_AGE);
                return Ok(Response::see("/").with("Set-Cookie", &cookie));
            }
            if session.is_none() {
                let why = "this token is not that of the running kumi web: open the address that it has printed";
                return Err(Response::text(403, why));
            }
        }
        match session {
            Some(secret) => Ok(page::live(&self.sessions.page_key(secret))),
            None if self.sessions.has_password() => Ok(page::sign_in(200, "")),
            None => {
                let why = "open the address with the token that kumi web has printed at its start";
                Err(Response::text(403, why))
            }
        }
    }

    fn set_cookie(&self, secret: &str, age: u32) -> String {
        let secure = if self.tls.is_some() { "; Secure" } else { "" };
        format!(
            "{}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{secure}",
            self.cookie
        )
    }

    fn sign_in(&self, request: &Request, peer: &Peer) -> Result<Response, Response> {
        let kind = request.field("content-type").unwrap_or_default();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Response::text(415, "send the form of the page"));
        }
        let mut fields = form_urlencoded::parse(&request.body);
        let given = fields.find(|(name, _)| name == "password").map(|(_, value)| value);
        let source = peer.address.map_or(Source::Socket, Source::of);
        let tried = self.sessions.by_password(given.unwrap_or_default().as_bytes(), source);
        match tried.map_err(|why| Response::text(500, &why))? {
            SignIn::Admitted(secret) => {
                let cookie = self.set_cookie(&secret, COOKIE_AGE);
                Ok(Response::see("/").with("Set-Cookie", &cookie))
            }
            SignIn::Wrong => Err(page::sign_in(403, "The password is wrong.")),
            SignIn::TooSoon(delay) => {
                let seconds = delay.as_secs() + 1;
                let why = format!(
                    "Too many wrong passwords from this address. Try again in {seconds} s. The address that kumi web has printed is not delayed."
                );
                Err(page::sign_in(429, &why).with("Retry-After", &seconds.to_string()))
            }
        }
    }

    /// Runs a request to an address space, which blocks the kernel thread.
    fn asked(&self, ask: impl FnOnce() -> Result<String, String>) -> Response {
        match thread::blocking(ask) {
            Ok(said) => Response::json(200, &Said::Said(&said)),
            Err(why) => Response::json(409, &Said::Error(&why)),
        }
    }

    fn act(&self, act: &requests::Act, peer: &Peer) -> Response {
        self.asked(|| {
            let done = requests::act(self.hub.machine(), act);
            let said = done.as_ref().unwrap_or_else(|why| why);
            crate::ask::complain(&format_args!("web: {said} (asked by {})", peer.name));
            done
        })
    }

    fn profile(&self, profile: &requests::Profile) -> Response {
        let _one = match self.profiling.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Response::json(409, &Said::Error("another page takes a profile now"));
            }
        };
        match thread::blocking(|| requests::profile(self.hub.machine(), profile)) {
            Ok(picture) => {
                let (svg, text) = (&picture.svg, &picture.text);
                Response::json(200, &serde_json::json!({ "svg": svg, "text": text }))
            }
            Err(why) => Response::json(409, &Said::Error(&why)),
        }
    }

    fn find(&self, request: &Request) -> Result<Response, Response> {
        let bad = |why: &str| Response::text(400, why);
        let view = request.parameters("view").next().unwrap_or_default();
        let view = View::parse(&view).map_err(|why| bad(&why))?;
        let text = request.parameters("text").next().unwrap_or_default();
        let from = request.parameters("from").next().unwrap_or("0".into());
        let from = from.parse().map_err(|_| bad("from is the number of a row"))?;
        let machine = self.hub.machine();
        Ok(match thread::blocking(|| requests::find(machine, &view, &text, from)) {
            Ok(position) => Response::json(200, &position),
            Err(why) => Response::json(409, &Said::Error(&why)),
        })
    }

    /// Sends what the views show, until the browser has gone, the session has ended, or the server
    /// ends.
    fn events(&self, to: &mut Transport, views: Vec<View>, secret: &str) {
        let subscribed = self.hub.subscribe(views);
        if begin_events(to).is_err() {
            return;
        }
        let mut subscription = match subscribed {
            Ok(subscription) => subscription,
            Err(why) => {
                let mut event = Vec::new();
                let why = serde_json::json!({ "error": why }).to_string();
                put_event(&mut event, "refused", &why);
                let _ = response::send(to, &event);
                return;
            }
        };
        loop {
            let mut bytes = Vec::new();
            match subscription.next(SIGN_OF_LIFE) {
                Update::New(new) => new
                    .iter()
                    .for_each(|(at, text)| put_event(&mut bytes, &format!("view-{at}"), text)),
                Update::Nothing => bytes.extend_from_slice(b":\n\n"),
                Update::End => return,
            }
            if !self.sessions.is_open(secret) || response::send(to, &bytes).is_err() {
                return;
            }
        }
    }
}

/// The body of a request of a script. A form of another page cannot have this type.
fn body<T: DeserializeOwned>(request: &Request) -> Result<T, Response> {
    let kind = request.field("content-type").unwrap_or_default();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(Response::text(415, "send JSON"));
    }
    serde_json::from_slice(&request.body).map_err(|e| Response::text(400, &format!("invalid: {e}")))
}

/// The views of a stream.
fn views(request: &Request) -> Result<Vec<View>, String> {
    let views: Vec<View> =
        request.parameters("view").map(|text| View::parse(&text)).collect::<Result<_, _>>()?;
    match views.len() {
        0 => Err("name a view".to_owned()),
        n if n > MOST_VIEWS => Err(format!("a stream has at most {MOST_VIEWS} views")),
        _ => Ok(views),
    }
}
