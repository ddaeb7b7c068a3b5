use super::*;

/// The sizes of pages that Linux has on AArch64.
const PAGES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

fn classes() -> impl Iterator<Item = Class> {
    (0..Class::COUNT).filter_map(Class::from_index)
}

#[test]
fn parts_of_a_slot_are_whole_pages_for_every_page_size() {
    for page in PAGES {
        for class in classes() {
            let (slot, guard) = (class.slot_size_with(page), class.guard_size_with(page));
            assert!(slot.is_multiple_of(page) && guard.is_multiple_of(page), "{class:?}, {page}");
            assert!(guard >= page && guard <= (64 << 10).max(page), "{class:?}, {page}");
            assert!(slot >= MIN_PAGES * page && slot > 2 * guard, "{class:?}, {page}");
        }
    }
}

#[test]
fn slots_grow_from_class_to_class_with_small_pages() {
    let sizes: Vec<usize> = classes().map(|class| class.slot_size_with(PAGES[0])).collect();
    assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
    assert_eq!((sizes[0], sizes[2]), (32 << 10, (128 << 10) + 4096));
    assert_eq!(sizes[Class::COUNT - 1], 1 << 30);
}

#[test]
fn classes_never_shrink_with_larger_pages() {
    for page in &PAGES[1..] {
        let sizes: Vec<usize> = classes().map(|class| class.slot_size_with(*page)).collect();
        assert!(sizes.is_sorted(), "{page}: {sizes:?}");
        assert_eq!(sizes[Class::COUNT - 1], 1 << 30);
    }
}

#[test]
fn usable_stack_is_what_guard_record_and_block_leave() {
    for page in PAGES {
        for class in classes() {
            let rest = class.slot_size_with(page) - class.usable_with(page, 5000);
            assert_eq!(rest, class.guard_size_with(page) + RECORD + 5000, "{class:?}, {page}");
        }
    }
}

#[test]
fn page_table_covers_what_the_architecture_defines() {
    assert_eq!(PAGES.map(table_span), [2 << 20, 32 << 20, 512 << 20]);
}

#[test]
fn page_size_is_that_of_the_system() {
    // SAFETY: sysconf only reads.
    let system = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    assert_eq!(page_size(), usize::try_from(system).expect("a size"));
}
