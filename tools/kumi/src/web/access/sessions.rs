//! Browsers that were admitted: each has a secret in a cookie.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kumihimo::sync::{Mutex, MutexGuard, PoisonError};

use super::attempts::{Attempts, Source};
use super::secret::{self, Key, Sealed};

/// Largest number of sessions. The one that was unused for longest ends for a new one.
const MOST: usize = 64;
/// Time without requests after which a session ends.
const UNUSED: Duration = Duration::from_secs(12 * 3600);

/// Outcome of an attempt to give the password.
#[derive(Debug)]
pub enum SignIn {
    /// The secret of the new session.
    Admitted(String),
    /// It was wrong.
    Wrong,
    /// It was not looked at: there were too many wrong ones.
    TooSoon(Duration),
}

/// The sessions, and what begins one.
pub struct Sessions {
    key: Key,
    token: Sealed,
    password: Option<Sealed>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When each session was last used, by what is derived from its secret: a look-up takes a time
    /// that depends on its key.
    used: HashMap<String, Instant>,
    attempts: Attempts,
}

impl Sessions {
    /// Starts without sessions. `password` reads the password, if there is to be one. Returns the
    /// token, too.
    ///
    /// # Errors
    /// As `password`, and if the kernel has no random numbers.
    pub fn new(
        password: impl FnOnce(&Key) -> Result<Option<Sealed>, String>,
    ) -> Result<(Sessions, String), String> {
        let key = Key::new()?;
        let token = secret::random()?;
        let sealed = key.seal(token.as_bytes());
        let password = password(&key)?;
        Ok((Sessions { key, token: sealed, password, state: Mutex::default() }, token))
    }

    /// Whether there is a password.
    pub fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Begins a session for the token. Returns its secret; `None` if the token is wrong.
    ///
    /// # Errors
    /// If the kernel has no random numbers.
    pub fn by_token(&self, token: &str) -> Result<Option<String>, String> {
        if !self.key.is(&self.token, token.as_bytes()) {
            return Ok(None);
        }
        self.begin(&mut self.state(), Instant::now()).map(Some)
    }

    /// Begins a session for the password.
    ///
    /// # Errors
    /// If the kernel has no random numbers.
    pub fn by_password(&self, given: &[u8], source: Source) -> Result<SignIn, String> {
        let Some(password) = &self.password else { return Ok(SignIn::Wrong) };
        let now = Instant::now();
        // Attempts are looked at one after the other: none slips through while another is compared.
        let mut state = self.state();
        if let Some(delay) = state.attempts.delay(source, now) {
            return Ok(SignIn::TooSoon(delay));
        }
        if !self.key.is(password, given) {
            state.attempts.wrong(source, now);
            return Ok(SignIn::Wrong);
        }
        state.attempts.right(source);
        self.begin(&mut state, now).map(SignIn::Admitted)
    }

    fn begin(&self, state: &mut State, now: Instant) -> Result<String, String> {
        let secret = secret::random()?;
        if state.used.len() >= MOST {
            let oldest = state.used.iter().min_by_key(|(_, used)| **used).map(|(of, _)| of.clone());
            oldest.and_then(|oldest| state.used.remove(&oldest));
        }
        state.used.insert(self.name(&secret), now);
        Ok(secret)
    }

    fn name(&self, secret: &str) -> String {
        self.key.derived("session", secret)
    }

    /// Whether a secret is that of a session, which is then used.
    pub fn is_open(&self, secret: &str) -> bool {
        self.is_open_at(secret, Instant::now())
    }

    fn is_open_at(&self, secret: &str, now: Instant) -> bool {
        let name = self.name(secret);
        let mut state = self.state();
        let Some(used) = state.used.get_mut(&name) else { return false };
        if now.saturating_duration_since(*used) >= UNUSED {
            state.used.remove(&name);
            return false;
        }
        *used = now;
        true
    }

    /// Ends a session.
    pub fn end(&self, secret: &str) {
        let name = self.name(secret);
        self.state().used.remove(&name);
    }

    /// The text that a page of this session sends with each request that changes something. A page
    /// of another server can let the browser send the cookie, but cannot read this text.
    pub fn page_key(&self, secret: &str) -> String {
        self.key.derived("page", secret)
    }

    /// Whether `given` is the text of [`page_key`](Sessions::page_key).
    pub fn is_page_key(&self, secret: &str, given: &str) -> bool {
        self.key.is(&self.key.seal(self.page_key(secret).as_bytes()), given.as_bytes())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> (Sessions, String) {
        Sessions::new(|key| Ok(Some(key.seal(b"correct horse")))).expect("random numbers")
    }

    #[test]
    fn token_and_password_begin_sessions() {
        let (sessions, token) = sessions();
        assert_eq!(sessions.by_token("").expect("random"), None);
        let first = sessions.by_token(&token).expect("random").expect("the token is right");
        let SignIn::Admitted(second) =
            sessions.by_password(b"correct horse", Source::Socket).expect("random")
        else {
            panic!("the password is right")
        };
        assert!(sessions.is_open(&first) && sessions.is_open(&second) && !sessions.is_open("x"));
        assert!(sessions.is_page_key(&first, &sessions.page_key(&first)));
        assert!(!sessions.is_page_key(&first, &sessions.page_key(&second)));
        assert!(!sessions.is_page_key(&first, ""));
        sessions.end(&first);
        assert!(!sessions.is_open(&first) && sessions.is_open(&second));
    }

    #[test]
    fn sessions_end_when_unused_and_are_bounded() {
        let (sessions, token) = sessions();
        let begin = || sessions.by_token(&token).expect("random").expect("right");
        let first = begin();
        let now = Instant::now();
        assert!(sessions.is_open_at(&first, now + UNUSED / 2));
        assert!(sessions.is_open_at(&first, now + UNUSED));
        assert!(!sessions.is_open_at(&first, now + UNUSED * 3));
        let all: Vec<String> = (0..=MOST).map(|_| begin()).collect();
        let open = all.iter().filter(|secret| sessions.is_open(secret)).count();
        assert_eq!(open, MOST);
    }

    #[test]
    fn without_a_password_none_is_right() {
        let (sessions, _) = Sessions::new(|_| Ok(None)).expect("random numbers");
        assert!(matches!(sessions.by_password(b"", Source::Socket), Ok(SignIn::Wrong)));
    }
}
