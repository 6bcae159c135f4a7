//! `apply -f` and `diff -f`.

use std::io::Read as _;
use std::path::Path;

use loadline_client::v1::resource::Resource as Kept;
use loadline_client::v1::{Resource, Strategy, WriteResponse, WriteResult, change};
use loadline_client::{Error, Kind, Reading, Writing};

use super::write::said;
use super::{Session, guard};
use crate::args::FileArgs;
use crate::exit::{Exit, Failed};
use crate::manifest::{self, Change, Difference, Found, Manifest, Spec, Step, plan};
use crate::output::resources::ResourceView;
use crate::output::{Format, json_line, pretty, yaml_documents};

/// Somebody else may change things between our reading and our writing; after so many times it is their turn to explain.
const TRIES_MAX: usize = 3;

pub(crate) async fn apply(
    args: &FileArgs,
    if_revision: Option<u64>,
    writing: Writing,
    session: Session<'_>,
) -> Result<(), Failed> {
    let manifests = read(args)?;
    let mut tries = 0;
    let (steps, answer) = loop {
        tries += 1;
        let looked = look(&manifests, if_revision, &session).await?;
        match send(&manifests, &looked, writing, &session).await {
            // What was read is out of date: read again, and decide again.
            Err(error) if tries < TRIES_MAX && was_outrun(&error) => {}
            Err(error) => return Err(placed(error, &manifests, &looked)),
            Ok(answer) => break (looked.steps, answer),
        }
    };
    let outcomes = outcomes(steps, answer);
    let text = match session.format {
        Format::Table | Format::Wide | Format::Csv | Format::Sql => outcomes
            .iter()
            .map(|one| said(&one.shown(), one.change.word(), writing == Writing::Rehearse) + "\n")
            .collect(),
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
    let looked = look(&manifests, None, &session).await?;
    // A rehearsal, because only the group knows that '7 days' and '168h' are the same, and what it would refuse.
    let answer = send(&manifests, &looked, Writing::Rehearse, &session).await;
    let answer = answer.map_err(|error| placed(error, &manifests, &looked))?;
    let outcomes = outcomes(looked.steps, answer);
    let different: Vec<&Outcome> = outcomes.iter().filter(|one| one.change != Change::Unchanged).collect();
    let text: String = match session.format {
        Format::Json => {
            pretty(&serde_json::json!({ "results": different.iter().map(|one| one.json()).collect::<Vec<_>>() }))?
        }
        Format::Jsonl => different.iter().map(|one| json_line(&one.json())).collect::<Result<_, _>>()?,
        Format::Yaml => yaml_documents(&different.iter().map(|one| one.json()).collect::<Vec<_>>())?,
        Format::Name => different.iter().map(|one| format!("{}\n", one.name)).collect(),
        Format::Table | Format::Wide | Format::Csv | Format::Sql => different.iter().map(|one| one.lines()).collect(),
    };
    session.console.data(&text)?;
    if different.is_empty() { Ok(()) } else { Err(Failed::quietly(Exit::Failure)) }
}

/// One manifest after the group has looked at it.
#[derive(Debug)]
struct Outcome {
    name: String,
    about: Option<String>,
    change: Change,
    fields: Vec<Difference>,
    revision: u64,
}

impl Outcome {
    /// `clusters/demo`, or `strategies/s12.0 (target_size for demo)`.
    fn shown(&self) -> String {
        match &self.about {
            Some(about) => format!("{} ({about})", self.name),
            None => self.name.clone(),
        }
    }

    fn json(&self) -> serde_json::Value {
        let fields: serde_json::Map<String, serde_json::Value> = self
            .fields
            .iter()
            .map(|(field, now, wanted)| (field.clone(), serde_json::json!({ "from": now, "to": wanted })))
            .collect();
        let result = self.change.word();
        let mut json =
            serde_json::json!({ "name": self.name, "result": result, "changes": fields, "revision": self.revision });
        if let Some(about) = &self.about {
            json["about"] = about.clone().into();
        }
        json
    }

    /// `~ sizes/100cc` and a line for each field, with `-` for what is and `+` for what would be.
    fn lines(&self) -> String {
        let mark = if self.change == Change::Created { '+' } else { '~' };
        let mut text = format!("{mark} {}\n", self.shown());
        for (field, now, wanted) in &self.fields {
            if let Some(now) = now {
                text.push_str(&format!("-   {field}: {now}\n"));
            }
            let wanted = wanted.as_deref().unwrap_or("(the default)");
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
        for mut manifest in manifest::parse(&text)
            .map_err(|failed| Failed { message: format!("{shown}: {}", failed.message), ..failed })?
        {
            manifest.place = format!("{shown}: {}", manifest.place);
            if manifests.iter().any(|other| other.full_name() == manifest.full_name()) {
                return Err(Failed::usage(format!("{shown}: {} is in an earlier file, too", manifest.full_name())));
            }
            manifests.push(manifest);
        }
    }
    Ok(manifests)
}

/// What has to change, and the condition on which.
struct Looked {
    steps: Vec<Step>,
    condition: Option<change::Change>,
}

/// What is there under each name, and what has to change. Refused where it, or anything that decides with it, was changed after the given
/// revision; what is changed between this look and the write, the condition and the etags of the write refuse.
async fn look(manifests: &[Manifest], if_revision: Option<u64>, session: &Session<'_>) -> Result<Looked, Failed> {
    // Never stale: what is decided here is written.
    let reading = Reading::Linearizable;
    let mut strategies: Vec<Strategy> = Vec::new();
    let mut now = 0;
    if if_revision.is_some() || manifests.iter().any(|manifest| manifest.kind() == Kind::Strategy) {
        let listing = session.client.list(Kind::Strategy, reading).await?;
        let strategy = |kept| if let Kept::Strategy(strategy) = kept { Some(strategy) } else { None };
        strategies.extend(listing.resources.into_iter().filter_map(|it| it.resource).filter_map(strategy));
        now = listing.revision;
    }
    let condition = match if_revision {
        Some(since) => Some(guard::condition(manifests, since, &strategies, now, &session.client).await?),
        None => None,
    };
    let mut steps = Vec::new();
    for manifest in manifests {
        let found = match &manifest.spec {
            Spec::Strategy(wanted) => strategies.iter().find(|found| wanted.is(found)).cloned().map(Found::Strategy),
            _ => match session.client.get(manifest.kind(), &manifest.name, reading).await {
                Ok(found) => match found.resource.resource {
                    Some(Kept::Signal(signal)) => Some(Found::Signal(signal)),
                    resource => ResourceView::of(Resource { resource }).map(Box::new).map(Found::Resource),
                },
                Err(error) => match Failed::from(error) {
                    failed if failed.exit == Exit::NotFound => None,
                    failed => return Err(failed),
                },
            },
        };
        if manifest.alters && found.is_none() {
            let message = format!("{}: there is no {} to alter", manifest.place, manifest.full_name());
            return Err(Failed::new(Exit::NotFound, message));
        }
        let changed_at = found.as_ref().and_then(Found::changed_at);
        if let (Some(seen), Some(changed_at)) = (if_revision, changed_at)
            && changed_at > seen
        {
            let Manifest { place, .. } = manifest;
            let message =
                format!("{place}: {} was changed at revision {changed_at}, after {seen}", manifest.full_name());
            return Err(Failed::new(Exit::Conflict, message).hint(guard::what_to_do(seen)));
        }
        steps.push(plan(manifest, found.as_ref()));
    }
    Ok(Looked { steps, condition })
}

/// The steps that change something, in the order in which they can be done whatever the order in the file.
fn order(manifests: &[Manifest], steps: &[Step]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..steps.len()).filter(|number| steps[*number].request.is_some()).collect();
    order.sort_by_key(|number| manifests[*number].rank());
    order
}

/// What became of each step that changes something, by its place in the file.
struct Answer {
    revision: u64,
    results: Vec<(usize, WriteResult)>,
}

async fn send(
    manifests: &[Manifest],
    looked: &Looked,
    writing: Writing,
    session: &Session<'_>,
) -> Result<Option<Answer>, Error> {
    let Looked { steps, condition } = looked;
    let order = order(manifests, steps);
    if order.is_empty() {
        // Whoever asks for a condition wants to hear that it does not hold, also where there is nothing to write.
        if let Some(condition) = condition {
            session.client.transact(vec![condition.clone()], Writing::Rehearse).await?;
        }
        return Ok(None);
    }
    let before = usize::from(condition.is_some());
    let wanted = order.iter().filter_map(|number| steps[*number].request.clone());
    let changes = condition.clone().into_iter().chain(wanted).collect();
    let WriteResponse { revision, results, .. } = session.client.transact(changes, writing).await?;
    Ok(Some(Answer { revision, results: order.into_iter().zip(results.into_iter().skip(before)).collect() }))
}

/// The refusal of one step in the words of the file.
fn placed(error: Error, manifests: &[Manifest], looked: &Looked) -> Failed {
    let order = order(manifests, &looked.steps);
    let before = usize::from(looked.condition.is_some());
    let step = error.refusal().and_then(|refusal| {
        let given = refusal.metadata.get("change").and_then(|number| number.parse::<usize>().ok());
        // Of one change alone it need not be said which.
        let alone = before == 0 && order.len() == 1 && !refusal.fields.is_empty();
        let ordinal = given.or_else(|| alone.then_some(0))?;
        order.get(ordinal.checked_sub(before)?).map(|number| (ordinal, *number))
    });
    let mut failed = Failed::from(error);
    failed.message = failed.message.trim_start_matches("changes[0]: ").to_owned();
    if let Some((ordinal, number)) = step {
        let message = failed.message.trim_start_matches(&format!("changes[{ordinal}]: "));
        // The fields of the request are not those of the file, and the message says what is wrong.
        let message = message.lines().next().unwrap_or_default();
        failed.message = format!("{}: {message}", manifests[number].place);
    }
    failed
}

/// True where the refusal came of what changed since it was read, and not of what was asked for.
fn was_outrun(error: &Error) -> bool {
    let reason = error.refusal().map(|refusal| refusal.reason.as_str());
    matches!(reason, Some("ETAG_MISMATCH" | "ALREADY_EXISTS" | "NOT_FOUND" | "STRATEGY_NOT_FOUND"))
}

fn outcomes(steps: Vec<Step>, answer: Option<Answer>) -> Vec<Outcome> {
    let revision = answer.as_ref().map(|answer| answer.revision).unwrap_or_default();
    let mut results = answer.map(|answer| answer.results).unwrap_or_default();
    let outcome = |(number, mut step): (usize, Step)| {
        let mut name = step.name.clone();
        let found = results.iter().position(|(of, _)| *of == number);
        if let Some(result) = found.map(|place| results.swap_remove(place).1) {
            if !result.changed {
                step.change = Change::Unchanged;
                step.fields.clear();
            }
            let view = result.resource.and_then(ResourceView::of);
            // As the group writes it, such as 168h for '7 days'. Options of a strategy are compared as they are stored.
            let now = view.as_ref().filter(|_| step.about.is_none()).map(ResourceView::fields).unwrap_or_default();
            for (field, _, wanted) in &mut step.fields {
                if let Some((_, value)) = now.iter().find(|(name, _)| name == field) {
                    *wanted = Some(value.clone());
                }
            }
            step.fields.retain(|(_, before, after)| before != after);
            // In a rehearsal the id is not the one it will have.
            name = name.or_else(|| view.filter(|_| revision > 0).map(|view| view.full_name()));
        }
        let name = name.unwrap_or_else(|| "strategies/new".to_owned());
        Outcome { name, about: step.about, change: step.change, fields: step.fields, revision }
    };
    steps.into_iter().enumerate().map(outcome).collect()
}
