//! The unwinder: unwind tables, registers and contents of stacks.

use std::cell::RefCell;

use arbitrary::{Arbitrary, Unstructured};
use kumihimo_backtrace::unwind::{From, Trace, Walker, call_in};
use kumihimo_backtrace::{Symbols, copy};

/// Most frames of a trace.
const FRAMES: usize = 128;
/// Where the code and the tables of a file lie, and the stack.
const CODE: u64 = 0x1000;
const TABLES: u64 = 0x2_0000;
const STACK: usize = 0x7f00_0000_0000;

/// `DW_OP_bra` and `DW_OP_skip`.
const BRANCHES: [u8; 2] = [0x28, 0x2f];

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Begin {
    Saved,
    Call(u16),
    Interrupted(u16, u16),
}

thread_local! {
    /// The files of this process, and their names.
    static OWN: RefCell<(Walker, Symbols)> = RefCell::new({
        let walker = Walker::of_all_loaded();
        let symbols = Symbols::new(walker.modules.clone());
        (walker, symbols)
    });
}

/// Byte 0: tables from the input, or those of this process; or a line of proc_pid_syscall(5).
pub(crate) fn unwind(data: &[u8]) {
    let [how, data @ ..] = data else { return };
    let mut input = Unstructured::new(data);
    match how % 4 {
        0 | 1 => {
            let _ = hostile_tables(&mut input);
        }
        2 => {
            let _ = hostile_stack(&mut input);
        }
        _ => {
            let text = String::from_utf8_lossy(data);
            if let Some((from, _)) = call_in(&text) {
                assert!(text.split_whitespace().count() >= 3);
                let _ = from.stack_pointer();
            }
        }
    }
}

fn registers(begin: Begin, code: u64, stack: usize) -> From {
    let pc = |offset: u16| (code as usize).wrapping_add(offset.into());
    match begin {
        Begin::Saved => From::Saved(stack),
        Begin::Call(offset) => From::Call { stack_pointer: stack, pc: pc(offset) },
        Begin::Interrupted(offset, frame) => From::Interrupted {
            stack_pointer: stack,
            frame_pointer: stack.wrapping_add(frame.into()),
            pc: pc(offset),
        },
    }
}

fn check(trace: &Trace) {
    assert!(trace.frames.len() <= FRAMES);
    assert!(trace.begins_with.is_none() || trace.frames.is_empty());
}

/// A file with any tables.
fn hostile_tables(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let begin: Begin = input.arbitrary()?;
    let table = usize::from(input.arbitrary::<u16>()? % 256);
    let length = usize::from(input.arbitrary::<u16>()? % 1024);
    let stack = input.bytes(length.min(input.len()))?.to_vec();
    let segment = input.bytes(input.len())?;
    // An expression that branches back may loop for ever: framehop does not bound it (see
    // docs/src/reference/limits/tools.md).
    if segment.iter().any(|byte| BRANCHES.contains(byte)) {
        return Ok(());
    }
    let mut walker = Walker::of_file(CODE..CODE + 0x1_0000, segment, TABLES, table);
    let trace = walker.walk_copy(registers(begin, CODE, STACK), &stack);
    check(&trace);
    // The walk depends on nothing but its input.
    let again = walker.walk_copy(registers(begin, CODE, STACK), &stack);
    assert_eq!(trace.frames, again.frames);
    Ok(())
}

/// Stacks of any content, with code of this process.
fn hostile_stack(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let begin: Begin = input.arbitrary()?;
    let offset = u64::from(input.arbitrary::<u32>()?);
    // Each word is an address in code, one of the stack, or anything.
    let mut words = Vec::new();
    OWN.with_borrow_mut(|(walker, symbols)| {
        let code = walker.modules[0].addresses.clone();
        let pc = code.start + offset % (code.end - code.start);
        let at = words.as_ptr() as usize;
        while words.len() < 256 && !input.is_empty() {
            let (what, value) = (input.arbitrary::<u8>()?, input.arbitrary::<u32>()?);
            words.push(match what % 4 {
                0 => code.start + u64::from(value) % (code.end - code.start),
                1 => (at as u64).wrapping_add(u64::from(value % 2048) & !7),
                2 => u64::from(value) << 32,
                _ => value.into(),
            });
        }
        let at = words.as_ptr() as usize;
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        let from = registers(begin, pc, at);
        let trace = walker.walk_copy(from, &bytes);
        check(&trace);
        // The same from memory.
        let end = at + bytes.len();
        let walked = walker.walk(at..end, || Some(from));
        assert_eq!(
            walked.map(|trace| trace.frames),
            (bytes.len() >= 32).then_some(trace.frames.clone())
        );
        let mut again = vec![0; bytes.len()];
        assert_eq!(copy(at, &mut again), bytes.len());
        assert_eq!(again, bytes);
        let mut text = String::new();
        // Names take milliseconds.
        if trace.frames.len() <= 4 {
            symbols.render(&trace.frames, &mut text);
            symbols.render_all(&trace.frames, &mut text);
            assert!(trace.frames.is_empty() || !text.is_empty());
        }
        Ok(())
    })
}
