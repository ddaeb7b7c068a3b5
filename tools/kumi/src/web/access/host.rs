//! The name under which the browser has reached the server, and the page that a request comes from.
//!
//! A page of a stranger can let its own name lead to this machine (DNS rebinding). The browser then
//! takes this server for that page's own, but names it in `Host` as it knows it. So only names that
//! a stranger cannot own are admitted: those of the loopback interface, and under TLS those in the
//! certificate, without which the browser does not connect.

use std::net::Ipv4Addr;

use crate::web::http::request::Request;
use crate::web::http::tls::Tls;

/// A reason why a request is refused: status and a line of text.
pub type Refusal = (u16, &'static str);

/// Checks `Host`. Returns the origin of this server's pages as the browser knows it.
pub fn origin(request: &Request, tls: Option<&Tls>, is_local: bool) -> Result<String, Refusal> {
    let Some(host) = request.field("host") else {
        return Err((400, "the request has no single host"));
    };
    let name = name(host).ok_or((400, "the host is malformed"))?;
    if !(is_local && is_loopback(name) || tls.is_some_and(|tls| tls.is_for(name))) {
        return Err((
            421,
            "this server is reached by localhost, 127.0.0.1, [::1], or a name in its certificate",
        ));
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{host}"))
}

/// The name in `name`, `name:port` or `[address]:port`.
fn name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[').map(|rest| rest.find(']')) {
        Some(end) => {
            let (name, rest) = host.split_at(end? + 2);
            (name, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    (!name.is_empty() && port.is_none_or(is_port)).then_some(name)
}

/// Whether a name always leads to the loopback interface. The port is not compared: a forwarded
/// connection (`ssh -L`) has another one.
fn is_loopback(name: &str) -> bool {
    let address = name.parse::<Ipv4Addr>();
    name.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.is_loopback())
        || name == "[::1]"
}

/// Checks that a request comes from a page of this server, or from no page. `changes` demands a
/// page: browsers name it in each request that changes something.
pub fn is_own_page(request: &Request, origin: &str, changes: bool) -> Result<(), Refusal> {
    const FOREIGN: Refusal = (403, "the request comes from a page of another server");
    match request.field("origin") {
        Some(of) if of == origin => {}
        None if !changes => {}
        _ => return Err(FOREIGN),
    }
    match request.field("sec-fetch-site") {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(FOREIGN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_from_hosts() {
        for (host, want) in [
            ("localhost", Some("localhost")),
            ("localhost:8080", Some("localhost")),
            ("127.0.0.1:1", Some("127.0.0.1")),
            ("[::1]:8080", Some("[::1]")),
            ("[::1]", Some("[::1]")),
            ("[::1]8080", None),
            ("[::1", None),
            ("localhost:", None),
            ("localhost:99999", None),
            ("localhost:8080:1", None),
            ("::1", None),
            ("", None),
        ] {
            assert_eq!(name(host), want, "{host}");
        }
    }

    #[test]
    fn names_of_strangers_are_no_loopback() {
        for stranger in
            ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "0.0.0.0", "127.1"]
        {
            assert!(!is_loopback(stranger), "{stranger}");
        }
        assert!(is_loopback("LOCALHOST") && is_loopback("127.8.9.1") && is_loopback("[::1]"));
    }
}
