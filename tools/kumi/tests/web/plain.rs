//! A running `kumi web`, and a client of plain sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::time::Duration;

use kumihimo_tests::process::send_signal;
use rustix::process::Signal;
use serde_json::Value;

use super::double::Folder;

/// Time after which a server that does not answer is hung.
pub const HUNG: Duration = Duration::from_secs(120);

/// A running `kumi web`, which is killed when this value is dropped.
pub struct Web {
    child: Child,
    _out: BufReader<ChildStdout>,
    /// Where it listens, as it has printed.
    pub place: String,
    /// The address that it has printed.
    pub address: String,
}

impl Web {
    /// Starts `kumi web` on a free port, with a look in each 100 ms.
    pub fn start(folder: &Folder) -> Web {
        Web::start_with(folder, &["--listen", "127.0.0.1:0"])
    }

    /// Starts `kumi web` with these arguments.
    pub fn start_with(folder: &Folder, args: &[&str]) -> Web {
        let mut command = folder.command(&[&["web", "--every", "100"], args].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("kumi");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = |begin: &str| {
            let mut line = String::new();
            out.read_line(&mut line).expect("text");
            line.trim_end().strip_prefix(begin).unwrap_or_else(|| panic!("{line:?}")).to_owned()
        };
        let (place, address) = (line("listening "), line("open "));
        Web { child, _out: out, place, address }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The token that it has printed.
    pub fn token(&self) -> &str {
        self.address.split_once("token=").expect("a token").1
    }

    /// A new connection.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.place).expect("it listens");
        stream.set_read_timeout(Some(HUNG)).expect("a time limit");
        stream
    }

    /// Sends some bytes over a connection of their own, and returns the answer.
    pub fn send(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        // A server that refuses early may close before it has received everything.
        let _ = stream.write_all(bytes);
        Reply::of(stream)
    }

    /// Makes a request with these further header fields, each with its end.
    pub fn ask(&self, method: &str, target: &str, fields: &str, body: &str) -> Reply {
        self.send(request(&self.place, method, target, fields, body).as_bytes())
    }

    /// Signs in by the token, as a browser that opens the printed address.
    pub fn sign_in(&self) -> Session<'_> {
        let reply = self.ask("GET", &format!("/?token={}", self.token()), "", "");
        assert_eq!((reply.status, reply.field("location")), (303, Some("/")), "{reply:?}");
        self.session(&reply)
    }

    /// The session that a reply has begun.
    pub fn session(&self, reply: &Reply) -> Session<'_> {
        let cookie = reply.field("set-cookie").expect("a cookie");
        let cookie = cookie.split(';').next().expect("a value").to_owned();
        let page = self.ask("GET", "/", &format!("Cookie: {cookie}\r\n"), "");
        assert_eq!(page.status, 200, "{page:?}");
        let key = page.body.split("name=\"page-key\" content=\"").nth(1).expect("a key");
        let page_key = key.split('"').next().expect("an end").to_owned();
        Session { web: self, cookie, page_key, page: page.body }
    }

    /// Sends a signal, and returns how the server ends.
    pub fn end_by(mut self, signal: Signal) -> ExitStatus {
        send_signal(self.child.id(), signal).expect("it lives");
        self.child.wait().expect("it ends")
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request as text.
pub fn request(host: &str, method: &str, target: &str, fields: &str, body: &str) -> String {
    format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A browser that is signed in.
pub struct Session<'a> {
    pub web: &'a Web,
    pub cookie: String,
    pub page_key: String,
    pub page: String,
}

impl Session<'_> {
    pub fn get(&self, target: &str) -> Reply {
        self.web.ask("GET", target, &format!("Cookie: {}\r\n", self.cookie), "")
    }

    /// Posts as the page does.
    pub fn post(&self, target: &str, body: &str) -> Reply {
        self.web.ask("POST", target, &self.fields(&self.page_key), body)
    }

    /// The header fields of the page's requests.
    pub fn fields(&self, key: &str) -> String {
        format!(
            "Cookie: {}\r\nOrigin: http://{}\r\nContent-Type: application/json\r\nX-Page-Key: {key}\r\n",
            self.cookie, self.web.place
        )
    }

    /// Opens a stream of events.
    pub fn events(&self, views: &[&str]) -> Events {
        let query: String = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(views.iter().map(|view| ("view", view)))
            .finish();
        let mut stream = self.web.connect();
        let fields = format!("Cookie: {}\r\n", self.cookie);
        let text = request(&self.web.place, "GET", &format!("/events?{query}"), &fields, "");
        stream.write_all(text.as_bytes()).expect("sent");
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(lines.read_line(&mut head).expect("a head"), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Events(lines)
    }
}

/// A stream of events.
pub struct Events(BufReader<TcpStream>);

impl Events {
    /// The next event with its data; `None` at the end.
    pub fn next(&mut self) -> Option<(String, Value)> {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("an event") == 0 {
                return None;
            }
            if let Some(is) = line.strip_prefix("event: ") {
                is.trim_end().clone_into(&mut name);
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, serde_json::from_str(data).expect("JSON")));
            }
        }
    }

    /// The next event of the view at this position.
    pub fn of(&mut self, at: usize) -> Value {
        loop {
            let (name, data) = self.next().expect("the stream goes on");
            if name == format!("view-{at}") {
                return data;
            }
        }
    }
}

/// A reply.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    fields: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    /// Reads a reply until the end of the connection; status 0 if there is none.
    pub fn of(mut from: impl Read) -> Reply {
        let mut bytes = Vec::new();
        if let Err(e) = from.read_to_end(&mut bytes) {
            // A server that hangs must not look like one that has closed.
            assert_ne!(e.kind(), std::io::ErrorKind::WouldBlock, "it hangs");
        }
        let text = String::from_utf8(bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let field = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_ascii_lowercase(), value.to_owned()))
        };
        Reply {
            status: status.unwrap_or(0),
            fields: lines.filter_map(field).collect(),
            body: body.to_owned(),
        }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(is, _)| is == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}
