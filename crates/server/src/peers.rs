//! How the nodes of a group prove to each other that they are its nodes: a secret that all of them are given in a file.
//!
//! Without TLS whoever can listen between two nodes can read it. It keeps out callers, not the network itself.

use std::sync::Arc;

use loadline_raft_node::{Dial, DialError, PeerPass};

use crate::config::ServerConfig;
use crate::serve::ServeError;

/// Shorter ones are guessed.
const PEER_SECRET_BYTES_MIN: usize = 16;

/// The pass of this node, if it has one.
pub(crate) fn pass(config: &ServerConfig) -> Result<Option<PeerPass>, ServeError> {
    let path = &config.peer_secret_file;
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let failed = |wrong| ServeError::PeerSecret { path: path.clone(), wrong };
    let text = std::fs::read_to_string(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let secret = text.trim();
    if secret.len() < PEER_SECRET_BYTES_MIN {
        return Err(failed(format!("holds {} characters, at least {PEER_SECRET_BYTES_MIN} are needed", secret.len())));
    }
    let wrong = || failed("holds other than printable ASCII characters".to_owned());
    PeerPass::new(secret).ok_or_else(wrong).map(Some)
}

/// Connections that show the pass of this node.
#[derive(Debug)]
struct PassDial {
    dial: Arc<dyn Dial>,
    pass: PeerPass,
}

impl Dial for PassDial {
    fn channel(&self, address: &str) -> Result<tonic::transport::Channel, DialError> {
        self.dial.channel(address)
    }

    fn pass(&self) -> Option<PeerPass> {
        Some(self.pass.clone())
    }
}

/// The same connections, showing the pass if there is one.
pub(crate) fn showing(dial: Arc<dyn Dial>, pass: Option<PeerPass>) -> Arc<dyn Dial> {
    match pass {
        Some(pass) => Arc::new(PassDial { dial, pass }),
        None => dial,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<PeerPass>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let peer_secret_file = folder.path().join("secret");
        std::fs::write(&peer_secret_file, text).expect("a file");
        let config = ServerConfig { peer_secret_file, ..ServerConfig::default() };
        pass(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_secret_is_read_from_its_file_and_never_shown() {
        let pass = read("0123456789abcdef\n").expect("it can be read").expect("there is one");
        assert!(!format!("{pass:?}").contains("0123"));
        assert!(pass_of_nothing().is_none());
        for (text, wrong) in [("short", "at least 16"), ("0123456789abcdef\u{1f}0", "printable")] {
            let error = read(text).expect_err(wrong);
            assert!(error.contains(wrong) && !error.contains(text.trim()), "{error}");
        }
    }

    fn pass_of_nothing() -> Option<PeerPass> {
        pass(&ServerConfig::default()).expect("no file is no error")
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let config = ServerConfig { peer_secret_file: "/nowhere/secret".into(), ..ServerConfig::default() };
        let error = pass(&config).expect_err("it is not there").to_string();
        assert!(error.starts_with("peer_secret_file /nowhere/secret cannot be read"), "{error}");
    }
}
