//! Who may come in, and how they show who they are.
//!
//! By the rules of every other edge (`grpc::guard`), with a password where a program shows a token: whoever is on a machine
//! that the node trusts needs none, and nobody does as long as no role can log in. Everybody else goes through SCRAM, also
//! under the name of a role that does not exist: who does is nobody's business.
//!
//! Not here: what somebody may, which is decided in the state machine, at the index of the log.

use std::net::IpAddr;

use loadline_credentials::scram::{self, Login, ScramError};
use loadline_state_machine::{Actor, Proof, ScramVerifier, State};
use tracing::info;

use super::wire;
use crate::grpc::guard::Guard;
use pgwire::error::{PgWireError, PgWireResult};

/// Who a session is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grantee {
    pub(crate) role: String,
    pub(crate) superuser: bool,
}

/// What somebody has to do who knocks.
#[derive(Debug)]
pub(super) enum Entry {
    /// Come in, as this.
    Free(Grantee, Proof),
    /// Prove that they know the password of this.
    Prove(ScramVerifier),
}

/// A proof under way.
#[derive(Debug)]
pub(super) enum Proving {
    /// The client was told how, and has said nothing yet.
    Offered { role: String, verifier: ScramVerifier },
    /// It was given something to answer.
    Challenged { role: String, login: Box<Login> },
}

/// What to do about a role that knocks from there. `secret` makes what a role that does not exist is asked: of this group
/// alone, and the same at all its nodes.
pub(super) fn entry(guard: &Guard, role: &str, from: IpAddr, state: &State, secret: &str) -> PgWireResult<Entry> {
    let found = state.role(role);
    if guard.trusts(from) {
        let superuser = found.is_none_or(|role| role.superuser);
        return Ok(Entry::Free(Grantee { role: role.to_owned(), superuser }, Proof::Machine));
    }
    if !state.login_needed() {
        return Ok(Entry::Free(Grantee { role: role.to_owned(), superuser: true }, Proof::Said));
    }
    match found {
        None => Ok(Entry::Prove(scram::decoy(role, secret.as_bytes()))),
        Some(found) => match &found.verifier {
            Some(verifier) => Ok(Entry::Prove(verifier.clone())),
            None => {
                let hint = format!("ALTER ROLE {role} PASSWORD '...' gives it one; over gRPC a token will do.");
                Err(wire::fatal("28000", format!("role \"{role}\" has no password to log in with"), Some(hint)))
            }
        },
    }
}

impl Proving {
    /// Takes the client's first message, and answers what to ask it.
    pub(super) fn challenge(role: String, verifier: ScramVerifier, first: &[u8]) -> PgWireResult<(Proving, String)> {
        let login = Login::begin(first, verifier).map_err(|error| refused(&role, &error))?;
        let challenge = login.challenge().to_owned();
        Ok((Proving::Challenged { role, login: Box::new(login) }, challenge))
    }

    /// Takes the client's last message, and answers what proves to it that we know the password, too.
    pub(super) fn finish(role: &str, login: Login, last: &[u8]) -> PgWireResult<String> {
        login.finish(last).map_err(|error| refused(role, &error))
    }
}

fn refused(role: &str, error: &ScramError) -> PgWireError {
    match error {
        ScramError::WrongPassword => {
            info!(role, "a login over SQL was refused: no such role, or another password");
            wire::fatal("28P01", format!("password authentication failed for user \"{role}\""), None)
        }
        ScramError::Malformed { .. } | ScramError::ChannelBinding => wire::fatal("08P01", error.to_string(), None),
    }
}

/// What is in the first message of a client that was offered SCRAM: the name of the mechanism, a length, and that much. Nothing
/// if it is something else; pgwire's own reading of it trusts the length.
pub(super) fn first_message(body: &[u8]) -> Option<&[u8]> {
    let rest = body.strip_prefix(scram::MECHANISM.as_bytes())?.strip_prefix(b"\0")?;
    let (length, first) = rest.split_first_chunk::<4>()?;
    (usize::try_from(i32::from_be_bytes(*length)).ok()? == first.len()).then_some(first)
}

/// Whether a session of this actor may still ask. What it was let in by may have been taken back since.
pub(super) fn still_in(actor: &Actor, state: &State) -> Result<(), loadline_sql::SqlError> {
    let out = match &actor.proof {
        Proof::Said if state.login_needed() => "a login is needed by now: connect again with a password".to_owned(),
        Proof::Password if state.role(&actor.name).is_none() => {
            format!("role \"{}\" does not exist any more", actor.name)
        }
        _ => return Ok(()),
    };
    Err(loadline_sql::SqlError::new(loadline_sql::SqlState("28000"), out))
}
