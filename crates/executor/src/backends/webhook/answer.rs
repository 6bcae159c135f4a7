//! What an answer means.
//!
//! One rule stands above the table: an answer counts only if its body repeats the key that was asked about. A proxy, a load balancer
//! or the start page of something else can send any status code, and even a 503 of theirs may come after the receiver has done
//! what was asked. Whatever does not count is *unknown*, and is read back.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use loadline_state_machine::{Call, DrainResult, Epoch, Report};

use super::message::{Answer, parse_epoch};
use crate::Order;

/// What a receiver said about an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done(Report),
    UnderWay {
        ask_again: Option<Duration>,
    },
    /// The receiver has no such key.
    NotSeen,
    /// The receiver tried or looked, and it cannot be done; nothing has changed. It may remember that.
    Failed {
        retryable: bool,
        reason: String,
    },
    /// Nobody looked into it; nothing has changed.
    Refused {
        reason: String,
    },
    /// Not now, and nothing has changed.
    Busy {
        retry_after: Option<Duration>,
        reason: String,
    },
    OtherParameters {
        known: String,
    },
    Fenced {
        highest: Epoch,
    },
    Unknown {
        reason: String,
    },
}

/// An answer as it came.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Raw {
    /// What was meant for us, if this is JSON at all.
    pub(super) fn answer(&self) -> Answer {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Only the form in seconds: the other one would compare two clocks.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let value = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?;
        value.trim().parse().ok().map(Duration::from_secs)
    }
}

/// Judges the answer to `execute` or `find`.
pub(super) fn judge(order: &Order, raw: &Raw) -> Verdict {
    let status = raw.status.as_u16();
    let answer = raw.answer();
    let said = answer.reason.clone();
    let reason = |otherwise: &str| said.clone().unwrap_or_else(|| otherwise.to_owned());
    if answer.key.as_deref() != Some(&order.key) {
        return without_key(raw, &answer, &order.key);
    }
    match status {
        200 => Verdict::Done(report(&order.call, &answer)),
        202 => Verdict::UnderWay { ask_again: raw.retry_after() },
        404 => Verdict::NotSeen,
        408 => Verdict::Refused { reason: reason("it came after its deadline") },
        409 => Verdict::OtherParameters {
            known: answer.known.unwrap_or_else(|| "the receiver does not say which".to_owned()),
        },
        412 | 423 => fenced(order.epoch, answer.highest.as_deref()),
        422 => Verdict::Failed {
            retryable: answer.retryable.unwrap_or(false),
            reason: reason("the receiver refused it without a reason"),
        },
        429 | 503 => Verdict::Busy { retry_after: raw.retry_after(), reason: reason("the receiver is busy") },
        400 | 401 | 403 | 405 | 413 | 415 | 501 => {
            Verdict::Refused { reason: reason(&format!("the receiver answered {}", raw.status)) }
        }
        _ => Verdict::Unknown { reason: reason(&format!("the receiver answered {}", raw.status)) },
    }
}

/// Somebody answered, and did not show that it was the receiver, or that it read the request.
fn without_key(raw: &Raw, answer: &Answer, key: &str) -> Verdict {
    let status = raw.status;
    if let Some(other) = &answer.key {
        return Verdict::Unknown { reason: format!("the answer is about the key {other}, and {key} was asked for") };
    }
    match status.as_u16() {
        // Whoever sends these has not passed the request on, or could not read or trust it.
        400 | 401 | 403 | 404 | 405 | 413 | 415 => Verdict::Refused {
            reason: match &answer.reason {
                Some(reason) => format!("answered {status}: {reason}"),
                None => format!("answered {status}: is the address right, and the secret the receiver's?"),
            },
        },
        429 => Verdict::Busy { retry_after: raw.retry_after(), reason: "too many requests".to_owned() },
        _ => Verdict::Unknown { reason: format!("answered {status}, without the key that shows who answers") },
    }
}

/// A receiver that says it is fenced has to say at what: a leader that believes it without need stops acting.
pub(super) fn fenced(ours: Epoch, highest: Option<&str>) -> Verdict {
    match highest.and_then(parse_epoch) {
        Some(highest) if highest > ours => Verdict::Fenced { highest },
        Some(highest) => Verdict::Unknown {
            reason: format!("the receiver says that it is fenced at {highest}, which is not above {ours}"),
        },
        None => Verdict::Unknown { reason: "the receiver says that it is fenced, and not at which epoch".to_owned() },
    }
}

fn report(call: &Call, answer: &Answer) -> Report {
    match call {
        Call::CreateReplica(_) => Report::Created { incarnation: answer.incarnation.clone() },
        Call::DrainReplica(_) => match answer.drained {
            Some(drained) => Report::Drained(DrainResult { moved: drained.moved, left: drained.left }),
            None => Report::Nothing,
        },
        Call::CordonReplica(_) | Call::DropReplica(_) | Call::UncordonReplica(_) | Call::CheckpointReplica(_) => {
            Report::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use loadline_state_machine::{ClusterId, Hash, LogIndex, ReplicaSpec};

    use super::*;
    use crate::ClusterAddress;

    fn order() -> Order {
        Order {
            key: "7/a1.0".into(),
            epoch: Epoch { incarnation: 7, index: LogIndex(5) },
            attempt: 1,
            parameters: Hash::of(b"parameters"),
            cluster: ClusterAddress { id: ClusterId { index: LogIndex(1), ordinal: 0 }, name: "shop".into() },
            call: Call::CreateReplica(ReplicaSpec { name: "r1_auto".into(), size: "100cc".into() }),
        }
    }

    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "a case reads better without a reference")]
    fn check(status: u16, body: &str, expected: Verdict) {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, "3".parse().unwrap());
        let raw = Raw { status: StatusCode::from_u16(status).unwrap(), headers, body: body.as_bytes().to_vec() };
        assert_eq!(judge(&order(), &raw), expected, "for {status} with {body}");
    }

    fn unknown(reason: &str) -> Verdict {
        Verdict::Unknown { reason: reason.to_owned() }
    }

    fn refused(reason: &str) -> Verdict {
        Verdict::Refused { reason: reason.to_owned() }
    }

    fn failed(retryable: bool, reason: &str) -> Verdict {
        Verdict::Failed { retryable, reason: reason.to_owned() }
    }

    #[test]
    fn each_status_code_means_what_the_contract_says() {
        let three = Some(Duration::from_secs(3));
        let epoch = |index| format!("{:020}.{index:020}", 7);
        check(
            200,
            r#"{"key":"7/a1.0","incarnation":"u9"}"#,
            Verdict::Done(Report::Created { incarnation: Some("u9".into()) }),
        );
        check(200, r#"{"key":"7/a1.0","new":[]}"#, Verdict::Done(Report::Created { incarnation: None }));
        check(202, r#"{"key":"7/a1.0"}"#, Verdict::UnderWay { ask_again: three });
        check(404, r#"{"key":"7/a1.0"}"#, Verdict::NotSeen);
        check(408, r#"{"key":"7/a1.0"}"#, refused("it came after its deadline"));
        check(409, r#"{"key":"7/a1.0","known":"ab"}"#, Verdict::OtherParameters { known: "ab".into() });
        for status in [412, 423] {
            let highest = Epoch { incarnation: 7, index: LogIndex(6) };
            check(status, &format!(r#"{{"key":"7/a1.0","highest":"{}"}}"#, epoch(6)), Verdict::Fenced { highest });
        }
        check(422, r#"{"key":"7/a1.0","reason":"no such size"}"#, failed(false, "no such size"));
        check(422, r#"{"key":"7/a1.0","reason":"no room","retryable":true}"#, failed(true, "no room"));
        for status in [429, 503] {
            let busy = Verdict::Busy { retry_after: three, reason: "the receiver is busy".into() };
            check(status, r#"{"key":"7/a1.0"}"#, busy);
        }
        check(500, r#"{"key":"7/a1.0","reason":"half way"}"#, unknown("half way"));
        check(303, r#"{"key":"7/a1.0"}"#, unknown("the receiver answered 303 See Other"));
    }

    #[test]
    fn an_answer_that_does_not_repeat_the_key_proves_nothing() {
        for status in [200, 202, 301, 408, 409, 412, 422, 423, 500, 502, 503, 504] {
            for body in ["", "<html>welcome</html>", "{}", "[]", r#"{"key":7}"#] {
                let code = StatusCode::from_u16(status).unwrap();
                check(status, body, unknown(&format!("answered {code}, without the key that shows who answers")));
            }
        }
        check(200, r#"{"key":"7/a2.0"}"#, unknown("the answer is about the key 7/a2.0, and 7/a1.0 was asked for"));
    }

    #[test]
    fn who_could_not_read_or_trust_the_request_has_not_carried_it_out() {
        check(401, r#"{"reason":"no secret fits"}"#, refused("answered 401 Unauthorized: no secret fits"));
        check(404, "", refused("answered 404 Not Found: is the address right, and the secret the receiver's?"));
        let busy = Verdict::Busy { retry_after: Some(Duration::from_secs(3)), reason: "too many requests".into() };
        check(429, "slow down", busy);
    }

    #[test]
    fn a_fence_that_is_not_above_ours_is_not_believed() {
        let not_above = "the receiver says that it is fenced at 7/5, which is not above 7/5";
        check(412, &format!(r#"{{"key":"7/a1.0","highest":"{:020}.{:020}"}}"#, 7, 5), unknown(not_above));
        let no_epoch = "the receiver says that it is fenced, and not at which epoch";
        check(423, r#"{"key":"7/a1.0"}"#, unknown(no_epoch));
        check(412, r#"{"key":"7/a1.0","highest":"6"}"#, unknown(no_epoch));
    }
}
