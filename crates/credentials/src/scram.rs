//! SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, without channel binding.
//!
//! What is kept of a password is enough to check somebody who knows it, and not enough to log in with. The text of a verifier
//! is PostgreSQL's: `SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY`, so that one made elsewhere can be given, too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use constant_time_eq::constant_time_eq_32;
use hmac::{Hmac, KeyInit as _, Mac as _};
use loadline_state_machine::ScramVerifier;
use rand::RngExt as _;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// As it is named when it is offered.
pub const MECHANISM: &str = "SCRAM-SHA-256";

const NONCE_BYTES: usize = 18;
/// A client-first or client-final message is some hundred bytes long.
const MESSAGE_BYTES_MAX: usize = 4_096;
/// As many as what is made of a password has: a decoy must look alike.
const ITERATIONS: u32 = 4_096;
const SALT_BYTES: usize = 16;

/// What the other side says is no SCRAM, or not the password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScramError {
    #[error("malformed SCRAM message: {what}")]
    Malformed { what: &'static str },
    #[error("channel binding is not offered here")]
    ChannelBinding,
    /// Also for a role that does not exist: who does is nobody's business.
    #[error("password authentication failed")]
    WrongPassword,
}

/// What to keep of a password, with a salt of its own. A text that is a verifier already is taken as it is.
pub fn verifier(password: &str) -> ScramVerifier {
    if let Some(given) = parse(password) {
        return given;
    }
    let text = postgres_protocol::password::scram_sha_256(password.as_bytes());
    parse(&text).unwrap_or_else(|| decoy(password, &rand::rng().random::<[u8; 32]>()))
}

/// Reads PostgreSQL's text of a verifier; nothing if it is none.
pub fn parse(text: &str) -> Option<ScramVerifier> {
    let (head, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
    let (iterations, salt) = head.split_once(':')?;
    let (stored_key, server_key) = keys.split_once(':')?;
    let key = |text: &str| STANDARD.decode(text).ok()?.try_into().ok();
    Some(ScramVerifier {
        iterations: iterations.parse().ok()?,
        salt: STANDARD.decode(salt).ok()?.into(),
        stored_key: key(stored_key)?,
        server_key: key(server_key)?,
    })
}

/// The text of a verifier. It does not let anybody in, but it helps whoever guesses passwords: do not show it.
pub fn text(verifier: &ScramVerifier) -> String {
    let ScramVerifier { iterations, salt, stored_key, server_key } = verifier;
    let base64 = |bytes: &[u8]| STANDARD.encode(bytes);
    format!("SCRAM-SHA-256${iterations}:{}${}:{}", base64(salt.as_slice()), base64(stored_key), base64(server_key))
}

/// For a role that does not exist: nothing fits it, and it is gone through all the same. Its salt is always the same one, as
/// that of a role is: asked twice, a new salt would give away that nobody is there. Whoever knows `secret` can tell.
pub fn decoy(role: &str, secret: &[u8]) -> ScramVerifier {
    let mut mac = keyed(secret);
    mac.update(b"loadline decoy\n");
    mac.update(role.as_bytes());
    let salt: [u8; 32] = mac.finalize().into_bytes().into();
    let mut rng = rand::rng();
    ScramVerifier {
        iterations: ITERATIONS,
        salt: salt[..SALT_BYTES].to_vec().into(),
        stored_key: rng.random(),
        server_key: rng.random(),
    }
}

/// A login under way: the client has said its first message, and has been answered.
#[derive(Clone, Debug)]
pub struct Login {
    verifier: ScramVerifier,
    /// As it must come back, in base64.
    binding: String,
    nonce: String,
    /// What both sides sign, up to the client's last message.
    said: String,
    server_first: String,
}

impl Login {
    /// Takes the client's first message.
    pub fn begin(client_first: &[u8], verifier: ScramVerifier) -> Result<Login, ScramError> {
        let nonce = STANDARD.encode(rand::rng().random::<[u8; NONCE_BYTES]>());
        Login::begin_with(client_first, verifier, &nonce)
    }

    fn begin_with(client_first: &[u8], verifier: ScramVerifier, own_nonce: &str) -> Result<Login, ScramError> {
        let message = text_of(client_first)?;
        let malformed = |what| ScramError::Malformed { what };
        let mut parts = message.splitn(3, ',');
        let (flag, authzid, bare) = (parts.next(), parts.next(), parts.next());
        let bare = bare.ok_or(malformed("three parts are expected"))?;
        match flag {
            // "y": the client could bind, and believes that we cannot. It is right.
            Some("n" | "y") => {}
            Some(flag) if flag.starts_with("p=") => return Err(ScramError::ChannelBinding),
            _ => return Err(malformed("it begins with n, y or p")),
        }
        // The role is that of the connection, whatever name is given here; PostgreSQL's clients leave it empty.
        if authzid != Some("") {
            return Err(malformed("logging in for somebody else is not possible"));
        }
        let mut attributes = bare.split(',');
        let user = attributes.next().and_then(|user| user.strip_prefix("n="));
        user.ok_or(malformed("a name is expected first"))?;
        let client_nonce = attributes.next().and_then(|nonce| nonce.strip_prefix("r="));
        let client_nonce = client_nonce.filter(|nonce| is_nonce(nonce)).ok_or(malformed("a nonce is expected"))?;
        let nonce = format!("{client_nonce}{own_nonce}");
        let salt = STANDARD.encode(verifier.salt.as_slice());
        let server_first = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let said = format!("{bare},{server_first}");
        let binding = STANDARD.encode(&message[..message.len() - bare.len()]);
        Ok(Login { verifier, binding, nonce, said, server_first })
    }

    /// The answer to the client's first message.
    pub fn challenge(&self) -> &str {
        &self.server_first
    }

    /// Takes the client's last message. The answer lets the client know that we know the password, too.
    pub fn finish(self, client_final: &[u8]) -> Result<String, ScramError> {
        let message = text_of(client_final)?;
        let malformed = |what| ScramError::Malformed { what };
        let (unproven, proof) = message.rsplit_once(",p=").ok_or(malformed("a proof is expected last"))?;
        let mut attributes = unproven.split(',');
        let binding = attributes.next().and_then(|binding| binding.strip_prefix("c="));
        if binding != Some(self.binding.as_str()) {
            return Err(malformed("it binds to something else than it began with"));
        }
        if attributes.next().and_then(|nonce| nonce.strip_prefix("r=")) != Some(self.nonce.as_str()) {
            return Err(malformed("the nonce is not the one that was given"));
        }
        let proof: Option<[u8; 32]> = STANDARD.decode(proof).ok().and_then(|proof| proof.try_into().ok());
        let mut client_key = proof.ok_or(malformed("the proof is not 32 bytes in base64"))?;
        let said = format!("{},{unproven}", self.said);
        let signature = sign(&self.verifier.stored_key, &said);
        client_key.iter_mut().zip(signature).for_each(|(byte, mask)| *byte ^= mask);
        let found: [u8; 32] = Sha256::digest(client_key).into();
        if !constant_time_eq_32(&found, &self.verifier.stored_key) {
            return Err(ScramError::WrongPassword);
        }
        Ok(format!("v={}", STANDARD.encode(sign(&self.verifier.server_key, &said))))
    }
}

fn text_of(message: &[u8]) -> Result<&str, ScramError> {
    let text = if message.len() <= MESSAGE_BYTES_MAX { std::str::from_utf8(message).ok() } else { None };
    text.ok_or(ScramError::Malformed { what: "it is too long, or no text" })
}

fn is_nonce(nonce: &str) -> bool {
    !nonce.is_empty() && nonce.bytes().all(|byte| (b'!'..=b'~').contains(&byte))
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn sign(key: &[u8; 32], message: &str) -> [u8; 32] {
    let mut mac = keyed(key);
    mac.update(message.as_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
    use proptest::prelude::*;

    use super::*;

    /// As psql and the drivers do it. The client checks our signature in its turn.
    fn log_in(given: &str, kept: ScramVerifier, binding: ChannelBinding) -> Result<(), ScramError> {
        let mut client = ScramSha256::new(given.as_bytes(), binding);
        let login = Login::begin(client.message(), kept)?;
        client.update(login.challenge().as_bytes()).expect("the client understands the challenge");
        let answer = login.finish(client.message())?;
        client.finish(answer.as_bytes()).expect("the client believes the server");
        Ok(())
    }

    #[test]
    fn who_knows_the_password_gets_in_and_nobody_else() {
        let kept = verifier("correct horse");
        for binding in [ChannelBinding::unsupported, ChannelBinding::unrequested] {
            assert_eq!(log_in("correct horse", kept.clone(), binding()), Ok(()));
            for wrong in ["", "correct horse ", "Correct horse"] {
                assert_eq!(log_in(wrong, kept.clone(), binding()), Err(ScramError::WrongPassword));
            }
            assert_eq!(log_in("correct horse", decoy("ada", b"group"), binding()), Err(ScramError::WrongPassword));
        }
        let bound = ChannelBinding::tls_server_end_point(vec![1, 2, 3]);
        assert_eq!(log_in("correct horse", kept, bound), Err(ScramError::ChannelBinding));
    }

    #[test]
    fn the_exchange_is_the_one_of_the_standard() {
        // RFC 7677, section 3: user, password "pencil".
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let kept = parse(
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
        )
        .expect("a verifier");
        assert_eq!(kept.salt.as_slice(), salt);
        let login =
            Login::begin_with(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", kept, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0").unwrap();
        assert_eq!(
            login.challenge(),
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last =
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(login.finish(last).as_deref(), Ok("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
    }

    #[test]
    fn a_verifier_is_read_back_as_it_was_written_and_salted_anew_each_time() {
        let kept = verifier("secret");
        assert_eq!(parse(&text(&kept)), Some(kept.clone()));
        assert_eq!(verifier(&text(&kept)), kept, "one that was made elsewhere is taken as it is");
        assert_ne!(verifier("secret"), kept);
        assert!(!format!("{kept:?}").contains("secret"));
        for wrong in
            ["", "secret", "SCRAM-SHA-256$", "SCRAM-SHA-256$x:AA==$AA==:AA==", "SCRAM-SHA-256$4096:AA==$AA==:AA=="]
        {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_role_that_does_not_exist_looks_like_one_that_does() {
        let (kept, decoyed) = (verifier("secret"), decoy("ada", b"group"));
        assert_eq!((decoyed.iterations, decoyed.salt.as_slice().len()), (kept.iterations, kept.salt.as_slice().len()));
        assert_eq!(decoy("ada", b"group").salt, decoyed.salt, "asked twice");
        assert_ne!(decoy("bob", b"group").salt, decoyed.salt);
        assert_ne!(decoy("ada", b"other").salt, decoyed.salt);
    }

    #[test]
    fn an_answer_to_another_challenge_is_not_taken() {
        let kept = verifier("secret");
        let mut client = ScramSha256::new(b"secret", ChannelBinding::unsupported());
        let first = client.message().to_vec();
        let login = Login::begin(&first, kept.clone()).unwrap();
        client.update(login.challenge().as_bytes()).unwrap();
        // Recorded on the wire, and played back to a login of its own.
        let replayed = Login::begin(&first, kept).unwrap().finish(client.message());
        assert!(matches!(replayed, Err(ScramError::Malformed { .. })), "{replayed:?}");
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic_or_lets_anybody_in(first in any::<Vec<u8>>(), last in any::<Vec<u8>>(), text in "[npy],[a=]?,n=.{0,5},r=.{0,9}.*") {
            for first in [first.as_slice(), text.as_bytes()] {
                if let Ok(login) = Login::begin_with(first, decoy("ada", b"group"), "server") {
                    let echo = format!("c={},r={},p={}", login.binding, login.nonce, STANDARD.encode([0; 32]));
                    prop_assert!(login.clone().finish(&last).is_err());
                    prop_assert!(login.finish(echo.as_bytes()).is_err());
                }
            }
        }
    }
}
