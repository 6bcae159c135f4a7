//! What a document means: the sizes, the cluster, its strategies and the signals about it.

use std::collections::BTreeMap;

use loadline_state_machine::{
    Configuration, ConfigurationProblem, OptionKind, OptionValue, Options, PlanActivity, PlanCrashes, PlanHydration,
    PlanInput, PlanReplica, PlanState, PlanStrategy, Span, StrategyKind, Time, option_definition, option_definitions,
    read_milli,
};
use serde_json::Value;

use super::reader::{Fields, Node, Read};
use crate::text::did_you_mean;

/// When nobody says when it is. Always the same moment: the same document gives the same plan, to the letter.
const NOW_DEFAULT: Time = Time::from_millis(1_800_000_000_000);

/// The last second of the year 9999. A number beyond is one of milliseconds.
const NOW_SECS_MAX: u64 = 253_402_300_799;

const KINDS: &str = "target_size, shrink_to_fit, target_tracking, queue_depth, burst or idle_suspend";

/// What is asked, and what somebody expects as the answer.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) input: PlanInput,
    pub(super) expected: Option<BTreeMap<String, String>>,
}

/// Either the input itself, or `{"input": {...}, "desired": {...}}` with the replicas that are expected.
pub(super) fn question(document: Node<'_>) -> Read<Question> {
    let mut fields = document.object("an object with sizes, cluster, strategies and signals")?;
    let Some(inner) = fields.optional("input") else {
        return Ok(Question { input: input(fields)?, expected: None });
    };
    let input = input(inner.object("an object with sizes, cluster, strategies and signals")?)?;
    let expected = match fields.optional("desired") {
        None => None,
        Some(desired) => {
            let replicas = desired.entries("an object of replicas and their sizes")?.into_iter();
            Some(replicas.map(|(name, size)| Ok((name.to_owned(), size.name()?.to_owned()))).collect::<Read<_>>()?)
        }
    };
    fields.finish()?;
    Ok(Question { input, expected })
}

fn input(mut fields: Fields<'_>) -> Read<PlanInput> {
    let now = fields.optional("now").map_or(Ok(NOW_DEFAULT), |node| moment(&node))?;
    let sizes = sizes(&fields.required("sizes", "the ladder, the smallest first, as in [{\"name\": \"25cc\"}]")?)?;
    let (cluster, replicas) = cluster(fields.required("cluster", "an object with name and replicas")?)?;
    let strategies = strategies(&fields.required("strategies", "a list of strategies, or []")?, &sizes, now)?;
    let mut input = PlanInput { sizes, cluster, replicas, strategies, now: Some(now), ..PlanInput::default() };
    if let Some(node) = fields.optional("signals") {
        signals(node, now, &mut input)?;
    }
    if let Some(node) = fields.optional("settings") {
        for (name, value) in node.entries("an object of settings and their values")? {
            input.settings.insert(name.to_owned(), setting(&value)?);
        }
    }
    fields.finish()?;
    Ok(input)
}

fn moment(node: &Node<'_>) -> Read<Time> {
    let wanted = || node.wrong("write a time such as \"2026-11-16T02:50:53Z\", or whole seconds since 1970");
    match node.value {
        Value::String(text) => {
            let time: jiff::Timestamp = text.parse().map_err(|_| wanted())?;
            u64::try_from(time.as_millisecond()).map(Time::from_millis).map_err(|_| wanted())
        }
        value => match value.as_u64() {
            Some(secs) if secs <= NOW_SECS_MAX => Ok(Time::from_millis(secs * 1_000)),
            Some(_) => Err(node.wrong("that is after the year 9999; write seconds since 1970, not milliseconds")),
            None => Err(wanted()),
        },
    }
}

fn span(node: &Node<'_>, now: Time) -> Read<Span> {
    node.seconds(now.as_millis()).map(Span::from_millis)
}

fn sizes(node: &Node<'_>) -> Read<Vec<String>> {
    let mut sizes: Vec<String> = Vec::new();
    for node in node.items("a list of sizes, the smallest first")? {
        let mut fields = node.object("an object with name")?;
        let node = fields.required("name", "the name of the size")?;
        let name = node.name()?;
        fields.finish()?;
        if sizes.iter().any(|other| other == name) {
            return Err(node.wrong(format!("'{name}' is there twice")));
        }
        sizes.push(name.to_owned());
    }
    Ok(sizes)
}

fn cluster(node: Node<'_>) -> Read<(String, Vec<PlanReplica>)> {
    let mut fields = node.object("an object with name and replicas")?;
    let name = fields.required("name", "the name of the cluster")?.name()?.to_owned();
    let replicas = fields.optional("replicas").map_or(Ok(vec![]), |node| replicas(&node))?;
    fields.finish()?;
    Ok((name, replicas))
}

fn replicas(node: &Node<'_>) -> Read<Vec<PlanReplica>> {
    let replica = |node: Node<'_>| {
        let mut fields = node.object("an object with name and size")?;
        let name = fields.required("name", "the name of the replica")?.name()?.to_owned();
        let size = fields.required("size", "the size of the replica")?.name()?.to_owned();
        fields.finish()?;
        Ok(PlanReplica { name, size })
    };
    node.items("a list of replicas")?.into_iter().map(replica).collect()
}

fn strategies(node: &Node<'_>, sizes: &[String], now: Time) -> Read<Vec<PlanStrategy>> {
    let mut strategies: Vec<PlanStrategy> = Vec::new();
    for node in node.items("a list of strategies")? {
        let mut fields = node.object("an object with type and config")?;
        let type_node = fields.required("type", KINDS)?;
        let kind = kind(&type_node)?;
        if strategies.iter().any(|other| other.kind == kind.as_str()) {
            return Err(type_node.wrong(format!("there is a {kind} already; a cluster has one strategy of each type")));
        }
        let config = config(&fields.required("config", "an object of options")?, kind, sizes)?;
        let state = fields.optional("state").map_or(Ok(None), |node| state(node, kind, now).map(Some))?;
        let ago = fields.optional("last_decision_ago_s");
        let remembered = state.as_ref().and_then(|state| state.last_decision_ago);
        if let (Some(node), Some(_)) = (&ago, remembered) {
            return Err(node.wrong("the state says it as well; write it once"));
        }
        let ago = ago.map(|node| optional_span(&node, now)).transpose()?.flatten();
        fields.finish()?;
        strategies.push(PlanStrategy {
            kind: kind.as_str().to_owned(),
            config,
            last_decision_ago: ago.or(remembered),
            state: state.map(|state| state.memory),
        });
    }
    Ok(strategies)
}

/// Null: never.
fn optional_span(node: &Node<'_>, now: Time) -> Read<Option<Span>> {
    if node.value.is_null() { Ok(None) } else { span(node, now).map(Some) }
}

fn kind(node: &Node<'_>) -> Read<StrategyKind> {
    let name = node.name()?;
    name.parse().map_err(|_| {
        let known = StrategyKind::PRIORITY_ORDER.map(StrategyKind::as_str);
        let suggestion = match did_you_mean(name, known) {
            none if none.is_empty() => format!("; write {KINDS}"),
            suggestion => suggestion,
        };
        node.wrong(format!("there is no strategy '{name}'{suggestion}"))
    })
}

fn config(node: &Node<'_>, kind: StrategyKind, sizes: &[String]) -> Read<Options> {
    let mut options = Options::default();
    for (key, node) in node.entries("an object of options")? {
        let definition = option_definition(kind, key).filter(|known| known.key == key);
        let value = match node.value {
            Value::String(text) => OptionValue::Text(text.clone()),
            Value::Bool(value) => OptionValue::Bool(*value),
            other => match (other.as_i64(), definition) {
                (Some(number), _) => OptionValue::Number(number),
                (None, Some(known)) if other.is_null() => {
                    return Err(node.wrong(format!("write {}, or leave it out", known.kind.expected())));
                }
                (None, Some(known)) => return Err(node.wrong(format!("write {}", known.kind.expected()))),
                (None, None) => return Err(node.wrong(no_option(kind, key))),
            },
        };
        // A group would take the strategy out of order and go on. Whoever tests a strategy wants to hear of the slip.
        if let (Some(OptionKind::Size), OptionValue::Text(size)) = (definition.map(|known| known.kind), &value)
            && !sizes.contains(size)
        {
            let suggestion = match did_you_mean(size, sizes.iter().map(String::as_str)) {
                none if none.is_empty() => format!("; there are {}", sizes.join(", ")),
                suggestion => suggestion,
            };
            return Err(node.wrong(format!("there is no size '{size}' among sizes{suggestion}")));
        }
        options.set(key, value);
    }
    check(node, kind, &options)?;
    Ok(options)
}

fn no_option(kind: StrategyKind, key: &str) -> String {
    let known = || option_definitions(kind).map(|known| known.key).chain(["config_version"]);
    let others = StrategyKind::PRIORITY_ORDER.into_iter().filter(|other| *other != kind);
    let owner = others.into_iter().find(|other| option_definitions(*other).any(|known| known.key == key));
    match (owner, did_you_mean(key, known())) {
        (Some(owner), _) => format!("{kind} has no such option, {owner} does"),
        (None, none) if none.is_empty() => {
            format!("{kind} has no such option; there are {}", known().collect::<Vec<_>>().join(", "))
        }
        (None, suggestion) => format!("{kind} has no such option{suggestion}"),
    }
}

/// What is wrong with options that are wrong together, or missing. Those of the version before this one are read by the
/// brain, which knows what became of their keys.
fn check(node: &Node<'_>, kind: StrategyKind, options: &Options) -> Read<()> {
    if options.get("config_version") == Some(&OptionValue::Number(0)) {
        return Ok(());
    }
    let Err(problem) = Configuration::read(kind, options) else { return Ok(()) };
    let key = problem.option();
    let expected = option_definition(kind, key).map(|known| known.kind.expected()).unwrap_or_default();
    let what = match &problem {
        ConfigurationProblem::UnknownOption { option } => no_option(kind, option),
        ConfigurationProblem::Missing { .. } => format!("it is missing; write {expected}"),
        ConfigurationProblem::Invalid { value, .. } => format!("'{value}' is not right; write {expected}"),
        ConfigurationProblem::Version
        | ConfigurationProblem::UnknownSize { .. }
        | ConfigurationProblem::NameNotManaged { .. } => problem.to_string(),
        ConfigurationProblem::Unfit { problem, .. } => problem.clone(),
    };
    Err(node.at(key).wrong(what))
}

/// What a strategy remembers, and when it changed something last.
#[derive(Debug)]
struct Remembered {
    memory: PlanState,
    last_decision_ago: Option<Span>,
}

fn state(node: Node<'_>, kind: StrategyKind, now: Time) -> Read<Remembered> {
    let mut fields = node.object("an object of what the strategy remembers")?;
    let mut memory = PlanState::default();
    if let Some(node) = fields.optional("version") {
        let version = u32::try_from(node.count()?).map_err(|_| node.wrong("there is no such version"))?;
        memory.version = Some(version);
    }
    if let Some(node) = fields.optional("failed_sizes") {
        only(StrategyKind::ShrinkToFit, kind, &node)?;
        for node in node.items("a list of objects with size and ago_s")? {
            let mut fields = node.object("an object with size and ago_s")?;
            let size = fields.required("size", "the size that failed")?.name()?.to_owned();
            let ago = span(&fields.required("ago_s", "how many seconds ago it failed")?, now)?;
            fields.finish()?;
            memory.failed_sizes.push((size, ago));
        }
    }
    if let Some(node) = fields.optional("suspended") {
        only(StrategyKind::IdleSuspend, kind, &node)?;
        memory.suspended = replicas(&node)?;
    }
    let ago = fields.optional("last_decision_ago_s").map(|node| optional_span(&node, now)).transpose()?;
    fields.finish()?;
    Ok(Remembered { memory, last_decision_ago: ago.flatten() })
}

fn only(owner: StrategyKind, kind: StrategyKind, node: &Node<'_>) -> Read<()> {
    if owner == kind { Ok(()) } else { Err(node.wrong(format!("only {owner} remembers this, {kind} does not"))) }
}

fn signals(node: Node<'_>, now: Time, input: &mut PlanInput) -> Read<()> {
    let mut fields = node.object("an object with seconds_since_activity, hydration, crashes and metrics")?;
    if let Some(node) = fields.optional("seconds_since_activity") {
        input.activity = optional_span(&node, now)?.map_or(PlanActivity::NoneSeen, PlanActivity::Ago);
    }
    if let Some(node) = fields.optional("hydration") {
        for (replica, node) in about_replicas(&node, input)? {
            let mut fields = node.object("an object with total and hydrated")?;
            let total = fields.required("total", "how many objects there are")?.count()?;
            let hydrated = fields.required("hydrated", "how many of them are hydrated")?.count()?;
            fields.finish()?;
            input.hydration.insert(replica.to_owned(), PlanHydration { total, hydrated });
        }
    }
    if let Some(node) = fields.optional("crashes") {
        for (replica, node) in about_replicas(&node, input)? {
            let mut fields = node.object("an object with total and oom")?;
            let total = fields.required("total", "how often it crashed within the window")?.count()?;
            let oom = fields.optional("oom");
            fields.finish()?;
            let count = oom.as_ref().map_or(Ok(0), Node::count)?;
            if let Some(oom) = oom.filter(|_| count > total) {
                return Err(oom.wrong(format!("{count} crashes for want of memory are more than all {total}")));
            }
            input.crashes.insert(replica.to_owned(), PlanCrashes { total, oom: count });
        }
    }
    if let Some(node) = fields.optional("metrics") {
        for (name, node) in node.entries("an object of metrics and their values")? {
            let milli = match node.value {
                Value::Number(number) => read_milli(&number.to_string()),
                _ => None,
            };
            let milli = milli.ok_or_else(|| node.wrong("write a number with at most three decimals"))?;
            input.metrics.insert(name.to_owned(), milli);
        }
    }
    fields.finish()
}

fn about_replicas<'a>(node: &Node<'a>, input: &PlanInput) -> Read<Vec<(&'a str, Node<'a>)>> {
    let entries = node.entries("an object of replicas")?;
    for (name, node) in &entries {
        if !input.replicas.iter().any(|replica| replica.name == *name) {
            let suggestion = did_you_mean(name, input.replicas.iter().map(|replica| replica.name.as_str()));
            return Err(node.wrong(format!("the cluster has no replica '{name}'{suggestion}")));
        }
    }
    Ok(entries)
}

fn setting(node: &Node<'_>) -> Read<String> {
    match node.value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(node.wrong("write the value as in loadline set, such as \"5m\", 10 or true")),
    }
}
