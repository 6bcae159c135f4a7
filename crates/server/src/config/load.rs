//! Puts the layers on top of each other: default, file, environment, flag.
//!
//! Every mistake of every layer is reported, also in a value that a later layer overrides: it would bite on the day the
//! flag goes away.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::backends;
use super::check::check;
use super::values::Raw;
use super::{ConfigError, KEYS, Key, Origin, Problem, ServerConfig};

/// The table of tables.
const BACKENDS: &str = "backends";
/// A close name is worth a hint; a distant one only confuses.
const SIMILARITY_MIN: f64 = 0.6;

/// Where the values come from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    /// Variables; those that do not begin with `LOADLINE_` are left alone.
    pub environment: Vec<(String, String)>,
    /// Variables that begin with `LOADLINE_` and belong to somebody else, such as the command line.
    pub other_variables: Vec<String>,
    /// Key (`grpc_listen`, `limits.streams_max`) and value.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// A file, the variables of this process, and flags.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<(String, String)>) -> Sources {
        let environment = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        Sources { file, environment, other_variables: Vec::new(), flags }
    }
}

/// Reads, checks and completes. On success every key has a value that a node can start with.
pub fn load(sources: &Sources) -> Result<ServerConfig, ConfigError> {
    let mut loading = Loading { config: ServerConfig::default(), origins: BTreeMap::new(), problems: Vec::new() };
    if let Some(path) = &sources.file {
        loading.file(path);
    }
    for (variable, value) in &sources.environment {
        loading.variable(variable, value, &sources.other_variables);
    }
    for (key, value) in &sources.flags {
        loading.flag(key, value);
    }
    // Relations between values are judged only when each is right in itself; otherwise one typo is reported twice.
    if loading.problems.is_empty() {
        check(&mut loading.config, &loading.origins, &mut loading.problems);
    }
    if loading.problems.is_empty() { Ok(loading.config) } else { Err(ConfigError { problems: loading.problems }) }
}

/// Which layer gave each key its value; keys that nobody gave are absent.
pub(super) type Origins = BTreeMap<&'static str, Origin>;

struct Loading {
    config: ServerConfig,
    origins: Origins,
    problems: Vec<Problem>,
}

impl Loading {
    fn set(&mut self, key: &'static Key, raw: &Raw, origin: Origin) {
        match key.set(&mut self.config, raw) {
            Ok(()) => {
                self.origins.insert(key.name, origin);
            }
            Err(message) => self.problems.push(Problem { key: key.name.to_owned(), origin, message }),
        }
    }

    fn problem(&mut self, key: &str, origin: Origin, message: String) {
        self.problems.push(Problem { key: key.to_owned(), origin, message });
    }

    fn file(&mut self, path: &Path) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("the configuration file {} cannot be read: {error}", path.display());
                return self.problem("", Origin::Default, message);
            }
        };
        let file = File { path, text: &text };
        let (table, errors) = DeTable::parse_recoverable(&text);
        for error in &errors {
            let at = error.span().map_or(0, |span| span.start);
            self.problem("", file.origin(at), format!("not TOML: {}", error.message()));
        }
        if errors.is_empty() {
            self.table(&file, "", table.get_ref());
        }
    }

    fn table(&mut self, file: &File<'_>, prefix: &str, table: &DeTable<'_>) {
        for (written, value) in table {
            let name = if prefix.is_empty() {
                written.get_ref().to_string()
            } else {
                format!("{prefix}.{}", written.get_ref())
            };
            let origin = file.origin(written.span().start);
            if name == BACKENDS {
                self.backends(file, origin, value.get_ref());
                continue;
            }
            let is_table = KEYS.iter().any(|key| key.name.starts_with(&format!("{name}.")));
            match (KEYS.iter().find(|key| key.name == name), value.get_ref()) {
                (Some(key), value) => match raw(value) {
                    Ok(raw) => self.set(key, &raw, origin),
                    Err(message) => self.problem(key.name, origin, message),
                },
                (None, DeValue::Table(inner)) if is_table => self.table(file, &name, inner),
                (None, _) if is_table => {
                    self.problem(
                        &name,
                        origin,
                        format!("holds keys, not a value; write [{name}] and the keys below it"),
                    );
                }
                (None, _) => {
                    let known = KEYS.iter().map(|key| key.name.to_owned()).chain([BACKENDS.to_owned()]);
                    self.problem(&name, origin, format!("there is no such key{}", suggestion(&name, known)));
                }
            }
        }
    }

    /// Each table is read whole, also behind one that is wrong.
    fn backends(&mut self, file: &File<'_>, origin: Origin, tables: &DeValue<'_>) {
        let DeValue::Table(tables) = tables else {
            let message = "holds tables, one for each backend; write [backends.NAME] and its keys below it".to_owned();
            return self.problem(BACKENDS, origin, message);
        };
        for (name, value) in tables {
            let at = name.span().start;
            let DeValue::Table(table) = value.get_ref() else {
                let message = format!("is no table; write [backends.{}] and its keys below it", name.get_ref());
                self.problem(&format!("{BACKENDS}.{}", name.get_ref()), file.origin(at), message);
                continue;
            };
            match backends::read(name.get_ref(), at, table) {
                Ok(table) => self.config.backends.push(table),
                Err(wrong) => {
                    for it in wrong {
                        self.problem(&it.key, file.origin(it.at), it.message);
                    }
                }
            }
        }
        self.config.backends.sort_by(|one, other| one.name.cmp(&other.name));
    }

    fn variable(&mut self, variable: &str, value: &str, others: &[String]) {
        // An empty variable is how a shell or a manifest says "not set".
        let set = variable.starts_with("LOADLINE_") && !value.trim().is_empty();
        if !set || others.iter().any(|other| other == variable) {
            return;
        }
        let origin = Origin::Environment { variable: variable.to_owned() };
        match KEYS.iter().find(|key| key.variable() == variable) {
            Some(key) => self.set(key, &Raw::Text(value.to_owned()), origin),
            None => {
                let hint = suggestion(variable, KEYS.iter().map(Key::variable));
                self.problem("", origin, format!("no key has this variable{hint}"));
            }
        }
    }

    fn flag(&mut self, name: &str, value: &str) {
        match KEYS.iter().find(|key| key.name == name) {
            Some(key) => self.set(key, &Raw::Text(value.to_owned()), Origin::Flag { flag: key.flag() }),
            None => {
                let hint = suggestion(name, KEYS.iter().map(|key| key.name.to_owned()));
                self.problem(name, Origin::Default, format!("there is no such key{hint}"));
            }
        }
    }
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn origin(&self, offset: usize) -> Origin {
        let before = self.text.as_bytes().iter().take(offset);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        Origin::File { path: self.path.to_owned(), line }
    }
}

fn raw(value: &DeValue<'_>) -> Result<Raw, String> {
    match value {
        DeValue::String(text) => Ok(Raw::Text(text.to_string())),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Raw::Integer)
            .map_err(|_| "is too large".to_owned()),
        DeValue::Array(items) => {
            let texts: Option<Vec<String>> =
                items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
            texts.map(Raw::List).ok_or_else(|| "each item of the list must be text, in quotes".to_owned())
        }
        other => Ok(Raw::Other(other.type_str())),
    }
}

/// `; did you mean "peers"?`, or nothing when nothing is close.
pub(super) fn suggestion(written: &str, known: impl Iterator<Item = String>) -> String {
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let mut best: Option<(f64, String)> = None;
    for name in known {
        // A key written outside its table is closest by its last part.
        let last = name.rsplit('.').next().unwrap_or(&name);
        let similarity = strsim::normalized_damerau_levenshtein(&plain(written), &plain(&name))
            .max(strsim::normalized_damerau_levenshtein(&plain(written), &plain(last)));
        if best.as_ref().is_none_or(|(most, _)| similarity > *most) {
            best = Some((similarity, name));
        }
    }
    match best {
        Some((similarity, name)) if similarity >= SIMILARITY_MIN => format!("; did you mean {name:?}?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GOOD: &str = "name = 'n1'\npeers = ['127.0.0.1:7700']\n";

    struct Case {
        folder: tempfile::TempDir,
        sources: Sources,
    }

    impl Case {
        fn new(file: &str) -> Case {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("node.toml");
            std::fs::write(&path, file).unwrap();
            Case { folder, sources: Sources { file: Some(path), ..Sources::default() } }
        }

        fn variable(mut self, name: &str, value: &str) -> Case {
            self.sources.environment.push((name.to_owned(), value.to_owned()));
            self
        }

        fn flag(mut self, key: &str, value: &str) -> Case {
            self.sources.flags.push((key.to_owned(), value.to_owned()));
            self
        }

        fn load(&self) -> Result<ServerConfig, String> {
            let folder = format!("{}/", self.folder.path().display());
            load(&self.sources).map_err(|error| error.to_string().replace(&folder, ""))
        }

        #[track_caller]
        fn fails(&self, message: &str) {
            assert_eq!(self.load().unwrap_err(), message);
        }
    }

    #[test]
    fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
        let file = format!("{GOOD}heartbeat = '50ms'\nelection_timeout_min = '200ms'\nsnapshot_every = 500\n");
        let config = Case::new(&file)
            .variable("LOADLINE_HEARTBEAT", "60ms")
            .variable("LOADLINE_ELECTION_TIMEOUT_MIN", "250ms")
            .variable("HOME", "/root")
            .variable("LOADLINE_JOIN", "")
            .flag("heartbeat", "70ms")
            .load()
            .unwrap();
        assert_eq!(config.heartbeat, Duration::from_millis(70));
        assert_eq!(config.election_timeout_min, Duration::from_millis(250));
        assert_eq!(config.snapshot_every, 500);
        assert_eq!(config.keep_entries, 1000);
        assert_eq!(config.advertise, "127.0.0.1:7700");
    }

    #[test]
    fn tables_and_dotted_keys_are_the_same() {
        let table = Case::new(&format!("{GOOD}[limits]\nstreams_max = 7\n")).load().unwrap();
        let dotted = Case::new(&format!("{GOOD}limits.streams_max = 7\n")).load().unwrap();
        assert_eq!(table.limits.streams_max, 7);
        assert_eq!(table, dotted);
        let variable = Case::new(GOOD).variable("LOADLINE_LIMITS_STREAMS_MAX", "7").load().unwrap();
        assert_eq!(table, variable);
    }

    #[test]
    fn an_unknown_key_is_an_error_with_its_line_and_a_suggestion() {
        Case::new(&format!("{GOOD}\nhearbeat = '50ms'\n"))
            .fails("node.toml:4: hearbeat: there is no such key; did you mean \"heartbeat\"?");
        Case::new(&format!("{GOOD}streams_max = 5\n"))
            .fails("node.toml:3: streams_max: there is no such key; did you mean \"limits.streams_max\"?");
        Case::new(&format!("{GOOD}[limits]\nstream_max = 5\n"))
            .fails("node.toml:4: limits.stream_max: there is no such key; did you mean \"limits.streams_max\"?");
        Case::new(&format!("{GOOD}[zzz]\nx = 5\n")).fails("node.toml:3: zzz: there is no such key");
        Case::new(GOOD)
            .variable("LOADLINE_PEER", "a:1")
            .fails("LOADLINE_PEER: no key has this variable; did you mean \"LOADLINE_PEERS\"?");
        Case::new(GOOD).flag("peer", "a:1").fails("peer: there is no such key; did you mean \"peers\"?");
    }

    #[test]
    fn backends_are_tables_with_the_keys_of_their_kind() {
        let config = Case::new(&format!(
            "{GOOD}[backends.b]\nkind = 'webhook'\nurl = 'http://localhost:1/x'\nsecret_env = 'S'\ncall_deadline = '2s'\n\
             [backends.a]\nkind = 'webhook'\nurl = 'http://localhost:2'\nsecret_file = '/run/secret'\n"
        ))
        .load()
        .unwrap();
        let names: Vec<&str> = config.backends.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let shown: Vec<String> = config
            .effective()
            .into_iter()
            .filter(|(key, _)| key.starts_with("backends.b"))
            .map(|(_, value)| value)
            .collect();
        assert_eq!(shown, ["webhook", "2s", "S", "http://localhost:1/x"]);
        assert_eq!(Case::new(GOOD).load().unwrap().backends, []);
    }

    #[test]
    fn what_is_wrong_with_a_backend_is_said_with_its_line_and_what_would_be_right() {
        let webhook = "[backends.hook]\nkind = 'webhook'\nurl = 'http://localhost:1'\nsecret_env = 'S'\n";
        Case::new(&format!("{GOOD}{webhook}call_dedline = '2s'\n"))
            .fails("node.toml:7: backends.hook.call_dedline: there is no such key; did you mean \"call_deadline\"?");
        // Somebody writes the secret itself: it is not repeated.
        let error = Case::new(&format!("{GOOD}{webhook}secret = 'geheim'\n")).load().unwrap_err();
        assert!(error.starts_with("node.toml:7: backends.hook.secret: there is no such key"), "{error}");
        assert!(!error.contains("geheim"), "{error}");
        Case::new(&format!("{GOOD}{webhook}calls_max = 'many'\n"))
            .fails("node.toml:7: backends.hook.calls_max: invalid type: string \"many\", expected usize");
        Case::new(&format!("{GOOD}{webhook}calls_max = 0\n"))
            .fails("node.toml:7: backends.hook.calls_max: 0 is out of range: expected 1 to 1000");
        Case::new(&format!("{GOOD}[backends.hook]\nkind = 'webhook'\n"))
            .fails("node.toml:3: backends.hook: missing field `url`");
        Case::new(&format!("{GOOD}[backends.hook]\nurl = 'x'\n"))
            .fails("node.toml:3: backends.hook.kind: is missing; write one of \"local\", \"sql\", \"webhook\"");
        Case::new(&format!("{GOOD}[backends.hook]\nkind = 'webhok'\n")).fails(
            "node.toml:4: backends.hook.kind: there is no such kind; did you mean \"webhook\"?; write one of \"local\", \
             \"sql\", \"webhook\"",
        );
        Case::new(&format!("{GOOD}backends = 5\n")).fails(
            "node.toml:3: backends: holds tables, one for each backend; write [backends.NAME] and its keys below it",
        );
        Case::new(&format!("{GOOD}[backend.hook]\nkind = 'webhook'\n"))
            .fails("node.toml:3: backend: there is no such key; did you mean \"backends\"?");
    }

    #[test]
    fn variables_of_the_command_line_are_left_alone() {
        let mut case = Case::new(GOOD).variable("LOADLINE_CONTEXT", "dev");
        assert!(case.load().is_err());
        case.sources.other_variables = vec!["LOADLINE_CONTEXT".to_owned()];
        assert!(case.load().is_ok());
    }

    #[test]
    fn a_bad_value_names_the_key_and_what_would_be_right() {
        Case::new(&format!("{GOOD}heartbeat = 100\n")).fails(
            "node.toml:3: heartbeat: 100 has no unit; write a duration from 10ms to 10s, such as \"100ms\" or \"1m30s\"",
        );
        Case::new(&format!("{GOOD}disk_reserve = true\n"))
            .fails("node.toml:3: disk_reserve: is a boolean; write a size from 0B to 1TiB, such as \"512MiB\"");
        Case::new(&format!("{GOOD}limits = 5\n"))
            .fails("node.toml:3: limits: holds keys, not a value; write [limits] and the keys below it");
        Case::new("name = 'n1'\npeers = [1]\n")
            .fails("node.toml:2: peers: each item of the list must be text, in quotes");
        Case::new(GOOD)
            .variable("LOADLINE_SNAPSHOT_EVERY", "many")
            .fails("LOADLINE_SNAPSHOT_EVERY: snapshot_every: \"many\" is not a number; write a whole number from 10 to 10000000");
        Case::new(GOOD).flag("grpc_listen", "localhost").fails(
            "--grpc-listen: grpc_listen: \"localhost\" has no port; write host:port, such as \"127.0.0.1:7700\"",
        );
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let error = Case::new(&format!("{GOOD}heartbeat = 1\nnmae = 'x'\n"))
            .variable("LOADLINE_LOG_LEVEL", "loud")
            .load()
            .unwrap_err();
        assert_eq!(error.lines().count(), 3, "{error}");
    }

    #[test]
    fn what_is_not_toml_is_said_with_its_line() {
        let error = Case::new("name = 'n1'\npeers = [\n").load().unwrap_err();
        assert!(error.starts_with("node.toml:2: not TOML: "), "{error}");
        let missing = Sources { file: Some("no/such/file.toml".into()), ..Sources::default() };
        let error = load(&missing).unwrap_err().to_string();
        assert!(error.starts_with("the configuration file no/such/file.toml cannot be read: "), "{error}");
    }
}
