//! Template: the contents of a new block, derived by comparing donors, and the code that writes
//! blocks.
//!
//! [`Template::derive`] compares two donors with stacks of different sizes word by word:
//!
//! - Equal words are constants.
//! - Words that differ by the distance of the blocks are addresses in the block.
//! - Stack base and stack size are recognised by their values.
//! - Thread ID, list, dtv and rseq area follow rules of their own.
//! - Any other difference is an error.
//!
//! A clone written for the address of the third donor must then equal that donor in every word. A
//! template never changes once it is published.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::donor::Donor;
use super::glibc::modules::{Region, Scan, Slot, read_dtv, restored};
use super::glibc::{KEY_TABLES, Layout, set_word, word};
use super::number;
use super::watched::Watched;
use crate::machine::thread_block::{HEAD_WORDS, UNWIND_TO, align_head, mangle};

/// This crate's own data about a block, between the block and its stack.
///
/// The block also uses it as its `struct pthread_unwind_buf`, where pthread_exit stops unwinding.
/// At each frame, the C library compares the frame with the saved stack pointer, which is mangled
/// with the pointer guard. The saved value is the very top of the stack, so unwinding never reaches
/// it. It ends at the first `catch_unwind`, where glibc aborts with a message, as on a std thread.
#[repr(C, align(64))]
pub(super) struct Head {
    /// The template whose images the block holds.
    pub template: *const Template,
    pub lo: usize,
    pub size: usize,
    /// DIRTY_* bits: the changes found by `exit_current` that the fast path of recycling does not
    /// undo.
    pub dirty: u32,
    /// The rest of the unwind buffer; one word is the stack pointer where the unwinding ends.
    unwind: [u64; HEAD_WORDS],
}

const _: () =
    assert!(std::mem::offset_of!(Head, unwind) == 32 && size_of::<Head>().is_multiple_of(64));

impl Head {
    pub(super) fn new(template: *const Template, lo: usize, size: usize) -> Head {
        let mut unwind = [0; HEAD_WORDS];
        unwind[UNWIND_TO] = mangle((lo + size - 1) as u64);
        Head { template, lo, size, dirty: 0, unwind }
    }
}

/// libc's own variables or the thread's state differ from those of a new block.
pub(super) const DIRTY_STATE: u32 = 1;
/// The dtv owns memory of dynamically allocated thread-local variables.
pub(super) const DIRTY_DTV: u32 = 2;

pub(super) const HEAD: usize = size_of::<Head>();

#[derive(Default, Clone, PartialEq)]
pub(super) struct Template {
    below: usize,
    size: usize,
    /// The static TLS area.
    statics: Range<isize>,
    /// The whole block as words, from `-below` on: constants, and 0 for words with a rule.
    image: Vec<u64>,
    /// Non-zero spans of the image: (offset, bytes). The rest of the zeroed memory needs no write.
    spans: Vec<(isize, usize)>,
    /// Words that hold an address in the block: (offset, distance from the thread pointer).
    relocations: Vec<(isize, isize)>,
    stack_base: Vec<isize>,
    stack_size: Vec<isize>,
    /// Entries of a new dtv; the highest one in use is the last.
    dtv: Vec<Slot>,
    /// Some loaded module has variables outside static TLS.
    dynamic: bool,
    /// The spans that every recycle copies: (offset, bytes).
    pub restore: Vec<(isize, usize)>,
    /// The words whose change requires a full rewrite.
    pub watched: Watched,
    /// The spans that a full rewrite copies: (offset, bytes).
    rewritten: Vec<(isize, usize)>,
    /// A full rewrite is possible: the image covers libc's part and `struct pthread`.
    pub complete: bool,
}

/// The newest template. Null until the first one is published.
pub(super) static CURRENT: AtomicPtr<Template> = AtomicPtr::new(std::ptr::null_mut());

pub(super) fn current() -> &'static Template {
    // SAFETY: templates are leaked boxes, published with Release. Callers run after the first
    // publication.
    unsafe { &*CURRENT.load(Ordering::Acquire) }
}

impl Template {
    fn index(&self, offset: isize) -> usize {
        (offset + self.below as isize) as usize / 8
    }

    fn constant(&self, offset: isize) -> u64 {
        self.image[self.index(offset)]
    }

    /// Derives a template from two donors and a scan.
    pub(super) fn derive(
        layout: &Layout,
        a: &Donor,
        b: &Donor,
        scan: &Scan,
    ) -> Result<Template, String> {
        let mut t = Template {
            below: layout.below,
            size: layout.size,
            statics: layout.statics.clone(),
            complete: true,
            ..Template::default()
        };
        t.image = vec![0; (t.below + t.size) / 8];
        let apart = (b.fs as u64).wrapping_sub(a.fs as u64);
        let (a_block, a_end) =
            ((a.fs as usize - layout.below) as u64, (a.fs as usize + layout.size) as u64);
        for o in layout.words().filter(|o| !layout.special(*o)) {
            let (x, y) = (model_word(layout, a, o), model_word(layout, b, o));
            if x == y {
                if (a.lo as u64..(a.lo + a.size) as u64).contains(&x) {
                    return Err(format!(
                        "word {o:+} is the same address in both donors, but lies in the stack of one"
                    ));
                }
                let i = t.index(o);
                t.image[i] = x;
            } else if x == a.lo as u64 && y == b.lo as u64 {
                t.stack_base.push(o);
            } else if x == a.size as u64 && y == b.size as u64 {
                t.stack_size.push(o);
            } else if y.wrapping_sub(x) == apart && (a_block..a_end).contains(&x) {
                t.relocations.push((o, x.wrapping_sub(a.fs as u64) as i64 as isize));
            } else if y.wrapping_sub(x) == apart && (a.lo as u64..a_block).contains(&x) {
                // pthread_exit's unwind target, in the donor's dead frames. In a clone it is the
                // head.
                t.relocations.push((o, -((layout.below + HEAD) as isize)));
            } else {
                return Err(format!("word {o:+} of a thread block has no rule: {x:#x}, {y:#x}"));
            }
        }
        t.finish(scan)?;
        Ok(t)
    }

    /// Creates a template for donor blocks, which covers only the variables of modules, not libc's
    /// part.
    pub(super) fn of_modules(layout: &Layout, scan: &Scan) -> Result<Template, String> {
        let mut t = Template {
            below: layout.below,
            size: layout.size,
            statics: layout.statics.clone(),
            ..Template::default()
        };
        t.image = vec![0; (t.below + t.size) / 8];
        t.finish(scan)?;
        Ok(t)
    }

    /// Creates a copy of the template with the static TLS area of `live`, a listed donor, into
    /// which ld.so has written since.
    pub(super) fn renewed(
        &self,
        layout: &Layout,
        live: &Donor,
        other: &Donor,
        scan: &Scan,
    ) -> Result<Template, String> {
        let mut t = Template { spans: Vec::new(), restore: Vec::new(), ..self.clone() };
        if self.complete {
            for o in layout.statics.clone().step_by(8).filter(|o| !layout.special(*o)) {
                if self.relocations.iter().any(|(r, _)| *r == o) {
                    continue;
                }
                let (x, y) = (model_word(layout, live, o), model_word(layout, other, o));
                if x != y {
                    return Err(format!("word {o:+} differs between two donors after a dlopen"));
                }
                let i = t.index(o);
                t.image[i] = x;
            }
        }
        // A new block keeps the dtv of the first template. ld.so extends it on demand, as for any
        // thread that is older than the dlopen.
        t.regions(scan)?;
        t.spans();
        Ok(t)
    }

    /// Takes the dtv of `old`. For donor blocks, whose recycling restores the dtv of the first
    /// template.
    pub(super) fn same_dtv(&mut self, old: &Template) {
        self.dtv.clone_from(&old.dtv);
        self.dynamic = true;
    }

    /// Returns whether ld.so has written a value into a listed donor that the template lacks.
    pub(super) fn stale(&self, layout: &Layout, live: &Donor) -> bool {
        layout
            .statics
            .clone()
            .step_by(8)
            .filter(|o| !layout.special(*o) && !self.relocations.iter().any(|(r, _)| r == o))
            .any(|o| model_word(layout, live, o) != self.constant(o))
    }

    fn finish(&mut self, scan: &Scan) -> Result<(), String> {
        self.dtv = scan.dtv.clone();
        self.dynamic = scan.dtv[1..].contains(&Slot::Plain(u64::MAX));
        self.regions(scan)?;
        self.spans();
        Ok(())
    }

    fn regions(&mut self, scan: &Scan) -> Result<(), String> {
        self.restore = restored(&scan.regions);
        let statics = self.statics.clone();
        if self.restore.iter().any(|(o, len)| *o < statics.start || o + *len as isize > statics.end)
        {
            return Err("a module's variables lie outside the static TLS area".into());
        }
        if self
            .relocations
            .iter()
            .any(|(r, _)| self.restore.iter().any(|(o, l)| r >= o && *r < o + *l as isize))
        {
            return Err("a module's initial image holds an address in the block".into());
        }
        let first = self.index(statics.start);
        let own = first..first + statics.len() / 8;
        let bytes_match = |o: isize, len: usize, x: &[u64], y: &[u64]| {
            let at = (o - statics.start) as usize;
            bytes_of(x)[at..at + len] == bytes_of(y)[at..at + len]
        };
        if self.complete {
            // Compares two independent sources for the contents of a new thread: a donor's memory,
            // and the scratch memory that ld.so initialises. The comparison covers modules only,
            // because a donor may hold remains of a closed library between two modules.
            let mut of_modules = scan.regions.iter().filter(|r| !r.libc && r.len != 0);
            if !of_modules
                .all(|r| bytes_match(r.offset, r.len, &self.image[own.clone()], &scan.image))
            {
                return Err("a donor's variables differ from the modules' initial images".into());
            }
        } else {
            self.image[own].copy_from_slice(&scan.image);
        }
        Ok(())
    }

    fn spans(&mut self) {
        let below = self.below as isize;
        let mut spans: Vec<(isize, usize)> = Vec::new();
        for (i, _) in self.image.iter().enumerate().filter(|(_, w)| **w != 0) {
            let o = i as isize * 8 - below;
            match spans.last_mut() {
                // Copying a few zeros is cheaper than another copy.
                Some((start, len)) if o - (*start + *len as isize) <= 32 => {
                    *len = (o + 8 - *start) as usize
                }
                _ => spans.push((o, 8)),
            }
        }
        self.spans = spans;
    }

    /// Determines which words survive a rewrite and which words to watch. `keep` lists malloc's
    /// cache and libc's buffers and caches. A change of a watched word makes a rewrite necessary.
    pub(super) fn settle(&mut self, layout: &Layout, regions: &[Region], keep: &[isize]) {
        let kept = |o: isize| {
            layout.special(o)
                || keep.contains(&o)
                || (layout.robust - 8..layout.robust + 24).contains(&o)
        };
        // The rest of static TLS is excluded. Modules' variables are restored in any case, and
        // ld.so may be writing the image of a new library into the unused part.
        let libcs = |o: isize| {
            regions.iter().any(|r| r.libc && o + 8 > r.offset && o < r.offset + r.len as isize)
        };
        self.rewritten.clear();
        for o in layout.words().filter(|o| (layout.thread.contains(o) || libcs(*o)) && !kept(*o)) {
            match self.rewritten.last_mut() {
                Some((start, len)) if *start + *len as isize == o => *len += 8,
                _ => self.rewritten.push((o, 8)),
            }
        }

        let mut watched: Vec<isize> = Vec::new();
        for r in regions.iter().filter(|r| r.libc) {
            watched.extend((r.offset & !7..r.offset + r.len as isize).step_by(8));
        }
        // Cleanup handlers and cancellation: the words up to `cancelhandling`, and the words after
        // the key tables, where newer versions of glibc keep the cancellation type and state.
        watched.extend((0..3).map(|i| (layout.cancel & !7) - 8 * i));
        let after_keys = layout.specific + 8 * KEY_TABLES as isize;
        watched.extend((0..4).map(|i| after_keys + 8 * i));
        watched.retain(|o| {
            (layout.thread.contains(o) || layout.statics.contains(o))
                && !kept(*o)
                && !layout.ctype.contains(o)
                && !self.relocations.iter().any(|(r, _)| r == o)
        });
        watched.sort_unstable();
        watched.dedup();
        // Blocks begin at multiples of 64, so all pairs lie in them.
        debug_assert!(layout.align.is_multiple_of(16));
        debug_assert!((layout.below | layout.size).is_multiple_of(16));
        self.watched =
            Watched::new(watched.into_iter().map(|o| (o, watch_mask(layout, o), self.constant(o))));
    }

    /// Returns the address of the block for the stack [lo, hi).
    pub(super) fn place(layout: &Layout, hi: *mut u8) -> *mut u8 {
        let at = (hi as usize - layout.size) & !(layout.align - 1);
        hi.with_addr(at)
    }

    /// Writes a block at `fs` into new, zeroed memory, with the stack [lo, lo + size), and
    /// allocates its dtv. Fails if memory is short.
    ///
    /// # Safety
    /// [fs - below - HEAD, fs + size) must be writable, zero and unused.
    pub(super) unsafe fn write(
        &self,
        layout: &Layout,
        fs: *mut u8,
        lo: usize,
        size: usize,
    ) -> io::Result<()> {
        let dtv = self.new_dtv(fs)?;
        let image = bytes_of(&self.image);
        // SAFETY: all offsets lie within the block, which the caller grants.
        unsafe {
            for (o, len) in &self.spans {
                let from = image.as_ptr().offset(o + self.below as isize);
                std::ptr::copy_nonoverlapping(from, fs.offset(*o), *len);
            }
            self.rules(fs, lo, size);
            set_word(fs, layout.dtv, dtv as u64);
            let own = number::next();
            number::note(own, fs);
            fs.offset(layout.tid).cast::<u32>().write(own);
            unregistered_rseq(layout, fs);
            head(fs, self.below).write(Head::new(self, lo, size));
        }
        Ok(())
    }

    /// Writes the words that depend on the block's address and stack.
    unsafe fn rules(&self, fs: *mut u8, lo: usize, size: usize) {
        // SAFETY: as for `write`.
        unsafe {
            for (o, add) in &self.relocations {
                set_word(fs, *o, (fs as u64).wrapping_add_signed(*add as i64));
            }
            for o in &self.stack_base {
                set_word(fs, *o, lo as u64);
            }
            for o in &self.stack_size {
                set_word(fs, *o, size as u64);
            }
        }
    }

    /// Allocates a dtv with calloc, since ld.so reallocates it for a module with a higher ID. The
    /// dtv is as short as ld.so's checks allow, which saves 200 bytes per block. In
    /// dl_iterate_phdr, the highest entry in use must not be the last.
    fn new_dtv(&self, fs: *mut u8) -> io::Result<*mut [u64; 2]> {
        let len = self.dtv.len() + 1;
        // SAFETY: calloc's result is checked and holds len + 2 entries.
        unsafe {
            let base = libc::calloc(len + 2, 16).cast::<[u64; 2]>();
            if base.is_null() {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            base.write([len as u64, 0]);
            let dtv = base.add(1);
            self.fill_dtv(fs, dtv);
            Ok(dtv)
        }
    }

    unsafe fn fill_dtv(&self, fs: *mut u8, dtv: *mut [u64; 2]) {
        for (i, slot) in self.dtv.iter().enumerate() {
            let value = match slot {
                Slot::Plain(v) => *v,
                Slot::Static(o) => (fs as u64).wrapping_add_signed(*o as i64),
            };
            // SAFETY: the caller's dtv has at least as many entries as the template's.
            unsafe { dtv.add(i).write([value, 0]) };
        }
    }

    /// Returns whether the dtv of `fs` holds more than a new one.
    ///
    /// # Safety
    /// `fs` is a block built from a template, and the caller runs on it or owns it.
    pub(super) unsafe fn dtv_used(&self, layout: &Layout, fs: *const u8) -> bool {
        // SAFETY: the block has a dtv; entries -1 ..= length exist.
        unsafe {
            let dtv = word(fs, layout.dtv) as *const [u64; 2];
            let Slot::Plain(generation) = self.dtv[0] else { return true };
            // For every later module, ld.so raises the generation before it changes the block.
            if (*dtv)[0] != generation {
                return true;
            }
            self.dynamic && (1..=(*dtv.sub(1))[0] as usize).any(|i| (*dtv.add(i))[1] != 0)
        }
    }

    /// Resets the dtv to that of a new block, and frees the memory that it owns.
    ///
    /// # Safety
    /// No thread runs on the block.
    pub(super) unsafe fn reset_dtv(&self, layout: &Layout, fs: *mut u8) {
        // SAFETY: entries 1 ..= length exist. The second word of an entry is null or comes from
        // ld.so's malloc, which is the program's malloc.
        unsafe {
            let dtv = word(fs, layout.dtv) as *mut [u64; 2];
            let len = (*dtv.sub(1))[0] as usize;
            for i in 1..=len {
                libc::free((*dtv.add(i))[1] as *mut _);
                dtv.add(i).write([0, 0]);
            }
            self.fill_dtv(fs, dtv);
        }
    }

    /// Copies the modules' initial images, which resets every thread-local variable.
    ///
    /// # Safety
    /// No thread runs on the block `fs`, which comes from [`Template::write`] or a donor.
    pub(super) unsafe fn restore_modules(&self, fs: *mut u8) {
        let image = bytes_of(&self.image).as_ptr();
        for (o, len) in &self.restore {
            // SAFETY: regions lie in the static TLS area; `regions` has checked them.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    image.offset(o + self.below as isize),
                    fs.offset(*o),
                    *len,
                )
            };
        }
    }

    /// Rewrites the C library's part of the block, except list, ID, dtv and the words in `keep`.
    ///
    /// # Safety
    /// No thread runs on the block `fs`, which was built from a complete template.
    pub(super) unsafe fn rewrite(&self, fs: *mut u8, lo: usize, size: usize) {
        let image = bytes_of(&self.image).as_ptr();
        // SAFETY: all words lie in the block.
        unsafe {
            for (o, len) in &self.rewritten {
                std::ptr::copy_nonoverlapping(
                    image.offset(o + self.below as isize),
                    fs.offset(*o),
                    *len,
                );
            }
            self.rules(fs, lo, size);
        }
    }

    /// Writes those words of static TLS into a block in which `self` differs from `old`.
    ///
    /// # Safety
    /// The block was built from `old`; code that uses those words has not run on it.
    pub(super) unsafe fn patch(&self, old: &Template, fs: *mut u8) {
        for offset in self.statics.clone().step_by(8) {
            let new = self.constant(offset);
            if new != old.constant(offset) {
                // SAFETY: the word lies in the static TLS area of the block.
                unsafe { set_word(fs, offset, new) };
            }
        }
        // SAFETY: upheld by the caller.
        unsafe { (*head(fs, self.below)).template = self };
    }

    /// Compares a clone at `fs`, written with the stack of donor `c`, with that donor.
    pub(super) fn check(&self, layout: &Layout, fs: *mut u8, c: &Donor) -> Result<(), String> {
        for o in layout.words().filter(|o| !layout.special(*o)) {
            // SAFETY: the word lies in the clone.
            let mut mine = unsafe { word(fs, o) };
            if self.relocations.iter().any(|(r, _)| *r == o) {
                mine = mine.wrapping_sub(fs as u64).wrapping_add(c.fs as u64);
            }
            let theirs = model_word(layout, c, o);
            let dead_frame = mine == (c.fs as usize - layout.below - HEAD) as u64
                && (c.lo as u64..(c.fs as usize - layout.below) as u64).contains(&theirs);
            if mine != theirs && !dead_frame {
                return Err(format!(
                    "self-test: word {o:+} of a clone is {mine:#x}, of a donor {theirs:#x}"
                ));
            }
        }
        // SAFETY: donors have a dtv.
        let theirs = unsafe { read_dtv(word(c.fs, layout.dtv) as *const [u64; 2], c.fs, layout)? };
        if theirs[1..] != self.dtv[1..] {
            return Err("self-test: the dtv of a clone differs from the dtv of a donor".into());
        }
        Ok(())
    }
}

/// Returns the significant bits of a watched word. errno is excluded because every recycle resets
/// it, and set*id's mark because it is temporary.
fn watch_mask(layout: &Layout, o: isize) -> u64 {
    let mut mask = !0u64;
    for int in [layout.errno, layout.h_errno] {
        if int & !7 == o {
            mask &= !(0xffff_ffffu64 << ((int & 7) * 8));
        }
    }
    mask & !set_id_mark(layout, o)
}

/// Returns the bit of `cancelhandling` that set*id sets in every listed block, or 0 if it is in
/// another word.
fn set_id_mark(layout: &Layout, o: isize) -> u64 {
    if layout.cancel & !7 == o { 0x40 << ((layout.cancel & 7) * 8) } else { 0 }
}

/// Reads a word of a donor without set*id's mark, which may be present temporarily.
fn model_word(layout: &Layout, d: &Donor, o: isize) -> u64 {
    // SAFETY: the word lies in the donor's block, which is never freed.
    unsafe { word(d.fs, o) & !set_id_mark(layout, o) }
}

pub(super) fn head(fs: *mut u8, below: usize) -> *mut Head {
    align_head(fs.wrapping_sub(below + HEAD)).cast()
}

/// Marks the block's restartable-sequence area as not registered with the kernel: cpu_id = -2
/// (RSEQ_CPU_ID_REGISTRATION_FAILED in include/uapi/linux/rseq.h).
///
/// # Safety
/// The caller has exclusive access to the block.
pub(super) unsafe fn unregistered_rseq(layout: &Layout, fs: *mut u8) {
    if !layout.rseq.is_empty() {
        // SAFETY: the area lies in the block.
        unsafe { set_word(fs, layout.rseq.start, 0xffff_fffe_0000_0000) };
    }
}

fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: u64s are plain bytes, and the length is that of the words.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}
