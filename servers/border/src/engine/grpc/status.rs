//! Refusals as the status of gRPC, and failures from it.

use std::error::Error;
use std::fmt;

use kumihimo_machine::handler::Refused;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::engine::Failure;

/// Metadata with the kind of a refusal. A status without it comes from the connection.
const KIND: &str = "kumi-refused";

/// Returns the status that carries a refusal.
pub(super) fn status(refused: Refused) -> Status {
    let (code, kind) = match &refused {
        Refused::Stale(_) => (Code::NotFound, "stale"),
        Refused::Wrong(_) => (Code::InvalidArgument, "wrong"),
        Refused::Unsupported(_) => (Code::Unimplemented, "unsupported"),
        Refused::Denied(_) => (Code::PermissionDenied, "denied"),
        Refused::Busy(_) => (Code::ResourceExhausted, "busy"),
        Refused::Invalid(_) => (Code::InvalidArgument, "invalid"),
        Refused::Unreachable(_) => (Code::Unavailable, "unreachable"),
        _ => (Code::Internal, "failed"),
    };
    let mut status = Status::new(code, refused.to_string());
    status.metadata_mut().insert(KIND, MetadataValue::from_static(kind));
    status
}

/// Returns the failure that a status of another border describes.
pub(super) fn failure(status: &Status) -> Failure {
    let text = status.message().to_owned();
    let kind = status.metadata().get(KIND).and_then(|kind| kind.to_str().ok());
    Failure::Refused(match kind {
        Some("stale") => Refused::Stale(text),
        Some("wrong") => Refused::Wrong(text),
        Some("unsupported") => Refused::Unsupported(text),
        Some("denied") => Refused::Denied(text),
        Some("busy") => Refused::Busy(text),
        Some("invalid") => Refused::Invalid(text),
        Some("unreachable") => Refused::Unreachable(text),
        Some(_) => Refused::Failed(text),
        None if status.code() == Code::Unimplemented => {
            Refused::Unsupported("the other border is another version of Kumihimo".to_owned())
        }
        None if is_sent(status) => return Failure::Gone(chain(status)),
        None => return Failure::Unreachable(chain(status)),
    })
}

/// Why a request has no response.
#[derive(Debug)]
pub(super) struct ChannelError {
    /// Whether a byte of it may have been written.
    pub(super) is_sent: bool,
    pub(super) error: hyper::Error,
}

impl ChannelError {
    /// The error of a connection that takes no request.
    pub(super) fn not_sent(error: hyper::Error) -> ChannelError {
        ChannelError { is_sent: false, error }
    }
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl Error for ChannelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Whether the request may have been sent. Only a [`ChannelError`] excludes that.
fn is_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<ChannelError>() {
            return error.is_sent;
        }
        cause = error.source();
    }
    true
}

/// Returns the message of an error and of its causes, without repetitions.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_survive_a_round_trip() {
        for refused in [
            Refused::Stale("a".into()),
            Refused::Wrong("b".into()),
            Refused::Unsupported("c".into()),
            Refused::Denied("d".into()),
            Refused::Busy("e".into()),
            Refused::Invalid("f".into()),
            Refused::Failed("g".into()),
            Refused::Unreachable("h".into()),
        ] {
            assert_eq!(failure(&status(refused.clone())), Failure::Refused(refused));
        }
        let lost = failure(&Status::unavailable("the connection ended"));
        assert_eq!(lost, Failure::Gone("the connection ended".into()));
    }
}
