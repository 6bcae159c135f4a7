//! What has to be said about a signal of each kind, and how it is written.
//!
//! All values are text. What is wrong with one is found here, for every way in alike, and before anything is written: an
//! option that holds a secret in clear must not even get into the log. So nothing here ever repeats a value.

use super::SignalKind;
use super::rejection::{SignalOptionProblem, SignalRejection};
use crate::names::shortened;
use crate::{OptionValue, Options, Span};

/// What an option of a signal may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalOptionKind {
    /// `http://` or `https://`.
    HttpUrl,
    /// `nats://` or `tls://`.
    NatsUrl,
    /// How a PostgreSQL database is reached.
    Connection,
    /// A query in somebody else's language.
    Query,
    /// A name that others gave.
    Name,
    User,
    /// Where a secret is.
    Secret,
    Path,
    Bool,
    Time,
    OneOf(&'static [&'static str]),
}

impl SignalOptionKind {
    pub fn expected(self) -> String {
        match self {
            Self::HttpUrl => {
                "http://HOST:PORT/PATH or https://..., without a user, a password or anything behind a '?': name the user in \
                 USERNAME, and where the secret is in PASSWORD or BEARER_TOKEN"
                    .to_owned()
            }
            Self::NatsUrl => "nats://HOST:PORT or tls://HOST:PORT, without a user, a password or a token: name the user in \
                              USERNAME, and where the secret is in PASSWORD or TOKEN"
                .to_owned(),
            Self::Connection => {
                "keywords and values, as in 'host=db.example.com user=loadline dbname=shop', or postgresql://USER@HOST/DATABASE, \
                 without a password: say in PASSWORD where it is"
                    .to_owned()
            }
            Self::Query => format!("a query of 1 to {QUERY_BYTES_MAX} bytes"),
            Self::Name => "1 to 255 bytes without blanks, control characters, '*' and '>'".to_owned(),
            Self::User => "1 to 255 bytes without ':' and control characters".to_owned(),
            Self::Secret => {
                "'env:VARIABLE' or 'file:/PATH', which every node must have; never the secret itself".to_owned()
            }
            Self::Path => "the absolute path of a file that every node has".to_owned(),
            Self::Bool => "true or false".to_owned(),
            Self::Time => format!("a duration between {TIMEOUT_MIN} and {TIMEOUT_MAX}, as in 500ms or 5s"),
            Self::OneOf(values) => values.join(" or "),
        }
    }

    fn fits(self, text: &str) -> Result<(), SignalOptionProblem> {
        let fits = match self {
            Self::HttpUrl => address(text, &["http://", "https://"])?,
            Self::NatsUrl => address(text, &["nats://", "tls://"])? && !text.trim_end_matches('/').ends_with("//"),
            Self::Connection => connection(text)?,
            Self::Query => {
                (1..=QUERY_BYTES_MAX).contains(&text.len()) && !text.trim().is_empty() && !text.contains('\0')
            }
            Self::Name => is_plain(text) && !text.contains([' ', '\t', '*', '>']),
            Self::User => is_plain(text) && !text.contains(':'),
            Self::Secret => match text.split_once(':') {
                Some(("env", name)) => is_variable(name),
                Some(("file", path)) => is_path(path),
                _ => return Err(SignalOptionProblem::SecretInPlain),
            },
            Self::Path => is_path(text),
            Self::Bool => matches!(text, "true" | "false"),
            Self::Time => text.parse::<Span>().is_ok_and(|span| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(&span)),
            Self::OneOf(values) => values.contains(&text),
        };
        if fits { Ok(()) } else { Err(SignalOptionProblem::Invalid) }
    }
}

const QUERY_BYTES_MAX: usize = 4_096;
const TEXT_BYTES_MAX: usize = 1_024;
const NAME_BYTES_MAX: usize = 255;
const TIMEOUT_MIN: Span = Span::from_millis(100);
const TIMEOUT_MAX: Span = Span::from_mins(1);
/// Long enough for a query that has to think, short enough that a broken one is noticed.
const TIMEOUT_DEFAULT: Span = Span::from_secs(5);

fn is_plain(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    is_plain(name) && name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.len() <= TEXT_BYTES_MAX && !path.chars().any(char::is_control)
}

fn address(text: &str, schemes: &[&str]) -> Result<bool, SignalOptionProblem> {
    let Some(rest) = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)) else { return Ok(false) };
    // Somebody's user and password, or a token as a parameter: behind any '@' or '?' there may be a secret.
    if rest.contains(['@', '?', '#']) {
        return Err(SignalOptionProblem::SecretInPlain);
    }
    let host = rest.split('/').next().unwrap_or_default();
    let clean = text.len() <= TEXT_BYTES_MAX && !text.chars().any(|c| c.is_control() || c.is_whitespace());
    Ok(clean && !host.is_empty())
}

fn connection(text: &str) -> Result<bool, SignalOptionProblem> {
    if text.to_ascii_lowercase().contains("password") {
        return Err(SignalOptionProblem::SecretInPlain);
    }
    let url = text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://"));
    if let Some(rest) = url {
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        if user.is_some_and(|user| user.contains(':')) {
            return Err(SignalOptionProblem::SecretInPlain);
        }
    }
    let keywords = || text.split_whitespace().any(|pair| pair.contains('='));
    let clean = text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control);
    Ok(clean && (url.is_some_and(|rest| !rest.is_empty()) || keywords()))
}

/// One option that exists.
#[derive(Clone, Copy, Debug)]
pub struct SignalOption {
    /// As stored: `bearer_token`. In SQL the same in capitals.
    pub key: &'static str,
    pub sql_name: &'static str,
    pub kind: SignalOptionKind,
    pub required: bool,
    pub description: &'static str,
}

const fn option(
    key: &'static str,
    sql_name: &'static str,
    kind: SignalOptionKind,
    required: bool,
    description: &'static str,
) -> SignalOption {
    SignalOption { key, sql_name, kind, required, description }
}

const TIMEOUT: SignalOption =
    option("timeout", "TIMEOUT", SignalOptionKind::Time, false, "How long an answer is waited for; 5s if not said.");
const USERNAME: SignalOption = option("username", "USERNAME", SignalOptionKind::User, false, "Who asks.");
const PASSWORD: SignalOption =
    option("password", "PASSWORD", SignalOptionKind::Secret, false, "Where the password of that user is.");
const CA_FILE: SignalOption = option(
    "ca_file",
    "CA_FILE",
    SignalOptionKind::Path,
    false,
    "The authorities to trust, if not those of the machine.",
);

const PROMETHEUS: &[SignalOption] = &[
    option("url", "URL", SignalOptionKind::HttpUrl, true, "Where Prometheus is, without /api/v1."),
    option("query", "QUERY", SignalOptionKind::Query, true, "PromQL that gives one number, or one per cluster."),
    option(
        "cluster_label",
        "CLUSTER_LABEL",
        SignalOptionKind::Name,
        false,
        "The label that names the cluster, so that one query serves many clusters.",
    ),
    USERNAME,
    PASSWORD,
    option("bearer_token", "BEARER_TOKEN", SignalOptionKind::Secret, false, "Where a bearer token is."),
    CA_FILE,
    TIMEOUT,
];

const NATS: &[SignalOption] = &[
    option("url", "URL", SignalOptionKind::NatsUrl, true, "Where the NATS server is."),
    option("stream", "STREAM", SignalOptionKind::Name, true, "The JetStream stream."),
    option("consumer", "CONSUMER", SignalOptionKind::Name, true, "The consumer whose backlog is counted."),
    option(
        "ack_pending",
        "ACK_PENDING",
        SignalOptionKind::Bool,
        false,
        "Whether messages count that were delivered and are not acknowledged; true if not said.",
    ),
    USERNAME,
    PASSWORD,
    option("token", "TOKEN", SignalOptionKind::Secret, false, "Where a token is."),
    CA_FILE,
    TIMEOUT,
];

const POSTGRES: &[SignalOption] = &[
    option("connection", "CONNECTION", SignalOptionKind::Connection, true, "How the database is reached."),
    option("query", "QUERY", SignalOptionKind::Query, true, "A query that gives one row with one number."),
    PASSWORD,
    option(
        "tls",
        "TLS",
        SignalOptionKind::OneOf(&["require", "off"]),
        false,
        "Whether to encrypt; require if not said, and off by a Unix socket.",
    ),
    CA_FILE,
    TIMEOUT,
];

/// The options that a signal of this kind takes.
pub fn signal_options(kind: SignalKind) -> &'static [SignalOption] {
    match kind {
        SignalKind::Prometheus => PROMETHEUS,
        SignalKind::Nats => NATS,
        SignalKind::Postgres => POSTGRES,
        SignalKind::Push => &[],
    }
}

/// By the name in either spelling. `URL` is also how the connection of a database may be called.
pub fn signal_option(kind: SignalKind, name: &str) -> Option<&'static SignalOption> {
    let name = if kind == SignalKind::Postgres && name.eq_ignore_ascii_case("url") { "connection" } else { name };
    signal_options(kind).iter().find(|known| known.key.eq_ignore_ascii_case(name))
}

/// An option as it is stored: one spelling of its name and of what it says.
pub fn read_signal_option(kind: SignalKind, name: &str, text: &str) -> (String, OptionValue) {
    let Some(known) = signal_option(kind, name) else {
        return (name.to_ascii_lowercase(), OptionValue::Text(text.to_owned()));
    };
    let text = match known.kind {
        SignalOptionKind::Bool => match text.to_ascii_lowercase().as_str() {
            "true" | "on" | "yes" | "1" => "true".to_owned(),
            "false" | "off" | "no" | "0" => "false".to_owned(),
            _ => text.to_owned(),
        },
        SignalOptionKind::Time => text.parse::<Span>().map_or_else(|_| text.to_owned(), |span| span.to_string()),
        SignalOptionKind::OneOf(_) => text.to_ascii_lowercase(),
        _ => text.to_owned(),
    };
    (known.key.to_owned(), OptionValue::Text(text))
}

/// What is wrong with one option, whatever else is said; never repeats what it says.
pub fn check_signal_option(kind: SignalKind, key: &str, text: &str) -> Result<(), SignalRejection> {
    let known = signal_option(kind, key).ok_or_else(|| unknown(kind, key))?;
    check_value(known, &OptionValue::Text(text.to_owned()))
}

/// Whether options mean something to a signal of this kind.
pub(crate) fn check(kind: SignalKind, options: &Options) -> Result<(), SignalRejection> {
    for (key, value) in options.iter() {
        let known = signal_option(kind, key).filter(|known| known.key == key).ok_or_else(|| unknown(kind, key))?;
        check_value(known, value)?;
    }
    match signal_options(kind).iter().find(|known| known.required && options.get(known.key).is_none()) {
        Some(missing) => Err(refused(missing, SignalOptionProblem::Missing)),
        None => contradictions(options),
    }
}

/// As far as that can be told without knowing which signal is changed: nothing that may be a secret gets past this.
pub(crate) fn check_of_any_kind(options: &Options) -> Result<(), SignalRejection> {
    for (key, value) in options.iter() {
        let mut known = SignalKind::ALL.into_iter().filter_map(|kind| signal_option(kind, key)).peekable();
        if known.peek().is_none() {
            return Err(unknown(SignalKind::Prometheus, key));
        }
        let problems: Vec<SignalRejection> = known.filter_map(|known| check_value(known, value).err()).collect();
        let in_plain = problems.into_iter().find(|rejection| {
            matches!(rejection, SignalRejection::Option { problem: SignalOptionProblem::SecretInPlain, .. })
        });
        in_plain.map_or(Ok(()), Err)?;
    }
    Ok(())
}

fn check_value(known: &SignalOption, value: &OptionValue) -> Result<(), SignalRejection> {
    let OptionValue::Text(text) = value else { return Err(refused(known, SignalOptionProblem::Invalid)) };
    known.kind.fits(text).map_err(|problem| refused(known, problem))
}

fn contradictions(options: &Options) -> Result<(), SignalRejection> {
    let has = |key: &str| options.get(key).is_some();
    for (key, other) in [("bearer_token", "password"), ("token", "password")] {
        if has(key) && has(other) {
            return Err(SignalRejection::NotBoth { option: key.to_owned(), other: other.to_owned() });
        }
    }
    // A database knows its user from the connection.
    if has("password") && !has("username") && !has("connection") {
        return Err(SignalRejection::Option {
            option: "username".to_owned(),
            problem: SignalOptionProblem::Missing,
            expected: SignalOptionKind::User.expected(),
        });
    }
    Ok(())
}

fn refused(known: &SignalOption, problem: SignalOptionProblem) -> SignalRejection {
    SignalRejection::Option { option: known.key.to_owned(), problem, expected: known.kind.expected() }
}

fn unknown(kind: SignalKind, key: &str) -> SignalRejection {
    let names: Vec<&str> = signal_options(kind).iter().map(|known| known.key).collect();
    let expected = if names.is_empty() { "none at all".to_owned() } else { names.join(", ") };
    SignalRejection::Option { option: shortened(key), problem: SignalOptionProblem::Unknown, expected }
}

/// How long an answer is waited for.
pub fn signal_timeout(options: &Options) -> Span {
    let said = match options.get("timeout") {
        Some(OptionValue::Text(text)) => text.parse().ok(),
        _ => None,
    };
    said.unwrap_or(TIMEOUT_DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(kind: SignalKind, key: &str, text: &str) -> Option<SignalOptionProblem> {
        let known = signal_option(kind, key).expect("it exists");
        known.kind.fits(text).err()
    }

    #[test]
    fn what_may_hold_a_secret_in_clear_is_refused() {
        use SignalKind::{Nats, Postgres, Prometheus};
        for (kind, key, text) in [
            (Prometheus, "url", "http://me:hunter2@host:9090"),
            (Prometheus, "url", "http://token@host"),
            (Prometheus, "url", "https://host/prom?token=hunter2"),
            (Prometheus, "password", "hunter2"),
            (Prometheus, "bearer_token", "eyJhbGciOi"),
            (Nats, "url", "nats://me:hunter2@host:4222"),
            (Nats, "token", "hunter2"),
            (Postgres, "connection", "host=db user=me password=hunter2"),
            (Postgres, "connection", "host=db user=me PassWord = 'hunter2'"),
            (Postgres, "connection", "postgresql://me:hunter2@db/shop"),
            (Postgres, "connection", "postgresql://me@db/shop?password=hunter2"),
            (Postgres, "password", "secret:x"),
        ] {
            assert_eq!(problem(kind, key, text), Some(SignalOptionProblem::SecretInPlain), "{key} {text}");
            let rejection = check_of_any_kind(&Options::from([(key, text)])).expect_err(text);
            assert!(!format!("{rejection} {rejection:?}").contains("hunter2"), "{rejection}");
        }
    }

    #[test]
    fn what_is_right_is_taken() {
        use SignalKind::{Nats, Postgres, Prometheus};
        for (kind, key, text) in [
            (Prometheus, "url", "http://127.0.0.1:9090"),
            (Prometheus, "url", "https://prometheus.example.com/team-a/"),
            (Prometheus, "query", "sum(queue_depth) by (cluster)"),
            (Prometheus, "password", "env:PROM_PASSWORD"),
            (Prometheus, "bearer_token", "file:/run/secrets/token"),
            (Prometheus, "timeout", "500ms"),
            (Nats, "url", "nats://localhost:4222"),
            (Nats, "stream", "kalla-jobs"),
            (Nats, "ack_pending", "false"),
            (Postgres, "connection", "host=/run/postgresql user=loadline"),
            (Postgres, "connection", "postgresql://loadline@db:5432/shop"),
            (Postgres, "tls", "off"),
        ] {
            assert_eq!(problem(kind, key, text), None, "{key} {text}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        use SignalKind::{Nats, Postgres, Prometheus};
        for (kind, key, text) in [
            (Prometheus, "url", "prometheus:9090"),
            (Prometheus, "url", "http://"),
            (Prometheus, "url", "http://a b"),
            (Prometheus, "query", "  "),
            (Prometheus, "password", "env:1A"),
            (Prometheus, "password", "file:relative"),
            (Prometheus, "timeout", "1h"),
            (Nats, "url", "http://host"),
            (Nats, "stream", "a.*"),
            (Nats, "ack_pending", "maybe"),
            (Postgres, "connection", "db.example.com"),
            (Postgres, "tls", "perhaps"),
        ] {
            assert_eq!(problem(kind, key, text), Some(SignalOptionProblem::Invalid), "{key} {text}");
        }
    }

    #[test]
    fn every_option_is_spelled_alike_in_sql() {
        for known in SignalKind::ALL.into_iter().flat_map(signal_options) {
            assert_eq!(known.key.to_ascii_uppercase(), known.sql_name);
        }
    }
}
