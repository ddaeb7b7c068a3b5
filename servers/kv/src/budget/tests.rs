use super::*;

#[test]
fn shares_fit_into_the_limit_and_return_their_bytes() {
    let budget = Arc::new(Budget::new(1000));
    let accounts = [(); 2].map(|()| Arc::new(Account::new(&budget)));
    let (mut one, mut other) = (Share::new(&accounts[0]), Share::new(&accounts[1]));
    assert!(!one.resize(751), "one connection takes three quarters at most");
    assert!(one.resize(750));
    assert!(!other.resize(251));
    assert!(other.resize(250));
    assert!(!other.resize(usize::MAX), "no overflow");
    assert_eq!((budget.used(), accounts[0].held(), other.bytes()), (1000, 750, 250));
    assert!(one.resize(10));
    assert!(other.resize(700));
    drop((one, other));
    assert_eq!((budget.used(), accounts[0].held(), accounts[1].held()), (0, 0, 0));
    assert!(Share::default().resize(usize::MAX));
}
