//! Minimal runtime for the tests: flows of control on their own stacks and blocks. The caller of
//! `resume` runs them.
#![allow(dead_code)] // each test binary uses a part of it

pub mod again;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering::Acquire};

use kumihimo_arch::cpu::{Context, fs_base, fsgsbase, switch_fs, switch_prctl};
use kumihimo_arch::stack::{self, Class, RECORD};
use kumihimo_arch::tls::{self, Tls};

/// Skips the test if microprocesses cannot have blocks of their own (ThreadSanitizer,
/// `KUMI_LAB=tls=kernel`).
#[macro_export]
macro_rules! needs_blocks {
    () => {
        if kumihimo_arch::tls::get().kind() == kumihimo_arch::tls::Kind::Kernel {
            return $crate::harness::again::skip(kumihimo_arch::tls::get().why());
        }
    };
}

/// A microprocess. It is boxed so that its address does not change.
pub struct Micro {
    context: Context,
    carrier: Context,
    pub carrier_fs: usize,
    pub fs: *mut u8,
    pub lo: *mut u8,
    pub hi: *mut u8,
    pub class: Class,
    body: Option<Box<dyn FnOnce() + Send>>,
    done: bool,
    panicked: bool,
}

// SAFETY: the tests resume a microprocess from one kernel thread at a time.
unsafe impl Send for Micro {}

/// A function of type `fn()` that each resumer calls first, or null.
pub static ON_CARRIER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static CURRENT: Cell<*mut Micro> = const { Cell::new(std::ptr::null_mut()) };
}

unsafe fn switch(save: *mut Context, to: Context, fs: usize) {
    // SAFETY: upheld by the caller.
    unsafe { if fsgsbase() { switch_fs(save, to, fs) } else { switch_prctl(save, to, fs) } }
}

extern "C" fn entry(argument: *mut u8) -> ! {
    let me = argument.cast::<Micro>();
    // SAFETY: the argument is the live Micro, and this code runs on its block.
    unsafe {
        tls::get().first_run();
        CURRENT.set(me);
        let body = (*me).body.take().expect("a body");
        (*me).panicked = catch_unwind(AssertUnwindSafe(body)).is_err();
        tls::get().exit_current();
        (*me).done = true;
        leave(me);
    }
    unreachable!("an ended microprocess was resumed")
}

#[inline(never)]
unsafe fn leave(me: *mut Micro) {
    // SAFETY: the last resume saved the carrier's context.
    unsafe { switch(&raw mut (*me).context, (*me).carrier, (*me).carrier_fs) }
}

/// Suspends the running microprocess and returns to its resumer.
#[inline(never)]
pub fn pause() {
    let me = CURRENT.get();
    assert!(!me.is_null(), "not a microprocess");
    // SAFETY: as in `leave`.
    unsafe { leave(me) }
}

/// Returns the running microprocess, or null on kernel threads.
#[inline(never)]
pub fn current() -> *mut Micro {
    CURRENT.get()
}

impl Micro {
    /// Creates a microprocess on a new slot.
    pub fn new(stack_size: usize, body: impl FnOnce() + Send + 'static) -> Box<Micro> {
        let tls = tls::get();
        let class = stack::class_for(stack_size, tls.bytes()).expect("a class");
        let mut slot = [std::ptr::null_mut()];
        assert_eq!(stack::acquire(class, &mut slot).expect("a slot"), 1);
        let hi = slot[0].wrapping_sub(RECORD);
        let lo = slot[0].wrapping_sub(class.slot_size() - class.guard_size());
        // SAFETY: the slot is new.
        let fs = unsafe { tls.build(lo, hi) }.expect("a block");
        let mut me = Box::new(Micro {
            context: Context::NULL,
            carrier: Context::NULL,
            carrier_fs: 0,
            fs,
            lo,
            hi,
            class,
            body: None,
            done: true,
            panicked: false,
        });
        me.start(tls, body);
        me
    }

    fn start(&mut self, tls: &Tls, body: impl FnOnce() + Send + 'static) {
        self.body = Some(Box::new(body));
        self.done = false;
        let me: *mut Micro = self;
        // SAFETY: the stack below the block is unused.
        self.context = unsafe { Context::prepare(tls.stack_top(self.fs), entry, me.cast()) };
    }

    /// Recycles the block of an ended microprocess for another body.
    pub fn reuse(&mut self, body: impl FnOnce() + Send + 'static) {
        assert!(self.done);
        let tls = tls::get();
        // SAFETY: the microprocess has ended, so no thread runs on the block.
        unsafe { tls.recycle(self.fs, self.lo, self.hi) };
        self.start(tls, body);
    }

    /// Runs the microprocess until its next pause. Returns whether it has ended.
    #[inline(never)]
    pub fn resume(&mut self) -> bool {
        assert!(!self.done);
        let hook = ON_CARRIER.load(Acquire);
        if !hook.is_null() {
            // SAFETY: a test has stored a function of this type.
            unsafe { std::mem::transmute::<*mut (), fn()>(hook)() };
        }
        self.carrier_fs = fs_base();
        let me: *mut Micro = self;
        // SAFETY: the context was prepared or saved by `leave`, and is resumed once.
        unsafe { switch(&raw mut (*me).carrier, (*me).context, (*me).fs as usize) };
        self.done
    }

    /// Runs the microprocess to its end, each part on another kernel thread.
    pub fn run(mut self: Box<Self>) -> Box<Micro> {
        while !self.done {
            self = std::thread::spawn(move || {
                self.resume();
                self
            })
            .join()
            .expect("the carrier");
        }
        assert!(!self.panicked, "the microprocess panicked");
        self
    }

    pub fn panicked(&self) -> bool {
        self.panicked
    }
}
