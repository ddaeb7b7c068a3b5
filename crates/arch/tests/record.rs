//! Accesses to the record of the present kernel thread.
#![cfg(target_env = "gnu")]

use std::mem::offset_of;

use kumihimo_arch::cpu::{gs_base, gs_dec32, gs_inc32, gs_load32, gs_load64, set_gs_base};

#[repr(C)]
struct Record {
    pad: u64,
    wide: u64,
    narrow: u32,
    count: u32,
    after: u32,
}

#[test]
fn accesses_reach_the_record_of_this_kernel_thread() {
    let mut record =
        Record { pad: 7, wide: 0x1122_3344_5566_7788, narrow: 0x99aa_bbcc, count: 0, after: 5 };
    let address = &raw mut record;
    // SAFETY: the record on this frame outlives its use, and only this thread uses it.
    unsafe {
        set_gs_base(address.expose_provenance());
        assert_eq!(gs_base(), address.addr());
        assert_eq!(gs_load64::<{ offset_of!(Record, wide) }>(), 0x1122_3344_5566_7788);
        assert_eq!(gs_load32::<{ offset_of!(Record, narrow) }>(), 0x99aa_bbcc);
        // The compiler must reload the value, because the record changes without its knowledge.
        address.cast::<u64>().add(1).write_volatile(3);
        assert_eq!(gs_load64::<{ offset_of!(Record, wide) }>(), 3);
        const COUNT: usize = offset_of!(Record, count);
        gs_inc32::<COUNT>();
        gs_inc32::<COUNT>();
        assert_eq!(gs_load32::<COUNT>(), 2);
        assert!(!gs_dec32::<COUNT>());
        assert!(gs_dec32::<COUNT>());
        assert!(!gs_dec32::<COUNT>(), "wraps below zero");
        assert_eq!(gs_load32::<COUNT>(), u32::MAX);
        gs_inc32::<COUNT>();
        set_gs_base(0);
        assert_eq!(
            ((*address).pad, (*address).narrow, (*address).count, (*address).after),
            (7, 0x99aa_bbcc, 0, 5)
        );
    }
}
