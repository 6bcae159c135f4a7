//! `plan`: what the brain would decide about a cluster that is written down in a file. No group is needed.
//!
//! - Here: documents in, plans out, and the comparison with what was expected.
//! - `reader.rs`: taking a document apart so that every mistake names its field.
//! - `input.rs`: what a document means.
//! - `output.rs`: what a plan looks like.
//!
//! Not here: how it is decided. That is `loadline_state_machine::plan`, the same chain that runs in a group.

mod input;
mod output;
pub(crate) mod reader;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use loadline_state_machine::{PlanError, PlanOutput, plan};
use serde_json::Value;

use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::output::{Format, json_line, list, pretty, yaml_documents};
use input::Question;
use output::{PlanView, Summary};
use reader::Node;

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Sizes, a cluster with its replicas, strategies and signals, as JSON or YAML, one document or many; - reads stdin
    #[arg(short, long, value_name = "FILE")]
    input: PathBuf,
}

pub(crate) fn run(args: &PlanArgs, format: Format, console: &mut Console) -> Result<(), Failed> {
    let (text, name) = read(&args.input)?;
    let answers =
        answer_all(&text).map_err(|failed| Failed { message: format!("{name}: {}", failed.message), ..failed })?;
    console.data(&shown(format, &answers)?)?;
    let wrong: Vec<&Answer> = answers.iter().filter(|answer| !answer.as_expected()).collect();
    for answer in &wrong {
        console.say(&format!("{}: {}", answer.place(answers.len(), &name), answer.difference()));
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failed::quietly(Exit::Failure)) }
}

fn read(path: &Path) -> Result<(String, String), Failed> {
    let from_stdin = path == Path::new("-");
    let name = if from_stdin { "stdin".to_owned() } else { path.display().to_string() };
    let read = if from_stdin {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.map(|text| (text, name.clone())).map_err(|error| Failed::usage(format!("{name} cannot be read: {error}")))
}

/// One document and what came of it.
#[derive(Debug)]
struct Answer {
    /// From 1.
    number: usize,
    question: Question,
    output: PlanOutput,
}

impl Answer {
    fn as_expected(&self) -> bool {
        self.question.expected.as_ref().is_none_or(|expected| *expected == self.output.desired)
    }

    fn place(&self, documents: usize, file: &str) -> String {
        if documents == 1 { file.to_owned() } else { format!("{file}, document {}", self.number) }
    }

    fn difference(&self) -> String {
        let show = |replicas: &std::collections::BTreeMap<String, String>| match replicas.is_empty() {
            true => "no replica".to_owned(),
            false => replicas.iter().map(|(name, size)| format!("{name} ({size})")).collect::<Vec<_>>().join(", "),
        };
        let expected = self.question.expected.as_ref().map(&show).unwrap_or_default();
        format!("expected {expected}, but the plan is {}", show(&self.output.desired))
    }
}

/// Nothing is answered before all documents are right.
fn answer_all(text: &str) -> Result<Vec<Answer>, Failed> {
    let documents = documents(text)?;
    let several = documents.len() > 1;
    let mut answers = Vec::with_capacity(documents.len());
    for (number, document) in (1..).zip(&documents) {
        let answer = answer(number, document).map_err(|error| {
            let place = if several { format!("document {number}, ") } else { String::new() };
            Failed::usage(format!("{place}{error}"))
        })?;
        answers.push(answer);
    }
    Ok(answers)
}

fn answer(number: usize, document: &Value) -> Result<Answer, PlanError> {
    let question = input::question(Node::root(document))?;
    let output = plan(&question.input)?;
    Ok(Answer { number, question, output })
}

/// JSON documents may follow each other without a mark, as lines of a file do; YAML documents are divided by `---`.
fn documents(text: &str) -> Result<Vec<Value>, Failed> {
    let looks_like_json = text.trim_start().starts_with(['{', '[']);
    let documents: Vec<Value> = if looks_like_json {
        let documents = serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>();
        documents.map_err(|error| Failed::usage(format!("not JSON: {error}")))?
    } else {
        serde_saphyr::from_multiple(text)
            .map_err(|error| Failed::usage(format!("neither JSON nor YAML: {}", error.to_string().trim_end())))?
    };
    let documents: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    if documents.is_empty() {
        return Err(Failed::usage("there is nothing in it; write sizes, cluster, strategies and signals"));
    }
    Ok(documents)
}

fn shown(format: Format, answers: &[Answer]) -> Result<String, Failed> {
    let view = |answer: &Answer| PlanView::of(&answer.question.input.cluster, &answer.output);
    let views = || answers.iter().map(view).collect::<Vec<_>>();
    let summaries = || answers.iter().map(Summary::of).collect::<Vec<_>>();
    match (format, answers) {
        // One question deserves the whole story.
        (Format::Table | Format::Wide, [answer]) => Ok(output::story(&answer.question.input.cluster, &answer.output)),
        (Format::Json, [answer]) => pretty(&view(answer)),
        (Format::Json, _) => pretty(&serde_json::json!({ "plans": views() })),
        (Format::Jsonl, _) => views().iter().map(json_line).collect(),
        (Format::Yaml, _) => yaml_documents(&views()),
        (Format::Table | Format::Wide | Format::Name | Format::Csv | Format::Sql, _) => {
            list(format, "plans", None, &summaries())
        }
    }
}

#[cfg(test)]
mod tests;
