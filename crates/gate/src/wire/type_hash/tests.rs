use super::*;

struct Own;

#[test]
fn plain_types_differ_and_others_match_any() {
    assert_ne!(of::<u32, u32>(), of::<i32, u32>());
    assert_ne!(of::<(u32, String), ()>(), of::<(String, u32), ()>());
    assert_eq!(of::<usize, Vec<isize>>(), of::<u64, Vec<i64>>());
    assert_eq!(of::<Own, u32>(), 0);
    assert!(
        agree(of::<Own, u32>(), of::<i32, u32>()) && !agree(of::<u32, u32>(), of::<i32, u32>())
    );
}
