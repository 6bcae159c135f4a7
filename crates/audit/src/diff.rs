//! What changed between two moments of a history, field by field, and who did it.
//!
//! The two states say what changed; the entries between them say who. What strategies and backends did is told by the decision and
//! the action that did it, and by the collector that saw it.
//!
//! Left out: what changes all the time and means nothing by itself, as the ages and values of signals and what strategies note for
//! themselves. They are in the history: see [`crate::search`].
//!
//! [`deeds`]: what was done to each thing, for as long as it can be told of.

mod deeds;

use std::collections::{BTreeMap, BTreeSet};

use loadline_state_machine::{ClusterId, Options, ResourceName, Role, SignalView, State, Target, Time};
use serde_json::{Map, Value, json};

use self::deeds::{Deeds, replica_name};
use crate::replay::{Moment, ReplayError, Start, begin, replay};
use crate::source::Source;
use crate::trail::Who;

/// A moment that a history was brought to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub index: u64,
    pub at: Time,
    pub hash: String,
}

impl Point {
    fn of(state: &State) -> Point {
        Point { index: state.applied().0, at: state.now(), hash: state.hash().to_string() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Created,
    Altered,
    Dropped,
}

impl What {
    pub fn as_str(self) -> &'static str {
        match self {
            What::Created => "created",
            What::Altered => "altered",
            What::Dropped => "dropped",
        }
    }
}

/// One field that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    /// Null if it was not there.
    pub before: Value,
    pub after: Value,
    /// The last deed that can have changed it, by its place among those of the thing.
    pub deed: Option<usize>,
}

/// Something that was done to one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    pub index: u64,
    pub at: Time,
    pub kind: &'static str,
    pub what: String,
    /// Nothing if it followed by itself.
    pub who: Option<Who>,
    /// The decision, the action and the strategy that it followed from.
    pub decision: Option<String>,
    pub action: Option<String>,
    pub by: Option<String>,
}

/// One thing that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Such as `clusters/demo`, or `replicas/demo/r1_auto`.
    pub name: String,
    pub what: What,
    pub fields: Vec<Field>,
    /// The oldest first.
    pub deeds: Vec<Deed>,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub from: Point,
    pub to: Point,
    /// By name.
    pub changes: Vec<Changed>,
}

/// Replays to one moment and on to a later one. `tell` hears of every entry.
pub fn diff(
    source: &dyn Source,
    start: Start,
    from: Moment,
    to: Moment,
    mut tell: impl FnMut(),
) -> Result<Difference, DiffError> {
    let began = begin(source, start)?;
    let before = replay(source, Start::From(Box::new(began)), from, |_| tell())?.state;
    let mut deeds = Deeds::since(things(&before).into_keys());
    let after = replay(source, Start::From(Box::new(before.clone())), to, |step| {
        tell();
        deeds.add(step);
    })?
    .state;
    // A time that is before the first moment leaves the state where it was; an index says so plainly.
    if let Moment::Index(wanted) = to
        && wanted < before.applied().0
    {
        return Err(DiffError::Backwards { from: before.applied().0, to: wanted });
    }
    if let Moment::Time(wanted) = to
        && wanted < before.now()
    {
        return Err(DiffError::Earlier { from: before.now(), to: wanted });
    }
    Ok(Difference { from: Point::of(&before), to: Point::of(&after), changes: changes(&before, &after, &mut deeds) })
}

#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("the second moment, index {to}, is before the first, index {from}")]
    Backwards { from: u64, to: u64 },
    #[error("the second moment, {to}, is before the first, {from}")]
    Earlier { from: Time, to: Time },
}

fn changes(before: &State, after: &State, deeds: &mut Deeds) -> Vec<Changed> {
    let (old, new) = (things(before), things(after));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut changes = Vec::new();
    for name in names {
        let nothing = BTreeMap::new();
        let what = match (old.get(name), new.get(name)) {
            (None, Some(_)) => What::Created,
            (Some(_), None) => What::Dropped,
            (Some(old), Some(new)) if old != new => What::Altered,
            _ => continue,
        };
        let deeds = deeds.take(name);
        let fields = fields(
            &Doers { thing: name, what, deeds: &deeds },
            old.get(name).unwrap_or(&nothing),
            new.get(name).unwrap_or(&nothing),
        );
        changes.push(Changed { name: name.clone(), what, fields, deeds });
    }
    changes
}

type Thing = BTreeMap<String, Value>;

fn fields(doers: &Doers<'_>, old: &Thing, new: &Thing) -> Vec<Field> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let value = |thing: &Thing, name: &String| thing.get(name).cloned().unwrap_or(Value::Null);
    let all = names.into_iter().map(|name| Field {
        name: name.clone(),
        before: value(old, name),
        after: value(new, name),
        deed: doers.of(name),
    });
    all.filter(|field| field.before != field.after).collect()
}

/// The kinds of events that change a field of a thing that is there; none: any that is about the thing. What a thing is from its beginning is
/// changed by what makes it, whatever else happened to it since.
fn changers(thing: &str, field: &str) -> &'static [&'static str] {
    let kind = thing.split('/').next().unwrap_or(thing);
    match (kind, field.split('.').next().unwrap_or(field)) {
        ("group", "incarnation") => &["RestoreFinished"],
        ("group", "rules_version") => &["RulesRaised", "RestoreFinished"],
        ("clusters", "id") => &["ClusterCreated", "ClusterRestored", "ClusterRenamed"],
        ("clusters", "conclusion") => &["DecisionMade"],
        ("clusters", "pause") => &["ClusterPaused", "ClusterResumed"],
        ("clusters", "override") => &["ClusterOverridden", "OverrideEnded"],
        ("clusters", "backend") => &["ClusterPlaced"],
        ("strategies", "type") => &["StrategyCreated", "StrategyRestored"],
        ("strategies", "target") => &["StrategyCreated", "StrategyRestored", "ClusterRenamed"],
        ("strategies", "options") => &["StrategyCreated", "StrategyRestored", "StrategyChanged"],
        ("actions", "call") => &["ActionPlanned"],
        ("operations", "kind") => &["OperationBegun"],
        ("replicas", "ready" | "hydrated") => &["SignalsReported"],
        ("replicas", "cordoned" | "incarnation") => &["ActionSettled"],
        _ => &[],
    }
}

/// Who can have changed the fields of one thing.
struct Doers<'a> {
    thing: &'a str,
    what: What,
    deeds: &'a [Deed],
}

impl Doers<'_> {
    fn of(&self, field: &str) -> Option<usize> {
        let last = self.deeds.len().checked_sub(1);
        if self.what == What::Dropped {
            return last;
        }
        let changers = changers(self.thing, field);
        let found = self.deeds.iter().rposition(|deed| changers.contains(&deed.kind));
        // A group gets its incarnation from the first leader it ever has; those that follow only repeat it.
        let first = || match (self.thing, field) {
            ("group", "incarnation") => self.deeds.iter().position(|deed| deed.kind == "LeaderAnnounced"),
            _ => None,
        };
        found.or_else(first).or(last)
    }
}

/// Everything that somebody would call a thing of the system, by name, with the fields that matter.
fn things(state: &State) -> BTreeMap<String, Thing> {
    let mut things = BTreeMap::new();
    let mut put = |name: String, value: Value| {
        let mut flat = Thing::new();
        flatten(String::new(), value, &mut flat);
        things.insert(name, flat);
    };
    put("group".to_owned(), json!({"rules_version": state.rules().0, "incarnation": state.incarnation()}));
    for size in state.sizes() {
        let value =
            json!({"rank": size.rank, "slots": size.slots, "price_micros_per_hour": size.price_micros_per_hour});
        put(ResourceName::size(&size.name).to_string(), value);
    }
    for setting in state.settings().into_iter().filter(|setting| !setting.is_default) {
        put(ResourceName::setting(&setting.name).to_string(), json!({"value": setting.value}));
    }
    for strategy in state.strategies() {
        let value = json!({
            "type": strategy.kind.as_str(),
            "target": target(&strategy.target, state),
            "options": options(&strategy.options),
        });
        put(ResourceName::strategy(strategy.id).to_string(), value);
    }
    for role in state.roles_after(None) {
        put(ResourceName::role(&role.name).to_string(), role_value(role, state));
    }
    let signals: Vec<String> = state.signals_after(None).map(|signal| signal.name.to_string()).collect();
    for view in signals.iter().filter_map(|name| state.signal_view(name)) {
        put(ResourceName::signal(&*view.signal.name).to_string(), signal_value(&view, state));
    }
    for cluster in state.clusters_after(None) {
        let standing = state.standing(cluster.id);
        let pause = standing.and_then(|it| it.pause());
        let floor = standing.and_then(|it| it.floor());
        let value = json!({
            "id": cluster.id.to_string(),
            "backend": state.cluster_view(cluster).backend.as_deref(),
            "pause": pause.map(|it| json!({"reason": it.reason, "until": it.expires_at.map(|at| at.to_string())})),
            "override": floor.map(|it| json!({"replicas_min": it.replicas_min, "size": &*it.size, "until": it.expires_at.to_string(), "by": &*it.by})),
            "conclusion": standing.and_then(|it| it.conclusion()).map(|it| it.code()),
        });
        put(ResourceName::cluster(&cluster.name).to_string(), value);
        for replica in standing.iter().flat_map(|it| &it.signals().replicas) {
            let value = json!({
                "size": &*replica.size,
                "incarnation": replica.incarnation.as_deref(),
                "ready": replica.ready,
                "cordoned": replica.cordoned,
                "hydrated": replica.hydration.as_ref().map(loadline_state_machine::Hydration::is_complete),
            });
            put(replica_name(&cluster.name, &replica.name), value);
        }
    }
    for action in state.actions() {
        let value =
            json!({"call": action.call.to_string(), "status": action.status.code(), "attempts": action.attempt});
        put(ResourceName::action(action.id).to_string(), value);
    }
    for operation in state.operations() {
        let value = json!({"kind": operation.kind.as_str(), "phase": operation.phase().as_str()});
        put(ResourceName::operation(operation.id).to_string(), value);
    }
    things
}

fn target(target: &Target, state: &State) -> String {
    match target {
        Target::Cluster(id) => state.cluster_by_id(*id).map_or_else(|| id.to_string(), |it| it.name.clone()),
        Target::Pattern(pattern) => format!("like {pattern}"),
        Target::All => "all".to_owned(),
    }
}

fn options(options: &Options) -> Value {
    let fields = options.iter().map(|(key, value)| (key.to_owned(), Value::String(value.to_string())));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Nothing that is enough to log in with, and nothing that a guesser could use: only whether a password or a token is another.
fn role_value(role: &Role, state: &State) -> Value {
    let called = |id: &ClusterId| state.cluster_by_id(*id).map_or_else(|| id.to_string(), |it| it.name.clone());
    let usage: Vec<String> = match role.all_clusters {
        true => vec!["all clusters".to_owned()],
        false => role.clusters.iter().map(called).collect(),
    };
    json!({
        "superuser": role.superuser,
        "usage": usage,
        "password": role.verifier.is_some(),
        "tokens": role.tokens.iter().map(|token| token.id.clone()).collect::<Vec<_>>(),
        "changed": role.updated.to_string(),
    })
}

fn signal_value(view: &SignalView, state: &State) -> Value {
    json!({
        "type": view.signal.kind.as_str(),
        "target": target(&view.signal.target, state),
        "every": view.signal.every.map(|span| span.to_string()),
        "options": options(&view.signal.options),
    })
}

/// `{"a": {"b": 1}}` becomes `a.b: 1`; what is null is left out.
fn flatten(prefix: String, value: Value, into: &mut Thing) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (key, value) in fields {
                let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
                flatten(name, value, into);
            }
        }
        other => {
            into.insert(prefix, other);
        }
    }
}
