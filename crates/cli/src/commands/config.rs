//! `config`: the contexts of this command, and a check of what a node would be told.

use serde::Serialize;

use super::{local_format, resolve};
use crate::args::{Config, Global};
use crate::console::Console;
use crate::context::{self, File, NewContext};
use crate::exit::Failed;
use crate::output::{Column, Format, View, list};
use crate::serve_args::ServeArgs;

/// One key of a node and the value in force.
#[derive(Debug, Serialize)]
struct KeyView {
    key: String,
    value: String,
}

impl View for KeyView {
    const COLUMNS: &'static [Column] = &[Column::always("KEY"), Column::always("VALUE")];

    fn cells(&self) -> Vec<String> {
        vec![self.key.clone(), self.value.clone()]
    }

    fn name(&self) -> String {
        self.key.clone()
    }
}

pub(crate) fn check(args: &ServeArgs, format: Format, console: &mut Console) -> Result<(), Failed> {
    let config = loadline_server::config::load(&args.sources())
        .map_err(|error| Failed::usage(format!("the configuration is not right:\n{error}")))?;
    let keys: Vec<KeyView> = config.effective().into_iter().map(|(key, value)| KeyView { key, value }).collect();
    console.data(&list(format, "keys", None, &keys)?)?;
    console.say("the configuration is right");
    Ok(())
}

#[derive(Debug, Serialize)]
struct ContextView {
    current: bool,
    name: String,
    endpoints: Vec<String>,
}

impl View for ContextView {
    const COLUMNS: &'static [Column] =
        &[Column::always("CURRENT"), Column::always("NAME"), Column::always("ENDPOINTS")];

    fn cells(&self) -> Vec<String> {
        let mark = if self.current { "*" } else { "" };
        vec![mark.to_owned(), self.name.clone(), self.endpoints.join(",")]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

pub(crate) fn contexts(what: Config, global: &Global, console: &mut Console) -> Result<(), Failed> {
    let path = context::path()?;
    match what {
        Config::Contexts => {
            let file = File::read(&path)?;
            let views: Vec<ContextView> = file
                .contexts
                .into_iter()
                .map(|(name, choice)| ContextView {
                    current: file.current.as_ref() == Some(&name),
                    name,
                    endpoints: choice.endpoints,
                })
                .collect();
            if views.is_empty() {
                console.say(&format!("there are no contexts in {}", path.display()));
            }
            console.data(&list(local_format(global), "contexts", None, &views)?)
        }
        Config::Use { name } => {
            context::select(&path, &name)?;
            console.say(&format!("the context is '{name}' now"));
            Ok(())
        }
        Config::Save { name, sql_endpoints, use_it } => {
            if global.endpoints.is_empty() {
                return Err(Failed::usage("which nodes? Name them with --endpoint HOST:PORT"));
            }
            let resolved = resolve(&Global { context: None, ..global.clone() })?;
            let endpoints: Vec<String> = resolved.endpoints.iter().map(ToString::to_string).collect();
            let timeout = global.timeout.map(|timeout| format!("{}ms", timeout.as_millis()));
            for endpoint in &sql_endpoints {
                super::sql::host_and_port(endpoint)?;
            }
            let new = NewContext { endpoints: &endpoints, sql_endpoints: &sql_endpoints, timeout: timeout.as_deref() };
            context::save(&path, &name, new, use_it)?;
            console.say(&format!("context '{name}' is saved in {}", path.display()));
            Ok(())
        }
        Config::Check(_) => unreachable!("it has nothing to do with contexts"),
    }
}
