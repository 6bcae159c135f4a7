//! Where secrets are: in the environment of this node or in a file that it can read. They are read anew for every answer, so that
//! one that was replaced is used without a restart.

use std::path::PathBuf;

use super::Variables;
use crate::backends::settings::Secret;

/// A file that is longer is not a secret.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The secrets that one question needed.
pub(super) struct Secrets {
    variables: Variables,
    used: Vec<Secret>,
}

impl Secrets {
    pub(super) fn new(variables: Variables) -> Secrets {
        Secrets { variables, used: Vec::new() }
    }

    /// `env:NAME` or `file:/PATH`.
    pub(super) async fn read(&mut self, reference: &str) -> Result<Secret, String> {
        let text = match reference.split_once(':') {
            Some(("env", name)) => (self.variables)(name)
                .ok_or_else(|| format!("the environment variable {name} is not set for this node"))?,
            Some(("file", path)) => {
                let path = PathBuf::from(path);
                let reading = tokio::task::spawn_blocking(move || read_file(&path));
                reading.await.map_err(|_| "the secret could not be read".to_owned())??
            }
            // It was refused long before; it is not repeated here either.
            _ => return Err("a secret is named as env:VARIABLE or file:/PATH".to_owned()),
        };
        // Editors and `echo` end a file with a line break, which nobody means as part of a secret.
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            return Err(format!("the secret at {reference} is empty"));
        }
        if text.chars().any(char::is_control) {
            return Err(format!("the secret at {reference} has control characters in it"));
        }
        let secret = Secret::new(text);
        self.used.push(secret.clone());
        Ok(secret)
    }

    /// Something else that would give a secret away.
    pub(super) fn keep_out(&mut self, text: &str) {
        self.used.push(Secret::new(text));
    }

    /// The text without any of the secrets.
    pub(super) fn scrub(&self, text: &str) -> String {
        self.used.iter().fold(text.to_owned(), |text, secret| text.replace(secret.reveal(), "***"))
    }
}

fn read_file(path: &std::path::Path) -> Result<String, String> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| format!("{shown} cannot be read as text by this node: {error}");
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > SECRET_BYTES_MAX {
        return Err(format!("{shown} has {length} bytes, which is no secret"));
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn secrets() -> Secrets {
        Secrets::new(Arc::new(|name: &str| (name == "SET").then(|| "hunter2\n".to_owned())))
    }

    #[tokio::test]
    async fn a_secret_comes_from_a_variable_or_a_file_and_out_of_no_text() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "swordfish\n").unwrap();
        let mut secrets = secrets();
        assert_eq!(secrets.read("env:SET").await.unwrap().reveal(), "hunter2");
        assert_eq!(secrets.read(&format!("file:{}", file.display())).await.unwrap().reveal(), "swordfish");
        assert_eq!(secrets.scrub("refused hunter2 and swordfish"), "refused *** and ***");
        for wrong in ["env:UNSET", "file:/no/such/file", "hunter2"] {
            let error = secrets.read(wrong).await.unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
