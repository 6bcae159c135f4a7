//! Who asks. Callers name themselves in metadata; whether it is so is the guard's to find out.

use std::net::IpAddr;

use http::HeaderMap;
use loadline_state_machine::Actor;
use tonic::{Request, Status};

use super::errors;

/// Metadata key of the caller's name.
const ACTOR: &str = "loadline-actor";
const ANONYMOUS: &str = "anonymous";
const ACTOR_BYTES_MAX: usize = 128;

/// The caller as it goes into the log: who the guard found it to be, and the address it came from.
pub(super) fn actor_of<T>(request: &Request<T>) -> Result<Actor, Status> {
    // No service is reached but past the guard; a way around it must not be a way in.
    let missing = || errors::unauthenticated("LOGIN_REQUIRED", "nobody has looked at who asks");
    request.extensions().get::<Actor>().cloned().ok_or_else(missing)
}

/// The caller as it says it is, by the name it gave and the address it came from.
pub(super) fn said(headers: &HeaderMap, from: Option<IpAddr>) -> Result<Actor, Status> {
    // The port changes with every connection and says nothing.
    let source = from.map_or_else(|| "grpc".to_owned(), |address| format!("grpc {address}"));
    let Some(name) = headers.get(ACTOR) else { return Ok(Actor::new(ANONYMOUS, source)) };
    let wrong = || {
        let message = format!("metadata must be 1 to {ACTOR_BYTES_MAX} printable ASCII characters");
        errors::invalid_field(ACTOR, message)
    };
    let name = name.to_str().map_err(|_| wrong())?;
    let printable = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if name.trim().is_empty() || name.len() > ACTOR_BYTES_MAX || !printable {
        return Err(wrong());
    }
    Ok(Actor::new(name.trim(), source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Result<Actor, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(ACTOR, name.parse().unwrap());
        said(&headers, None)
    }

    #[test]
    fn a_caller_is_who_it_says_or_nobody() {
        assert_eq!(said(&HeaderMap::new(), None).unwrap(), Actor::new("anonymous", "grpc"));
        let from = "10.0.0.9".parse().ok();
        assert_eq!(said(&HeaderMap::new(), from).unwrap(), Actor::new("anonymous", "grpc 10.0.0.9"));
        assert_eq!(named("ops@example.org").unwrap().name, "ops@example.org");
        assert_eq!(named(&"x".repeat(128)).unwrap().name.len(), 128);
        for name in ["", "  ", &"x".repeat(129)] {
            assert_eq!(named(name).unwrap_err().code(), tonic::Code::InvalidArgument, "{name:?}");
        }
    }

    #[test]
    fn who_came_around_the_guard_is_nobody() {
        let mut request = Request::new(());
        request.metadata_mut().insert(ACTOR, "root".parse().unwrap());
        assert_eq!(actor_of(&request).unwrap_err().code(), tonic::Code::Unauthenticated);
    }
}
