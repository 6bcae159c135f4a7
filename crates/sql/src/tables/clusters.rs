//! `loadline.clusters`, and `mz_catalog.mz_clusters` for those who know them by that name.

use loadline_state_machine::{Cluster, ClusterId};

use super::define::{Column, Definition, column, optional};
use super::source::Source;
use super::value::{Kind, Value};

fn of(source: &Source, id: ClusterId) -> Option<&Cluster> {
    source.state.cluster_by_id(id)
}

fn all(source: &Source) -> Vec<ClusterId> {
    source.state.clusters_after(None).map(|cluster| cluster.id).collect()
}

pub(crate) static CLUSTERS: Definition<ClusterId> = Definition {
    schema: "loadline",
    name: "clusters",
    comment: "Every cluster, and how it stands.",
    is_view: false,
    key: &[0],
    columns: &[
        ID,
        NAME,
        optional("backend", Kind::Text, |source, id| source.state.backend_of(*id).into()),
        column("replicas", Kind::Int8, |source, id| Value::count(replicas(source, *id))),
        column("ready_replicas", Kind::Int8, |source, id| {
            let standing = source.state.standing(*id);
            let ready = standing.map_or(0, |it| it.signals().replicas.iter().filter(|replica| replica.ready).count());
            Value::count(ready)
        }),
        optional("conclusion", Kind::Text, |source, id| {
            source.state.standing(*id).and_then(|it| it.conclusion()).map(|it| it.code()).into()
        }),
        optional("operation_id", Kind::Text, |source, id| {
            source.state.standing(*id).and_then(|it| it.operation()).map(|it| it.id.to_string()).into()
        }),
        column("paused", Kind::Bool, |source, id| {
            source.state.standing(*id).is_some_and(|it| it.pause().is_some()).into()
        }),
        optional("pause_reason", Kind::Text, |source, id| {
            source.state.standing(*id).and_then(|it| it.pause()).map(|it| it.reason.clone()).into()
        }),
        optional("idle_since", Kind::Timestamptz, |source, id| {
            source.state.standing(*id).and_then(|it| it.idle_since()).map(Value::time).into()
        }),
        optional("pending_since", Kind::Timestamptz, |source, id| {
            source.state.standing(*id).and_then(|it| it.pending_since()).map(Value::time).into()
        }),
        optional("scaled_at", Kind::Timestamptz, |source, id| {
            source.state.standing(*id).and_then(|it| it.scaled_at()).map(Value::time).into()
        }),
        column("failures", Kind::Int8, |source, id| {
            Value::count(source.state.standing(*id).map_or(0, |it| it.failures()))
        }),
        column("created_at", Kind::Timestamptz, |source, id| {
            of(source, *id).map(|it| Value::time(it.created_at)).into()
        }),
        column("etag", Kind::Text, |source, id| of(source, *id).map(|it| it.updated.to_string()).into()),
    ],
    rows: |source| Ok(all(source)),
};

const ID: Column<ClusterId> = column("id", Kind::Text, |_, id| Value::show(id));
const NAME: Column<ClusterId> =
    column("name", Kind::Text, |source, id| of(source, *id).map(|it| it.name.as_str()).into());

fn replicas(source: &Source, id: ClusterId) -> usize {
    source.state.standing(id).map_or(0, |it| it.signals().replicas.len())
}

pub(crate) static MZ_CLUSTERS: Definition<ClusterId> = Definition {
    schema: "mz_catalog",
    name: "mz_clusters",
    comment: "Every cluster.",
    is_view: false,
    key: &[0],
    columns: &[ID, NAME, column("replication_factor", Kind::Int8, |source, id| Value::count(replicas(source, *id)))],
    rows: |source| Ok(all(source)),
};
