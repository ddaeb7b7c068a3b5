use std::time::{Duration, Instant};

use super::*;

/// Number of sockets that are created while another thread waits for each. Without the rename, a
/// connection came between bind(2) and listen(2) a few times in a thousand.
const SOCKETS: u16 = 500;

#[test]
fn visible_socket_takes_connections() {
    let path = std::env::temp_dir().join(format!("kumihimo-visible-{}", std::process::id()));
    let ours = Directory::own(&path).expect("a directory");
    let theirs = Directory::at(&path).expect("the same");
    let name = |number: u16| format!("{number}.socket");
    let refused = std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            let connect = |number| {
                while !theirs.socket(&name(number)).expect("readable") {
                    std::hint::spin_loop();
                }
                let deadline = Instant::now() + Duration::from_secs(600);
                reach(&theirs, &space(number), &name(number), SocketType::STREAM, deadline).err()
            };
            (1..=SOCKETS).filter_map(connect).map(|e| e.to_string()).collect::<Vec<_>>()
        });
        let create = |number| listen(&ours, &name(number), SocketType::STREAM, 8);
        let sockets: Result<Vec<_>, _> = (1..=SOCKETS).map(create).collect();
        let refused = client.join().expect("no panic");
        // Until the client has reached them.
        drop(sockets.expect("sockets"));
        refused
    });
    std::fs::remove_dir_all(&path).expect("its own folder");
    assert_eq!(refused, Vec::<String>::new());
}
