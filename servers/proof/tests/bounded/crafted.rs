//! Images whose structures refer to each other, to themselves, or to nothing.

use kumihimo_ext2::{Ext2, OpenError};
use kumihimo_proof::ext2::Heard;
use kumihimo_proof::hostile::crafted::{Crafted, DIRECTORY, FILE, map};
use kumihimo_proof::images;
use kumihimo_proof::paths::CALLER;
use kumihimo_store::{
    Changes, Errno, Handle, New, Node, Result, Seek, Store, XattrMode, open_disk,
};

use crate::meter::{CACHE, Metered, memory};

const NONE: Handle = Handle(0);
const GIB: u64 = 1 << 30;

/// Opens an image with the bounds of its real bytes.
fn open(image: &Crafted, heard: &Heard) -> Metered {
    let disk = open_disk(image.path(), true).expect("the image");
    let real = image.real_bytes();
    let (store, room) = memory(|| Ext2::open(Box::new(disk), heard.settings(CACHE)));
    assert!(room as u64 <= 16 * real + (1 << 20), "open took {room} bytes, for {real}");
    Metered::new(store.expect("a file system"), real)
}

fn node(store: &dyn Store, above: Node, name: &str) -> Node {
    store.lookup(above, name.as_bytes()).expect(name).attributes.node
}

/// Number of names that a listing returns, and its result.
fn list(store: &dyn Store, node: Node) -> (usize, Result<()>) {
    let mut count = 0;
    let result = store.read_directory(node, NONE, 0, &mut |_| {
        count += 1;
        true
    });
    (count, result)
}

fn expect_report(heard: &Heard, fragment: &str) {
    let all = heard.all();
    assert!(all.iter().any(|line| line.contains(fragment)), "{all:?} lacks {fragment:?}");
}

/// Performs all operations that read or change a directory. Returns how many of them failed with
/// `EIO`.
fn exercise_directory(store: &dyn Store, node: Node, above: Node, name: &str) -> usize {
    let failed = [
        list(store, node).1,
        store.lookup(node, b"missing").map(drop),
        store.make(&CALLER, node, b"new", New::File { mode: 0o644 }).map(drop),
        store.unlink(node, b"missing"),
        store.rename(node, b"missing", above, b"there", false),
        store.remove_directory(above, name.as_bytes()),
    ];
    failed.iter().filter(|result| **result == Err(Errno::IO)).count()
}

#[test]
fn directory_whose_blocks_are_one_block_is_damaged() {
    if !images::programs("directory_whose_blocks_are_one_block_is_damaged") {
        return;
    }
    // Once with names, once with none: a listing without names is not ended by its reader.
    for names in [[(12, b"a".as_slice()), (12, b"b")], [(0, b"a"), (0, b"b")]] {
        let mut image = Crafted::new(4 * GIB, 16_384);
        let leaf = image.block(&Crafted::entries(&names));
        let trees = [1, 2, 3].map(|levels| image.funnel(leaf, levels));
        let directory = image.inode(DIRECTORY, 4 * GIB - 1024, map(&[leaf; 12], trees));
        image.root(&[(directory, b"large")]);
        let heard = Heard::default();
        let store = open(&image, &heard);
        let large = node(&store, store.root(), "large");
        assert_eq!(exercise_directory(&store, large, store.root(), "large"), 6);
        expect_report(&heard, "more than once");
        store.close().expect("closed");
    }
}

#[test]
fn directories_that_share_blocks_need_no_index_each() {
    if !images::programs("directories_that_share_blocks_need_no_index_each") {
        return;
    }
    const DIRECTORIES: u32 = 1500;
    let mut image = Crafted::new(8 << 20, 4096);
    let mut number = 0_u32;
    let leaves: Vec<u32> = (0..Crafted::POINTERS)
        .map(|_| {
            let names: Vec<Vec<u8>> = (0..80)
                .map(|_| {
                    number += 1;
                    number.to_le_bytes().map(|byte| byte | 0x80).to_vec()
                })
                .collect();
            let names: Vec<(u32, &[u8])> = names.iter().map(|name| (12, name.as_slice())).collect();
            image.block(&Crafted::entries(&names))
        })
        .collect();
    let tree = image.pointers(leaves.iter().copied());
    let size = (12 + Crafted::POINTERS as u64) * 1024;
    let heads: Vec<u32> =
        (0..12).map(|_| image.block(&Crafted::entries(&[(12, b"head")]))).collect();
    let all: Vec<u32> =
        (0..DIRECTORIES).map(|_| image.inode(DIRECTORY, size, map(&heads, [tree, 0, 0]))).collect();
    // The root leads to a directory with all of them.
    let names: Vec<String> = all.iter().map(|number| format!("{number:04}")).collect();
    let blocks: Vec<u32> = all
        .chunks(60)
        .zip(names.chunks(60))
        .map(|(numbers, names)| {
            let entries: Vec<(u32, &[u8])> = numbers
                .iter()
                .zip(names)
                .map(|(number, name)| (*number, name.as_bytes()))
                .collect();
            image.block(&Crafted::entries(&entries))
        })
        .collect();
    let more = image.pointers(blocks[12..].iter().copied());
    let top = image.inode(DIRECTORY, blocks.len() as u64 * 1024, map(&blocks[..12], [more, 0, 0]));
    image.root(&[(top, b"top")]);
    let heard = Heard::default();
    let store = open(&image, &heard);
    let top = node(&store, store.root(), "top");
    let real = image.real_bytes();
    // All directories stay referenced, so that no index is dropped.
    let (found, room) = memory(|| {
        names
            .iter()
            .map(|name| {
                let node = node(&store, top, name);
                store.lookup(node, b"missing").map(drop)
            })
            .collect::<Vec<_>>()
    });
    assert!(room as u64 <= 16 * real + (4 << 20), "{room} bytes for {real}");
    assert_eq!(found[0], Err(Errno::NOENT));
    assert!(found[1..].iter().all(|found| *found == Err(Errno::IO)));
    expect_report(&heard, "is in another directory too");
    // A directory whose index is gone shares its blocks with nobody any more.
    for name in &names {
        let node = node(&store, top, name);
        store.forget(node, 2);
    }
    store.close().expect("closed");
}

/// An image with a file whose whole map of three levels is one block a level.
fn funnel(data: bool) -> Crafted {
    let mut image = Crafted::new(64 << 20, 4096);
    let leaf = if data { image.block(b"data") } else { 0 };
    let trees = [1, 2, 3].map(|levels| image.funnel(leaf, levels));
    let file = image.inode(FILE, 16 * GIB, map(&[leaf; 12], trees));
    image.root(&[(file, b"file")]);
    image
}

#[test]
fn shared_indirect_blocks_are_visited_once() {
    if !images::programs("shared_indirect_blocks_are_visited_once") {
        return;
    }
    for (data, what) in [(true, Seek::Hole), (false, Seek::Data)] {
        let image = funnel(data);
        let heard = Heard::default();
        let store = open(&image, &heard);
        let file = node(&store, store.root(), "file");
        assert_eq!(store.seek(file, NONE, 0, what), Err(Errno::IO));
        // A search that ends early is not affected.
        let other = if data { Seek::Data } else { Seek::Hole };
        assert_eq!(store.seek(file, NONE, 5 * GIB + 1, other), Ok(5 * GIB + 1));
        // Everything, zeroed: fallocate(2) with ZERO_RANGE, and without.
        assert_eq!(store.allocate(file, NONE, 0x10, 0, 16 * GIB), Err(Errno::IO));
        assert_eq!(store.allocate(file, NONE, 0, 0, 16 * GIB), Err(Errno::IO));
        expect_report(&heard, "occurs twice");
        // Punching and truncation free what they can, and report the rest.
        let _ = store.allocate(file, NONE, 3, 1 << 20, 8 * GIB);
        let size = Changes { size: Some(1 << 20), ..Changes::default() };
        let _ = store.change(file, &size);
        store.unlink(store.root(), b"file").expect("unlinked");
        store.forget(file, 1);
        store.close().expect("closed");
    }
}

#[test]
fn unlinked_file_with_shared_indirect_blocks_ends() {
    if !images::programs("unlinked_file_with_shared_indirect_blocks_ends") {
        return;
    }
    let image = funnel(true);
    // One name, so that the file ends.
    let mut image = image;
    let at = image.inode_at(12) + 26;
    image.put(at, &1u16.to_le_bytes());
    let itself = image.next_block();
    // A second file, whose indirect blocks refer to themselves.
    let own = image.pointers([itself; Crafted::POINTERS]);
    assert_eq!(own, itself);
    let other = image.inode(FILE, 16 * GIB, map(&[], [own; 3]));
    image.put(image.inode_at(other) + 26, &1u16.to_le_bytes());
    image.root(&[(12, b"file"), (other, b"other")]);
    let heard = Heard::default();
    let store = open(&image, &heard);
    for name in ["file", "other"] {
        let file = node(&store, store.root(), name);
        store.unlink(store.root(), name.as_bytes()).expect("unlinked");
        store.forget(file, 1);
        assert_eq!(store.lookup(store.root(), name.as_bytes()).map(drop), Err(Errno::NOENT));
    }
    expect_report(&heard, "cannot belong to it");
    store.close().expect("closed");
}

#[test]
fn list_of_orphans_that_is_a_cycle_ends() {
    if !images::programs("list_of_orphans_that_is_a_cycle_ends") {
        return;
    }
    // 2,000,000 inodes are claimed; two of them are there.
    let mut image = Crafted::new(4 * GIB, 2_000_000);
    let (one, other) = (image.inode(FILE, 0, [0; 15]), image.inode(FILE, 0, [0; 15]));
    image.root(&[(one, b"one"), (other, b"other")]);
    for (inode, next) in [(one, other), (other, one)] {
        image.put(image.inode_at(inode) + 20, &next.to_le_bytes());
    }
    image.put(1024 + 232, &one.to_le_bytes());
    let heard = Heard::default();
    let disk = open_disk(image.path(), true).expect("the image");
    let store = Ext2::open(Box::new(disk), heard.settings(CACHE)).expect("opened");
    let counters = store.counters();
    assert!(counters.hits + counters.misses < 1000, "{counters:?}");
    expect_report(&heard, "it cannot be on the list of orphans");
    store.close().expect("closed");
}

#[test]
fn descriptors_of_groups_that_are_not_there_take_no_memory() {
    let name = "descriptors_of_groups_that_are_not_there_take_no_memory";
    if !images::programs(name) {
        return;
    }
    // 8 blocks and 8 inodes in a group: 8,388,608 groups with descriptors of 256 MB.
    let image = Crafted::new(64 << 20, 4096);
    let blocks = 1_u32 << 26;
    let groups = (blocks - 1).div_ceil(8);
    for (at, value) in [(0, groups * 8), (4, blocks), (32, 8), (40, 8), (84, 11)] {
        image.put(1024 + at, &value.to_le_bytes());
    }
    // The first inode that is not reserved must be in the first group.
    image.put(1024 + 40, &16_u32.to_le_bytes());
    image.put(1024, &(groups * 16).to_le_bytes());
    std::fs::File::options()
        .write(true)
        .open(image.path())
        .and_then(|file| file.set_len(u64::from(blocks) * 1024))
        .expect("a sparse image");
    let disk = open_disk(image.path(), true).expect("the image");
    let (refused, room) =
        memory(|| Ext2::open(Box::new(disk), Heard::default().settings(CACHE)).map(drop));
    assert!(matches!(refused, Err(OpenError::Damaged(_))), "{refused:?}");
    assert!(room < 2 << 20, "{room} bytes");
}

#[test]
fn directories_that_are_their_own_ancestors_end_a_rename() {
    if !images::programs("directories_that_are_their_own_ancestors_end_a_rename") {
        return;
    }
    let mut image = Crafted::new(64 << 20, 4096);
    let (one, two) = (12, 13);
    let of = |own: u32, above: u32| {
        Crafted::entries(&[(own, b"."), (above, b".."), (above, b"up"), (own, b"self")])
    };
    let (first, second) = (image.block(&of(one, two)), image.block(&of(two, one)));
    for block in [first, second] {
        image.inode(DIRECTORY, 1024, map(&[block], [0; 3]));
    }
    let block = image.block(&Crafted::entries(&[(14, b"."), (2, b"..")]));
    let moved = image.inode(DIRECTORY, 1024, map(&[block], [0; 3]));
    image.root(&[(one, b"one"), (moved, b"moved")]);
    let heard = Heard::default();
    let store = open(&image, &heard);
    let one = node(&store, store.root(), "one");
    assert_eq!(node(&store, one, "self"), one);
    let two = node(&store, one, "up");
    assert_eq!(node(&store, two, "up"), one);
    assert_eq!(store.rename(store.root(), b"moved", two, b"m", false), Err(Errno::IO));
    expect_report(&heard, "form a cycle");
    store.close().expect("closed");
}

#[test]
fn invalid_entries_and_sizes_are_damage() {
    if !images::programs("invalid_entries_and_sizes_are_damage") {
        return;
    }
    type Break = fn(&mut Vec<u8>);
    let table: [(&str, Break, &str); 6] = [
        ("length 0", |block| block[4..6].fill(0), "an invalid length"),
        ("misaligned", |block| block[4] = 13, "an invalid length"),
        (
            "beyond",
            |block| block[4..6].copy_from_slice(&2048_u16.to_le_bytes()),
            "beyond its block",
        ),
        ("slash", |block| block[9] = b'/', "a slash or a zero byte"),
        ("zero byte", |block| block[9] = 0, "a slash or a zero byte"),
        ("inode", |block| block[..4].fill(0xff), "an invalid inode number"),
    ];
    for (case, damage, report) in table {
        let mut image = Crafted::new(64 << 20, 4096);
        let mut block = Crafted::entries(&[(12, b"abc"), (12, b"def")]);
        damage(&mut block);
        let block = image.block(&block);
        let directory = image.inode(DIRECTORY, 1024, map(&[block], [0; 3]));
        image.root(&[(directory, b"d")]);
        let heard = Heard::default();
        let store = open(&image, &heard);
        let directory = node(&store, store.root(), "d");
        assert_eq!(list(&store, directory), (0, Err(Errno::IO)), "{case}");
        expect_report(&heard, report);
        store.close().expect("closed");
    }
    for size in [i64::MAX as u64, i64::MAX as u64 - 1023, u64::MAX, 1 << 62] {
        let mut image = Crafted::new(64 << 20, 4096);
        let file = image.inode(FILE, size, [0; 15]);
        image.root(&[(file, b"f")]);
        let heard = Heard::default();
        let store = open(&image, &heard);
        assert_eq!(store.lookup(store.root(), b"f").map(drop), Err(Errno::IO), "{size}");
        expect_report(&heard, "a file larger than the maximum");
        store.close().expect("closed");
    }
}

#[test]
fn values_of_attributes_that_overlap_are_damage() {
    if !images::programs("values_of_attributes_that_overlap_are_damage") {
        return;
    }
    let mut image = Crafted::new(64 << 20, 4096);
    let mut block = vec![0; Crafted::BLOCK];
    block[..4].copy_from_slice(&0xEA02_0000_u32.to_le_bytes());
    // Shared by more inodes than there are.
    block[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    block[8..12].copy_from_slice(&1_u32.to_le_bytes());
    for (index, entry) in block[32..32 + 40 * 20].chunks_exact_mut(20).enumerate() {
        (entry[0], entry[1]) = (1, 1);
        entry[8..12].copy_from_slice(&1024_u32.to_le_bytes());
        entry[16] = b'a' + u8::try_from(index).expect("40");
    }
    let block = image.block(&block);
    for _ in 0..2 {
        let file = image.inode(FILE, 0, [0; 15]);
        image.put(image.inode_at(file) + 104, &block.to_le_bytes());
    }
    image.root(&[(12, b"f"), (13, b"g")]);
    let heard = Heard::default();
    let store = open(&image, &heard);
    for name in ["f", "g"] {
        let file = node(&store, store.root(), name);
        assert_eq!(store.xattr(file, b"user.a"), Err(Errno::IO));
        assert_eq!(store.xattrs(file), Err(Errno::IO));
        assert_eq!(store.set_xattr(file, b"user.b", b"c", XattrMode::Any), Err(Errno::IO));
    }
    expect_report(&heard, "overlap");
    store.close().expect("closed");
}
