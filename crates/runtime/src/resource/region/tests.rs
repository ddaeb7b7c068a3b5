use super::*;

#[test]
fn sizes_are_powers_of_two_pages() {
    assert_eq!(
        [1, PAGE, PAGE + 1, 4 * PAGE, 16 * PAGE].map(size_of),
        [Some(0), Some(0), Some(1), Some(2), Some(4)]
    );
    assert_eq!(size_of(16 * PAGE + 1), None);
}

#[test]
fn regions_begin_zeroed_and_are_not_shared() {
    let mut all: Vec<Region> = Vec::new();
    for turn in 0..3_000usize {
        let len = [1, 4096, 5000, 65_536, 70_000][turn % 5];
        let mut one = Region::new(len).unwrap();
        assert_eq!((one.len(), one.iter().all(|byte| *byte == 0)), (len, true));
        one.fill(turn as u8 | 1);
        all.push(one);
        if turn % 3 == 0 {
            let one = all.swap_remove(turn * 7 % all.len());
            let first = one[0];
            assert!(one.iter().all(|byte| *byte == first), "another region overlaps");
        }
    }
    assert_eq!(REGIONS.living(), all.len() as u64);
    let ids: std::collections::HashSet<_> = all.iter().map(Region::id).collect();
    assert_eq!(ids.len(), all.len());
    assert_eq!(Region::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert!(Region::new(usize::MAX).is_err());
}
