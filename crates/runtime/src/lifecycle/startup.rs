//! The start of a runtime: kernel threads begin to carry the VPs.

use std::io;
use std::time::Duration;

use crate::microprocess::attributes;
use crate::process::board;
use crate::scheduler::instance::Instance;

impl Instance {
    /// Starts the kernel threads that carry the VPs.
    pub(crate) fn start(&self) -> io::Result<()> {
        // Read on the caller's kernel thread: microprocesses begin as threads that it starts would.
        attributes::usual();
        // An address space that joins the board later notifies the others.
        if board::arbitrates() && board::others() != 0 || self.settings.share.is_some() {
            self.note_other_spaces();
        }
        for vp in 0..self.open() {
            self.resume_with_retry(vp as u32).map_err(|e| {
                let vps = self.open();
                io::Error::new(
                    e.kind(),
                    format!(
                        "kernel thread for virtual processor {vp} of {vps}: {e}; use fewer (Builder::vps) or raise the limit (ulimit -u)"
                    ),
                )
            })?;
        }
        Ok(())
    }

    /// Has a kernel thread carry `vp`. If the kernel refuses a thread with EAGAIN, which may be
    /// temporary, retries for half a second.
    fn resume_with_retry(&self, vp: u32) -> io::Result<()> {
        const LONGEST: Duration = Duration::from_millis(256);
        let mut pause = Duration::from_millis(1);
        loop {
            match self.kernel.resume(vp, None) {
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && pause <= LONGEST => {
                    std::thread::sleep(pause);
                    pause *= 2;
                }
                done => return done,
            }
        }
    }
}
