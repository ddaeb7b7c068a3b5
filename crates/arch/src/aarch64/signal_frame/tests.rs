use super::*;

/// A frame in memory of its own, whose records a test writes.
#[repr(C, align(16))]
struct Frame([u8; INFO + RECORDS + ROOM + 8192]);

impl Frame {
    /// Makes a frame with these records: (magic, size, bytes 8 to 24 of it).
    fn with(records: &[(u32, usize, [u32; 4])]) -> Box<Frame> {
        let mut frame = Box::new(Frame([0; INFO + RECORDS + ROOM + 8192]));
        let mut at = INFO + RECORDS;
        for (magic, size, words) in records {
            frame.put(at, &[*magic, *size as u32]);
            frame.put(at + 8, if *size > 16 { words } else { &words[..2] });
            at += size;
        }
        frame
    }

    fn put(&mut self, at: usize, words: &[u32]) {
        for (i, word) in words.iter().enumerate() {
            self.0[at + 4 * i..at + 4 * i + 4].copy_from_slice(&word.to_ne_bytes());
        }
    }

    fn context(&self) -> *const ucontext_t {
        self.0[INFO..].as_ptr().cast()
    }

    fn walk(&self) -> Result<Found, Refusal> {
        // SAFETY: a frame with a terminated list of records.
        unsafe { walk(self.context()) }
    }
}

const NOTHING: [u32; 4] = [0; 4];
const FP: (u32, usize, [u32; 4]) = (FPSIMD, 528, NOTHING);

#[test]
fn fp_record_alone_makes_the_smallest_frame() {
    let found = Frame::with(&[FP]).walk().expect("a known frame");
    assert_eq!(found.bytes(), SMALLEST);
    assert_eq!((found.fpcr, found.extra), (RECORDS + 12, None));
}

#[test]
fn unknown_records_are_kept() {
    const ESR: u32 = 0x4553_5201;
    let found = Frame::with(&[FP, (ESR, 16, NOTHING), (SVE, 16, NOTHING)]).walk();
    assert_eq!(found.expect("a known frame").bytes(), SMALLEST + 32);
}

#[test]
fn state_that_a_call_cannot_keep_is_refused() {
    let refused = |record| Frame::with(&[FP, record]).walk().expect_err("refused");
    assert_eq!(refused((SVE, 64, [1 << 16 | 16, 0, 0, 0])), Refusal::Streaming);
    assert_eq!(refused((ZA, 272, NOTHING)), Refusal::Streaming);
    assert_eq!(refused((GCS, 32, [0, 0, 1, 0])), Refusal::ShadowStack);
    assert_eq!(refused((SVE, 8, NOTHING)), Refusal::UnknownFrame, "a size below the head's");
    assert_eq!(refused((SVE, 1 << 20, NOTHING)), Refusal::UnknownFrame, "a size above the room");
    assert_eq!(Frame::with(&[]).walk(), Err(Refusal::UnknownFrame), "no FP state");
    assert!(Frame::with(&[FP, (ZA, 16, NOTHING), (GCS, 32, NOTHING)]).walk().is_ok(), "not in use");
}

#[test]
fn copy_of_a_continued_frame_points_to_its_own_continuation() {
    let mut frame = Frame::with(&[FP, (EXTRA, 32, NOTHING)]);
    let extra = INFO + RECORDS + 528;
    let continued = extra + 32 + HEAD;
    let address = frame.0.as_ptr().addr() + continued;
    frame.put(extra + 8, &[address as u32, (address >> 32) as u32, 2048]);
    frame.put(continued, &[SVE, 1024, 64]);
    let found = frame.walk().expect("a known frame");
    assert_eq!(found.bytes(), continued + 1024 + HEAD);

    let mut to = Box::new(Frame([0xff; INFO + RECORDS + ROOM + 8192]));
    // SAFETY: both frames are as long as this.
    unsafe { found.copy(frame.context(), to.0.as_mut_ptr()) };
    let expected = to.0.as_ptr().addr() + continued;
    assert_eq!(to.0[extra + 8..extra + 16], expected.to_ne_bytes());
    assert_eq!(to.walk().expect("a known frame"), found);
    assert_eq!(to.0[..INFO], [0; INFO]);
    assert_eq!(to.0[found.bytes()], 0xff, "nothing behind the copy is written");
}
