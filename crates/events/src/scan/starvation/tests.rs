use super::*;

const PACE: Duration = Duration::from_millis(250);
const ASLEEP: Option<(u64, u64)> = Some((7, 3));

/// Simulates passes of the watchdog for `time` while all kernel threads sleep. Returns the number
/// of scans and the ages that had to be reported.
fn starve(seen: &mut Starvation, time: Duration) -> (usize, Vec<Duration>) {
    let (mut scans, mut ages) = (0, Vec::new());
    for _ in 0..time.as_millis() / PACE.as_millis() {
        if seen.is_due(PACE) {
            scans += 1;
            ages.extend(seen.note(ASLEEP));
        }
    }
    (scans, ages)
}

#[test]
fn scans_back_off_while_starvation_lasts() {
    let mut seen = Starvation::default();
    let (scans, ages) = starve(&mut seen, Duration::from_secs(60));
    assert!(scans <= 20, "{scans} scans in a minute");
    assert_eq!(ages[0], PATIENCE, "the first report is not delayed");
    let five = Duration::from_secs(5);
    let late = ages.iter().find(|age| **age >= five).expect("it lasts").saturating_sub(five);
    assert!(late <= Duration::from_millis(500), "the report after 5 s is {late:?} late");
    let longest = ages.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert_eq!(longest, Some(LONGEST_INTERVAL), "{ages:?}");
}

#[test]
fn progress_ends_the_backoff() {
    for progress in [None, Some((8, 3)), Some((7, 4))] {
        let mut seen = Starvation::default();
        starve(&mut seen, Duration::from_secs(60));
        assert_eq!(seen.note(progress), None);
        assert!(seen.is_due(PACE), "{progress:?}");
        assert_eq!(seen.note(ASLEEP), None, "{progress:?}");
        let (_, ages) = starve(&mut seen, PATIENCE);
        assert_eq!(ages, [PATIENCE], "{progress:?}");
    }
}

/// A timer that expires after a quiet minute must be reported as soon as any other.
#[test]
fn scans_do_not_back_off_while_nothing_waits() {
    let mut seen = Starvation::default();
    let mut scans = 0;
    for _ in 0..60_000 / PACE.as_millis() {
        if seen.is_due(PACE) {
            scans += 1;
            if seen.note(ASLEEP).is_some() {
                seen.obey(StarvedReply::NothingWaits);
            }
        }
    }
    assert!(scans >= 60, "{scans} scans in a minute");
}

#[test]
fn no_scan_follows_the_report() {
    let mut seen = Starvation::default();
    seen.obey(StarvedReply::Done);
    assert_eq!(starve(&mut seen, Duration::from_secs(60)).0, 0);
}
