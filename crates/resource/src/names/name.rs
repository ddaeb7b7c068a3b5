//! A name, and the errors of operations on names.

use std::fmt;
use std::sync::Arc;

use super::LONGEST;
use crate::id::{Id, Kind};

/// Error of an operation on names.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Kind, Name, NameError, Region, table};
///
/// assert!(matches!(Name::new(Kind::REGION, "a/b"), Err(NameError::Invalid(_))));
///
/// let (first, second) = (Region::new(4096)?, Region::new(4096)?);
/// let name = Name::new(Kind::REGION, "frame")?;
/// table().name(&name, first.id())?;
/// let error = table().names().link(&name, second.id()).unwrap_err();
/// assert_eq!(error, NameError::Taken(first.id()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// The text is not a valid name. Holds the reason.
    Invalid(String),
    /// Another resource has the name.
    Taken(Id),
    /// No resource has the name.
    Unknown(String),
    /// The name is not under the kind of its resource. Holds that kind.
    OtherKind(Kind),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Invalid(why) => f.write_str(why),
            NameError::Taken(id) => {
                write!(f, "{id} already has that name: rename or unlink it first")
            }
            NameError::Unknown(name) => write!(f, "no resource is named {name:?}"),
            NameError::OtherKind(kind) => {
                write!(f, "a name must stand under the kind of its resource, which is /{kind}")
            }
        }
    }
}

impl std::error::Error for NameError {}

/// Name in the tree: `/kind/name`.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Kind, Name};
///
/// let name = Name::new(Kind::GATE, "clock")?;
/// assert_eq!(name.to_string(), "/gate/clock");
/// assert_eq!(Name::parse("/gate/clock")?, name);
/// # Ok::<(), kumihimo::resource::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pub(super) kind: Kind,
    pub(super) text: Arc<str>,
}

impl Name {
    /// Creates the name `text` under `kind`.
    ///
    /// # Errors
    /// [`NameError::Invalid`] if `text` is not a valid name.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Name};
    ///
    /// assert!(Name::new(Kind::REGION, "frame 7").is_ok());
    /// assert!(Name::new(Kind::REGION, "..").is_err());
    /// ```
    pub fn new(kind: Kind, text: &str) -> Result<Name, NameError> {
        let shown: String = text.chars().take(40).collect();
        let invalid =
            |why: &str| Err(NameError::Invalid(format!("{shown:?} is not a resource name: {why}")));
        if text.is_empty() {
            invalid("it is empty")
        } else if text.len() > LONGEST {
            invalid(&format!("it has {} bytes, at most {LONGEST} are allowed", text.len()))
        } else if text.contains('/') {
            invalid("it contains a slash, and the tree has two levels only: /kind/name")
        } else if text.chars().any(char::is_control) {
            invalid("it contains a NUL or another control character")
        } else if text == "." || text == ".." {
            invalid("the tree has no entries `.` and `..`")
        } else {
            Ok(Name { kind, text: text.into() })
        }
    }

    /// Parses `/kind/name`.
    ///
    /// # Errors
    /// [`NameError::Invalid`] if `path` is not of that form.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Name};
    ///
    /// let name = Name::parse("/region/frame")?;
    /// assert_eq!((name.kind(), name.text()), (Kind::REGION, "frame"));
    /// assert!(Name::parse("frame").is_err());
    /// # Ok::<(), kumihimo::resource::NameError>(())
    /// ```
    pub fn parse(path: &str) -> Result<Name, NameError> {
        let shown: String = path.chars().take(40).collect();
        let (kind, text) =
            path.strip_prefix('/').and_then(|rest| rest.split_once('/')).ok_or_else(|| {
                NameError::Invalid(format!("{shown:?} is not a resource name: expected /kind/name"))
            })?;
        let kind = kind.parse().map_err(|e| NameError::Invalid(format!("{shown:?}: {e}")))?;
        Name::new(kind, text)
    }

    /// Returns the kind under which the name stands.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Name};
    ///
    /// assert_eq!(Name::parse("/mailbox/orders")?.kind(), Kind::MAILBOX);
    /// # Ok::<(), kumihimo::resource::NameError>(())
    /// ```
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the name without its kind.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Name;
    ///
    /// assert_eq!(Name::parse("/mailbox/orders")?.text(), "orders");
    /// # Ok::<(), kumihimo::resource::NameError>(())
    /// ```
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("/{}/{}", self.kind, self.text))
    }
}
