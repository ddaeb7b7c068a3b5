use super::*;

/// Flushed writes are always present. A later write may be present, partly present, or absent.
#[test]
fn power_cut_keeps_flushed_writes_and_any_part_of_later_ones() {
    let events = [
        Event::Write(0, vec![1; 1024].into()),
        Event::Flush,
        Event::Write(1024, vec![2; 2048].into()),
        Event::Flush,
    ];
    let mut random = Random(1);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let image = cut(&[0; 4096], &events, 3, &mut random);
        assert!(
            image[..1024].iter().all(|byte| *byte == 1)
                && image[3072..].iter().all(|byte| *byte == 0)
        );
        seen.insert(image[1024..3072].chunks(SECTOR).map(|sector| sector[0]).collect::<Vec<_>>());
        assert_eq!(cut(&[0; 4096], &events, 4, &mut random)[1024..3072], [2; 2048]);
    }
    assert!(
        seen.contains(&vec![0; 4]) && seen.contains(&vec![2; 4]) && seen.len() > 10,
        "{seen:?}"
    );
}
