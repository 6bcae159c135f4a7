//! `version`.

use loadline_state_machine::RULES_VERSION_MAX;
use serde::Serialize;

use crate::console::Console;
use crate::exit::Failed;
use crate::output::{Format, csv_line, json_line, pretty, yaml_documents};

#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
    /// The highest rules that this binary can apply.
    rules_version: u32,
    api: &'static str,
}

/// Which program this is, for whoever reads what it wrote.
pub(super) fn build() -> String {
    format!("loadline {} (rules {})", env!("CARGO_PKG_VERSION"), RULES_VERSION_MAX.0)
}

pub(crate) fn version(format: Format, console: &mut Console) -> Result<(), Failed> {
    let version =
        Version { version: env!("CARGO_PKG_VERSION"), rules_version: RULES_VERSION_MAX.0, api: "loadline.v1" };
    let text = match format {
        Format::Json => pretty(&version)?,
        Format::Jsonl => json_line(&version)?,
        Format::Yaml => yaml_documents(&[version])?,
        Format::Csv => {
            csv_line(&["version", "rules_version", "api"].map(str::to_owned))?
                + &csv_line(&[version.version.to_owned(), version.rules_version.to_string(), version.api.to_owned()])?
        }
        Format::Name | Format::Table | Format::Sql => format!("loadline {}\n", version.version),
        Format::Wide => {
            format!("loadline {} (rules {}, API {})\n", version.version, version.rules_version, version.api)
        }
    };
    console.data(&text)
}
