//! `audit verify`: whether a history is what it says it is. What is checked, and how, is in `loadline-audit`.

use std::path::Path;

use loadline_audit::verify::{Finding, Progress, Verdict, verify_file, verify_folder};
use loadline_audit::{SourceError, with_causes};
use loadline_client::{Client, Endpoints, Error, HistoryBound, HistoryRange, Options};
use serde::Serialize;

use super::{fetch, hex};
use crate::audit_args::{PublicKey, VerifyArgs, parse_public_key};
use crate::commands::Session;
use crate::commands::status::node_views;
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::history::check_is_data_folder;
use crate::meter::Meter;
use crate::output::{Column, Format, View, one};

/// Of bytes that are here.
pub(crate) fn at_rest(args: &VerifyArgs, format: Format, console: &mut Console) -> Result<(), Failed> {
    match (&args.file, &args.data_dir) {
        (Some(file), _) => check_file(file, &file.display().to_string(), args.public_key, format, console),
        (None, Some(folder)) => {
            if args.public_key.is_some() {
                return Err(Failed::usage("--public-key is for exports: a data folder is not signed"));
            }
            check_is_data_folder(folder)?;
            let mut meter = Meter::start(console.watched);
            let verdict = verify_folder(folder, |progress| show(&mut meter, progress));
            drop(meter);
            tell(&folder.display().to_string(), &verdict.map_err(|error| unreadable(&error))?, format, console)
        }
        (None, None) => Err(Failed::usage("what? Name an export, or a node with --node or --data-dir")),
    }
}

/// Of a node that runs: its history is fetched, and checked here.
pub(crate) async fn running(args: &VerifyArgs, session: Session<'_>) -> Result<(), Failed> {
    let names: Vec<String> = args.node.iter().flatten().cloned().collect();
    let (client, shown) = match names.first() {
        None => (session.client.clone(), None),
        Some(name) => {
            let (views, missing) = node_views(&names, &session).await?;
            missing.map_or(Ok(()), Err)?;
            let Some(view) = views.first() else {
                return Err(Failed::new(Exit::NotFound, format!("there is no node {name}")));
            };
            let options = Options::clone(session.client.options());
            let endpoints = Endpoints::parse(std::slice::from_ref(&view.endpoint))?;
            (Client::connect(endpoints, options), view.public_key.clone())
        }
    };
    let of = names.first().map_or("the history", String::as_str);
    let mut temp = tempfile::NamedTempFile::new()?;
    let mut range = HistoryRange { from: None, to: None, reading: session.reading };
    let fetched = fetch(&client, &range, temp.as_file_mut(), session.console.watched).await;
    let damage = match fetched {
        Ok(_) => None,
        Err(error) => Some(damage_in(&error).ok_or_else(|| Failed::from(error))?),
    };
    if let Some((first, _)) = damage.as_ref().and_then(|damage| damage.entries) {
        // What is before it can be checked all the same.
        range.to = Some(HistoryBound::Index(first - 1));
        let nothing = first == 1 || fetch(&client, &range, temp.as_file_mut(), session.console.watched).await.is_err();
        if nothing {
            let verdict = Verdict { findings: damage.into_iter().collect(), ..Verdict::default() };
            return tell(of, &verdict, session.format, session.console);
        }
    }
    let shown = match shown {
        Some(shown) => Some(shown),
        None => key_of_maker(temp.path(), &session).await?,
    };
    // What the node says now is what it must have signed with.
    let shown = shown.as_deref().and_then(|key| parse_public_key(key).ok());
    let mut verdict = verdict_of(temp.path(), args.public_key.or(shown), session.console)?;
    verdict.notes.extend(verdict.head.as_ref().and_then(|head| unchecked(head.first)));
    verdict.findings.extend(damage);
    tell(of, &verdict, session.format, session.console)
}

/// What a node says that cannot read some of its history, as what was found there.
fn damage_in(error: &Error) -> Option<Finding> {
    let Error::Refused(refusal) = error else { return None };
    let number = |key: &str| refusal.metadata.get(key)?.parse::<u64>().ok().filter(|index| *index > 0);
    let (first, last) = (number("first").filter(|_| refusal.reason == "HISTORY_DAMAGED")?, number("last"));
    let what = refusal.metadata.get("what").unwrap_or(&refusal.message).clone();
    Some(Finding { entries: Some((first, last)), what })
}

/// What to know of a history that a node gives from this entry on.
fn unchecked(first: u64) -> Option<String> {
    let last = first.checked_sub(1).filter(|last| *last > 0)?;
    Some(format!(
        "entries 1 to {last} are not checked: the node does not keep them all, or no state from which they can be replayed. Another node may; and verify --data-dir follows the chain of those that its folder has"
    ))
}

/// The key that the node shows which says that it made the file. Whoever answers makes it, so that is known only now.
async fn key_of_maker(path: &Path, session: &Session<'_>) -> Result<Option<String>, Failed> {
    // What is wrong with the file is said by whoever checks it.
    let mut meter = Meter::start(session.console.watched);
    let export = loadline_log::export::Export::open(path, |done, total| meter.bytes("reading", done, total));
    drop(meter);
    let Ok(export) = export else { return Ok(None) };
    let maker = export.head().node_name.clone();
    let (views, _) = node_views(&[], session).await?;
    Ok(views.into_iter().find(|view| view.name.as_ref() == Some(&maker)).and_then(|view| view.public_key))
}

fn check_file(
    path: &Path,
    shown_as: &str,
    pin: Option<PublicKey>,
    format: Format,
    console: &mut Console,
) -> Result<(), Failed> {
    let verdict = verdict_of(path, pin, console)?;
    tell(shown_as, &verdict, format, console)
}

fn verdict_of(path: &Path, pin: Option<PublicKey>, console: &Console) -> Result<Verdict, Failed> {
    if !path.exists() {
        return Err(Failed::new(Exit::NotFound, format!("{} is not there", path.display())));
    }
    let mut meter = Meter::start(console.watched);
    let pin = pin.map(|PublicKey(key)| key);
    let verdict = verify_file(path, pin.as_ref(), |progress| show(&mut meter, progress));
    drop(meter);
    verdict.map_err(|error| unreadable(&error))
}

fn show(meter: &mut Meter, progress: Progress) {
    match progress {
        Progress::Reading { done, total } => meter.bytes("reading", done, total),
        Progress::Replaying { done, total } => meter.entries("replaying", done, total),
    }
}

fn unreadable(error: &SourceError) -> Failed {
    Failed::new(Exit::Failure, with_causes(error))
}

fn tell(of: &str, verdict: &Verdict, format: Format, console: &mut Console) -> Result<(), Failed> {
    let view = VerdictView::of(of, verdict);
    let text = match format {
        Format::Table | Format::Wide => view.story(),
        format => one(format, &view)?,
    };
    console.data(&text)?;
    if verdict.is_valid() { Ok(()) } else { Err(Failed::quietly(Exit::Failure)) }
}

/// What came of looking.
#[derive(Debug, Serialize)]
struct VerdictView {
    what: String,
    valid: bool,
    /// In stretches without a gap.
    entries: Vec<Stretch>,
    /// Applied once more, each with the hash that it had.
    replayed: u64,
    /// Of which only the chain could be checked.
    chained: u64,
    /// After the last entry that is right.
    hash: Option<String>,
    group: Option<String>,
    node: Option<String>,
    version: Option<String>,
    public_key: Option<String>,
    findings: Vec<FindingView>,
    /// What is not wrong, and good to know.
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Stretch {
    first: u64,
    last: u64,
}

#[derive(Debug, Serialize)]
struct FindingView {
    first: Option<u64>,
    last: Option<u64>,
    what: String,
}

impl FindingView {
    fn of(finding: &Finding) -> FindingView {
        let (first, last) = finding.entries.map_or((None, None), |(first, last)| (Some(first), last));
        FindingView { first, last, what: finding.what.clone() }
    }
}

impl VerdictView {
    fn of(what: &str, verdict: &Verdict) -> VerdictView {
        let head = verdict.head.as_ref();
        VerdictView {
            what: what.to_owned(),
            valid: verdict.is_valid(),
            entries: verdict
                .stretches
                .iter()
                .map(|stretch| Stretch { first: *stretch.start(), last: *stretch.end() })
                .collect(),
            replayed: verdict.replayed,
            chained: verdict.chained,
            hash: verdict.hash.map(|hash| hash.to_string()),
            group: head.map(|head| head.group.clone()),
            node: head.map(|head| head.node_name.clone()),
            version: head.map(|head| head.version.clone()),
            public_key: head.map(|head| hex(&head.public_key)),
            findings: verdict.findings.iter().map(FindingView::of).collect(),
            notes: verdict.notes.clone(),
        }
    }

    fn story(&self) -> String {
        let mut text = format!("{} is {}\n", self.what, if self.valid { "valid" } else { "NOT VALID" });
        let mut line = |name: &str, value: &str| text.push_str(&format!("  {name:<12} {value}\n"));
        for finding in &self.findings {
            let finding =
                Finding { entries: finding.first.map(|first| (first, finding.last)), what: finding.what.clone() };
            line("wrong", &finding.to_string());
        }
        for stretch in &self.entries {
            line("entries", &format!("{} to {}", stretch.first, stretch.last));
        }
        line("replayed", &self.replayed.to_string());
        if self.chained > 0 {
            line(
                "chain only",
                &format!("{} (no state from before them is kept, so they cannot be replayed)", self.chained),
            );
        }
        for (name, value) in [
            ("hash", &self.hash),
            ("group", &self.group),
            ("node", &self.node),
            ("version", &self.version),
            ("signed with", &self.public_key),
        ] {
            if let Some(value) = value {
                line(name, value);
            }
        }
        for note in &self.notes {
            line("note", note);
        }
        text
    }
}

impl View for VerdictView {
    const COLUMNS: &'static [Column] = &[
        Column::always("WHAT"),
        Column::always("VALID"),
        Column::always("REPLAYED"),
        Column::always("HASH"),
        Column::always("NODE"),
        Column::always("PUBLIC-KEY"),
        Column::always("WRONG"),
    ];

    fn cells(&self) -> Vec<String> {
        let show = |text: &Option<String>| text.clone().unwrap_or_default();
        vec![
            self.what.clone(),
            self.valid.to_string(),
            self.replayed.to_string(),
            show(&self.hash),
            show(&self.node),
            show(&self.public_key),
            self.findings.first().map(|finding| finding.what.clone()).unwrap_or_default(),
        ]
    }

    fn name(&self) -> String {
        self.what.clone()
    }
}

#[cfg(test)]
mod tests {
    use loadline_client::Refusal;
    use tonic::Code;

    use super::*;

    fn refused(reason: &str) -> Error {
        let metadata = [("first", "120"), ("last", "140"), ("what", "a file is damaged at offset 77")];
        Error::Refused(Box::new(Refusal {
            code: Code::DataLoss,
            reason: reason.to_owned(),
            message: "entries 120 to 140 cannot be read: and so on".to_owned(),
            metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            fields: Vec::new(),
        }))
    }

    #[test]
    fn entries_that_a_node_cannot_read_are_a_finding_in_text_and_json() {
        assert_eq!(damage_in(&refused("EXPORT_FAILED")), None);
        let findings = vec![damage_in(&refused("HISTORY_DAMAGED")).expect("it is damage")];
        let view = VerdictView::of("n2", &Verdict { findings, ..Verdict::default() });
        let text = view.story();
        assert!(text.starts_with("n2 is NOT VALID\n"), "{text}");
        assert!(text.contains("wrong        entries 120 to 140: a file is damaged at offset 77\n"), "{text}");
        let json = serde_json::to_value(&view).expect("it is data");
        assert_eq!((&json["valid"], &json["findings"][0]["first"]), (&false.into(), &120.into()));
        assert_eq!(json["findings"][0]["last"], 140);
    }

    #[test]
    fn a_history_that_begins_later_says_what_is_not_checked() {
        assert_eq!(unchecked(1), None);
        let note = unchecked(501).expect("a note");
        assert!(note.starts_with("entries 1 to 500 are not checked"), "{note}");
    }
}
