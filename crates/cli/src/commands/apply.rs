//! `apply -f` and `diff -f`.

use std::io::Read as _;
use std::path::Path;

use loadline_client::v1::WriteResponse;
use loadline_client::{Error, Reading, Writing};

use super::Session;
use super::write::said;
use crate::args::FileArgs;
use crate::exit::{Exit, Failed};
use crate::manifest::{self, Change, Manifest, Step, plan};
use crate::output::resources::ResourceView;
use crate::output::{Format, json_line, pretty, yaml_documents};

/// Somebody else may change things between our reading and our writing; after so many times it is their turn to explain.
const TRIES_MAX: usize = 3;

pub(crate) async fn apply(args: &FileArgs, writing: Writing, session: Session<'_>) -> Result<(), Failed> {
    let manifests = read(args)?;
    let mut tries = 0;
    let (steps, answer) = loop {
        tries += 1;
        let steps = look(&manifests, &session).await?;
        match send(&steps, writing, &session).await {
            // What was read is out of date: read again, and decide again.
            Err(error) if tries < TRIES_MAX && was_outrun(&error) => {}
            Err(error) => return Err(error.into()),
            Ok(answer) => break (steps, answer),
        }
    };
    let outcomes = outcomes(steps, answer);
    let text = match session.format {
        Format::Table | Format::Wide | Format::Csv => {
            outcomes.iter().map(|one| said(&one.name, one.change.word(), writing == Writing::Rehearse) + "\n").collect()
        }
        Format::Name => outcomes.iter().map(|one| format!("{}\n", one.name)).collect(),
        Format::Json => {
            pretty(&serde_json::json!({ "results": outcomes.iter().map(Outcome::json).collect::<Vec<_>>() }))?
        }
        Format::Jsonl => outcomes.iter().map(|one| json_line(&one.json())).collect::<Result<_, _>>()?,
        Format::Yaml => yaml_documents(&outcomes.iter().map(Outcome::json).collect::<Vec<_>>())?,
    };
    session.console.data(&text)
}

pub(crate) async fn diff(args: &FileArgs, session: Session<'_>) -> Result<(), Failed> {
    let manifests = read(args)?;
    let steps = look(&manifests, &session).await?;
    // A rehearsal, because only the group knows that '7 days' and '168h' are the same, and what it would refuse.
    let answer = send(&steps, Writing::Rehearse, &session).await?;
    let outcomes = outcomes(steps, answer);
    let different: Vec<&Outcome> = outcomes.iter().filter(|one| one.change != Change::Unchanged).collect();
    let text: String = match session.format {
        Format::Json => {
            pretty(&serde_json::json!({ "results": different.iter().map(|one| one.json()).collect::<Vec<_>>() }))?
        }
        Format::Jsonl => different.iter().map(|one| json_line(&one.json())).collect::<Result<_, _>>()?,
        Format::Yaml => yaml_documents(&different.iter().map(|one| one.json()).collect::<Vec<_>>())?,
        Format::Name => different.iter().map(|one| format!("{}\n", one.name)).collect(),
        Format::Table | Format::Wide | Format::Csv => different.iter().map(|one| one.lines()).collect(),
    };
    session.console.data(&text)?;
    if different.is_empty() { Ok(()) } else { Err(Failed::quietly(Exit::Failure)) }
}

/// One manifest after the group has looked at it.
#[derive(Debug)]
struct Outcome {
    name: String,
    change: Change,
    fields: Vec<(&'static str, Option<String>, String)>,
    revision: u64,
}

impl Outcome {
    fn json(&self) -> serde_json::Value {
        let fields: serde_json::Map<String, serde_json::Value> = self
            .fields
            .iter()
            .map(|(field, now, wanted)| ((*field).to_owned(), serde_json::json!({ "from": now, "to": wanted })))
            .collect();
        serde_json::json!({ "name": self.name, "result": self.change.word(), "changes": fields, "revision": self.revision })
    }

    /// `~ sizes/100cc` and a line for each field, with `-` for what is and `+` for what would be.
    fn lines(&self) -> String {
        let mark = if self.change == Change::Created { '+' } else { '~' };
        let mut text = format!("{mark} {}\n", self.name);
        for (field, now, wanted) in &self.fields {
            if let Some(now) = now {
                text.push_str(&format!("-   {field}: {now}\n"));
            }
            text.push_str(&format!("+   {field}: {wanted}\n"));
        }
        text
    }
}

fn read(args: &FileArgs) -> Result<Vec<Manifest>, Failed> {
    let mut manifests: Vec<Manifest> = Vec::new();
    for path in &args.files {
        let mut text = String::new();
        let shown = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
        let reading = if path == Path::new("-") {
            std::io::stdin().read_to_string(&mut text).map(|_| ())
        } else {
            std::fs::read_to_string(path).map(|read| text = read)
        };
        reading.map_err(|error| Failed::usage(format!("{shown} cannot be read: {error}")))?;
        for manifest in
            manifest::parse(&text).map_err(|failed| Failed::usage(format!("{shown}: {}", failed.message)))?
        {
            if manifests.iter().any(|other| other.full_name() == manifest.full_name()) {
                return Err(Failed::usage(format!("{shown}: {} is in an earlier file, too", manifest.full_name())));
            }
            manifests.push(manifest);
        }
    }
    Ok(manifests)
}

/// What is there under each name, and what has to change.
async fn look(manifests: &[Manifest], session: &Session<'_>) -> Result<Vec<Step>, Failed> {
    let mut steps = Vec::new();
    for manifest in manifests {
        // Never stale: what is decided here is written.
        let found = match session.client.get(manifest.kind(), &manifest.name, Reading::Linearizable).await {
            Ok(found) => ResourceView::of(found.resource),
            Err(error) => match Failed::from(error) {
                failed if failed.exit == Exit::NotFound => None,
                failed => return Err(failed),
            },
        };
        steps.push(plan(manifest, found.as_ref()));
    }
    Ok(steps)
}

async fn send(steps: &[Step], writing: Writing, session: &Session<'_>) -> Result<Option<WriteResponse>, Error> {
    let changes: Vec<_> = steps.iter().filter_map(|step| step.request.clone()).collect();
    if changes.is_empty() {
        return Ok(None);
    }
    session.client.transact(changes, writing).await.map(Some)
}

/// True where the refusal came of what changed since it was read, and not of what was asked for.
fn was_outrun(error: &Error) -> bool {
    let reason = error.refusal().map(|refusal| refusal.reason.as_str());
    matches!(reason, Some("ETAG_MISMATCH" | "ALREADY_EXISTS" | "NOT_FOUND"))
}

fn outcomes(steps: Vec<Step>, answer: Option<WriteResponse>) -> Vec<Outcome> {
    let revision = answer.as_ref().map(|answer| answer.revision).unwrap_or_default();
    let mut results = answer.map(|answer| answer.results).unwrap_or_default().into_iter();
    steps
        .into_iter()
        .map(|mut step| {
            let result = step.request.as_ref().and_then(|_| results.next());
            if let Some(result) = result {
                if !result.changed {
                    step.change = Change::Unchanged;
                    step.fields.clear();
                }
                // As the group writes it, such as 168h for '7 days'.
                let now = result.resource.and_then(ResourceView::of).map(|view| view.fields()).unwrap_or_default();
                for (field, _, wanted) in &mut step.fields {
                    if let Some((_, value)) = now.iter().find(|(name, _)| name == field) {
                        wanted.clone_from(value);
                    }
                }
                step.fields.retain(|(_, before, after)| before.as_ref() != Some(after));
            }
            Outcome { name: step.name, change: step.change, fields: step.fields, revision }
        })
        .collect()
}
