//! Spans of the crate `tracing` and contexts of OpenTelemetry belong to the microprocess that
//! entered them: over parks, yields, blocks, hand-offs and preemption.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kumihimo::runtime::{Runtime, metrics};
use kumihimo::sync::mpsc::{self, Receiver, Sender};
use kumihimo::{observe, thread};
use kumihimo_tests::process::one_to_one;
use opentelemetry::Context;
use tracing::{Event, Span, Subscriber, info, info_span};
use tracing_subscriber::layer::{self, Layer, SubscriberExt};
use tracing_subscriber::registry::{self, LookupSpan};

const WORKERS: u64 = 16;
const ROUNDS: u64 = 20;
/// Pieces of computation after which one gives up: many quanta.
const MOST_PIECES: u64 = 100_000;
/// Number of preemptions after which nobody computes any more.
const ENOUGH: u64 = 4;

/// Notes each event with the names of the spans around it, the outermost first.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(
        &self,
        span: &tracing::span::Attributes<'_>,
        id: &tracing::span::Id,
        context: layer::Context<'_, S>,
    ) {
        let mut number = Number(0);
        span.record(&mut number);
        context.span(id).expect("it is new").extensions_mut().insert(number);
    }

    fn on_event(&self, event: &Event<'_>, context: layer::Context<'_, S>) {
        let mut number = Number(0);
        event.record(&mut number);
        let scope = context.event_scope(event).into_iter().flat_map(registry::Scope::from_root);
        let spans: Vec<String> = scope
            .map(|span| format!("{}{}", span.name(), span.extensions().get::<Number>().unwrap().0))
            .collect();
        self.0.lock().expect("no panic").push(format!("{}:{}", number.0, spans.join("/")));
    }
}

/// The field `number` of a span or an event; also the value in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number(u64);

impl tracing::field::Visit for Number {
    fn record_u64(&mut self, _: &tracing::field::Field, value: u64) {
        self.0 = value;
    }
    fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
}

/// Checks that the calling microprocess is in its own spans and context, and in no other.
fn check(number: u64, inner: &Span) {
    assert_eq!(Span::current().id(), inner.id(), "{number}");
    assert_eq!(Context::current().get::<Number>(), Some(&Number(number)));
    info!(number, "here");
}

/// Number of workers that were preempted.
static PREEMPTED: AtomicU64 = AtomicU64::new(0);

/// Computes without a call that switches, until it or some others were preempted. One that is alone
/// on its virtual processor is not.
fn until_preempted() {
    let own = thread::current().id().resource().expect("it is a microprocess");
    for piece in 0..MOST_PIECES {
        black_box((0..10_000).fold(piece, |sum, n| black_box(sum.rotate_left(5) ^ n)));
        let is_preempted = observe::counters(own).is_some_and(|counters| counters.preemptions > 0);
        let all = PREEMPTED.fetch_add(u64::from(is_preempted), Relaxed);
        if is_preempted || all >= ENOUGH {
            return;
        }
    }
}

/// Waits in every way, inside two spans and a context. Returns the kernel threads on which it ran.
fn work(number: u64, to: &Sender<u64>, from: &Receiver<u64>, preempts: bool) -> BTreeSet<i64> {
    let outer = info_span!("request", number);
    let _outer = outer.enter();
    let context = Context::current_with_value(Number(number)).attach();
    let mut threads = BTreeSet::new();
    for round in 0..ROUNDS {
        let step = info_span!("step", number = round);
        let _step = step.enter();
        thread::yield_now();
        check(number, &step);
        thread::sleep(Duration::from_micros(50));
        check(number, &step);
        to.send(round).expect("the other one lives");
        assert_eq!(from.recv(), Ok(round));
        check(number, &step);
        thread::blocking(std::thread::yield_now);
        // A block that the runtime does not know: the virtual processor moves on.
        std::thread::sleep(Duration::from_micros(200));
        check(number, &step);
        if preempts && round == 0 {
            until_preempted();
            check(number, &step);
        }
        // SAFETY: takes no arguments and has no effect.
        threads.insert(unsafe { libc::syscall(libc::SYS_gettid) });
    }
    drop(context);
    assert_eq!(Context::current().get::<Number>(), None);
    threads
}

#[test]
fn spans_and_contexts_follow_microprocesses_over_waits() {
    let recorder = Recorder::default();
    tracing::subscriber::set_global_default(registry::Registry::default().with(recorder.clone()))
        .expect("the only one");
    Runtime::builder().vps(2).build().expect("a runtime").run(|| {
        let preempts = !one_to_one() && metrics().expect("it runs").preemption != "off";
        let mut all = Vec::new();
        for pair in 0..WORKERS / 2 {
            let ((to_first, of_first), (to_second, of_second)) = (mpsc::channel(), mpsc::channel());
            for (number, to, from) in
                [(2 * pair + 1, to_second, of_first), (2 * pair + 2, to_first, of_second)]
            {
                all.push(thread::spawn(move || work(number, &to, &from, preempts)));
            }
        }
        let threads: Vec<_> = all.into_iter().map(|one| one.join().expect("no panic")).collect();
        assert_eq!(Span::current().id(), None, "that of main");
        let all: BTreeSet<_> = threads.iter().flatten().collect();
        assert!(!preempts || PREEMPTED.load(Relaxed) > 0, "nobody was preempted");
        assert!(all.len() > 1, "they ran on one kernel thread only: {threads:?}");
    });
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in recorder.0.lock().expect("no panic").iter() {
        *counts.entry(line.clone()).or_default() += 1;
    }
    for number in 1..=WORKERS {
        for round in 0..ROUNDS {
            let expected = format!("{number}:request{number}/step{round}");
            let count = counts.remove(&expected).unwrap_or(0);
            assert!((4..=5).contains(&count), "{expected}: {count}");
        }
    }
    assert!(counts.is_empty(), "events in other spans: {counts:?}");
}
