//! Everything that somebody would call a thing of the system, with the fields that matter.
//!
//! A thing is told from others by what stays with it: a cluster by its id, a replica by its own name and the id of its cluster. What it is
//! called goes with it and may change.

use std::collections::BTreeMap;

use loadline_state_machine::{
    Action, Cluster, ClusterId, Event, Operation, Options, ResourceKind, ResourceName, Role, Signal, Size, State,
    Strategy, Target,
};
use serde_json::{Map, Value, json};

/// How the keys of replicas begin.
const REPLICAS: &str = "replicas/";
const CLUSTERS: &str = "clusters/";
pub(super) const GROUP: &str = "group";

/// The field of a cluster that says what it is called. One that came or went has it in its name already.
pub(super) const NAME: &str = "name";

/// By field, flat; what is null is left out.
pub(super) type Fields = BTreeMap<String, Value>;

/// One thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Thing {
    /// What it is called: `clusters/demo`, or `replicas/demo/r1_auto`.
    pub(super) name: String,
    pub(super) fields: Fields,
}

impl Thing {
    #[expect(clippy::needless_pass_by_value, reason = "names are written alike, whoever has them")]
    fn new(name: impl ToString, value: Value) -> Thing {
        let mut fields = Fields::new();
        flatten(String::new(), value, &mut fields);
        Thing { name: name.to_string(), fields }
    }
}

pub(super) fn cluster_key(cluster: ClusterId) -> String {
    format!("{CLUSTERS}{cluster}")
}

pub(super) fn replica_key(cluster: ClusterId, replica: &str) -> String {
    format!("{REPLICAS}{cluster}/{replica}")
}

/// Everything, by key.
pub(super) fn things(state: &State) -> BTreeMap<String, Thing> {
    let mut keys = vec![GROUP.to_owned()];
    keys.extend(state.sizes().map(|size| ResourceName::size(&size.name).to_string()));
    keys.extend(state.settings().into_iter().map(|setting| ResourceName::setting(&setting.name).to_string()));
    keys.extend(state.strategies().map(|strategy| ResourceName::strategy(strategy.id).to_string()));
    keys.extend(state.roles_after(None).map(|role| ResourceName::role(&role.name).to_string()));
    keys.extend(state.signals_after(None).map(|signal| ResourceName::signal(&*signal.name).to_string()));
    keys.extend(state.actions().map(|action| ResourceName::action(action.id).to_string()));
    keys.extend(state.operations().map(|operation| ResourceName::operation(operation.id).to_string()));
    for cluster in state.clusters_after(None) {
        keys.push(cluster_key(cluster.id));
        let replicas = state.standing(cluster.id).into_iter().flat_map(|it| &it.signals().replicas);
        keys.extend(replicas.map(|replica| replica_key(cluster.id, &replica.name)));
    }
    keys.into_iter().filter_map(|key| thing(&key, state).map(|thing| (key, thing))).collect()
}

/// The one with this key, if it is there.
pub(super) fn thing(key: &str, state: &State) -> Option<Thing> {
    if key == GROUP {
        let value = json!({"rules_version": state.rules().0, "incarnation": state.incarnation()});
        return Some(Thing::new(GROUP, value));
    }
    if let Some((cluster, replica)) = key.strip_prefix(REPLICAS).and_then(|rest| rest.split_once('/')) {
        return replica_of(state.cluster_by_id(cluster.parse().ok()?)?, replica, state);
    }
    if let Some(id) = key.strip_prefix(CLUSTERS) {
        return Some(of_cluster(state.cluster_by_id(id.parse().ok()?)?, state));
    }
    let ResourceName { kind, name } = key.parse().ok()?;
    match kind {
        ResourceKind::Size => state.size(&name).map(of_size),
        ResourceKind::Setting => {
            let setting = state.setting(&name).filter(|setting| !setting.is_default)?;
            Some(Thing::new(key, json!({"value": setting.value})))
        }
        ResourceKind::Strategy => state.strategy(name.parse().ok()?).map(|it| of_strategy(it, state)),
        ResourceKind::Operation => state.operation(name.parse().ok()?).map(of_operation),
        ResourceKind::Action => state.action(name.parse().ok()?).map(of_action),
        ResourceKind::Role => state.role(&name).map(|role| of_role(role, state)),
        ResourceKind::Signal => state.signal(&name).map(|signal| of_signal(signal, state)),
        // A decision is told as a part of its cluster, and a cluster has its id as its key.
        ResourceKind::Decision | ResourceKind::Cluster => None,
    }
}

/// What a thing is after an event that carries all of it. Several in one entry can so be told apart.
pub(super) fn told_by(event: &Event, state: &State) -> Option<Thing> {
    Some(match event {
        Event::SizeCreated { size } | Event::SizeChanged { size, .. } | Event::SizeRestored { size } => of_size(size),
        Event::StrategyCreated { strategy }
        | Event::StrategyChanged { strategy, .. }
        | Event::StrategyRestored { strategy } => of_strategy(strategy, state),
        Event::RoleCreated { role }
        | Event::RoleChanged { role }
        | Event::RoleRestored { role }
        | Event::UsageGranted { role, .. }
        | Event::UsageRevoked { role, .. }
        | Event::TokenCreated { role, .. }
        | Event::TokenDropped { role, .. } => of_role(role, state),
        Event::SignalCreated { signal } | Event::SignalChanged { signal, .. } | Event::SignalRestored { signal } => {
            of_signal(signal, state)
        }
        _ => return None,
    })
}

fn of_size(size: &Size) -> Thing {
    let value = json!({"rank": size.rank, "slots": size.slots, "price_micros_per_hour": size.price_micros_per_hour});
    Thing::new(ResourceName::size(&size.name), value)
}

fn of_strategy(strategy: &Strategy, state: &State) -> Thing {
    let value = json!({
        "type": strategy.kind.as_str(),
        "target": target(&strategy.target, state),
        "options": options(&strategy.options),
    });
    Thing::new(ResourceName::strategy(strategy.id), value)
}

/// Nothing that is enough to log in with, and nothing that a guesser could use: only whether a password or a token is another.
fn of_role(role: &Role, state: &State) -> Thing {
    let called = |id: &ClusterId| state.cluster_by_id(*id).map_or_else(|| id.to_string(), |it| it.name.clone());
    let usage: Vec<String> = match role.all_clusters {
        true => vec!["all clusters".to_owned()],
        false => role.clusters.iter().map(called).collect(),
    };
    let value = json!({
        "superuser": role.superuser,
        "usage": usage,
        "password": role.verifier.is_some(),
        "tokens": role.tokens.iter().map(|token| token.id.clone()).collect::<Vec<_>>(),
        "changed": role.updated.to_string(),
    });
    Thing::new(ResourceName::role(&role.name), value)
}

fn of_signal(signal: &Signal, state: &State) -> Thing {
    let value = json!({
        "type": signal.kind.as_str(),
        "target": target(&signal.target, state),
        "every": signal.every.map(|span| span.to_string()),
        "options": options(&signal.options),
    });
    Thing::new(ResourceName::signal(&*signal.name), value)
}

fn of_cluster(cluster: &Cluster, state: &State) -> Thing {
    let standing = state.standing(cluster.id);
    let pause = standing.and_then(|it| it.pause());
    let floor = standing.and_then(|it| it.floor());
    let value = json!({
        "id": cluster.id.to_string(),
        NAME: cluster.name,
        "backend": state.cluster_view(cluster).backend.as_deref(),
        "pause": pause.map(|it| json!({"reason": it.reason, "until": it.expires_at.map(|at| at.to_string())})),
        "override": floor.map(|it| json!({"replicas_min": it.replicas_min, "size": &*it.size, "until": it.expires_at.to_string(), "by": &*it.by})),
        "conclusion": standing.and_then(|it| it.conclusion()).map(|it| it.code()),
    });
    Thing::new(ResourceName::cluster(&cluster.name), value)
}

fn replica_of(cluster: &Cluster, name: &str, state: &State) -> Option<Thing> {
    let standing = state.standing(cluster.id)?;
    let replica = standing.signals().replicas.iter().find(|replica| *replica.name == *name)?;
    let value = json!({
        "size": &*replica.size,
        "incarnation": replica.incarnation.as_deref(),
        "ready": replica.ready,
        "cordoned": replica.cordoned,
        "hydrated": replica.hydration.as_ref().map(loadline_state_machine::Hydration::is_complete),
    });
    Some(Thing::new(format!("{REPLICAS}{}/{name}", cluster.name), value))
}

fn of_action(action: &Action) -> Thing {
    let value = json!({"call": action.call.to_string(), "status": action.status.code(), "attempts": action.attempt});
    Thing::new(ResourceName::action(action.id), value)
}

fn of_operation(operation: &Operation) -> Thing {
    let value = json!({"kind": operation.kind.as_str(), "phase": operation.phase().as_str()});
    Thing::new(ResourceName::operation(operation.id), value)
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

/// `{"a": {"b": 1}}` becomes `a.b: 1`; what is null is left out.
fn flatten(prefix: String, value: Value, into: &mut Fields) {
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
