//! A client of one group of nodes.

use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};

use crate::endpoint::{Endpoints, Pool};
use crate::request_id::RequestIds;
use crate::roles::Secret;
use crate::surroundings::{Machine, Surroundings};
use crate::writes::Asks;

/// How long to try, and on whose behalf.
#[derive(Debug, Clone)]
pub struct Options {
    /// The whole of one logical request: every attempt, and the pauses between them.
    pub timeout: Duration,
    /// One attempt at one node. Shorter than `timeout`, so that a node that hangs leaves time for the others.
    pub attempt_timeout: Duration,
    pub connect_timeout: Duration,
    /// Give up before `timeout` if within this time no endpoint even accepted a connection. `None`: try to the end.
    pub connect_patience: Option<Duration>,
    /// The whole of saving or restoring a snapshot, which move many bytes.
    pub transfer_timeout: Duration,
    /// Who asks, for the audit log. With a token it is the role of the token that asks.
    pub actor: String,
    /// A token of a role, where a login is needed.
    pub token: Option<Secret>,
    /// Writes of callers that share this client share a stream, too. Each is recorded and answered by itself, for a fraction of
    /// what a call of its own costs. Worth it for programs that write all the time, from many tasks.
    pub stream_writes: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: Duration::from_secs(10),
            // An election takes about a second; an attempt outlasts one that a node waits for on our behalf.
            attempt_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(1),
            connect_patience: None,
            transfer_timeout: Duration::from_secs(600),
            actor: default_actor(),
            token: None,
            stream_writes: false,
        }
    }
}

/// `user@host`, as far as the environment tells.
pub fn default_actor() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .unwrap_or_default();
    let or = |text: String, other: &str| if text.trim().is_empty() { other.to_owned() } else { text.trim().to_owned() };
    format!("{}@{}", or(user, "unknown"), or(host, "localhost"))
}

/// A handle on a group of nodes. Clones share connections, and what was learned about endpoints and time.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) pool: Pool,
    pub(crate) options: Arc<Options>,
    pub(crate) ids: Arc<RequestIds>,
    pub(crate) actor: MetadataValue<Ascii>,
    pub(crate) authorization: Option<MetadataValue<Ascii>>,
    /// Both of them, as streams of writes are told apart by.
    pub(crate) asks: Arc<Asks>,
}

impl Client {
    /// Connects to nothing yet: the first call does.
    pub fn connect(endpoints: Endpoints, options: Options) -> Client {
        Client::connect_in(Arc::new(Machine), endpoints, options)
    }

    /// The same in other surroundings than this machine.
    pub fn connect_in(surroundings: Arc<dyn Surroundings>, endpoints: Endpoints, options: Options) -> Client {
        let actor = actor(&options.actor);
        let authorization = options.token.as_ref().map(bearer);
        Client {
            pool: Pool::new(endpoints, options.connect_timeout, Arc::clone(&surroundings)),
            options: Arc::new(options),
            ids: Arc::new(RequestIds::new(surroundings)),
            asks: Arc::new(Asks::new(&actor, authorization.as_ref())),
            actor,
            authorization,
        }
    }

    /// The same connections for somebody else.
    #[must_use]
    pub fn on_behalf_of(&self, who: &str) -> Client {
        let actor = actor(who);
        let asks = Arc::new(Asks::new(&actor, self.authorization.as_ref()));
        Client { actor, asks, ..self.clone() }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }
}

/// Metadata is ASCII. A name that is not loses the letters that do not fit, rather than the whole request.
fn actor(name: &str) -> MetadataValue<Ascii> {
    let ascii: String = name.chars().map(|c| if (' '..='~').contains(&c) { c } else { '?' }).collect();
    MetadataValue::try_from(ascii).unwrap_or_else(|_| MetadataValue::from_static("unknown"))
}

/// A token that cannot be sent is sent as one that is refused, so that nobody is taken for nobody.
fn bearer(token: &Secret) -> MetadataValue<Ascii> {
    let value = MetadataValue::try_from(format!("Bearer {}", token.reveal().trim()));
    let mut value = value.unwrap_or_else(|_| MetadataValue::from_static("Bearer invalid"));
    // Not in a debug line, and not in a table of compressed headers.
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_and_never_shown() {
        let value = bearer(&Secret::new("llt_0123_4567\n"));
        assert_eq!(value.to_str().unwrap(), "Bearer llt_0123_4567");
        assert!(!format!("{value:?}").contains("4567"));
        let options = Options { token: Some(Secret::new("llt_0123_4567")), ..Options::default() };
        assert!(!format!("{options:?}").contains("4567"));
        let shown = format!("{:?}", Client::connect(Endpoints::parse(["a:1"]).unwrap(), options));
        // "4567", and the same as numbers.
        assert!(!shown.contains("4567") && !shown.contains("52, 53, 54, 55"), "{shown}");
        assert_eq!(bearer(&Secret::new("a\u{7f}b")).to_str().unwrap(), "Bearer invalid");
    }
}
