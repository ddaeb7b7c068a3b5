//! A running `kumi web` and a page of it: what a browser receives, without the browser.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bench::contender::Trouble;
use crate::bench::contender::directory::Directory;

/// Time limit for each answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The microprocesses of the first address space, as the page shows them at first.
const VIEWS: &str = "view=%7B%22show%22%3A%22spaces%22%7D&view=%7B%22show%22%3A%22microprocesses%22\
    %2C%22space%22%3A1%2C%22sort%22%3A%22cpu%22%2C%22limit%22%3A50%7D";
/// Files of the page besides the page itself.
const FILES: [&str; 7] =
    ["/style.css", "/page.css", "/page.js", "/tables.js", "/dialog.js", "/stream.js", "/worker.js"];

/// The server, which ends when this value is dropped.
pub struct Page {
    server: Child,
    place: String,
    cookie: String,
    events: BufReader<TcpStream>,
    /// Bytes of the page with all its files and its first rows.
    pub first: usize,
}

impl Page {
    /// Starts the server, and opens its page.
    pub fn open(directory: &Directory) -> Result<Page, Trouble> {
        let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        command.args(["web", "--listen", "127.0.0.1:0"]).env("KUMI_DIR", directory.path());
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = command.spawn().map_err(|e| format!("kumi web: {e}"))?;
        let opened = begin(&mut server);
        match opened {
            Ok((place, cookie, events, first)) => Ok(Page { server, place, cookie, events, first }),
            Err(why) => {
                let _ = server.kill();
                let _ = server.wait();
                Err(format!("kumi web: {why}").into())
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.server.id()
    }

    /// Opens further tabs, which nothing reads but the kernel's buffers.
    pub fn tabs(&self, number: usize) -> Result<Vec<BufReader<TcpStream>>, Trouble> {
        let tab = |_| events(&self.place, &self.cookie);
        Ok((0..number).map(tab).collect::<Result<_, _>>()?)
    }

    /// Receives events until those of `looks` looks at the rows have arrived.
    pub fn follow(&mut self, looks: usize) -> Result<(), Trouble> {
        for _ in 0..looks {
            rows(&mut self.events)?;
        }
        Ok(())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

type Begun = (String, String, BufReader<TcpStream>, usize);

/// Signs in as a browser does, and loads everything.
fn begin(server: &mut Child) -> Result<Begun, String> {
    let mut out = BufReader::new(server.stdout.take().ok_or("no standard output")?);
    let mut line = |begin: &str| -> Result<String, String> {
        let mut line = String::new();
        out.read_line(&mut line).map_err(|e| e.to_string())?;
        let rest = line.trim_end().strip_prefix(begin);
        rest.map(str::to_owned).ok_or_else(|| format!("unexpected output {line:?}"))
    };
    let (place, address) = (line("listening ")?, line("open ")?);
    let target = address.split_once(&place).ok_or("the address is another one")?.1;
    let answer = ask(&place, target, "")?;
    let cookie = answer
        .split_once("Set-Cookie: ")
        .and_then(|(_, rest)| rest.split(';').next())
        .ok_or("no cookie")?
        .to_owned();
    let mut first = ask(&place, "/", &cookie)?.len();
    for file in FILES {
        let answer = ask(&place, file, &cookie)?;
        if !answer.starts_with("HTTP/1.1 200 ") {
            return Err(format!("{file}: {answer:.80}"));
        }
        first += answer.len();
    }
    let mut events = events(&place, &cookie)?;
    first += rows(&mut events)?;
    Ok((place, cookie, events, first))
}

fn connect(place: &str, target: &str, cookie: &str, end: &str) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(place).map_err(|e| format!("{place}: {e}"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    let text = format!("GET {target} HTTP/1.1\r\nHost: {place}\r\nCookie: {cookie}\r\n{end}\r\n");
    stream.write_all(text.as_bytes()).map_err(|e| e.to_string())?;
    Ok(stream)
}

fn ask(place: &str, target: &str, cookie: &str) -> Result<String, String> {
    let mut answer = String::new();
    let mut stream = connect(place, target, cookie, "Connection: close\r\n")?;
    stream.read_to_string(&mut answer).map_err(|e| format!("{target}: {e}"))?;
    Ok(answer)
}

fn events(place: &str, cookie: &str) -> Result<BufReader<TcpStream>, String> {
    Ok(BufReader::new(connect(place, &format!("/events?{VIEWS}"), cookie, "")?))
}

/// Reads until an event with rows has arrived. Returns the number of bytes.
fn rows(from: &mut BufReader<TcpStream>) -> Result<usize, String> {
    let mut bytes = 0;
    loop {
        let mut line = String::new();
        match from.read_line(&mut line).map_err(|e| format!("events: {e}"))? {
            0 => return Err("the events have ended".to_owned()),
            n => bytes += n,
        }
        if let Some(data) = line.strip_prefix("data: {\"counted\":true,") {
            return if data.contains("\"rows\":[{") { Ok(bytes) } else { Err(line) };
        }
        if line.starts_with("data: {\"error\"") {
            return Err(line);
        }
    }
}
