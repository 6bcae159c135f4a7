//! `explain`: why something is as it is, or was. A running group is asked, or a history at rest: the answer is made by the same code.

use std::collections::BTreeMap;

use loadline_api::scaling as wire;
use loadline_audit::explain::{Explainer, Story};
use loadline_audit::{Moment, Scanned, Trail, TrailError, replay, with_causes};
use loadline_client::v1::ExplainResponse;
use loadline_client::{ExplainAt, Kind};
use loadline_state_machine::{Action, ResourceName, State, Time};

use super::Session;
use crate::args::ExplainArgs;
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::meter::Entries;
use crate::noun::{Noun, Selection};
use crate::output::explained::{explanation, facts_as_csv};
use crate::output::{Format, json_line, pretty, yaml_documents};

pub(crate) async fn explain(args: &ExplainArgs, session: Session<'_>) -> Result<(), Failed> {
    let name = name(&args.words)?;
    let at = match args.at {
        // For the API these are no moment at all, and it would answer for now.
        Some(at) if at == Moment::Index(0) || at == Moment::Time(Time::default()) => {
            return Err(Failed::new(Exit::NotFound, "there was nothing before entry 1"));
        }
        None | Some(Moment::End) => None,
        Some(Moment::Index(index)) => Some(ExplainAt::Index(index)),
        Some(Moment::Time(time)) => Some(ExplainAt::TimeMs(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))),
    };
    let answer = session.client.explain(&name, at, session.reading).await.map_err(|error| {
        let failed = Failed::from(error);
        let then = match args.at {
            Some(Moment::Index(index)) => format!("at index {index}"),
            Some(Moment::Time(time)) => format!("at {time}"),
            None | Some(Moment::End) => return failed,
        };
        match failed.exit {
            Exit::NotFound => failed.hint(format!("that is how it was {then}; without --at it is asked how it is now")),
            _ => failed,
        }
    })?;
    if let Some(Moment::Time(wanted)) = args.at
        && i64::try_from(wanted.as_millis()).is_ok_and(|wanted| wanted > jiff::Timestamp::now().as_millisecond())
    {
        let revision = answer.revision;
        session.console.say(&format!("--at {wanted} has not come yet: this is how it is now, at revision {revision}"));
    }
    show(&name, &answer, session.format, session.console)
}

/// On a history at rest.
pub(crate) fn offline(args: &ExplainArgs, format: Format, console: &mut Console) -> Result<(), Failed> {
    let name = name(&args.words)?;
    let wanted: ResourceName = name.parse().map_err(|_| usage())?;
    let history = args.history.open(console)?;
    let to = args.at.unwrap_or(Moment::End);
    let start = history.start(to, false)?;
    let mut bar = Entries::start("replaying", history.expected(&start, to), console.watched);
    let state = replay(&*history.source, start, to, |_| bar.one())?.state;
    drop(bar);
    history.say_if_later("--at", to, (state.applied().0, state.now()), console);
    let mut bar = Entries::start("looking through it", history.len(), console.watched);
    let failed = |error: TrailError| {
        let exit = match error {
            TrailError::Lacks { .. } => Exit::NotFound,
            TrailError::Several { .. } => Exit::Usage,
            _ => Exit::Failure,
        };
        Failed::new(exit, with_causes(&error))
    };
    let index = Scanned::read(&*history.source, || bar.one()).map_err(failed)?;
    drop(bar);
    let trail = Trail { source: &*history.source, index: &index };
    let nodes = BTreeMap::new();
    let story = Explainer::new(trail, &state, &nodes).explain(&wanted).map_err(failed)?;
    let missing = || Failed::new(Exit::NotFound, format!("there was no {name} at index {}", state.applied()));
    show(&name, &answer(&story.ok_or_else(missing)?, &state), format, console)
}

fn answer(story: &Story, state: &State) -> ExplainResponse {
    let why = story.explanation.as_deref();
    let decision = why.map(|why| &why.now).or(story.decision.as_ref());
    let operation = story.operation.as_ref().map(|(it, end)| wire::operation(it, *end, state));
    let under_way = why.and_then(|why| why.operation.as_ref()).map(|it| wire::operation(it, None, state));
    let actions: Vec<&Action> =
        why.map_or_else(|| story.action.iter().collect(), |why| why.actions.iter().map(|(action, _)| action).collect());
    ExplainResponse {
        decision: decision.map(|it| wire::decision(it, state)),
        recorded: why.and_then(|why| why.recorded.as_ref()).map(|it| wire::decision(it, state)),
        pause: why.and_then(|why| why.pause.as_ref()).map(wire::pause),
        operation: operation.or(under_way),
        actions: actions.into_iter().map(|it| wire::action(it, state)).collect(),
        pending_since_ms: why.and_then(|why| why.pending_since).map(loadline_api::millis).unwrap_or_default(),
        idle_since_ms: why.and_then(|why| why.idle_since).map(loadline_api::millis).unwrap_or_default(),
        lines: story.lines(),
        facts: story.facts.iter().map(wire::fact).collect(),
        revision: state.applied().0,
    }
}

fn usage() -> Failed {
    Failed::usage("explain one of cluster/NAME, decision/INDEX or action/ID")
}

/// As the API names it.
fn name(words: &[String]) -> Result<String, Failed> {
    if let [word] = words
        && !word.contains('/')
        && word.parse::<Noun>().is_err()
    {
        return Err(usage().hint(format!("if that is a cluster: loadline explain cluster/{word}")));
    }
    match Selection::parse(words)? {
        Selection::Some(things) => match things.as_slice() {
            [one] => match one.noun {
                Noun::Resource(kind @ (Kind::Cluster | Kind::Decision | Kind::Action)) => {
                    Ok(format!("{}/{}", kind.plural(), one.name))
                }
                Noun::Resource(Kind::Operation) => {
                    let hint =
                        format!("loadline describe operation {}; explain cluster/NAME says why it is there", one.name);
                    Err(usage().hint(hint))
                }
                _ => Err(usage()),
            },
            _ => Err(usage()),
        },
        Selection::All(_) => Err(usage()),
    }
}

fn show(name: &str, answer: &ExplainResponse, format: Format, console: &mut Console) -> Result<(), Failed> {
    let text = match format {
        Format::Json => pretty(&explanation(answer))?,
        Format::Jsonl => json_line(&explanation(answer))?,
        Format::Yaml => yaml_documents(&[explanation(answer)])?,
        Format::Name => format!("{name}\n"),
        Format::Csv => facts_as_csv(answer)?,
        Format::Table | Format::Wide | Format::Sql => answer.lines.iter().map(|line| format!("{line}\n")).collect(),
    };
    console.data(&text)
}
