//! What an identity may do at this machine. Nothing is allowed by default.

use kumihimo_machine::handler::{Action, Refused};
use kumihimo_machine::protocol::Request;
use kumihimo_resource::id::{Id, Kind};

use crate::tls::identity::Identity;

/// Rights of one identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Name in the certificate to which the rights belong.
    pub name: String,
    /// Whether it may list and examine.
    pub observe: bool,
    /// Whether it may suspend, resume, cancel and set priorities.
    pub steer: bool,
    /// Gates that it may call: names with `*` for any text and `?` for any character.
    pub call: Vec<String>,
    /// Highest priority that it may set, and of its calls.
    pub level: u8,
    /// Number of its calls at a time.
    pub calls: usize,
    /// Size of its largest request.
    pub bytes: usize,
}

impl Rights {
    /// Returns whether it may call a gate.
    #[must_use]
    pub fn may_call(&self, gate: &str) -> bool {
        self.call.iter().any(|pattern| matches(pattern.as_bytes(), gate.as_bytes()))
    }
}

/// Returns whether a name is one of a pattern. Takes time in proportion to both lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of, mut star) = (0, 0, None);
    while at < name.len() {
        match pattern.get(of) {
            Some(b'*') => {
                star = Some((of, at));
                of += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[at] => (at, of) = (at + 1, of + 1),
            // The last star stands for one byte more.
            _ => match star {
                Some((star_at, from)) => {
                    star = Some((star_at, from + 1));
                    (of, at) = (star_at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[of..].iter().all(|byte| *byte == b'*')
}

/// The rights of all identities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed(pub Vec<Rights>);

impl Allowed {
    /// Returns the rights of an identity: those of its first name that has any.
    #[must_use]
    pub fn of(&self, identity: &Identity) -> Option<&Rights> {
        self.0.iter().find(|rights| identity.has(&rights.name))
    }

    /// Checks a request to a control socket.
    ///
    /// # Errors
    /// Returns [`Refused::Denied`] with the missing right.
    pub fn check(&self, identity: &Identity, request: &Request) -> Result<(), Refused> {
        let rights = self.of(identity);
        match request {
            Request::Act { id, action } => {
                let rights = rights.filter(|rights| rights.steer);
                let rights = rights.ok_or_else(|| denied(identity, "steer"))?;
                check_action(rights, *id, *action)
            }
            // Exact accounting changes how the address space runs.
            Request::Top { query } if query.exact == Some(true) => {
                let steers = rights.is_some_and(|rights| rights.steer);
                steers.then_some(()).ok_or_else(|| denied(identity, "steer"))
            }
            _ => self.check_observe(identity),
        }
    }

    /// Checks that an identity may list.
    ///
    /// # Errors
    /// Returns [`Refused::Denied`].
    pub fn check_observe(&self, identity: &Identity) -> Result<(), Refused> {
        let observes = self.of(identity).is_some_and(|rights| rights.observe);
        observes.then_some(()).ok_or_else(|| denied(identity, "observe"))
    }
}

/// Checks an action of an identity that may steer.
fn check_action(rights: &Rights, id: Id, action: Action) -> Result<(), Refused> {
    match action {
        Action::Priority(priority) if priority > rights.level => Err(Refused::Denied(format!(
            "{} may set priorities up to {} here",
            rights.name, rights.level
        ))),
        // A gate serves others, which did not ask for its end.
        Action::Cancel if id.kind() != Kind::MICROPROCESS => {
            Err(Refused::Denied(format!("{} may cancel microprocesses only", rights.name)))
        }
        _ => Ok(()),
    }
}

fn denied(identity: &Identity, right: &str) -> Refused {
    Refused::Denied(format!(
        "{identity} may not {right} here: the configuration of this machine's border decides"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, is_one) in [
            ("adder", "adder", true),
            ("adder", "adder2", false),
            ("*", "", true),
            ("db-*", "db-users", true),
            ("db-*", "xdb-users", false),
            ("*-?", "a-b-c", true),
            ("*-?", "a-b-", false),
            ("a*b*c", "abbbc", true),
            ("a*b*c", "ac", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), is_one, "{pattern} {name}");
        }
    }
}
