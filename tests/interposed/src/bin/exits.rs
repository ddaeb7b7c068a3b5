//! Ends as its argument says.
kumihimo::interpose!();

use std::process::ExitCode;
use std::thread;

#[kumihimo::main]
fn main() -> Result<ExitCode, String> {
    match std::env::args().nth(1).as_deref() {
        Some("code") => Ok(7.into()),
        Some("error") => Err("on purpose".to_owned()),
        Some("panic") => panic!("on purpose"),
        // Threads that are left end with the process.
        Some("detached") => {
            (0..100).for_each(|_| {
                drop(thread::spawn(|| {
                    loop {
                        thread::park()
                    }
                }))
            });
            Ok(ExitCode::SUCCESS)
        }
        // Another thread ends the process.
        Some("exit") => {
            thread::spawn(|| std::process::exit(9)).join().map_err(|_| "a panic")?;
            unreachable!()
        }
        other => Err(format!("{other:?}: code, error, panic, detached or exit")),
    }
}
