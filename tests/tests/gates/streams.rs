//! Streams: items are produced one at a time, on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kumihimo::gate::{ErrorKind, Gate, Options};
use kumihimo::thread;
use kumihimo_tests::{Random, rounds};

use crate::pair::{pair, serve_on};

#[test]
fn stream_items_arrive_in_order_until_either_side_ends() {
    let server = || {
        let ended = Arc::new(AtomicU32::new(0));
        let its = ended.clone();
        let _counts =
            Gate::<u64, String>::serve_stream("counts", &Options::new(), move |most, sink| {
                for i in 0..most {
                    if let Err(error) = sink.send(&i.to_string()) {
                        its.fetch_add(1, Ordering::Relaxed);
                        return Err(error);
                    }
                    if i == 77 && most == 78 {
                        panic!("at 77");
                    }
                }
                Ok(())
            })
            .expect("it serves");
        let _ended = Gate::<(), u32>::serve("ended", move |()| ended.load(Ordering::Relaxed))
            .expect("it serves");
        serve_on();
    };
    pair("streams::stream_items_arrive_in_order_until_either_side_ends", server, || {
        let counts = Gate::<u64, String>::connect("counts").expect("it is there");
        for most in [0, 1, 2, 500] {
            let items: Vec<String> = counts
                .stream(&most)
                .expect("a stream")
                .map(|item| item.expect("an item"))
                .collect();
            assert!(items.iter().map(|item| item.parse::<u64>().expect("a number")).eq(0..most));
        }
        // Streams that are dropped early, in several states.
        for taken in 0..4 {
            let mut stream = counts.stream(&u64::MAX).expect("a stream");
            for i in 0..taken {
                assert_eq!(stream.next().expect("more").expect("an item"), i.to_string());
            }
        }
        let ended = Gate::<(), u32>::connect("ended").expect("it is there");
        // The first stream may have been dropped before its handler started.
        while ended.call(&()).expect("a reply") < 3 {
            thread::yield_now();
        }
        while counts.under_way() != 0 {
            thread::yield_now();
        }
        let mut items: Vec<_> = counts.stream(&78).expect("a stream").collect();
        let last = items.pop().expect("an error").expect_err("it panicked");
        assert_eq!((items.len(), last.kind()), (78, ErrorKind::Panicked), "{last}");
        assert_eq!(counts.call(&1).expect_err("it serves streams").kind(), ErrorKind::Invalid);
        let no_stream = Gate::<(), u32>::connect("ended")
            .expect("it is there")
            .stream(&())
            .expect("asked")
            .next();
        assert_eq!(
            no_stream.expect("an error").expect_err("it serves none").kind(),
            ErrorKind::Invalid
        );
    });
}

/// A stream is dropped while an item is in its cell. Its handler ends, and the next stream in that
/// cell does not receive the item.
#[test]
fn stream_dropped_with_an_item_in_flight() {
    let server = || {
        let (sent, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let its = (sent.clone(), ended.clone());
        let _counts = Gate::<(), u32>::serve_stream("counts", &Options::new(), move |(), sink| {
            let all = (0..).try_for_each(|i| {
                sink.send(&i)?;
                its.0.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            its.1.fetch_add(1, Ordering::Relaxed);
            all
        })
        .expect("it serves");
        let tells = move |()| (sent.load(Ordering::Relaxed), ended.load(Ordering::Relaxed));
        let _told = Gate::<(), (u32, u32)>::serve("told", tells).expect("it serves");
        serve_on();
    };
    pair("streams::stream_dropped_with_an_item_in_flight", server, || {
        let counts = Gate::<(), u32>::connect("counts").expect("it is there");
        let told = Gate::<(), (u32, u32)>::connect("told").expect("it is there");
        for i in 0..200 {
            let stream = counts.stream(&()).expect("a stream");
            while told.call(&()).expect("a reply").0 == 2 * i {
                thread::yield_now();
            }
            drop(stream);
            let mut next = counts.stream(&()).expect("a stream");
            assert_eq!(next.next().expect("more").expect("an item"), 0, "after {i} others");
            drop(next);
            while told.call(&()).expect("a reply") != (2 * i + 2, 2 * i + 2) {
                thread::yield_now();
            }
        }
        while counts.under_way() != 0 {
            thread::yield_now();
        }
    });
}

/// Number of the requesting client, and number of the item: an item of another stream is detected.
type Item = (u64, u64);

/// Consumes streams and drops each in another way and state.
fn go_through(counts: &Arc<Gate<(u64, u64), Item>>, mut random: Random) {
    for _ in 0..20 {
        let id = random.number();
        let read = |most: u64, taken: u64| {
            for (i, item) in
                (0..).zip(counts.stream(&(id, most)).expect("a stream").take(taken as usize))
            {
                match item {
                    Ok(item) => assert_eq!(item, (id, i)),
                    Err(error) => return Err(error.kind()),
                }
            }
            Ok(())
        };
        let read_within = |time: Duration| {
            thread::scope_until(Instant::now() + time, |_| read(u64::MAX, u64::MAX))
        };
        let ended = match random.below(5) {
            0 => read(random.below(30), u64::MAX),
            1 => read(u64::MAX, 0),
            2 => read(u64::MAX, random.below(30)),
            3 => read_within(Duration::from_micros(random.below(2000))),
            _ => {
                let counts = counts.clone();
                let one = thread::spawn(move || {
                    let stream = counts.stream(&(id, u64::MAX)).expect("a stream");
                    (0..)
                        .zip(stream)
                        .for_each(|(i, item)| assert_eq!(item.map_err(|e| e.kind()), Ok((id, i))));
                });
                for _ in 0..random.below(20) {
                    thread::yield_now();
                }
                one.cancel();
                let payload = one.join().expect_err("it would go on for ever");
                assert!(payload.is::<thread::Cancelled>(), "an item was wrong");
                Ok(())
            }
        };
        assert!(matches!(ended, Ok(()) | Err(ErrorKind::TimedOut)), "{ended:?}");
    }
}

/// However a stream is dropped, it receives only its own items, and its handler ends.
#[test]
fn streams_dropped_at_random_points() {
    const NAME: &str = "streams::streams_dropped_at_random_points";
    let server = || {
        struct Lives(Arc<AtomicU32>);
        impl Drop for Lives {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let living = Arc::new(AtomicU32::new(0));
        let its = living.clone();
        let _counts = Gate::<(u64, u64), Item>::serve_stream(
            "counts",
            &Options::new(),
            move |(id, most), sink| {
                its.fetch_add(1, Ordering::Relaxed);
                let _lives = Lives(its.clone());
                let mut random = Random(id);
                (0..most).try_for_each(|i| {
                    if random.below(10) == 0 {
                        thread::sleep(Duration::from_micros(random.below(200)));
                    }
                    sink.send(&(id, i))
                })
            },
        )
        .expect("it serves");
        let _living = Gate::<(), u32>::serve("living", move |()| living.load(Ordering::Relaxed))
            .expect("it serves");
        serve_on();
    };
    pair(NAME, server, || {
        let counts = Arc::new(Gate::<(u64, u64), Item>::connect("counts").expect("it is there"));
        let living = Gate::<(), u32>::connect("living").expect("it is there");
        for mut round in rounds(NAME) {
            thread::scope(|scope| {
                for _ in 0..8 {
                    let (counts, random) = (&counts, round.random.split());
                    scope.spawn(move || go_through(counts, random));
                }
            });
            while counts.under_way() != 0 || living.call(&()).expect("a reply") != 0 {
                thread::yield_now();
            }
        }
    });
}
