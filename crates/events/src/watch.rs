//! Events where nothing is allowed: a kernel thread's state, read from /proc.
//!
//! Source: proc_pid_stat(5). Read only for a kernel thread whose VP has not switched for a while.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A kernel thread of this process, to be asked what it does.
#[derive(Debug)]
pub struct Watched(File);

impl Watched {
    /// The calling kernel thread.
    ///
    /// # Errors
    /// What open(2) says: no /proc, or no descriptor left.
    pub fn this_thread() -> io::Result<Watched> {
        // SAFETY: takes nothing, cannot fail.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) };
        File::open(format!("/proc/self/task/{tid}/stat")).map(Watched)
    }

    /// Whether it sleeps in the kernel, interruptibly or not. False if it has ended. About 2 us.
    pub fn sleeps(&self) -> bool {
        let mut text = [0; 96];
        let Ok(n) = self.0.read_at(&mut text, 0) else { return false };
        // The name, in parentheses, may hold anything; the state follows the last one.
        let text = &text[..n];
        let state = text.iter().rposition(|b| *b == b')').and_then(|at| text.get(at + 2));
        matches!(state, Some(b'S' | b'D'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::mpsc;

    #[test]
    fn one_that_reads_an_empty_pipe_sleeps_and_one_that_computes_does_not() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let me = Watched::this_thread().expect("/proc");
            assert!(!me.sleeps());
            tell.send(me).expect("it listens");
            reader.read_to_end(&mut Vec::new()).expect("the end")
        });
        let other = told.recv().expect("it tells");
        while !other.sleeps() {
            std::thread::yield_now();
        }
        drop(writer);
        thread.join().expect("no panic");
        while other.sleeps() {
            std::thread::yield_now();
        }
    }
}
