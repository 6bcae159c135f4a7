//! Tokens: `llt_ID_SECRET`. The id is no secret and finds the row; the secret is 256 random bits, so a plain hash of it can
//! neither be guessed nor turned back.

use std::fmt;

use constant_time_eq::constant_time_eq_32;
use loadline_state_machine::{Hash, Role, State};
use rand::RngExt as _;

const PREFIX: &str = "llt_";
const ID_DIGITS: usize = 16;
const SECRET_DIGITS: usize = 64;

/// A token as its owner has it. It is shown once and never again.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: String,
    text: String,
}

/// Without the secret.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {}", self.id)
    }
}

impl Token {
    /// A new one, which nobody else has.
    pub fn mint() -> Token {
        let mut rng = rand::rng();
        let (id, secret): ([u8; ID_DIGITS / 2], [u8; SECRET_DIGITS / 2]) = (rng.random(), rng.random());
        let id = hex(&id);
        let text = format!("{PREFIX}{id}_{}", hex(&secret));
        Token { id, text }
    }

    /// Nothing if it cannot be one.
    pub fn parse(text: &str) -> Option<Token> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let digits = |part: &str, count| {
            part.len() == count && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let fits = digits(id, ID_DIGITS) && digits(secret, SECRET_DIGITS);
        fits.then(|| Token { id: id.to_owned(), text: text.to_owned() })
    }

    /// The part that is no secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole of it, for its owner.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What is kept of it.
    pub fn hash(&self) -> Hash {
        Hash::of(format!("loadline token\n{}", self.text).as_bytes())
    }

    /// Whose it is, if it is one of theirs and has not expired. Takes as long for a wrong secret as for the right one.
    pub fn owner<'s>(&self, state: &'s State) -> Option<&'s Role> {
        let (role, kept) = state.token(&self.id)?;
        (constant_time_eq_32(&kept.hash.0, &self.hash().0) && kept.is_valid_at(state.now())).then_some(role)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::{Actor, Command, Entry, LogIndex, Request, Sealed, Span, Time, apply};

    use super::*;

    fn with(tokens: &[(&Token, Option<Span>)]) -> State {
        let role = || "ops".to_owned();
        let mut commands =
            vec![Command::CreateRole { name: role(), superuser: true, verifier: None, if_not_exists: false }];
        commands.extend(tokens.iter().map(|(token, expires_in)| Command::CreateToken {
            role: role(),
            token: token.id().to_owned(),
            hash: token.hash(),
            expires_in: *expires_in,
        }));
        let request = Request { actor: Actor::node("test", "test"), request_id: None, commands };
        let mut state = State::new();
        let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(1_000), requests: vec![request] });
        let applied = apply(&mut state, LogIndex(1), &sealed);
        assert!(applied.receipts[0].result.is_ok(), "{applied:?}");
        state
    }

    fn later(mut state: State, millis: u64) -> State {
        let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(1_000 + millis), requests: vec![] });
        apply(&mut state, LogIndex(2), &sealed);
        state
    }

    #[test]
    fn a_token_is_its_owners_until_it_expires_and_nobody_elses() {
        let (good, short, foreign) = (Token::mint(), Token::mint(), Token::mint());
        let state = with(&[(&good, None), (&short, Some(Span::from_secs(1)))]);
        assert_eq!(good.owner(&state).map(|role| role.name.as_str()), Some("ops"));
        assert_eq!(Token::parse(good.reveal()).as_ref(), Some(&good));
        assert!(foreign.owner(&state).is_none());
        assert!(short.owner(&state).is_some());
        assert!(short.owner(&later(state.clone(), 999)).is_some());
        assert!(short.owner(&later(state.clone(), 1_000)).is_none());
        // The id of one with the secret of another.
        let mixed = format!("{PREFIX}{}{}", good.id(), &foreign.reveal()[PREFIX.len() + ID_DIGITS..]);
        let mixed = Token::parse(&mixed).expect("the form is right");
        assert!(mixed.owner(&state).is_none());
    }

    #[test]
    fn no_two_are_the_same_and_none_shows_itself() {
        let (one, other) = (Token::mint(), Token::mint());
        assert_ne!(one.id(), other.id());
        assert_ne!(one.hash(), other.hash());
        let secret = one.reveal().rsplit_once('_').expect("it has parts").1;
        assert!(!format!("{one:?}").contains(secret));
    }

    #[test]
    fn what_cannot_be_a_token_is_none() {
        let good = Token::mint();
        let text = good.reveal();
        for wrong in
            ["", "llt_", "llt_a_b", &text[1..], &text[..text.len() - 1], &text.to_uppercase(), &format!("{text} ")]
        {
            assert_eq!(Token::parse(wrong), None, "{wrong:?}");
        }
    }
}
