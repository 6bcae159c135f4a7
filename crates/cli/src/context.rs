//! Where to: the file of contexts, and which value wins.
//!
//! A flag wins over a `LOADLINE_*` variable, that over the context, that over `[defaults]` of the file, that over what is
//! built in. The file is the user's: it is edited in place, and comments stay.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;
use loadline_client::{Endpoints, Secret};
use serde::Deserialize;
use toml_edit::{DocumentMut, Item, Table, value};

use crate::exit::{Exit, Failed};
use crate::output::Format;
use crate::text::{did_you_mean, parse_duration};

/// Where a node listens by itself.
const ENDPOINT_DEFAULT: &str = "127.0.0.1:7700";
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The file, read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) current: Option<String>,
    #[serde(default)]
    defaults: Choice,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Choice>,
}

/// What a context, or `[defaults]`, can say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Choice {
    #[serde(default)]
    pub(crate) endpoints: Vec<String>,
    /// Where the same nodes speak SQL.
    #[serde(default)]
    pub(crate) sql_endpoints: Vec<String>,
    timeout: Option<String>,
    output: Option<String>,
    /// Of a role; never shown.
    #[serde(default, deserialize_with = "secret")]
    token: Option<Secret>,
    /// For SQL, which knows no tokens: the role, and its password, which is never shown.
    role: Option<String>,
    #[serde(default, deserialize_with = "secret")]
    password: Option<Secret>,
}

fn secret<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Secret>, D::Error> {
    String::deserialize(from).map(Secret::new).map(Some)
}

/// What flags and variables said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    pub(crate) context: Option<String>,
    pub(crate) endpoints: Vec<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) output: Option<Format>,
    pub(crate) token: Option<Secret>,
}

/// Where SQL is spoken, and as whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SqlChoice {
    pub(crate) endpoints: Vec<String>,
    pub(crate) role: Option<String>,
    pub(crate) password: Option<Secret>,
}

/// What holds in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) endpoints: Endpoints,
    pub(crate) timeout: Duration,
    pub(crate) output: Format,
    pub(crate) token: Option<Secret>,
    /// The context that the endpoints came from, if they did: an unreachable group is explained by it.
    pub(crate) context: Option<String>,
}

/// `$XDG_CONFIG_HOME/loadline/config.toml`, or under `~/.config`.
pub(crate) fn path() -> Result<PathBuf, Failed> {
    let set = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let folder = folder.ok_or_else(|| {
        Failed::new(Exit::Failure, "there is no place for contexts: neither XDG_CONFIG_HOME nor HOME is set")
    })?;
    Ok(folder.join("loadline/config.toml"))
}

impl File {
    /// An empty one if there is none.
    pub(crate) fn read(path: &Path) -> Result<File, Failed> {
        let text = read_text(path)?;
        toml::from_str(&text).map_err(|error| wrong(path, &error.to_string()))
    }

    pub(crate) fn resolve(&self, wishes: &Wishes) -> Result<Resolved, Failed> {
        let name = wishes.context.as_ref().or(self.current.as_ref());
        let chosen = match name {
            Some(name) => Some(self.context(name)?),
            None => None,
        };
        let layers: Vec<&Choice> = chosen.into_iter().chain([&self.defaults]).collect();

        let from_context = chosen.is_some_and(|choice| !choice.endpoints.is_empty()) && wishes.endpoints.is_empty();
        let written = layers.iter().map(|choice| &choice.endpoints).find(|endpoints| !endpoints.is_empty());
        let endpoints = if wishes.endpoints.is_empty() {
            written.cloned().unwrap_or_else(|| vec![ENDPOINT_DEFAULT.to_owned()])
        } else {
            wishes.endpoints.clone()
        };
        let timeout = match (wishes.timeout, layers.iter().find_map(|choice| choice.timeout.as_ref())) {
            (Some(timeout), _) => timeout,
            (None, Some(text)) => parse_duration(text).map_err(|why| Failed::usage(format!("timeout: {why}")))?,
            (None, None) => TIMEOUT_DEFAULT,
        };
        let output = match (wishes.output, layers.iter().find_map(|choice| choice.output.as_ref())) {
            (Some(output), _) => output,
            (None, Some(text)) => parse_format(text)?,
            (None, None) => Format::default(),
        };
        // A token goes with the endpoints it was written beside: another group must not be shown it.
        let written = layers.iter().find_map(|choice| choice.token.clone()).filter(|_| wishes.endpoints.is_empty());
        let token = wishes.token.clone().or(written);
        Ok(Resolved {
            endpoints: Endpoints::parse(&endpoints)?,
            token,
            timeout,
            output,
            context: name.filter(|_| from_context).cloned(),
        })
    }

    /// What the context says about SQL, and where it says nothing, `[defaults]`. Who to be goes with where to: a password is
    /// shown to the nodes it was written beside, and to no others.
    pub(crate) fn sql(&self, context: Option<&String>) -> Result<SqlChoice, Failed> {
        let chosen = match context.or(self.current.as_ref()) {
            Some(name) => Some(self.context(name)?),
            None => None,
        };
        let layers: Vec<&Choice> = chosen.into_iter().chain([&self.defaults]).collect();
        let choice = layers.into_iter().find(|choice| !choice.sql_endpoints.is_empty());
        Ok(choice.map_or_else(SqlChoice::default, |choice| SqlChoice {
            endpoints: choice.sql_endpoints.clone(),
            role: choice.role.clone(),
            password: choice.password.clone(),
        }))
    }

    pub(crate) fn context(&self, name: &str) -> Result<&Choice, Failed> {
        self.contexts.get(name).ok_or_else(|| {
            let known = self.contexts.keys().map(String::as_str);
            let message = format!("there is no context '{name}'{}", did_you_mean(name, known));
            Failed::new(Exit::NotFound, message).hint("see them with: loadline config contexts")
        })
    }
}

/// Makes `name` the current context.
pub(crate) fn select(path: &Path, name: &str) -> Result<(), Failed> {
    File::read(path)?.context(name)?;
    edit(path, |document| document["current"] = value(name))
}

/// A context to be saved.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NewContext<'a> {
    pub(crate) endpoints: &'a [String],
    pub(crate) sql_endpoints: &'a [String],
    pub(crate) timeout: Option<&'a str>,
}

/// Puts a context into the file, in place of one of the same name, and makes it the current one if asked to.
pub(crate) fn save(path: &Path, name: &str, new: NewContext<'_>, use_it: bool) -> Result<(), Failed> {
    let NewContext { endpoints, sql_endpoints, timeout } = new;
    Endpoints::parse(endpoints)?;
    edit(path, |document| {
        let contexts = document.entry("contexts").or_insert_with(|| {
            let mut table = Table::new();
            // Only [contexts.NAME] is worth a line.
            table.set_implicit(true);
            Item::Table(table)
        });
        let mut context = Table::new();
        context["endpoints"] = value(endpoints.iter().collect::<toml_edit::Array>());
        if !sql_endpoints.is_empty() {
            context["sql_endpoints"] = value(sql_endpoints.iter().collect::<toml_edit::Array>());
        }
        if let Some(timeout) = timeout {
            context["timeout"] = value(timeout);
        }
        contexts[name] = Item::Table(context);
        if use_it {
            document["current"] = value(name);
        }
    })
}

fn edit(path: &Path, change: impl FnOnce(&mut DocumentMut)) -> Result<(), Failed> {
    // A file that cannot be understood is not overwritten.
    File::read(path)?;
    let mut document: DocumentMut =
        read_text(path)?.parse().map_err(|error: toml_edit::TomlError| wrong(path, &error.to_string()))?;
    change(&mut document);
    let unwritable = |error: std::io::Error| {
        Failed::new(Exit::Failure, format!("the contexts cannot be written to {}: {error}", path.display()))
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    // Another command may read at this moment: it sees the old file or the new one, never half of one.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(unwritable)?;
    std::io::Write::write_all(&mut file, document.to_string().as_bytes()).map_err(unwritable)?;
    file.persist(path).map_err(|error| unwritable(error.error))?;
    Ok(())
}

fn read_text(path: &Path) -> Result<String, Failed> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Failed::new(Exit::Failure, format!("{} cannot be read: {error}", path.display()))),
    }
}

fn wrong(path: &Path, why: &str) -> Failed {
    Failed::usage(format!("{} is not right: {}", path.display(), why.trim_end()))
}

pub(crate) fn parse_format(text: &str) -> Result<Format, Failed> {
    Format::from_str(text, true).map_err(|_| {
        let names: Vec<String> = Format::value_variants()
            .iter()
            .filter_map(|format| format.to_possible_value())
            .map(|v| v.get_name().to_owned())
            .collect();
        Failed::usage(format!("output: '{text}' is none of {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
# mine
current = "dev"

[defaults]
endpoints = ["file:1"]
timeout = "20s"
output = "csv"

[contexts.dev] # three nodes
endpoints = ["dev:1", "dev:2"]
output = "wide"

[contexts.bare]
"#;

    fn file() -> File {
        toml::from_str(FILE).expect("a file")
    }

    fn resolved(wishes: &Wishes) -> (Vec<String>, u64, Format, Option<String>) {
        let resolved = file().resolve(wishes).expect("resolved");
        let endpoints = resolved.endpoints.iter().map(ToString::to_string).collect();
        (endpoints, resolved.timeout.as_secs(), resolved.output, resolved.context)
    }

    #[test]
    fn a_flag_wins_over_the_context_that_over_the_file_that_over_the_default() {
        let flags = Wishes {
            endpoints: vec!["flag:1".into()],
            timeout: Some(Duration::from_secs(1)),
            output: Some(Format::Json),
            ..Wishes::default()
        };
        assert_eq!(resolved(&flags), (vec!["flag:1".into()], 1, Format::Json, None));
        let current = (vec!["dev:1".into(), "dev:2".into()], 20, Format::Wide, Some("dev".into()));
        assert_eq!(resolved(&Wishes::default()), current);
        let bare = Wishes { context: Some("bare".into()), ..Wishes::default() };
        assert_eq!(resolved(&bare), (vec!["file:1".into()], 20, Format::Csv, None));
        let nothing = File::default().resolve(&Wishes::default()).expect("resolved");
        assert_eq!(nothing.endpoints, Endpoints::parse([ENDPOINT_DEFAULT]).expect("an endpoint"));
        assert_eq!((nothing.timeout, nothing.output), (TIMEOUT_DEFAULT, Format::Table));
    }

    #[test]
    fn a_context_that_is_not_there_is_not_found_with_a_suggestion() {
        let failed = file().resolve(&Wishes { context: Some("deb".into()), ..Wishes::default() }).expect_err("none");
        assert_eq!(failed.exit, Exit::NotFound);
        assert!(failed.message.contains("did you mean 'dev'?"), "{}", failed.message);
    }

    #[test]
    fn saving_and_selecting_leaves_the_rest_of_the_file_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("loadline/config.toml");
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(&path, FILE).expect("written");
        let (prod, sql) = (["prod:1".to_owned()], ["prod:5".to_owned()]);
        let new = NewContext { endpoints: &prod, sql_endpoints: &sql, timeout: Some("30s") };
        save(&path, "prod", new, true).expect("saved");
        let text = std::fs::read_to_string(&path).expect("read");
        assert!(text.contains("# mine") && text.contains("# three nodes"), "{text}");
        let file = File::read(&path).expect("a file");
        assert_eq!(file.current.as_deref(), Some("prod"));
        assert_eq!(file.contexts["prod"].endpoints, ["prod:1"]);
        assert_eq!(file.sql(None).expect("a choice").endpoints, ["prod:5"]);
        assert_eq!(file.contexts["dev"].endpoints, ["dev:1", "dev:2"]);
        select(&path, "bare").expect("selected");
        assert_eq!(File::read(&path).expect("a file").current.as_deref(), Some("bare"));
        assert_eq!(select(&path, "none").expect_err("no such context").exit, Exit::NotFound);
    }

    #[test]
    fn a_password_is_shown_only_to_the_nodes_it_was_written_beside() {
        let text = r#"
current = "prod"
[defaults]
sql_endpoints = ["file:5"]
role = "ada"
[contexts.prod]
sql_endpoints = ["prod:5", "prod:6"]
role = "ops"
password = "hunter2"
[contexts.bare]
password = "of nobody"
"#;
        let file: File = toml::from_str(text).expect("a file");
        let prod = file.sql(None).expect("a choice");
        assert_eq!((prod.endpoints.len(), prod.role.as_deref(), prod.password.is_some()), (2, Some("ops"), true));
        let bare = file.sql(Some(&"bare".to_owned())).expect("a choice");
        assert_eq!((bare.endpoints, bare.role, bare.password), (vec!["file:5".into()], Some("ada".into()), None));
        assert!(!format!("{prod:?}").contains("hunter2"));
        assert_eq!(file.sql(Some(&"none".to_owned())).expect_err("no such context").exit, Exit::NotFound);
    }

    #[test]
    fn the_first_context_makes_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/loadline/config.toml");
        let endpoints = ["127.0.0.1:7701".to_owned()];
        save(&path, "dev", NewContext { endpoints: &endpoints, ..NewContext::default() }, true).expect("saved");
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text, "current = \"dev\"\n\n[contexts.dev]\nendpoints = [\"127.0.0.1:7701\"]\n");
    }

    #[test]
    fn a_file_that_is_not_right_names_the_place_and_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        for text in ["curent = \"dev\"", "[contexts.dev]\nendpoint = []", "= 1", "current = 3"] {
            std::fs::write(&path, text).expect("written");
            let failed = File::read(&path).expect_err(text);
            assert!(failed.message.contains("config.toml"), "{}", failed.message);
            let endpoints = ["a:1".to_owned()];
            let new = NewContext { endpoints: &endpoints, ..NewContext::default() };
            assert!(save(&path, "dev", new, true).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(&path).expect("read"), text);
        }
    }

    #[test]
    fn wrong_values_in_a_context_are_usage_errors() {
        for text in
            ["[defaults]\ntimeout = \"soon\"", "[defaults]\noutput = \"xml\"", "[defaults]\nendpoints = [\"x\"]"]
        {
            let file: File = toml::from_str(text).expect("TOML");
            assert_eq!(file.resolve(&Wishes::default()).expect_err(text).exit, Exit::Usage, "{text}");
        }
    }
}
