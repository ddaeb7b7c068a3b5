//! Invalid arguments: each call returns an error number, sets a message, and has no other effect.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use kumihimo_c::error::kumi_error_text;
use kumihimo_c::gate::bytes::{Bytes, kumi_bytes_free};
use kumihimo_c::gate::region::*;
use kumihimo_c::gate::serve::*;
use kumihimo_c::gate::*;
use kumihimo_c::options::{LAYOUT, RawOptions, kumi_options_init};

/// Zeroed memory of a C program, large enough for any structure here.
#[repr(C, align(16))]
struct Memory([u8; 256]);

impl Memory {
    fn options() -> Memory {
        let mut memory = Memory([0; 256]);
        // SAFETY: the memory is large enough.
        assert_eq!(unsafe { kumi_options_init(memory.at(), LAYOUT.1) }, 0);
        memory
    }

    fn at<T>(&mut self) -> *mut T {
        (&raw mut self.0).cast()
    }

    fn set<T>(&mut self, field: &str, value: T) {
        let at = LAYOUT.2.iter().find(|(name, _)| *name == field).expect("a field").1;
        // SAFETY: the field lies within the memory.
        unsafe { self.at::<u8>().add(at).cast::<T>().write(value) };
    }
}

fn text() -> String {
    // SAFETY: the string has a terminating zero.
    unsafe { CStr::from_ptr(kumi_error_text()) }.to_str().expect("UTF-8").to_owned()
}

fn refused(number: c_int, says: &str) {
    assert_eq!(number, libc::EINVAL, "{}", text());
    assert!(text().contains(says), "{says:?}: {}", text());
}

extern "C" fn nothing(
    _: *const c_void,
    _: usize,
    _: *mut Reply,
    _: *const Caller,
    _: *mut c_void,
) -> c_int {
    0
}

fn connect(name: *const c_char, options: *const RawOptions) -> c_int {
    let mut gate = std::ptr::without_provenance_mut(16);
    // SAFETY: `name` and `options` are NULL or valid.
    let failed = unsafe { kumi_gate_connect(&raw mut gate, name, options) };
    assert!(gate.is_null());
    failed
}

#[test]
fn null_pointers_and_malformed_texts_are_refused() {
    // SAFETY: NULL pointers are checked.
    unsafe {
        refused(kumi_gate_connect(null_mut(), c"a".as_ptr(), null()), "NULL");
        refused(connect(null(), null()), "name is NULL");
        refused(connect(c"\xff".as_ptr(), null()), "UTF-8");
        refused(kumi_gate_call(null(), null(), 0, null_mut(), -1), "gate is NULL");
        refused(kumi_gate_send(null(), null(), 0), "gate is NULL");
        refused(
            kumi_gate_call_regions(
                null(),
                null(),
                0,
                null(),
                0,
                null_mut(),
                null_mut(),
                null_mut(),
                -1,
            ),
            "gate is NULL",
        );
        let mut serving = null_mut();
        refused(
            kumi_gate_serve(&raw mut serving, c"a".as_ptr(), null(), None, null_mut()),
            "handler is NULL",
        );
        refused(
            kumi_gate_serve(&raw mut serving, null(), null(), Some(nothing), null_mut()),
            "name is NULL",
        );
        refused(
            kumi_gate_serve(null_mut(), c"a".as_ptr(), null(), Some(nothing), null_mut()),
            "NULL",
        );
        refused(kumi_reply_set(null_mut(), null(), 0), "reply is NULL");
        refused(kumi_reply_append(null_mut(), null(), 0), "reply is NULL");
        refused(kumi_reply_region(null_mut(), null()), "reply is NULL");
        refused(kumi_request_region(null(), 0, null_mut()), "reply is NULL");
        refused(kumi_region_seal(null_mut()), "region is NULL");
        assert_eq!(kumi_reply_fail(null_mut(), 0, null()), libc::EREMOTEIO);
        assert_eq!((kumi_reply_unwanted(null()), kumi_serving_handled(null())), (0, 0));
        assert_eq!(
            (kumi_serving_close(null_mut()), kumi_region_data(null(), null_mut())),
            (0, null())
        );
        kumi_gate_close(null_mut());
        kumi_region_free(null_mut());
        kumi_bytes_free(null_mut());
    }
}

#[test]
fn wrong_options_are_refused() {
    let mut memory = Memory::options();
    let check = |change: &dyn Fn(&mut Memory), says: &str| {
        let mut memory = Memory::options();
        change(&mut memory);
        refused(connect(c"a".as_ptr(), memory.at()), says);
    };
    check(&|m| m.set("size", 0usize), "options of 0 bytes");
    check(&|m| m.set("size", LAYOUT.1 - 1), "KUMI_OPTIONS_INIT");
    check(&|m| m.set("size", 5000usize), "options of 5000 bytes");
    check(&|m| m.set("placement", 4u32), "placement 4");
    check(&|m| m.set("priority", 64i32), "priority 64");
    check(&|m| m.set("priority", -2i32), "priority -2");
    check(&|m| m.set("flags", 4u32), "0x4");
    check(&|m| m.set("reserved", 1u32), "reserved");
    check(&|m| m.set("threads", 1025u32), "1025 kernel threads");
    check(&|m| m.set("allow_count", 1usize), "allow is NULL");
    check(&|m| m.set("allow_count", usize::MAX), "users to allow");
    // From a later version: unset unknown options are accepted, set ones are refused.
    memory.set("size", LAYOUT.1 + 8);
    memory.set("placement", 9u32);
    refused(connect(c"a".as_ptr(), memory.at()), "placement 9");
    memory.0[LAYOUT.1 + 7] = 1;
    assert_eq!(connect(c"a".as_ptr(), memory.at()), libc::E2BIG, "{}", text());
    // SAFETY: NULL and sizes are checked.
    refused(unsafe { kumi_options_init(null_mut(), LAYOUT.1) }, "NULL");
    // SAFETY: as above.
    refused(unsafe { kumi_options_init(memory.at(), 8) }, "sizeof");
}

#[test]
fn region_and_buffer_arguments_are_checked() {
    let (mut region, mut data, mut length) = (null_mut(), null_mut(), 0);
    // SAFETY: each invalid pointer is NULL or is checked.
    unsafe {
        refused(kumi_region_copy(&raw mut region, null(), 1), "data is NULL");
        refused(
            kumi_region_copy(&raw mut region, (&raw const length).cast(), usize::MAX),
            "address space",
        );
        assert_eq!(kumi_region_new(&raw mut region, usize::MAX, &raw mut data), libc::ENOMEM);
        assert!(region.is_null() && data.is_null());
        assert_eq!(kumi_region_new(&raw mut region, 3, &raw mut data), 0);
        data.cast::<u8>().write(9);
        assert_eq!(kumi_region_seal(region), 0);
        let bytes = kumi_region_data(region, &raw mut length);
        assert_eq!((length, *bytes.cast::<u8>()), (3, 9));
        kumi_region_free(region);
        // A structure that no function has filled stays unchanged.
        let mut memory = Memory([0; 256]);
        let bytes = memory.at::<Bytes>();
        bytes.cast::<usize>().add(1).write(7);
        kumi_bytes_free(bytes);
        assert_eq!(bytes.cast::<usize>().add(1).read(), 7);
    }
}
