//! Chapter 13: a panic is caught at the join of its microprocess, and a stack overflow is reported
//! by name.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::panic;
use std::process::Command;

use kumihimo::thread::Builder;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::tour::page::text;
use crate::tour::{Args, Figures, check, in_runtime};

const NAME: &str = "digger";
const STACK: usize = 64 << 10;
const ABORTED: i32 = 6;

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    // The hook would print the panic in the middle of the text.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let caught = in_runtime(|| {
        let one = Builder::new().name("clumsy".into()).spawn(|| -> u32 { panic!("it slipped") });
        Ok(one.map_err(|e| e.to_string())?.join())
    });
    panic::set_hook(hook);
    let payload = caught?.err().ok_or("join() returned no panic")?;
    let words = payload.downcast_ref::<&str>().copied().unwrap_or("");
    check(words == "it slipped", || format!("join returned another panic: {words:?}"))?;
    text::say(&format!(
        "A microprocess panicked. join() returned Err(\"{words}\"); no other microprocess was affected."
    ));
    println!();
    text::say(
        "Another microprocess, in a child process, calls itself recursively until it reaches the guard page at the \
         end of its stack. Message of the child (one line) and its exit status:",
    );
    println!();
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let child =
        Command::new(program).args(["tour", "--overflow"]).output().map_err(|e| e.to_string())?;
    let output = String::from_utf8_lossy(&child.stderr);
    output.lines().for_each(text::say);
    let signal = child.status.signal();
    println!("signal {}", signal.map_or("none".to_owned(), |s| s.to_string()));
    check(is_named(&output), || "the child printed no message about the overflow".to_owned())?;
    check(signal == Some(ABORTED), || format!("the child ended with {}", child.status))?;
    figures.add("a panic; a stack overflow", "", "caught; named");
    Ok(())
}

fn is_named(output: &str) -> bool {
    output.lines().any(|line| line.contains(NAME) && line.contains("overflowed its stack"))
}

/// The child process.
pub fn overflow() -> Result<(), String> {
    // No core file for a deliberate abort.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    in_runtime(|| {
        let one = Builder::new()
            .name(NAME.into())
            .stack_size(STACK)
            .spawn(|| dig(0))
            .map_err(|e| e.to_string())?;
        Err(format!("the stack had no end: {:?}", one.join()))
    })
}

fn dig(depth: u64) -> u64 {
    let frame = black_box([depth; 32]);
    if depth == u64::MAX { 0 } else { dig(depth + 1) + black_box(frame)[7] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_a_stack_overflow_is_recognised() {
        assert!(is_named(
            "kumihimo: microprocess 'digger' (id 3) overflowed its stack of 64 KiB; set it\n"
        ));
        assert!(!is_named("Segmentation fault\n") && !is_named(""));
    }
}
