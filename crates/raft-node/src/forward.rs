//! Handing a request to the leader: what its answers mean, and what it means when none comes.

use std::error::Error;

use loadline_api::raft as wire;
use loadline_state_machine::Receipt;
use tonic::{Code, ConnectError, Status};

use crate::errors::ProposeError;
use crate::proposer::{Failure, unknown};

/// Whether a call failed in a way that proves that the leader never took the request in.
pub(crate) fn certainly_not_taken(status: &Status) -> bool {
    let mut cause = Error::source(status);
    while let Some(error) = cause {
        // The leader's process is gone: nothing was sent at all.
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    // Refused at the door: not a member yet, or not the node that was meant.
    matches!(status.code(), Code::FailedPrecondition | Code::InvalidArgument)
}

/// What the leader's answer means.
pub(crate) fn answer_in(answer: wire::ProposeResponse) -> Result<Receipt, Failure> {
    use wire::propose_failure::Kind;
    use wire::propose_response::Result as Said;
    let failure = match answer.result {
        Some(Said::Receipt(receipt)) => {
            return Receipt::decode(&receipt).map_err(|error| unknown(&format!("its receipt cannot be read: {error}")));
        }
        Some(Said::Failure(failure)) => failure,
        None => return Err(unknown("the leader's answer is empty")),
    };
    let error = match failure.kind() {
        Kind::NotLeader => return Err(Failure::NotLeader),
        Kind::Overloaded => ProposeError::Overloaded,
        Kind::DiskReserve => {
            ProposeError::DiskReserve { free: failure.free, reserve: failure.reserve, node: failure.node }
        }
        Kind::TooLarge => ProposeError::TooLarge { bytes: failure.bytes, bytes_max: failure.bytes_max },
        Kind::Suspended => ProposeError::Suspended,
        // The leader is on its way out and took nothing in: another will lead in a moment.
        Kind::ShuttingDown => return Err(Failure::NotLeader),
        Kind::Unknown | Kind::Unspecified => ProposeError::Unknown { reason: failure.reason },
    };
    Err(Failure::Final(error))
}

/// The same, on its way out.
pub(crate) fn answer_out(outcome: Result<Receipt, Failure>) -> wire::ProposeResponse {
    use wire::propose_failure::Kind;
    use wire::propose_response::Result as Said;
    let mut failure = wire::ProposeFailure::default();
    let kind = match outcome {
        Ok(receipt) => return wire::ProposeResponse { result: Some(Said::Receipt(receipt.encode().into())) },
        Err(Failure::NotLeader | Failure::Final(ProposeError::NoLeader)) => Kind::NotLeader,
        Err(Failure::Final(error)) => {
            failure.reason = error.to_string();
            match error {
                ProposeError::NoLeader => Kind::NotLeader,
                ProposeError::Overloaded => Kind::Overloaded,
                ProposeError::DiskReserve { free, reserve, node } => {
                    (failure.free, failure.reserve, failure.node) = (free, reserve, node);
                    Kind::DiskReserve
                }
                ProposeError::TooLarge { bytes, bytes_max } => {
                    (failure.bytes, failure.bytes_max) = (bytes, bytes_max);
                    Kind::TooLarge
                }
                ProposeError::Unknown { reason } => {
                    failure.reason = reason;
                    Kind::Unknown
                }
                ProposeError::Suspended => Kind::Suspended,
                ProposeError::ShuttingDown | ProposeError::Stopped => Kind::ShuttingDown,
            }
        }
    };
    failure.set_kind(kind);
    wire::ProposeResponse { result: Some(Said::Failure(failure)) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use loadline_state_machine::LogIndex;

    use super::*;

    #[test]
    fn a_failure_arrives_at_the_follower_as_the_leader_meant_it() {
        for error in [
            ProposeError::Overloaded,
            ProposeError::DiskReserve { free: 1, reserve: 2, node: 3 },
            ProposeError::TooLarge { bytes: 4, bytes_max: 5 },
            ProposeError::Unknown { reason: "who knows".into() },
            ProposeError::Suspended,
        ] {
            match answer_in(answer_out(Err(Failure::Final(error.clone())))) {
                Err(Failure::Final(arrived)) => assert_eq!(arrived, error),
                other => panic!("{error:?} became {other:?}"),
            }
        }
        for elsewhere in [
            Failure::NotLeader,
            Failure::Final(ProposeError::NoLeader),
            Failure::Final(ProposeError::ShuttingDown),
            Failure::Final(ProposeError::Stopped),
        ] {
            assert!(matches!(answer_in(answer_out(Err(elsewhere))), Err(Failure::NotLeader)));
        }
        let receipt = Receipt { index: LogIndex(7), result: Ok(Vec::new()), repeated: true };
        assert_eq!(answer_in(answer_out(Ok(receipt.clone()))).unwrap(), receipt);
    }

    #[test]
    fn an_answer_that_makes_no_sense_leaves_it_unknown() {
        for result in [None, Some(wire::propose_response::Result::Receipt(Bytes::from_static(b"\xff")))] {
            let outcome = answer_in(wire::ProposeResponse { result });
            assert!(matches!(outcome, Err(Failure::Final(ProposeError::Unknown { .. }))), "{outcome:?}");
        }
    }

    #[tokio::test]
    async fn a_call_that_never_reached_anybody_is_known_to_have_done_nothing() {
        // Nobody listens at a port that was given back a moment ago.
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let links = crate::network::links::Links::new(Arc::new(crate::PlainDial), Duration::from_secs(5));
        let refused = links.propose(&port.to_string(), wire::ProposeRequest::default(), Duration::from_secs(5)).await;
        assert!(certainly_not_taken(&refused.unwrap_err()));
        assert!(certainly_not_taken(&Status::failed_precondition("not part of a group yet")));
        assert!(!certainly_not_taken(&Status::deadline_exceeded("no answer")));
        assert!(!certainly_not_taken(&Status::unavailable("the connection broke")));
        assert!(!certainly_not_taken(&Status::cancelled("")));
    }
}
