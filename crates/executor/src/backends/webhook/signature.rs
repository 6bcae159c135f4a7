//! The signature of a request: HMAC-SHA256 over its time and its body, under each secret that is in force.
//!
//! Not here: which requests there are (`message`). `docs/backends/webhook.md` says the same for those who write a receiver, with
//! an example that a test below checks.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::backends::settings::Secret;

/// The header that carries it: `t=UNIX_SECONDS,v1=HEX[,v1=HEX]`, one `v1` for each secret.
pub const SIGNATURE_HEADER: &str = "loadline-signature";

/// The secrets in force. While one is replaced by another, requests are signed with both, so that the receiver may change when it
/// likes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSecrets {
    pub current: Secret,
    pub previous: Option<Secret>,
}

impl WebhookSecrets {
    /// The value of the header, for a body that is sent at this time.
    pub fn sign(&self, unix_seconds: u64, body: &[u8]) -> String {
        let mut header = format!("t={unix_seconds}");
        for secret in [Some(&self.current), self.previous.as_ref()].into_iter().flatten() {
            header.push_str(",v1=");
            for byte in keyed(secret, unix_seconds, body).finalize().into_bytes() {
                header.push_str(&format!("{byte:02x}"));
            }
        }
        header
    }
}

/// Why a receiver does not trust a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("the signature is not of the form t=UNIX_SECONDS,v1=HEX")]
    Malformed,
    #[error("the request was signed {apart_seconds} s from the receiver's time")]
    FarInTime { apart_seconds: u64 },
    #[error("no secret of the receiver makes this signature")]
    Mismatch,
}

/// What a receiver does: one signature by one secret that it knows is enough. Returns the time at which it was signed.
pub fn verify(
    header: &str,
    body: &[u8],
    secrets: &[Secret],
    now_unix_seconds: u64,
    tolerance: Duration,
) -> Result<u64, SignatureError> {
    let mut signed_at = None;
    let mut signatures = Vec::new();
    for part in header.split(',') {
        match part.trim().split_once('=') {
            Some(("t", seconds)) => signed_at = seconds.parse::<u64>().ok(),
            Some(("v1", hex)) => signatures.push(from_hex(hex).ok_or(SignatureError::Malformed)?),
            // A later version may sign in another way beside this one.
            Some(_) => {}
            None => return Err(SignatureError::Malformed),
        }
    }
    let signed_at = signed_at.ok_or(SignatureError::Malformed)?;
    let genuine = secrets.iter().any(|secret| {
        // Compared in constant time: how long it takes must not tell how much of a guess was right.
        signatures.iter().any(|signature| keyed(secret, signed_at, body).verify_slice(signature).is_ok())
    });
    if !genuine {
        return Err(SignatureError::Mismatch);
    }
    // A request that somebody recorded must not be good for ever.
    let apart_seconds = now_unix_seconds.abs_diff(signed_at);
    if apart_seconds > tolerance.as_secs() {
        return Err(SignatureError::FarInTime { apart_seconds });
    }
    Ok(signed_at)
}

fn keyed(secret: &Secret, unix_seconds: u64, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()).expect("HMAC takes keys of any length");
    mac.update(format!("{unix_seconds}.").as_bytes());
    mac.update(body);
    mac
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Duration = Duration::from_secs(300);

    fn secrets(current: &str, previous: Option<&str>) -> WebhookSecrets {
        WebhookSecrets { current: Secret::new(current), previous: previous.map(Secret::new) }
    }

    #[test]
    fn while_a_secret_is_replaced_a_receiver_with_either_one_accepts() {
        let body = b"{}";
        let header = secrets("the new secret", Some("the old secret")).sign(1_000, body);
        let check = |known: &[&str], now: u64, body: &[u8]| {
            let known: Vec<Secret> = known.iter().map(|secret| Secret::new(*secret)).collect();
            verify(&header, body, &known, now, TOLERANCE)
        };
        assert_eq!(check(&["the old secret"], 1_000, body), Ok(1_000));
        assert_eq!(check(&["the new secret"], 1_300, body), Ok(1_000));
        assert_eq!(check(&["a third one", "the new secret"], 1_000, body), Ok(1_000));
        assert_eq!(check(&["a third one"], 1_000, body), Err(SignatureError::Mismatch));
        assert_eq!(check(&["the new secret"], 1_000, b"{ }"), Err(SignatureError::Mismatch));
        assert_eq!(check(&["the new secret"], 1_301, body), Err(SignatureError::FarInTime { apart_seconds: 301 }));
        assert_eq!(check(&["the new secret"], 699, body), Err(SignatureError::FarInTime { apart_seconds: 301 }));
    }

    #[test]
    fn what_is_no_signature_is_refused() {
        let known = [Secret::new("a secret")];
        for header in ["", "t=1", "v1=00", "t=one,v1=00", "t=1,v1=0", "t=1,v1=zz", "nonsense"] {
            assert!(verify(header, b"", &known, 1, TOLERANCE).is_err(), "{header:?} was accepted");
        }
    }

    #[test]
    fn the_example_in_the_documentation_is_right() {
        // Read when the test runs: a build of the program alone has no pages beside it.
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/backends/webhook.md");
        let page = std::fs::read_to_string(page).unwrap();
        let example = |mark: &str| {
            let rest = page.split_once(&format!("<!-- {mark} -->")).unwrap_or_else(|| panic!("no mark {mark}")).1;
            let block = rest.split_once("```").unwrap().1;
            let (_language, block) = block.split_once('\n').unwrap();
            block.split_once("\n```").unwrap().0.to_owned()
        };
        let body = example("signed-body");
        let header = example("signature");
        let header = header.strip_prefix("Loadline-Signature: ").expect("the example is a header");
        assert_eq!(secrets("an-example-secret-that-is-long", None).sign(1_790_000_000, body.as_bytes()), header);
    }
}
