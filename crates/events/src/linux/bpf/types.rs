//! Type information for the kernel: of the functions at the tracepoint and of their maps' values
//! (Documentation/bpf/btf.rst).

pub(super) const U32: u32 = 1;
/// The value of `threads`: a process and a slot.
pub(super) const U64: u32 = 2;
const OPAQUE: u32 = 3;
/// The value of an inner map of `works`.
pub(super) const WORK: u32 = 4;
const FUNCTION: u32 = 5;
pub(super) const SWITCHED: u32 = 6;
pub(super) const CAME_BACK: u32 = 7;

const NAMES: &[u8] = b"\0u32\0u64\0bpf_task_work\0opaque\0work\0switched\0came_back\0";

fn name(text: &str) -> u32 {
    let text = format!("\0{text}\0");
    NAMES.windows(text.len()).position(|at| at == text.as_bytes()).expect("a name of these") as u32
        + 1
}

pub(super) fn blob() -> Vec<u8> {
    const INT: u32 = 1 << 24;
    const STRUCT: u32 = 4 << 24;
    const FUNC: u32 = 12 << 24;
    const FUNC_PROTO: u32 = 13 << 24;
    let types = [
        // Name, kind, bytes; for an int, bits.
        &[name("u32"), INT, 4, 32][..],
        &[name("u64"), INT, 8, 64],
        // The kernel knows it by its name. One member: name, type, place.
        &[name("bpf_task_work"), STRUCT | 1, 8, name("opaque"), U64, 0],
        &[name("work"), STRUCT | 1, 8, name("work"), OPAQUE, 0],
        // What it returns.
        &[0, FUNC_PROTO, U32],
        // Static functions.
        &[name("switched"), FUNC, FUNCTION],
        &[name("came_back"), FUNC, FUNCTION],
    ]
    .concat();
    let length = types.len() as u32 * 4;
    // magic u16, version u8, flags u8, hdr_len, type_off, type_len, str_off, str_len.
    let header = [0x1_eb9f, 24, 0, length, length, NAMES.len() as u32];
    header
        .iter()
        .chain(&types)
        .flat_map(|word| word.to_le_bytes())
        .chain(NAMES.iter().copied())
        .collect()
}
