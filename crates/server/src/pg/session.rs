//! What a connection remembers: who it is of, what it has set, and the transaction it is in.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadline_sql::tables::SessionFacts;
use loadline_sql::tables::source::default_search_path;
use loadline_sql::{SqlError, SqlState};
use loadline_state_machine::Actor;
use pgwire::messages::startup::SecretKey;

use super::login::Grantee;
use super::statements::Open;

/// Parameters that are there from the start, with what they are. Those marked may be set; the others are facts.
const PARAMETERS: &[(&str, &str, bool)] = &[
    ("application_name", "", true),
    ("bytea_output", "hex", true),
    ("client_encoding", "UTF8", true),
    ("client_min_messages", "notice", true),
    ("datestyle", "ISO, MDY", true),
    ("default_transaction_isolation", "serializable", true),
    ("default_transaction_read_only", "off", true),
    ("extra_float_digits", "1", true),
    ("idle_in_transaction_session_timeout", "0", true),
    ("integer_datetimes", "on", false),
    ("intervalstyle", "postgres", true),
    ("is_superuser", "on", false),
    ("jit", "off", true),
    ("loadline.as_of", "", true),
    ("loadline.consistency", "linearizable", true),
    ("lock_timeout", "0", true),
    ("max_identifier_length", "63", false),
    ("search_path", "loadline, mz_internal, mz_catalog", true),
    ("server_encoding", "UTF8", false),
    ("server_version", loadline_sql::tables::SERVER_VERSION, false),
    ("server_version_num", "150000", false),
    ("session_authorization", "", false),
    ("standard_conforming_strings", "on", true),
    ("statement_timeout", "0", true),
    ("timezone", "UTC", true),
    ("transaction_isolation", "serializable", true),
    ("transaction_read_only", "off", true),
];

/// One connection after its login.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) grantee: Grantee,
    pub(super) actor: Actor,
    pub(super) database: String,
    pub(super) process: i32,
    pub(super) secret: SecretKey,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    /// What was set here, by name in small letters.
    settings: BTreeMap<String, String>,
    /// What SET LOCAL covered, to be put back when the transaction ends.
    covered: Vec<(String, Option<String>)>,
    pub(super) open: Option<Open>,
}

impl Session {
    pub(super) fn new(grantee: Grantee, actor: Actor, database: String, process: i32, secret: SecretKey) -> Session {
        Session { grantee, actor, database, process, secret, inner: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something went wrong: a transaction that is open can only be ended.
    pub(super) fn fail(&self) {
        if let Some(open) = &mut self.lock().open {
            open.fail();
        }
    }

    /// The value in force; nothing if there is no such parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let name = alias(name);
        if let Some(value) = self.lock().settings.get(&name) {
            return Some(value.clone());
        }
        match name.as_str() {
            "session_authorization" => Some(self.grantee.role.clone()),
            "is_superuser" => Some(if self.grantee.superuser { "on" } else { "off" }.to_owned()),
            name => PARAMETERS.iter().find(|(known, ..)| *known == name).map(|(_, value, _)| (*value).to_owned()),
        }
    }

    /// Sets it, for good or until the transaction ends. Empty values: back to the default.
    pub(super) fn set(&self, name: &str, values: &[String], local: bool) -> Result<(), SqlError> {
        let name = alias(name);
        let known = PARAMETERS.iter().find(|(known, ..)| *known == name);
        let Some((_, _, settable)) = known else { return Err(unknown(&name)) };
        if !settable {
            let message = format!("parameter \"{name}\" cannot be changed");
            return Err(SqlError::new(SqlState("55P02"), message));
        }
        let value = values.join(", ");
        check(&name, &value)?;
        let mut inner = self.lock();
        let before = match values {
            [] => inner.settings.remove(&name),
            _ => inner.settings.insert(name.clone(), value),
        };
        if local && inner.open.is_some() {
            inner.covered.push((name, before));
        }
        Ok(())
    }

    pub(super) fn reset(&self, name: Option<&str>) -> Result<(), SqlError> {
        match name {
            Some(name) => self.set(name, &[], false),
            None => {
                self.lock().settings.clear();
                Ok(())
            }
        }
    }

    /// Puts back what was set for the transaction only.
    pub(super) fn uncover(&self) {
        let mut inner = self.lock();
        while let Some((name, before)) = inner.covered.pop() {
            match before {
                Some(value) => inner.settings.insert(name, value),
                None => inner.settings.remove(&name),
            };
        }
    }

    /// Every parameter, by name.
    pub(super) fn parameters(&self) -> Vec<(String, String)> {
        let known = PARAMETERS.iter().map(|(name, ..)| *name);
        known.filter_map(|name| Some((name.to_owned(), self.parameter(name)?))).collect()
    }

    pub(super) fn statement_timeout(&self, longest: Duration) -> Duration {
        let asked = self.parameter("statement_timeout").and_then(|text| timeout(&text));
        asked.filter(|asked| !asked.is_zero()).map_or(longest, |asked| asked.min(longest))
    }

    pub(super) fn search_path(&self) -> Vec<String> {
        let text = self.parameter("search_path").unwrap_or_default();
        let names = text.split(',').map(|name| name.trim().trim_matches('"').to_owned());
        let path: Vec<String> = names.filter(|name| !name.is_empty() && name != "$user").collect();
        // Tools set it to what they know. Our own tables stay where they are found.
        let mut path: Vec<String> = path.into_iter().filter(|name| name != "public").collect();
        for name in default_search_path() {
            if !path.contains(&name) {
                path.push(name);
            }
        }
        path
    }

    pub(super) fn facts(&self, server: Option<std::net::SocketAddr>) -> SessionFacts {
        SessionFacts {
            user: self.grantee.role.clone(),
            database: self.database.clone(),
            search_path: self.search_path(),
            process_id: self.process.into(),
            server_address: server.map(|it| it.ip().to_string()).unwrap_or_default(),
            server_port: server.map_or(0, |it| it.port().into()),
            settings: self.parameters(),
        }
    }
}

/// The names that some have in SQL alone.
fn alias(name: &str) -> String {
    match name.to_ascii_lowercase().as_str() {
        "time zone" => "timezone".to_owned(),
        "transaction isolation level" => "transaction_isolation".to_owned(),
        "names" => "client_encoding".to_owned(),
        other => other.to_owned(),
    }
}

fn unknown(name: &str) -> SqlError {
    let close =
        PARAMETERS.iter().map(|(known, ..)| *known).min_by_key(|known| strsim::damerau_levenshtein(name, known));
    let error = SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""));
    match close.filter(|known| strsim::damerau_levenshtein(name, known) <= known.len() / 3) {
        Some(close) => error.with_hint(format!("Perhaps you meant \"{close}\".")),
        None => error.with_hint("ALTER SYSTEM SET changes what the whole group shares."),
    }
}

fn check(name: &str, value: &str) -> Result<(), SqlError> {
    let wrong = |hint: &str| {
        let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
        Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(hint.to_owned()))
    };
    match name {
        _ if value.is_empty() => Ok(()),
        "statement_timeout" if timeout(value).is_none() => wrong("A number of milliseconds, or a time such as '5s'."),
        "loadline.consistency" if !["linearizable", "stale"].contains(&value) => wrong("linearizable or stale."),
        "client_encoding" if !["utf8", "utf-8", "unicode"].contains(&value.to_ascii_lowercase().as_str()) => {
            wrong("Only UTF8 is spoken here.")
        }
        "timezone" if !["utc", "etc/utc", "gmt", "0", "z"].contains(&value.to_ascii_lowercase().as_str()) => {
            wrong("Times are shown in UTC only.")
        }
        "standard_conforming_strings" if value != "on" => wrong("It is always on."),
        _ => Ok(()),
    }
}

/// `0`, `1500` (milliseconds), `5s`, `2 min`.
fn timeout(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (amount, unit) = text.split_at(digits);
    let amount: u64 = amount.parse().ok()?;
    let millis = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" | "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    amount.checked_mul(millis).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let grantee = Grantee { role: "ops".to_owned(), superuser: true };
        Session::new(grantee, Actor::new("ops", "pg"), "loadline".to_owned(), 1, SecretKey::I32(1))
    }

    fn set(session: &Session, name: &str, value: &str) -> Result<(), SqlError> {
        session.set(name, &[value.to_owned()], false)
    }

    #[test]
    fn what_is_set_is_shown_and_what_is_reset_is_not() {
        let session = session();
        assert_eq!(session.parameter("DateStyle").as_deref(), Some("ISO, MDY"));
        set(&session, "application_name", "psql").unwrap();
        assert_eq!(session.parameter("application_name").as_deref(), Some("psql"));
        session.reset(None).unwrap();
        assert_eq!(session.parameter("application_name").as_deref(), Some(""));
        assert_eq!(session.parameter("nonsense"), None);
    }

    #[test]
    fn a_wrong_name_or_value_says_what_would_be_right() {
        let session = session();
        let code = |name, value| set(&session, name, value).unwrap_err().sqlstate.0;
        assert_eq!(code("server_version", "16"), "55P02");
        assert_eq!(code("statement_timeout", "soon"), "22023");
        assert_eq!(code("loadline.consistency", "maybe"), "22023");
        assert_eq!(code("client_encoding", "LATIN1"), "22023");
        let error = set(&session, "search_pth", "x").unwrap_err();
        assert_eq!((error.sqlstate.0, error.hint.as_deref()), ("42704", Some("Perhaps you meant \"search_path\".")));
    }

    #[test]
    fn a_statement_may_take_as_long_as_was_asked_within_bounds() {
        let session = session();
        let longest = Duration::from_secs(30);
        assert_eq!(session.statement_timeout(longest), longest);
        for (value, expected) in [("1500", 1_500), ("5s", 5_000), ("2 min", 30_000), ("0", 30_000)] {
            set(&session, "statement_timeout", value).unwrap();
            assert_eq!(session.statement_timeout(longest), Duration::from_millis(expected), "{value}");
        }
    }

    #[test]
    fn our_own_tables_are_found_whatever_a_tool_sets() {
        let session = session();
        session.set("search_path", &["public".to_owned(), "mz_catalog".to_owned()], false).unwrap();
        assert_eq!(session.search_path(), ["mz_catalog", "loadline", "mz_internal"]);
    }
}
