use super::*;

#[test]
fn mark_keeps_the_address_and_wraps_the_generation() {
    let address = (1usize << 47) - align_of::<Mp>();
    let lives = NO_MARK / MARK_GENERATION;
    for generation in [1, lives - 1, lives, 8 << 20, u64::MAX >> 8] {
        let mark = mark(address, generation);
        assert!(mark < NO_MARK);
        assert_eq!(((mark & (MARK_GENERATION - 1)) as usize) << MARK_ALIGN, address);
        assert_eq!(mark / MARK_GENERATION, generation % lives);
    }
}
