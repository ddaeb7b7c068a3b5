//! TLS with a certificate of one's own.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};

use super::double::Folder;
use super::plain::{HUNG, Reply, Web, request};

/// A name that leads nowhere; the certificate is for it.
const NAME: &str = "kumi.example";

struct Secure {
    web: Web,
    config: Arc<ClientConfig>,
}

impl Secure {
    fn start(folder: &Folder) -> Secure {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
            path.to_str().expect("text").to_owned()
        };
        let certificate = write("certificate", &made.cert.pem());
        let key = write("key", &made.signing_key.serialize_pem());
        let password = write("password", "correct horse\n");
        // An address that other machines could reach, if this machine had a network.
        let web = Web::start_with(
            folder,
            &[
                "--listen",
                "0.0.0.0:0",
                "--certificate",
                &certificate,
                "--key",
                &key,
                "--password-file",
                &password,
            ],
        );
        let mut trusted = RootCertStore::empty();
        trusted.add(made.cert.der().clone()).expect("a certificate");
        let config = ClientConfig::builder_with_provider(crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(trusted)
            .with_no_client_auth();
        Secure { web, config: Arc::new(config) }
    }

    fn connect(&self) -> TcpStream {
        let port = self.web.place.rsplit_once(':').expect("a port").1;
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
        stream.set_read_timeout(Some(HUNG)).expect("a time limit");
        stream
    }

    fn ask(&self, host: &str, method: &str, target: &str, fields: &str, body: &str) -> Reply {
        let name = ServerName::try_from(NAME).expect("a name");
        let connection = ClientConnection::new(self.config.clone(), name).expect("settings");
        let mut stream = StreamOwned::new(connection, self.connect());
        let text = request(host, method, target, fields, body);
        stream.write_all(text.as_bytes()).expect("the certificate is trusted");
        Reply::of(stream)
    }
}

#[test]
fn password_and_certificate_open_the_server() {
    let folder = Folder::new("web-tls");
    let secure = Secure::start(&folder);
    let form = |origin: &str| {
        format!("Origin: {origin}\r\nContent-Type: application/x-www-form-urlencoded\r\n")
    };
    let own = form(&format!("https://{NAME}"));
    let right = "password=correct+horse";
    let reply = secure.ask(NAME, "POST", "/sign-in", &own, right);
    assert_eq!(reply.status, 303, "{reply:?}");
    let cookie = reply.field("set-cookie").expect("a cookie");
    assert!(cookie.starts_with("__Host-kumi_web") && cookie.ends_with("; Secure"), "{cookie}");
    let cookie = cookie.split(';').next().expect("a value");
    let page = secure.ask(NAME, "GET", "/", &format!("Cookie: {cookie}\r\n"), "");
    assert!(page.status == 200 && page.body.contains("page-key"), "{page:?}");

    assert_eq!(secure.ask(NAME, "POST", "/sign-in", &own, "password=wrong").status, 403);
    let plain = form(&format!("http://{NAME}"));
    assert_eq!(secure.ask(NAME, "POST", "/sign-in", &plain, right).status, 403);
    // Names that the certificate does not have: of strangers, and of this machine.
    for host in ["evil.example", "127.0.0.1", "localhost"] {
        let reply = secure.ask(host, "GET", "/", "", "");
        assert_eq!(reply.status, 421, "{host}");
    }
}

#[test]
fn plain_requests_get_no_answer_under_tls() {
    let folder = Folder::new("web-tls-plain");
    let secure = Secure::start(&folder);
    let mut stream = secure.connect();
    stream.write_all(request(NAME, "GET", "/", "", "").as_bytes()).expect("sent");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // The server goes on.
    assert_eq!(secure.ask(NAME, "GET", "/", "", "").status, 200);
}

#[test]
fn key_that_others_may_read_is_refused() {
    let folder = Folder::new("web-tls-key");
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let paths = ["certificate", "key"].map(|name| folder.path().join(name));
    fs::write(&paths[0], made.cert.pem()).expect("written");
    fs::write(&paths[1], made.signing_key.serialize_pem()).expect("written");
    fs::set_permissions(&paths[1], Permissions::from_mode(0o644)).expect("changed");
    let [certificate, key] = paths.each_ref().map(|path| path.to_str().expect("text"));
    let args = ["web", "--certificate", certificate, "--key", key];
    let (code, said, complaints) = folder.kumi(&args);
    assert_eq!((code, said.as_str()), (1, ""));
    assert!(complaints.contains("other users may use this private key"), "{complaints}");
}
