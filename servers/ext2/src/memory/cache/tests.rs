use super::*;

/// Disk whose blocks are filled with their numbers.
struct Numbers;

const SIZE: usize = 1024;

impl Disk for Numbers {
    fn size(&self) -> u64 {
        1 << 30
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        for (block, bytes) in (offset / SIZE as u64..).zip(into.chunks_exact_mut(SIZE)) {
            bytes.fill(block as u8);
        }
        Ok(())
    }
    fn write(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

fn cache(blocks: usize) -> Cache {
    Cache::new(
        Box::new(Numbers),
        SIZE,
        blocks * SIZE,
        Arc::new(Complaints::new("image".to_owned(), None)),
    )
}

fn read(cache: &Cache, block: u32) {
    assert_eq!(
        cache.read(block, |bytes| (bytes[0], bytes[SIZE - 1])),
        Ok((block as u8, block as u8))
    );
}

fn misses(cache: &Cache) -> u64 {
    cache.counts().1
}

fn held(cache: &Cache) -> usize {
    cache.shards.iter().map(|shard| lock(shard).buffers.len()).sum()
}

#[test]
fn full_scan_evicts_no_reused_block() {
    let cache = cache(4096);
    let often = 1_000_000..1_000_500;
    for block in often.clone().chain(often.clone()).chain(often.clone()) {
        read(&cache, block);
    }
    for block in 0..100_000 {
        read(&cache, block);
        assert!(held(&cache) <= 4096 || block % 1000 != 0, "memory is bounded");
    }
    let before = misses(&cache);
    often.for_each(|block| read(&cache, block));
    assert_eq!(misses(&cache), before, "they are all in memory");
}

#[test]
fn concurrent_reads_of_a_block_read_the_disk_once() {
    let cache = cache(256);
    let mut next = 0;
    let outcome = cache.read_range(70_000, 1000, 300, |index, bytes| {
        assert_eq!((index, bytes[SIZE - 1]), (next, (70_000 + index) as u8));
        next += 1;
    });
    assert_eq!((outcome, next), (Ok(()), 1000));
    // Absent blocks are read a megabyte at a time. Some blocks read ahead are evicted before use,
    // and are not read again.
    assert!((1000..=1300).contains(&misses(&cache)), "{} blocks were read", misses(&cache));
    assert!(held(&cache) <= 256);
}

#[test]
fn blocks_being_read_evict_no_other_block() {
    let cache = cache(4096);
    let often = 1_000_000..1_000_500;
    for block in often.clone().chain(often.clone()).chain(often.clone()) {
        read(&cache, block);
    }
    let waiting: Vec<_> = (0..40_000).map(|block| (block, Arc::new(Reading::default()))).collect();
    assert!(waiting.iter().all(|(block, reading)| cache.claim(*block, reading)));
    (100_000..120_000).for_each(|block| read(&cache, block));
    let before = misses(&cache);
    often.for_each(|block| read(&cache, block));
    assert_eq!(misses(&cache), before, "they are all in memory");
    for (block, reading) in &waiting {
        match block % 3 {
            0 => cache.put(*block, Class::Data, vec![7; SIZE].into(), false),
            1 => assert!(!cache.forget(*block)),
            _ => {}
        }
        assert_eq!(cache.fill(*block, 1, reading, |_, _| false), Ok(()));
    }
    assert!(cache.shards.iter().all(|shard| lock(shard).reading == 0));
}

#[test]
fn unused_blocks_are_evicted_first() {
    let cache = cache(4096);
    for round in 0..20 {
        // Each round uses other blocks, far fewer than the limit.
        let used = round * 10_000..round * 10_000 + 2_000;
        for block in used.clone().chain(used.clone()).chain(used.clone()) {
            read(&cache, block);
        }
        let before = misses(&cache);
        used.for_each(|block| read(&cache, block));
        assert_eq!(misses(&cache), before, "round {round}");
        assert!(held(&cache) <= 4096);
    }
}

#[test]
fn modified_blocks_are_evicted_only_after_a_commit() {
    let cache = cache(4096);
    for block in 0..3000 {
        cache.put(block, Class::Data, vec![7; SIZE].into(), false);
    }
    (100_000..120_000).for_each(|block| read(&cache, block));
    for block in 0..3000 {
        assert_eq!(cache.read(block, |bytes| bytes[0]), Ok(7), "block {block}");
    }
    cache.written(&cache.snapshot());
    (200_000..230_000).for_each(|block| read(&cache, block));
    (200_000..230_000).for_each(|block| read(&cache, block));
    assert!(held(&cache) <= 4096, "{} blocks", held(&cache));
}
