use std::time::Duration;

use kumihimo_runtime::cancel::{Cancelled, masked};
use kumihimo_runtime::{runtime::Runtime, thread};

use super::ReceivedRegions;

/// A call takes its reply and the permit of a cancellation with one wait.
#[test]
fn cancelled_thread_does_not_wait_for_a_region() {
    let runtime = Runtime::builder().vps(1).build().unwrap();
    let ended = runtime.run(|| {
        let waits = thread::spawn(|| {
            let regions = ReceivedRegions::default();
            masked(|| {
                thread::current().cancel();
                thread::sleep(Duration::from_millis(1));
            });
            regions.get(1, false, || ()).map(drop)
        });
        waits.join()
    });
    assert!(ended.unwrap_err().is::<Cancelled>());
}
