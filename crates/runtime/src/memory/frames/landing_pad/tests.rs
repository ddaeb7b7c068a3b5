use super::*;

const FUNCTION: usize = 0x1000;

/// The call at `offset` of a function with these calls: start, size, landing pad, action.
fn landing_pad(calls: &[[u8; 4]], actions: &[u8], offset: usize) -> LandingPad {
    // Landing pads relative to the function; types with an encoding and an offset; LEB128.
    let mut table = vec![0xff, 0x9b, 0x40, 0x01, 4 * calls.len() as u8];
    table.extend(calls.iter().flatten());
    table.extend(actions);
    // SAFETY: a table as above.
    unsafe { find(table.as_ptr(), FUNCTION, FUNCTION + offset) }
}

#[test]
fn each_kind_of_action_is_recognised() {
    let calls =
        [[0, 4, 0, 0], [4, 4, 0x20, 0], [8, 4, 0x20, 1], [12, 4, 0x20, 3], [16, 4, 0x20, 5]];
    // Type, and offset of the next action: caught, a filter, a cleanup.
    let actions = [1, 0, 0x7f, 0, 0, 0];
    let found: Vec<_> =
        (0..20).step_by(4).map(|at| landing_pad(&calls, &actions, at + 1)).collect();
    use LandingPad::*;
    assert_eq!(found, [None, Cleanup, Catch, Terminate, Cleanup]);
}

#[test]
fn call_without_an_entry_ends_the_process() {
    let calls = [[4, 4, 0, 0], [16, 4, 0, 0]];
    for at in [0, 3, 8, 12, 20, 100] {
        assert_eq!(landing_pad(&calls, &[], at), LandingPad::Terminate, "{at}");
    }
    assert_eq!(landing_pad(&calls, &[], 4), LandingPad::None);
    assert_eq!(landing_pad(&[], &[], 4), LandingPad::Terminate);
}

#[test]
fn function_without_a_table_lets_panics_pass() {
    // SAFETY: null.
    assert_eq!(unsafe { find(std::ptr::null(), FUNCTION, FUNCTION) }, LandingPad::None);
}

#[test]
fn fixed_encodings_are_read() {
    // udata4, as GCC writes it: one call of 8 bytes with a cleanup.
    let table = [0xff, 0xff, 0x03, 13, 0, 0, 0, 0, 8, 0, 0, 0, 0x20, 0, 0, 0, 0];
    // SAFETY: a table as the compiler writes it.
    let at = |offset| unsafe { find(table.as_ptr(), FUNCTION, FUNCTION + offset) };
    assert_eq!((at(7), at(8)), (LandingPad::Cleanup, LandingPad::Terminate));
}

#[test]
fn leb128_of_several_bytes_is_read() {
    let bytes = [0xe5, 0x8e, 0x26, 0x80, 0x7f, 0x3f];
    let mut reader = Reader { at: bytes.as_ptr() };
    // SAFETY: three values.
    unsafe {
        assert_eq!(reader.unsigned(), 624_485);
        assert_eq!(reader.signed(), -128);
        assert_eq!(reader.signed(), 63);
    }
}
