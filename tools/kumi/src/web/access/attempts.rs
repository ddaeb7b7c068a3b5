//! Limits the attempts to give the password, by where they come from.
//!
//! After some wrong ones from an address, further attempts from there are refused for a time that
//! grows with each wrong one, without a look at the password. An attempt that is refused does not
//! prolong the time. So a stranger can delay attempts from the same address, and none from others;
//! sessions and the token, which cannot be guessed, are not limited at all. That keeps the owner
//! in.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Number of wrong attempts without a delay.
const FREE: u32 = 5;
/// First delay. Each further wrong attempt doubles it.
const FIRST: Duration = Duration::from_secs(1);
/// Longest delay.
const LONGEST: Duration = Duration::from_secs(60);
/// Time without attempts after which an address is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Number of addresses that are remembered. Further ones share one entry.
const MOST: usize = 4096;

/// Where an attempt comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An address, of IPv6 the network of a site: its owner has all addresses in it.
    Address(IpAddr),
    /// The UNIX socket.
    Socket,
    /// Any address when too many are remembered.
    Others,
}

impl Source {
    /// The source of a TCP connection.
    pub fn of(address: IpAddr) -> Source {
        Source::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// The wrong attempts of a source.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    count: u32,
    last: Instant,
}

impl Wrong {
    /// When the next attempt is looked at.
    fn next(self) -> Instant {
        match self.count.checked_sub(FREE) {
            None => self.last,
            Some(n) => self.last + FIRST.saturating_mul(1 << n.min(16)).min(LONGEST),
        }
    }
}

/// The wrong attempts so far.
#[derive(Debug, Default)]
pub struct Attempts(HashMap<Source, Wrong>);

impl Attempts {
    /// How long an attempt has to wait; `None` if it is looked at now.
    pub fn delay(&mut self, source: Source, now: Instant) -> Option<Duration> {
        let wrong = self.0.get(&self.entry(source)).copied()?;
        let left = wrong.next().saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Records a wrong attempt.
    pub fn wrong(&mut self, source: Source, now: Instant) {
        if self.0.len() >= MOST {
            self.0.retain(|_, wrong| now.saturating_duration_since(wrong.last) < FORGOTTEN);
        }
        let source = self.entry(source);
        let wrong = self.0.entry(source).or_insert(Wrong { count: 0, last: now });
        if now.saturating_duration_since(wrong.last) >= FORGOTTEN {
            wrong.count = 0;
        }
        *wrong = Wrong { count: wrong.count.saturating_add(1), last: now };
    }

    /// Forgets the wrong attempts of a source that has given the password.
    pub fn right(&mut self, source: Source) {
        self.0.remove(&source);
    }

    fn entry(&self, source: Source) -> Source {
        if self.0.len() >= MOST && !self.0.contains_key(&source) { Source::Others } else { source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(n: u32) -> Source {
        Source::of(IpAddr::V4(n.into()))
    }

    #[test]
    fn thousand_wrong_attempts_delay_their_own_address_only() {
        let mut attempts = Attempts::default();
        let mut now = Instant::now();
        let mut looked_at = 0;
        for _ in 0..1000 {
            if attempts.delay(source(1), now).is_none() {
                attempts.wrong(source(1), now);
                looked_at += 1;
            }
            now += Duration::from_millis(100);
        }
        // Within 100 s: 5 at once, then after 1, 2, 4, 8, 16, 32 s.
        assert_eq!(looked_at, 11);
        assert_eq!(attempts.delay(source(2), now), None);
        // What was refused has not prolonged the time.
        let left = attempts.delay(source(1), now).expect("it waits");
        assert!(left <= LONGEST, "{left:?}");
        assert_eq!(attempts.delay(source(1), now + left), None);
        attempts.right(source(1));
        assert_eq!(attempts.delay(source(1), now), None);
    }

    #[test]
    fn attempts_are_forgotten_after_a_while() {
        let mut attempts = Attempts::default();
        let now = Instant::now();
        (0..20).for_each(|_| attempts.wrong(source(1), now));
        assert_eq!(attempts.delay(source(1), now), Some(LONGEST));
        attempts.wrong(source(1), now + FORGOTTEN);
        assert_eq!(attempts.delay(source(1), now + FORGOTTEN), None);
    }

    #[test]
    fn many_addresses_take_bounded_memory() {
        let mut attempts = Attempts::default();
        let now = Instant::now();
        for n in 0..3 * MOST as u32 {
            attempts.wrong(source(n), now);
        }
        assert_eq!(attempts.0.len(), MOST + 1);
        assert!(attempts.delay(source(u32::MAX), now).is_some(), "it shares an entry");
        attempts.wrong(source(0), now + FORGOTTEN);
        assert_eq!(attempts.0.len(), 1);
    }

    #[test]
    fn site_of_ipv6_is_one_source() {
        let of = |text: &str| Source::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
