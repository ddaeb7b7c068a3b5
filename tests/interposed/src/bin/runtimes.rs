//! A `main` that is no microprocess. The first thread starts a runtime, or the program builds one.
kumihimo::interpose!();

use std::thread;

use kumihimo::runtime::{Runtime, metrics};

fn is_microprocess() -> bool {
    kumihimo::thread::current().id().resource().is_some()
}

fn main() {
    assert!(!is_microprocess());
    match std::env::args().nth(1).as_deref() {
        Some("implicit") => {
            assert!(metrics().is_none());
            assert!(thread::spawn(is_microprocess).join().expect("no panic"));
        }
        Some("built") => {
            let runtime = Runtime::builder().vps(1).build().expect("a runtime");
            assert!(thread::spawn(is_microprocess).join().expect("no panic"));
            assert_eq!(metrics().expect("it runs").vps.len(), 1, "no other runtime has started");
            let both = runtime.run(|| {
                (is_microprocess(), thread::spawn(is_microprocess).join().expect("no panic"))
            });
            assert_eq!(both, (true, true));
        }
        other => panic!("{other:?}: implicit or built"),
    }
    println!("done");
}
