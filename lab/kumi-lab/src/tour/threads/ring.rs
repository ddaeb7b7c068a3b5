//! Chapter 3: the ring distributes microprocesses created on one virtual processor over all of
//! them.

use std::io::{IsTerminal, Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo::runtime::{self, Design, Runtime};
use kumihimo::thread;

use crate::tour::page::text;
use crate::tour::{Args, Figures, check};

const VPS: usize = 8;
const CROWD: usize = 256;
/// Length of the longest bar.
const WIDE: usize = 64;
/// Numbers of pictures on a terminal and elsewhere.
const FILM: usize = 40;
const SHEET: usize = 4;
const PATIENCE: Duration = Duration::from_secs(3);

/// Number of runnable microprocesses on each VP, with the time.
type Look = (Duration, Vec<usize>);

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    if crate::tour::one_to_one() {
        text::say(
            "Left out: microprocesses are kernel threads on this machine, so the kernel distributes them.",
        );
        return Ok(());
    }
    text::say(&format!(
        "{VPS} VPs form a ring. Each VP passes its surplus of microprocesses to the next VP, through a queue \
         without locks: only one VP writes to it, and only one reads. One VP starts {CROWD} microprocesses. Number \
         of runnable microprocesses on each VP:",
    ));
    println!();
    let runtime = Runtime::builder()
        .vps(VPS)
        .queue(Design::Ring)
        .build()
        .map_err(|e| format!("no runtime: {e}"))?;
    let looks = runtime.run(spread);
    let (took, last) = looks.last().ok_or("no observation")?;
    if stdout().is_terminal() {
        film(&looks);
    } else {
        for look in chosen(&looks, SHEET) {
            println!("{}", picture(look));
        }
    }
    check(is_even(last), || {
        format!("no even distribution within {}: {last:?}", text::time(PATIENCE))
    })?;
    text::say(&format!(
        "Even distribution after {}. ({VPS} VPs share {} cores here, so this time includes waits for a core; the \
         paper measured 30.8 ms on 8 processors, and 131.6 ms with locks.)",
        text::time(*took),
        thread::available_parallelism().map_or(1, usize::from),
    ));
    figures.add(format!("{CROWD} spread over {VPS} VPs"), "", text::time(*took));
    Ok(())
}

/// Runs in the first microprocess, and records the distribution at each of its turns.
fn spread() -> Vec<Look> {
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let stop = stop.clone();
            thread::spawn(move || {
                while !stop.load(Relaxed) {
                    thread::yield_now();
                }
            })
        })
        .collect();
    let mut looks: Vec<Look> = Vec::new();
    loop {
        let now: Vec<usize> =
            runtime::metrics().map_or(Vec::new(), |m| m.vps.iter().map(|vp| vp.runnable).collect());
        let time = start.elapsed();
        let done = is_even(&now) || time > PATIENCE;
        if done || looks.last().is_none_or(|(_, before)| *before != now) {
            looks.push((time, now));
        }
        if done {
            break;
        }
        thread::yield_now();
    }
    stop.store(true, Relaxed);
    for one in crowd {
        one.join().expect("no panic");
    }
    looks
}

/// Returns whether no VP has less than three quarters of its share.
fn is_even(runnable: &[usize]) -> bool {
    runnable.len() == VPS && runnable.iter().all(|&n| n >= CROWD / VPS * 3 / 4)
}

/// Selects at most `n` records with about the same progress between them, including the first and
/// the last one.
fn chosen(looks: &[Look], n: usize) -> Vec<&Look> {
    // Excess of the VP with the most microprocesses over its share.
    let left = |(_, runnable): &Look| {
        runnable.iter().max().map_or(0, |most| most.saturating_sub(CROWD / VPS))
    };
    let Some(last) = looks.last() else { return Vec::new() };
    let begin = looks.iter().map(left).max().unwrap_or(0);
    let mut pictures: Vec<&Look> = Vec::new();
    for step in 0..n - 1 {
        let next = looks.iter().find(|look| left(look) <= begin - begin * step / (n - 1));
        // A record that spans several steps is one picture.
        pictures.extend(next.filter(|look| pictures.last().is_none_or(|before| before.0 < look.0)));
    }
    if pictures.last().is_none_or(|before| before.0 < last.0) {
        pictures.push(last);
    }
    pictures
}

fn picture((time, runnable): &Look) -> String {
    let mut lines = format!("  after {}\n", text::time(*time));
    for (vp, &n) in runnable.iter().enumerate() {
        let bar = "#".repeat(n * WIDE / CROWD + usize::from(n > 0 && n * WIDE < CROWD));
        lines += &format!("  VP {vp} {n:>4} {bar}\n");
    }
    lines
}

/// Draws pictures over each other, slowly enough to be seen.
fn film(looks: &[Look]) {
    for (i, look) in chosen(looks, FILM).into_iter().enumerate() {
        if i > 0 {
            // Move up to the first line of the previous picture, and clear everything below.
            print!("\x1b[{}A\x1b[J", VPS + 1);
        }
        print!("{}", picture(look));
        let _ = stdout().flush();
        std::thread::sleep(Duration::from_millis(70));
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_cover_the_run_in_order() {
        let looks: Vec<Look> = (0..=224)
            .map(|i| (Duration::from_millis(i), vec![256 - i as usize, i as usize]))
            .collect();
        let times: Vec<u128> =
            chosen(&looks[..=200], 5).iter().map(|look| look.0.as_millis()).collect();
        assert_eq!((times.first(), times.last()), (Some(&0), Some(&200)));
        assert!(times.is_sorted() && times.len() <= 5);
        assert_eq!(chosen(&looks[..1], 4), [&looks[0]]);
        assert!(chosen(&[], 4).is_empty());
    }

    #[test]
    fn picture_has_a_line_per_vp() {
        let text = picture(&(Duration::from_millis(2), vec![256, 0, 1, 128]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[1].matches('#').count(), WIDE);
        assert_eq!([lines[2], lines[3]].map(|l| l.matches('#').count()), [0, 1]);
        assert!(lines.iter().all(|line| line.len() <= 100));
    }

    #[test]
    fn vps_are_even_from_three_quarters_of_a_share() {
        assert!(is_even(&[24; 8]) && is_even(&[32; 8]));
        assert!(!is_even(&[40, 40, 40, 40, 40, 40, 23, 23]) && !is_even(&[256]));
    }
}
