//! Who may come in.

use std::fmt;
use std::net::IpAddr;

use loadline_state_machine::State;

/// Decides who a connection is, before anything is answered.
pub(crate) trait Authenticator: Send + Sync + fmt::Debug {
    /// Whether this role may log in from there without any proof, and as what.
    fn without_proof(&self, role: &str, from: IpAddr, state: &State) -> Result<Grantee, Refusal>;
}

/// Who a session is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grantee {
    pub(crate) role: String,
    pub(crate) superuser: bool,
}

/// Why somebody is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// Everybody on this machine is a superuser, nobody else comes in. For development: whoever can open a port of this machine
/// can do everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopbackOnly {
    /// Whether to trust this machine at all.
    pub(crate) trusted: bool,
}

impl Authenticator for LoopbackOnly {
    fn without_proof(&self, role: &str, from: IpAddr, _state: &State) -> Result<Grantee, Refusal> {
        let local = from.to_canonical().is_loopback();
        if self.trusted && local {
            return Ok(Grantee { role: role.to_owned(), superuser: true });
        }
        let message = format!("role \"{role}\" may not log in from {from}");
        let hint = match (self.trusted, local) {
            (true, false) => "Without a password only connections from this machine itself are let in.",
            _ => "Set pg_trust_loopback = true to let everybody on this machine in as a superuser.",
        };
        Err(Refusal { message, hint: Some(hint.to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_trusted_and_only_where_that_was_asked_for() {
        let check = |trusted, from: &str, expected: bool| {
            let from = from.parse().unwrap();
            let let_in = LoopbackOnly { trusted }.without_proof("ops", from, &State::new()).is_ok();
            assert_eq!(let_in, expected, "{from} {trusted}");
        };
        check(true, "127.0.0.1", true);
        check(true, "::1", true);
        check(true, "::ffff:127.0.0.1", true);
        check(true, "10.0.0.1", false);
        check(true, "::ffff:10.0.0.1", false);
        check(false, "127.0.0.1", false);
    }
}
