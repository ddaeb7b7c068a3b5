use super::*;

#[test]
fn cpu_time_of_a_thread_is_its_own() {
    let tid = crate::kernel::gettid() as u32;
    let before = cpu_time();
    let seen = cpu_time_of(tid).expect("this thread lives");
    assert!((before..=cpu_time()).contains(&seen));
    let other = std::thread::spawn(|| crate::kernel::gettid() as u32);
    // A join may return before the kernel has forgotten the number.
    let other = other.join().expect("no panic");
    while std::path::Path::new(&format!("/proc/self/task/{other}")).exists() {
        std::thread::yield_now();
    }
    assert_eq!((cpu_time_of(0), cpu_time_of(other)), (None, None), "no such thread");
}
