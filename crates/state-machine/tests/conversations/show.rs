//! Shows everything that an entry brought about, each fact once and whole.

use loadline_state_machine::{
    Answer, Applied, Cause, Cluster, Done, Event, Receipt, Refused, Rejection, Resource, ResourceKind, Revision,
    SettingValue, SettingView, Size, State, resource_changes,
};

use super::say::{clock, short};
use crate::common::show_scaling;

pub(crate) fn applied(applied: &Applied) -> Vec<String> {
    let mut lines = vec![format!("{} at {}, hash {}", applied.index, clock(applied.time), short(applied.hash))];
    for shown in &applied.receipts {
        lines.extend(receipt(applied, shown));
    }
    for (ordinal, (event_shown, cause)) in applied.events.iter().zip(&applied.causes).enumerate() {
        let cause = match cause {
            Cause::Request(place) => format!("request {place}"),
            Cause::Reaction => "reaction".to_owned(),
        };
        lines.push(format!(
            "* {}.{ordinal} {} ({cause}): {}",
            applied.index,
            event_shown.kind_name(),
            event(event_shown)
        ));
    }
    for change in resource_changes(&applied.events) {
        // Decisions, operations and actions are shown whole by their events, many at a time.
        if matches!(change.name.kind, ResourceKind::Decision | ResourceKind::Operation | ResourceKind::Action) {
            continue;
        }
        lines.push(match &change.resource {
            Some(shown) => format!("~ {}: {}", change.name, resource(shown)),
            None => format!("~ {}: gone", change.name),
        });
    }
    lines
}

fn receipt(applied: &Applied, receipt: &Receipt) -> Vec<String> {
    let verb = match (receipt.repeated, receipt.index == applied.index) {
        (false, true) => "recorded".to_owned(),
        (true, _) => format!("repeated from {}", receipt.index),
        (false, false) => panic!("a new receipt must carry the index of its entry: {receipt:?}"),
    };
    let bytes = receipt.encode();
    assert_eq!(Receipt::decode(&bytes).as_ref(), Ok(receipt), "a receipt can be read back");
    result(&verb, &receipt.result)
}

pub(crate) fn result(verb: &str, result: &Result<Vec<Done>, Refused>) -> Vec<String> {
    match result {
        Ok(done) => done
            .iter()
            .map(|done| {
                let changed = if done.changed { "" } else { ", nothing to change" };
                format!("> {verb}{changed}: {}", answer(&done.answer))
            })
            .collect(),
        Err(Refused { ordinal, rejection }) => refusal(verb, *ordinal, rejection),
    }
}

fn refusal(verb: &str, ordinal: u32, rejection: &Rejection) -> Vec<String> {
    let facts: Vec<String> = rejection.metadata().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let field = rejection.field().map(|field| format!(", field {field}")).unwrap_or_default();
    vec![
        format!("> {verb}, command {ordinal} refused: {rejection}"),
        format!("  {} ({:?}{field}) {}", rejection.code(), rejection.class(), facts.join(" ")).trim_end().to_owned(),
    ]
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Nothing => "nothing".to_owned(),
        Answer::Size(shown) => size(shown),
        Answer::Cluster(shown) => cluster(shown),
        Answer::PlacedCluster(shown) => placed(&shown.cluster, shown.backend.as_deref()),
        Answer::Setting(shown) => setting(shown),
        Answer::Node(node) => format!("node {node}"),
        Answer::Epoch(epoch) => format!("epoch {epoch}"),
        Answer::Restored { incarnation, backup_index, backup_incarnation } => {
            format!("restored index {backup_index} of incarnation {backup_incarnation}, now incarnation {incarnation}")
        }
        Answer::Restoring { restore, bytes_received } => format!("restore {restore}, {bytes_received} bytes received"),
        other => show_scaling::answer(other),
    }
}

fn event(event: &Event) -> String {
    match event {
        Event::LeaderAnnounced { node, term, epoch } => format!("node {node}, term {term}, epoch {epoch}"),
        Event::RulesRaised { from, to } => format!("from {from} to {to}"),
        Event::NodeAdmitted { node, name, address } => format!("node {node}, {name} at {address}"),
        Event::GroupFounded { nodes } => format!("{nodes} nodes"),
        Event::SizeCreated { size: after } | Event::SizeRestored { size: after } => size(after),
        Event::SizeDropped { size: before } => size(before),
        Event::SizeChanged { before, size: after } => format!("{}; before: {}", size(after), size(before)),
        Event::ClusterCreated { cluster: after } | Event::ClusterRestored { cluster: after } => cluster(after),
        Event::ClusterDropped { cluster: before } => cluster(before),
        Event::ClusterPlaced { cluster: after, backend } => placed(after, backend.as_deref()),
        Event::ClusterRenamed { from, cluster: after } => format!("{}; before: {from}", cluster(after)),
        Event::SettingSet { name, value, updated } => row(name, Some(value.clone()), *updated),
        Event::SettingReset { name, updated } => row(name, None, *updated),
        Event::SettingRestored { name, value, updated } => row(name, value.clone(), *updated),
        Event::RestoreBegun { restore, bytes_total, hash } => {
            format!("restore {restore}, {bytes_total} bytes, hash {}", short(*hash))
        }
        Event::RestoreChunkStored { restore, offset, bytes } => {
            format!("restore {restore}, {} bytes at {offset}", bytes.len())
        }
        Event::RestoreFinished { restore, incarnation, backup_index, backup_incarnation, nodes } => format!(
            "restore {restore}, index {backup_index} of incarnation {backup_incarnation}, \
             now incarnation {incarnation}, node numbers up to {nodes}"
        ),
        Event::RestoreAborted { restore, reason } => format!("restore {restore}, {reason:?}"),
        other => show_scaling::event(other),
    }
}

fn resource(resource: &Resource) -> String {
    match resource {
        Resource::Size(shown) => size(shown),
        Resource::Cluster(shown) => placed(&shown.cluster, shown.backend.as_deref()),
        Resource::Setting(shown) => setting(shown),
        other => show_scaling::resource(other),
    }
}

fn size(size: &Size) -> String {
    let Size { name, rank, slots, price_micros_per_hour, created, updated } = size;
    format!("{name}, rank {rank}, {slots} slots, {price_micros_per_hour} an hour, created {created}, etag {updated}")
}

fn cluster(cluster: &Cluster) -> String {
    let Cluster { id, name, created, updated, created_at } = cluster;
    format!("{name}, id {id}, created {created} at {}, etag {updated}", clock(*created_at))
}

fn placed(shown: &Cluster, backend: Option<&str>) -> String {
    format!("{}{}", cluster(shown), backend.map(|it| format!(", on {it}")).unwrap_or_default())
}

fn setting(setting: &SettingView) -> String {
    let SettingView { name, value, default_value, is_default, description: _, updated } = setting;
    let origin = if *is_default { "by default".to_owned() } else { format!("default {default_value}") };
    let etag = updated.map_or_else(|| "no etag".to_owned(), |updated| format!("etag {updated}"));
    format!("{name} = {value}, {origin}, {etag}")
}

fn row(name: &str, value: Option<SettingValue>, updated: Revision) -> String {
    let value = value.map_or_else(|| "default".to_owned(), |value| value.to_string());
    format!("{name} = {value}, etag {updated}")
}

/// Everything that the state holds; of the settings, those that somebody has set.
pub(crate) fn everything(state: &State) -> Vec<String> {
    let epoch = state.epoch().map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
    let mut lines = vec![format!(
        "index {}, {}, rules {}, incarnation {}, epoch {epoch}, {} requests remembered",
        state.applied(),
        clock(state.now()),
        state.rules(),
        state.incarnation(),
        state.request_count(),
    )];
    lines.extend(state.sizes().map(|shown| format!("size {}", size(shown))));
    lines.extend(
        state
            .clusters_after(None)
            .map(|it| state.cluster_view(it))
            .map(|shown| format!("cluster {}", placed(&shown.cluster, shown.backend.as_deref()))),
    );
    let set = state.settings().into_iter().filter(|shown| shown.updated.is_some());
    lines.extend(set.map(|shown| format!("setting {}", setting(&shown))));
    lines.extend(show_scaling::everything(state));
    lines
}

/// Every setting there is, with what it is for.
pub(crate) fn settings(state: &State) -> Vec<String> {
    state.settings().iter().flat_map(|shown| [setting(shown), format!("  {}", shown.description)]).collect()
}
