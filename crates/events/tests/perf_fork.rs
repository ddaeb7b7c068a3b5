//! A test program of its own: a forked child keeps the descriptors of other tests open, and with
//! them their entries in an epoll set.
#![cfg(not(loom))]

use kumihimo_events::perf::Perf;

/// A forked child may drop the event. It must not unmap what it has mapped at the same address.
#[test]
fn forked_child_drops_the_event_and_unmaps_nothing() {
    let perf = match Perf::probe() {
        Ok(perf) => perf,
        Err(refused) => {
            return eprintln!(
                "\n[skip] forked_child_drops_the_event_and_unmaps_nothing: {refused}\n"
            );
        }
    };
    let watched = perf.watch_this_thread().expect("a perf event");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let line =
        maps.lines().rfind(|line| line.contains("anon_inode:[perf_event]")).expect("the buffer");
    let at =
        usize::from_str_radix(line.split('-').next().expect("an address"), 16).expect("an address");
    // SAFETY: the child makes only system calls, and drops the event, which closes and perhaps
    // unmaps.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let (all, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let page =
                libc::mmap(at as *mut _, 4096, all, flags | libc::MAP_FIXED_NOREPLACE, -1, 0);
            if page as usize != at {
                libc::_exit(1);
            }
            *page.cast::<u8>() = 7;
            drop(watched);
            libc::_exit(if *page.cast::<u8>() == 7 { 0 } else { 2 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0, "it ended otherwise than by _exit(0)");
    }
}
