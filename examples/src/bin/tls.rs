//! TLS by the crate `rustls`, which accepts any stream that implements `Read` and `Write`. `rcgen`
//! creates the certificate, which is written to a file.
//!
//! `cargo run --release -p kumihimo-examples --bin tls -- serve 127.0.0.1:8443 /tmp/certificate`:
//! an echo server; then `... --bin tls -- ask 127.0.0.1:8443 /tmp/certificate "some words"`.

use kumihimo::net::{TcpListener, TcpStream};
use kumihimo::thread;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use std::error::Error;
use std::io::{self, Read, Write};
use std::sync::Arc;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;
const NAME: &str = "localhost";

/// Serves one connection in its microprocess. Handshake, reads and writes block no other
/// microprocess.
fn echo(stream: TcpStream, config: Arc<ServerConfig>) -> Outcome {
    let mut stream = StreamOwned::new(ServerConnection::new(config)?, stream);
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            n => stream.write_all(&buffer[..n])?,
        }
    }
    stream.conn.send_close_notify();
    Ok(stream.flush()?)
}

fn serve(address: &str, certificate: &str) -> Outcome {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let own = vec![made.cert.der().clone()];
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(own, key.into())?;
    let (config, listener) = (Arc::new(config), TcpListener::bind(address)?);
    std::fs::write(certificate, made.cert.der())?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, config) = (stream?, config.clone());
        thread::Builder::new().spawn(move || {
            if let Err(e) = echo(stream, config) {
                eprintln!("a client: {e}");
            }
        })?;
    }
    Ok(())
}

fn ask(address: &str, certificate: &str, words: &str) -> Outcome<String> {
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from(std::fs::read(certificate)?))?;
    let config = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), ServerName::try_from(NAME)?)?;
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address)?);
    stream.write_all(words.as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(io::read_to_string(stream)?)
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(|a| &**a).collect::<Vec<_>>()[..] {
        ["serve", address, certificate] => serve(address, certificate),
        ["ask", address, certificate, words] => {
            let (address, certificate, words) =
                (address.to_owned(), certificate.to_owned(), words.to_owned());
            let asked = thread::spawn(move || {
                ask(&address, &certificate, &words).map_err(|e| e.to_string())
            });
            println!("{}", asked.join().expect("no panic")?);
            Ok(())
        }
        _ => Err("usage: serve ADDRESS CERTIFICATE, or ask ADDRESS CERTIFICATE WORDS".into()),
    }
}
