//! What a program makes before its first microprocess, as most do that listen.

use kumihimo_io::net::TcpListener;
use kumihimo_resource::locking::Locking;
use kumihimo_runtime::membership;
use kumihimo_runtime::runtime::Runtime;
use kumihimo_runtime::thread;

/// Ids of one process are of one address space, whichever resource came first; so it can be found
/// from outside.
#[test]
fn socket_opened_before_the_first_microprocess_shares_its_address_space_id() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let own = membership::number().unwrap_or(0);
    assert_eq!(listener.resource().expect("it is a resource").location().space(), own);
    // It began with the socket, and so did the locking design.
    let has = membership::table().locking();
    for other in Locking::ALL.into_iter().filter(|&other| other != has) {
        let refused =
            Runtime::builder().locking(other).build().expect_err("the design is the process's");
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    }
    let one = thread::spawn(|| ());
    if let Some(id) = one.thread().id().resource() {
        assert_eq!(id.location().space(), own);
    }
    one.join().expect("no panic");
    assert_eq!(membership::number().unwrap_or(0), own);
}
