//! The feature `tracing`: what a subscriber is told, and that it may do what any code may.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use kumihimo::thread;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, info, info_span};

thread_local! {
    /// Spans that the thread is inside of.
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Notes everything; it waits in the middle of being told, and spawns.
#[derive(Default)]
struct Recorder {
    next: AtomicU64,
    names: Mutex<HashMap<u64, String>>,
    told: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

struct Shared(Arc<Recorder>);

impl Subscriber for Shared {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "kumihimo" || metadata.target() == "here"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text::default();
        span.record(&mut text);
        let id = self.0.next.fetch_add(1, SeqCst) + 1;
        let name = format!("{} {}", span.metadata().name(), text.0);
        self.0.names.lock().expect("not poisoned").insert(id, name);
        Id::from_u64(id)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let inside = INSIDE.with_borrow(|spans| {
            let names = self.0.names.lock().expect("not poisoned");
            spans.iter().map(|id| names[id].clone()).collect::<Vec<_>>().join("/")
        });
        // Others are told of theirs meanwhile.
        thread::yield_now();
        thread::sleep(std::time::Duration::from_micros(1));
        self.0.told.lock().expect("not poisoned").push(format!("{inside}: {}", text.0));
        if text.0.contains("spawn one, please") {
            thread::spawn(|| ()).join().expect("no panic");
        }
        assert!(!text.0.contains("panic, please"), "asked to");
    }
    fn enter(&self, span: &Id) {
        INSIDE.with_borrow_mut(|spans| spans.push(span.into_u64()));
    }
    fn exit(&self, span: &Id) {
        INSIDE.with_borrow_mut(|spans| spans.retain(|id| *id != span.into_u64()));
    }
}

#[test]
fn blocking_tracing_subscriber_receives_every_event() {
    let recorder = Arc::new(Recorder::default());
    tracing::subscriber::set_global_default(Shared(recorder.clone())).expect("the only one");
    let one_to_one =
        kumihimo::runtime::Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            let all: Vec<_> = (0..20)
                .map(|i| {
                    let work = move || {
                        // Each has its own context, wherever it runs, and beside all others.
                        let _work = info_span!(target: "here", "work", i).entered();
                        for _ in 0..10 {
                            info!(target: "here", i, "at work");
                            thread::yield_now();
                        }
                        thread::sleep(std::time::Duration::from_micros(50));
                        thread::blocking(std::thread::yield_now);
                        info!(target: "here", "spawn one, please");
                    };
                    thread::Builder::new()
                        .name(format!("worker-{i}"))
                        .spawn(work)
                        .expect("a microprocess")
                })
                .collect();
            all.into_iter().for_each(|one| one.join().expect("no panic"));
            // Told by the runtime, its panics end with the telling.
            thread::Builder::new()
                .name("panic, please".into())
                .spawn(|| 7)
                .expect("begins")
                .join()
                .expect("no panic");
            kumihimo::runtime::metrics().expect("it runs").tls == "kernel"
        });
    let told = recorder.told.lock().expect("not poisoned");
    let count = |what: &dyn Fn(&str) -> bool| told.iter().filter(|line| what(line)).count();
    assert_eq!(count(&|line| line.contains("at work")), 200);
    for i in 0..20 {
        let in_its_work = |line: &str| {
            let (spans, event) = line.split_once(" : ").unwrap_or_default();
            spans.ends_with(&format!("work i={i}"))
                && spans.matches("work i=").count() == 1
                && event.contains("at work")
        };
        assert_eq!(count(&in_its_work), 10, "{told:#?}");
        if one_to_one {
            continue;
        }
        let name = format!("name=\"worker-{i}\"");
        assert_eq!(
            count(&|line| line.contains("message=spawned") && line.ends_with(&format!("{name} "))),
            1,
            "{told:#?}"
        );
        let in_its_span = |line: &str| line.starts_with("microprocess ") && line.contains(&name);
        assert_eq!(
            count(&|line| line.contains("message=ended") && in_its_span(line)),
            1,
            "{told:#?}"
        );
        for wait in ["wait=the clock", "wait=a blocking call"] {
            assert!(
                count(&|line| line.contains(wait) && in_its_span(line)) >= 1,
                "{wait}\n{told:#?}"
            );
        }
    }
}
