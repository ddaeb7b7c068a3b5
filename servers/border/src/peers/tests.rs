use std::path::PathBuf;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::config::files;
use crate::engine::{Boxed, Call, Grpc, Incoming, Opening, Reply, Room, ServedItems, Service};
use crate::site::{Member, init};
use crate::tls::Tls;

/// A border of another version.
struct Later;

impl Service for Later {
    fn hello(&self, _from: Arc<Identity>, other: Hello) -> Boxed<Result<Hello, Refused>> {
        let version = "9.9.9".to_owned();
        Box::pin(async move { Ok(Hello { protocol: VERSION + 1, version, ..other }) })
    }

    fn spaces(&self, _from: Arc<Identity>, _epoch: Epoch) -> Boxed<Result<Vec<u16>, Refused>> {
        Box::pin(async { panic!("no request is sent to another version") })
    }

    fn room(&self, _from: Arc<Identity>) -> Boxed<Room> {
        Box::pin(async { panic!("no request is sent to another version") })
    }

    fn call(&self, _from: Arc<Identity>, _call: Call, _room: Room) -> Boxed<Reply> {
        Box::pin(async { panic!("no request is sent to another version") })
    }

    fn stream(
        &self,
        _from: Arc<Identity>,
        _call: Call,
        _room: Room,
    ) -> Boxed<Result<ServedItems, kumihimo::gate::Error>> {
        Box::pin(async { panic!("no request is sent to another version") })
    }

    fn largest(&self, _from: &Identity) -> usize {
        0
    }

    fn control(
        &self,
        _from: Arc<Identity>,
        _opening: Opening,
        _input: Incoming,
    ) -> Boxed<Result<mpsc::Receiver<Bytes>, Refused>> {
        Box::pin(async { panic!("no request is sent to another version") })
    }
}

/// Certificates of `a`, and beside them of `b`.
fn site(test: &str) -> (PathBuf, PathBuf) {
    let base = std::env::temp_dir().join(format!("kumihimo-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&base);
    let folder = base.join("border");
    let member = |text: &str| text.parse::<Member>().expect("a machine");
    init(&folder, &member("a=127.0.0.1:1"), &[member("b=127.0.0.1:1")]).expect("certificates");
    (base.clone(), folder)
}

fn engine(folder: &std::path::Path) -> (Arc<dyn Engine>, Identity) {
    let tls = Arc::new(Tls::load(&files(folder)).expect("certificates"));
    let own = tls.own().clone();
    (Arc::new(Grpc::new(tls).expect("an engine")), own)
}

#[test]
fn other_version_is_unreachable_with_both_versions() {
    let (base, folder) = site("border-version");
    let runtime = tokio::runtime::Runtime::new().expect("kernel threads");
    let rows = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let place = listener.local_addr().expect("bound").to_string();
        let (theirs, _) = engine(&folder.with_file_name("border-b"));
        tokio::spawn(theirs.serve(listener, Arc::new(Later)));
        let (ours, identity) = engine(&folder);
        let peers = Peers::new("a", None, Epoch(1), identity, ours);
        peers.keep(Configured { name: "b".into(), place, identity: "b".into() });
        peers.rows().await
    });
    runtime.shutdown_background();
    std::fs::remove_dir_all(&base).expect("its own folder");
    assert_eq!((rows[1].name.as_str(), rows[1].state), ("b", MachineState::Unreachable));
    let why = rows[1].why.as_deref().unwrap_or_default();
    let versions = format!("uses version {} of the service", VERSION + 1);
    assert!(why.contains(&versions) && why.contains("Kumihimo 9.9.9"), "{why}");
}

#[test]
fn listed_machine_stays_when_a_name_for_dns_no_longer_leads_to_it() {
    let (base, folder) = site("border-listed");
    let runtime = tokio::runtime::Runtime::new().expect("kernel threads");
    let (place, name) = ("127.0.0.1:1".to_owned(), "b".to_owned());
    let rows = runtime.block_on(async {
        let (ours, identity) = engine(&folder);
        let peers = Peers::new("a", None, Epoch(1), identity, ours);
        peers.keep(Configured { name: name.clone(), place: place.clone(), identity: name.clone() });
        assert!(peers.is_listed("b") && peers.at(&place).is_none());
        peers.forget(&place);
        peers.rows().await
    });
    runtime.shutdown_background();
    std::fs::remove_dir_all(&base).expect("its own folder");
    assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}
