//! Who asks. Callers name themselves in metadata; nothing here proves it yet.

use loadline_state_machine::Actor;
use tonic::{Request, Status};

use super::errors;

/// Metadata key of the caller's name.
const ACTOR: &str = "loadline-actor";
const ANONYMOUS: &str = "anonymous";
const ACTOR_BYTES_MAX: usize = 128;

/// The caller as it goes into the log: the name it gave, and the address it came from.
pub(super) fn actor_of<T>(request: &Request<T>) -> Result<Actor, Status> {
    // The port changes with every connection and says nothing.
    let source = request.remote_addr().map_or_else(|| "grpc".to_owned(), |address| format!("grpc {}", address.ip()));
    let Some(name) = request.metadata().get(ACTOR) else { return Ok(Actor::new(ANONYMOUS, source)) };
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
        let mut request = Request::new(());
        request.metadata_mut().insert(ACTOR, name.parse().unwrap());
        actor_of(&request)
    }

    #[test]
    fn a_caller_is_who_it_says_or_nobody() {
        assert_eq!(actor_of(&Request::new(())).unwrap(), Actor::new("anonymous", "grpc"));
        assert_eq!(named("ops@example.org").unwrap().name, "ops@example.org");
        assert_eq!(named(&"x".repeat(128)).unwrap().name.len(), 128);
        for name in ["", "  ", &"x".repeat(129)] {
            assert_eq!(named(name).unwrap_err().code(), tonic::Code::InvalidArgument, "{name:?}");
        }
    }
}
