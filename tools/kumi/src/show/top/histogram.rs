//! Histograms of virtual processors as lines of text.

use kumihimo_machine::top::TopVp;

use crate::text::duration;

/// Width of the longest bar.
const WIDTH: u128 = 40;
/// Number of buckets that can have a limit. Another program sends them.
const BUCKETS: usize = 64;

/// Returns the histograms of all virtual processors.
pub fn lines(vps: &[TopVp]) -> Vec<String> {
    let mut lines = Vec::new();
    for (vp, of) in vps.iter().enumerate() {
        lines.push(format!("VP {vp}: time from wake-up to run"));
        bars(&mut lines, &of.wake_latency, duration);
        lines.push(format!("VP {vp}: microprocesses in the run queue"));
        bars(&mut lines, &of.queue_lengths, |n| n.to_string());
    }
    lines
}

/// Adds a bar for each bucket between the first and the last one that is not empty.
fn bars(lines: &mut Vec<String>, buckets: &[u64], label: impl Fn(u64) -> String) {
    let buckets = &buckets[..buckets.len().min(BUCKETS)];
    let (Some(first), Some(last)) =
        (buckets.iter().position(|n| *n > 0), buckets.iter().rposition(|n| *n > 0))
    else {
        lines.push("  none yet".to_owned());
        return;
    };
    let most = buckets.iter().copied().max().unwrap_or(1).max(1);
    for (bucket, n) in buckets.iter().enumerate().take(last + 1).skip(first) {
        let width = (u128::from(*n) * WIDTH).div_ceil(u128::from(most));
        let bar = "#".repeat(width as usize);
        lines.push(format!("  < {:>7} {n:>9} {bar}", label(1 << bucket)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_shows_the_buckets_in_use() {
        let mut lines = Vec::new();
        let mut buckets = [0; 32];
        bars(&mut lines, &buckets, duration);
        (buckets[10], buckets[12]) = (40, 1);
        bars(&mut lines, &buckets, duration);
        let bar = "#".repeat(40);
        assert_eq!(
            lines,
            [
                "  none yet".to_owned(),
                format!("  <   1.0us        40 {bar}"),
                "  <   2.0us         0 ".to_owned(),
                "  <   4.1us         1 #".to_owned(),
            ]
        );
    }

    #[test]
    fn foreign_histogram_is_drawn_without_overflow() {
        let of = TopVp { wake_latency: vec![u64::MAX; 100], queue_lengths: vec![1] };
        let lines = lines(&[of]);
        assert_eq!(lines.len(), 1 + BUCKETS + 2);
        assert!(lines[1].ends_with(&format!(" {}", "#".repeat(40))), "{}", lines[1]);
    }
}
