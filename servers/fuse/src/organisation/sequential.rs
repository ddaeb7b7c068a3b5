//! Sequential: one loop takes the next request of any mount and sends the reply before it takes
//! another. This is MINIX's file server, the baseline in P1.

use std::io;
use std::time::Instant;

use kumihimo::fuse::Device;
use kumihimo::sync::{Mutex, PoisonError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::chore::{CHORE_EVERY, Chore};
use crate::intake::{Buffer, Mounted, received, send};
use crate::protocol::service::Answer;
use crate::protocol::wire::{Message, Reply};

/// Held while a request is handled, whether it arrived through a mount or a gate.
pub(super) static TURN: Mutex<()> = Mutex::new(());

/// Serves until all mounts have ended.
pub(super) fn serve(mut mounts: Vec<Mounted>, chore: &Chore) -> io::Result<()> {
    let (mut buffer, mut reply) = (Buffer::default(), Reply::default());
    let mut next_chore = Instant::now() + CHORE_EVERY;
    while !mounts.is_empty() {
        let mut idle = true;
        mounts.retain(|mount| match received(|| mount.device.try_receive(buffer.room())) {
            Some(Some(length)) => {
                idle = false;
                let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
                if mount.service.handle(Message::whole(buffer.first(length)), &mut reply)
                    == Answer::Send
                {
                    send(&mount.device, &reply);
                }
                true
            }
            Some(None) => true,
            None => false,
        });
        if Instant::now() >= next_chore {
            let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            chore();
            next_chore = Instant::now() + CHORE_EVERY;
        }
        if idle && !mounts.is_empty() {
            wait(mounts.iter().map(|mount| &*mount.device), next_chore)?;
        }
    }
    Ok(())
}

/// Waits until one of the devices has a request, or until `until`.
fn wait<'a>(devices: impl Iterator<Item = &'a Device>, until: Instant) -> io::Result<()> {
    let mut fds: Vec<_> = devices.map(|device| PollFd::new(device, PollFlags::IN)).collect();
    let left = until.saturating_duration_since(Instant::now());
    let left =
        Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
    match poll(&mut fds, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
