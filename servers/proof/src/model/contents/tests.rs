use super::*;

/// Compares pages with a plain byte vector.
#[test]
fn pages_behave_like_bytes() {
    let mut random = kumihimo_tests::Random(7);
    let (mut contents, mut plain) = (Contents::default(), Vec::<u8>::new());
    for _ in 0..5_000 {
        let (offset, length) = (small(random.below(9_000)), small(random.below(3_000)));
        match random.below(4) {
            0 => {
                let fill = u8::try_from(random.below(256)).expect("below 256");
                contents.write(offset as u64, &vec![fill; length]);
                if length > 0 {
                    plain.resize(plain.len().max(offset + length), 0);
                    plain[offset..offset + length].fill(fill);
                } else {
                    plain.resize(plain.len().max(offset), 0);
                }
            }
            1 => {
                contents.clear(offset as u64, length as u64);
                let end = plain.len().min(offset + length);
                plain[offset.min(end)..end].fill(0);
            }
            2 => {
                contents.resize(offset as u64);
                plain.resize(offset, 0);
            }
            _ => {
                let mut read = vec![1; length];
                let count = contents.read(offset as u64, &mut read);
                let end = plain.len().min(offset + length);
                assert_eq!(read[..count], plain[offset.min(end)..end]);
            }
        }
        assert_eq!(contents.size(), plain.len() as u64);
        let first =
            plain.iter().skip(offset).position(|byte| *byte != 0).map(|at| (offset + at) as u64);
        assert_eq!(contents.data(offset as u64), first);
    }
}
