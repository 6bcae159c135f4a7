//! Log lines: to stderr, as text for people or as JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogFormat, ServerConfig};
use crate::json_lines::JsonLines;

/// Libraries that tell at `info` what only their authors want to know.
const CHATTY: [&str; 7] = ["openraft", "h2", "hyper", "hyper_util", "sled", "tonic", "tower"];

/// Starts logging for this process. If somebody did already, it stays as it is.
pub fn init_logging(config: &ServerConfig) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter(&config.log_level)))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let _already_there = match config.log_format {
        LogFormat::Text => builder.finish().try_init(),
        LogFormat::Json => builder.event_format(JsonLines).finish().try_init(),
    };
}

/// A plain level is meant for our own crates; the chatty ones speak up only from `trace` on or when something is wrong.
/// Whoever writes a filter per module means exactly that.
fn filter(level: &str) -> String {
    let theirs = match level.to_ascii_lowercase().as_str() {
        "info" => "warn",
        "debug" => "info",
        _ => return level.to_owned(),
    };
    let filter = CHATTY.iter().fold(level.to_owned(), |filter, library| format!("{filter},{library}={theirs}"));
    // openraft warns ten times a second while a peer is down, which `status` and `/metrics` say better.
    if theirs == "warn" { filter.replace("openraft=warn", "openraft=error") } else { filter }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_quieter_than_we_are_unless_asked() {
        assert!(filter("info").starts_with("info,openraft=error,h2=warn"));
        assert!(filter("debug").contains(",h2=info"));
        assert_eq!(filter("trace"), "trace");
        assert_eq!(filter("error"), "error");
        assert_eq!(filter("warn,openraft=debug"), "warn,openraft=debug");
        for level in ["info", "debug"] {
            assert!(EnvFilter::try_new(filter(level)).is_ok());
        }
    }
}
