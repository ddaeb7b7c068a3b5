//! Interface check: the items that every architecture's folder provides to the rest of Kumihimo.
//!
//! Each line names one item and its type. An architecture that lacks the item, or gives it another
//! signature, does not compile. `x86_64/` is the reference and documents the semantics.

use std::cell::Cell;
use std::io;
use std::thread::LocalKey;

use libc::ucontext_t;

use crate::kind::Kind;
use crate::library::{is_in_system_call, regions, system_call, thread_start, tls, while_executing};
use crate::machine::{HAS_MICROPROCESSES, copy, cpu, inject, interrupted, time};

// cpu: contexts and switches.
type Entry = extern "C" fn(*mut u8) -> !;
const _: cpu::Context = cpu::Context::NULL;
const _: unsafe fn(*mut u8, Entry, *mut u8) -> cpu::Context = cpu::Context::prepare;
const _: fn(cpu::Context) -> *mut u8 = cpu::Context::stack_pointer;
const _: unsafe extern "C" fn() = cpu::FIRST_STEP;
const _: usize = cpu::SAVED;
const _: unsafe fn(*mut cpu::Context, cpu::Context) = cpu::switch_same;
const _: [unsafe fn(*mut cpu::Context, cpu::Context, usize); 2] =
    [cpu::switch_fs, cpu::switch_prctl];

// cpu: the running TLS block (FS) and the kernel thread's record (GS).
const _: fn() -> bool = cpu::fsgsbase;
const _: &str = cpu::BASES;
const _: [fn() -> usize; 2] = [cpu::fs_base, cpu::gs_base];
const _: [unsafe fn(usize); 2] = [cpu::set_fs_base, cpu::set_gs_base];
const _: unsafe fn() -> *mut u8 = cpu::gs_word::<0>;
const _: unsafe fn() -> u64 = cpu::gs_load64::<0>;
const _: unsafe fn() -> u32 = cpu::gs_load32::<0>;
const _: unsafe fn() = cpu::gs_inc32::<0>;
const _: unsafe fn() -> bool = cpu::gs_dec32::<0>;

const _: [fn(usize) -> bool; 1] = [cpu::is_indivisible];
const _: fn(&'static LocalKey<Cell<u8>>) -> u8 = cpu::read_local;

// cpu: used by the portable modules of this crate.
const _: fn() -> usize = cpu::page_size;
const _: fn() -> usize = cpu::extended_state_bytes;
const _: fn(*const u8) = cpu::prefetch;
const _: fn() -> u32 = cpu::protection_keys;
const _: unsafe fn(*const u32, i32, u32) = cpu::futex;

const _: unsafe fn(*mut ucontext_t, extern "C" fn(), usize) -> Result<(), inject::Refusal> =
    inject::inject;
const _: unsafe fn(*const ucontext_t) -> interrupted::Position = interrupted::position;
const _: [unsafe fn(*const ucontext_t) -> bool; 2] =
    [interrupted::restarts_call, interrupted::is_at_call];
const _: unsafe fn(*mut ucontext_t) = interrupted::fail_call;
const _: fn() = regions::prepare;
const _: fn(usize) -> bool = regions::is_closed;
type Captured = ((), Option<thread_start::ThreadStart>);
const _: fn(fn()) -> Captured = thread_start::capture;
const _: unsafe fn(thread_start::ThreadStart) = thread_start::ThreadStart::run;
const _: fn(thread_start::ThreadStart) -> bool = thread_start::ThreadStart::run_on_kernel_thread;
const _: fn() -> bool = time::has_steady_counter;
const _: fn() -> u64 = time::counter;
const _: unsafe fn(libc::c_long, [usize; 6]) -> isize = system_call;
const _: fn(usize) -> bool = is_in_system_call;
const _: unsafe fn(*mut u8, *const u8, usize) = copy::shared;
const _: fn(fn(bool)) = while_executing;

const _: bool = HAS_MICROPROCESSES;
const _: [fn() -> &'static tls::Tls; 2] = [tls::get, tls::get_anew];
const _: [fn(&tls::Tls) -> bool; 2] = [tls::Tls::is_degraded, tls::Tls::is_short];
const _: fn(&tls::Tls) -> Kind = tls::Tls::kind;
const _: fn(&tls::Tls) -> &str = tls::Tls::why;
const _: fn(u32) -> Option<usize> = tls::block_of;
const _: fn(&tls::Tls) -> u32 = tls::Tls::number;
const _: unsafe fn(&tls::Tls, usize) -> u32 = tls::Tls::number_of;
const _: unsafe fn(&tls::Tls, u32, fn()) = tls::Tls::with_number::<()>;
const _: fn(&tls::Tls) -> usize = tls::Tls::bytes;
const _: unsafe fn(&tls::Tls, *mut u8, *mut u8) -> io::Result<*mut u8> = tls::Tls::build;
const _: unsafe fn(&tls::Tls, *mut u8) -> *mut u8 = tls::Tls::stack_top;
const _: [unsafe fn(&tls::Tls); 2] = [tls::Tls::first_run, tls::Tls::exit_current];
const _: unsafe fn(&tls::Tls, *mut u8, *mut u8, *mut u8) = tls::Tls::recycle;
const _: fn(&tls::Tls) -> Vec<isize> = tls::Tls::lines;
const _: fn(fn() -> Option<usize>) = tls::setxid::set_carrier_fs;
type RenewedMask = fn(u32, u64) -> Option<u64>;
const _: fn(RenewedMask) = tls::setxid::set_renewed_mask;
const _: fn() -> usize = tls::setxid::rounds;
const _: fn(u32, u32) -> io::Result<()> = tls::setxid::renew_mask;
