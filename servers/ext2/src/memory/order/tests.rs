use super::*;

#[test]
fn contradictory_order_is_refused() {
    let mut order = Order::default();
    let (a, b, c) = (Thing::Block(1), Thing::Inode(2), Thing::Block(3));
    assert!(order.demand(a, b) && order.demand(b, c));
    assert_eq!([order.phase(a), order.phase(b), order.phase(c)], [1, 2, 3]);
    assert!(!order.demand(c, a) && !order.demand(c, b) && !order.demand(a, a));
    let d = Thing::Inode(4);
    assert!(order.demand(d, a), "raising a phase raises the phases after it");
    assert_eq!([order.phase(d), order.phase(a), order.phase(b), order.phase(c)], [2, 3, 4, 5]);
}
