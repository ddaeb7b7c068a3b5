use super::*;
use std::io::Read;
use std::sync::mpsc;

#[test]
fn blocked_reader_sleeps_and_running_thread_does_not() {
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let me = this_tid();
        readable().expect("/proc");
        assert!(!sleeps(me));
        tell.send(me).expect("the receiver is alive");
        reader.read_to_end(&mut Vec::new()).expect("the end")
    });
    let other = told.recv().expect("a thread ID");
    while !sleeps(other) {
        std::thread::yield_now();
    }
    drop(writer);
    thread.join().expect("no panic");
    while sleeps(other) {
        std::thread::yield_now();
    }
}

#[test]
fn cpu_clock_stops_while_the_thread_sleeps() {
    let mine = CpuClock::of(this_tid());
    let start = mine.read().expect("this thread lives");
    while mine.read().expect("this thread lives") < start + 1_000_000 {
        std::hint::spin_loop();
    }
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(this_tid()).expect("the receiver is alive");
        reader.read_to_end(&mut Vec::new()).expect("the end")
    });
    let tid = told.recv().expect("a thread ID");
    let clock = CpuClock::of(tid);
    // A thread counts as asleep before it has left its CPU: the clock may advance for a moment.
    let mut still = 0;
    while still < 1000 {
        let before = clock.read().expect("it lives");
        std::thread::yield_now();
        still = if sleeps(tid) && clock.read() == Some(before) { still + 1 } else { 0 };
    }
    drop(writer);
    thread.join().expect("no panic");
    while clock.read().is_some() {
        std::thread::yield_now();
    }
    assert!(!sleeps(tid));
}

#[test]
fn threads_of_other_processes_have_no_clock_and_do_not_sleep() {
    assert_eq!(CpuClock::of(1).read(), None);
    assert!(!sleeps(1));
    assert!(!sleeps(-1));
    assert!(!sleeps(Tid::MAX));
}

#[test]
fn state_is_parsed_after_any_thread_name() {
    assert_eq!(state_in(b"12 (a) b) R) S 1 2"), Some(b'S'));
    assert_eq!(state_in(b"12 () D 1"), Some(b'D'));
    assert_eq!(state_in(b"12 (a)"), None);
    assert_eq!(state_in(b"12 (a) "), None);
    assert_eq!(state_in(b""), None);
    let name = std::thread::Builder::new()
        .name(") S (".into())
        .spawn(|| state(this_tid()).expect("/proc"));
    assert_eq!(name.expect("a thread").join().expect("no panic"), b'R');
}

/// Thread `i` is `threads[i]`: its CPU time (`None`: it has ended) and whether it sleeps. 100 ns
/// pass between two looks.
#[derive(Default)]
struct FakeProbe {
    threads: Vec<(Option<u64>, bool)>,
    now: u64,
    clocks_read: usize,
    states_read: usize,
}

impl ThreadProbe for FakeProbe {
    fn now(&mut self) -> u64 {
        self.now += 100;
        self.now
    }
    fn cpu_time(&mut self, tid: Tid) -> Option<u64> {
        self.clocks_read += 1;
        self.threads[tid as usize].0
    }
    fn sleeps(&mut self, tid: Tid) -> bool {
        self.states_read += 1;
        self.threads[tid as usize].1
    }
}

fn look(watch: &mut Watch, slots: &[WatchedThread], probe: &mut FakeProbe) -> Vec<usize> {
    let mut found = Vec::new();
    watch.look(slots, probe, |i| found.push(i));
    found
}

const OPEN: WatchedThread = WatchedThread { open: true, tid: 0 };
const SHUT: WatchedThread = WatchedThread { open: false, tid: 0 };

#[test]
fn watch_reports_sleepers_with_an_open_slot_at_every_look() {
    let mut probe = FakeProbe { threads: vec![(Some(5), true)], ..FakeProbe::default() };
    let mut watch = Watch::new();
    assert_eq!(look(&mut watch, &[OPEN], &mut probe), []);
    assert_eq!(look(&mut watch, &[OPEN], &mut probe), [0]);
    assert_eq!(look(&mut watch, &[OPEN], &mut probe), [0]);
    // The thread was awake for a moment. It is reported nevertheless, since otherwise a thread that
    // naps repeatedly would keep its VP.
    probe.threads[0].0 = Some(55);
    assert_eq!(look(&mut watch, &[OPEN], &mut probe), [0]);
    // The thread ran most of the time: its state is not read.
    probe.threads[0].0 = Some(106);
    let asked = probe.states_read;
    assert_eq!(look(&mut watch, &[OPEN], &mut probe), []);
    assert_eq!(probe.states_read, asked);
    // The thread waits for a CPU: its clock stops, but it does not sleep.
    probe.threads[0].1 = false;
    assert_eq!(look(&mut watch, &[OPEN], &mut probe), []);
    assert_eq!(probe.states_read, asked + 1);
    // The thread has ended.
    probe.threads[0] = (None, true);
    assert_eq!(look(&mut watch, &[OPEN], &mut probe), []);
}

#[test]
fn closed_slot_is_not_read_and_is_forgotten() {
    let mut probe = FakeProbe { threads: vec![(Some(5), true)], ..FakeProbe::default() };
    let mut watch = Watch::new();
    assert_eq!(look(&mut watch, &[OPEN], &mut probe), []);
    let read = probe.clocks_read;
    assert_eq!(look(&mut watch, &[SHUT], &mut probe), []);
    assert_eq!(probe.clocks_read, read);
    // The slot was closed in between: what the thread did meanwhile is not known.
    assert_eq!(look(&mut watch, &[OPEN], &mut probe), []);
    assert_eq!(look(&mut watch, &[OPEN], &mut probe), [0]);
}

#[test]
fn new_carrier_with_the_same_cpu_time_is_only_recorded() {
    let mut probe =
        FakeProbe { threads: vec![(Some(5), true), (Some(5), true)], ..FakeProbe::default() };
    let mut watch = Watch::new();
    let other = WatchedThread { open: true, tid: 1 };
    assert_eq!(look(&mut watch, &[OPEN, SHUT], &mut probe), []);
    assert_eq!(look(&mut watch, &[other, OPEN], &mut probe), []);
    assert_eq!(look(&mut watch, &[other, OPEN], &mut probe), [0, 1]);
}

#[test]
fn period_doubles_while_no_sleeper_is_found() {
    let mut probe = FakeProbe { threads: vec![(Some(5), false)], ..FakeProbe::default() };
    let mut watch = Watch::new();
    for _ in 1..Watch::CALM {
        assert_eq!(watch.look(&[OPEN], &mut probe, |_| ()).as_micros(), 100);
    }
    let slots = [OPEN, SHUT, OPEN, SHUT, SHUT];
    let periods = slots.map(|slot| watch.look(&[slot], &mut probe, |_| ()).as_micros());
    assert_eq!(periods, [200, 400, 800, 1600, 1600]);
    probe.threads[0].1 = true;
    let mut found = 0;
    assert_eq!(watch.look(&[OPEN], &mut probe, |_| found += 1).as_micros(), 1600, "only recorded");
    assert_eq!(watch.look(&[OPEN], &mut probe, |_| found += 1).as_micros(), 100);
    assert_eq!(found, 1);
}

#[test]
fn proc_probe_finds_a_sleeper() {
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(this_tid()).expect("the receiver is alive");
        reader.read_to_end(&mut Vec::new()).expect("the end")
    });
    // The second thread is the calling one, which runs.
    let slots = [told.recv().expect("a thread ID"), this_tid()]
        .map(|tid| WatchedThread { open: true, tid });
    let mut watch = Watch::new();
    let mut found = Vec::new();
    while found.is_empty() {
        watch.look(&slots, &mut ProcProbe, |i| found.push(i));
        std::thread::yield_now();
    }
    assert_eq!(found, [0]);
    drop(writer);
    thread.join().expect("no panic");
}
