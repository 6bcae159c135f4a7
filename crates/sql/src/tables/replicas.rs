//! `loadline.replicas`, and `mz_catalog.mz_cluster_replicas` for those who know them by that name: the replicas that were seen.

use loadline_state_machine::{ClusterId, Replica};

use super::define::{Column, Definition, column, optional};
use super::source::Source;
use super::value::{Kind, Value};

/// A replica by its cluster and its place among that cluster's.
pub(crate) struct Row {
    cluster: ClusterId,
    place: usize,
}

fn of<'a>(source: &'a Source, row: &Row) -> Option<&'a Replica> {
    source.state.standing(row.cluster)?.signals().replicas.get(row.place)
}

fn text(source: &Source, row: &Row, read: fn(&Replica) -> &str) -> Value {
    of(source, row).map(read).into()
}

fn all(source: &Source) -> Vec<Row> {
    let state = &source.state;
    let clusters = state.clusters_after(None).map(|cluster| cluster.id);
    clusters
        .flat_map(|cluster| {
            let count = state.standing(cluster).map_or(0, |it| it.signals().replicas.len());
            (0..count).map(move |place| Row { cluster, place })
        })
        .collect()
}

const ID: Column<Row> = column("id", Kind::Text, |source, row| {
    of(source, row).map(|replica| format!("{}/{}", row.cluster, replica.name)).into()
});
const NAME: Column<Row> = column("name", Kind::Text, |source, row| text(source, row, |it| &it.name));
const CLUSTER_ID: Column<Row> = column("cluster_id", Kind::Text, |_, row| Value::show(row.cluster));
const SIZE: Column<Row> = column("size", Kind::Text, |source, row| text(source, row, |it| &it.size));

pub(crate) static REPLICAS: Definition<Row> = Definition {
    schema: "loadline",
    name: "replicas",
    comment: "Every replica that was seen.",
    is_view: false,
    key: &[0],
    columns: &[
        ID,
        NAME,
        CLUSTER_ID,
        column("cluster", Kind::Text, |source, row| {
            source.state.cluster_by_id(row.cluster).map(|it| it.name.as_str()).into()
        }),
        SIZE,
        column("ready", Kind::Bool, |source, row| of(source, row).map(|it| it.ready).into()),
        column("cordoned", Kind::Bool, |source, row| of(source, row).map(|it| it.cordoned).into()),
        optional("incarnation", Kind::Text, |source, row| {
            of(source, row).and_then(|it| it.incarnation.as_deref()).into()
        }),
        optional("hydrated_objects", Kind::Int8, |source, row| {
            of(source, row).and_then(|it| it.hydration.as_ref()).map(|it| Value::count(it.hydrated)).into()
        }),
        optional("total_objects", Kind::Int8, |source, row| {
            of(source, row).and_then(|it| it.hydration.as_ref()).map(|it| Value::count(it.total)).into()
        }),
        column("crashes", Kind::Int8, |source, row| {
            Value::count(of(source, row).map_or(0, |it| it.crashes.iter().map(|crash| crash.count).sum::<u64>()))
        }),
        column("ooms", Kind::Int8, |source, row| {
            Value::count(of(source, row).map_or(0, |it| it.crashes.iter().map(|crash| crash.oom_count).sum::<u64>()))
        }),
        optional("notice", Kind::Text, |source, row| {
            of(source, row).and_then(|it| it.notice.as_ref()).map(|it| it.kind.as_str()).into()
        }),
        column("since", Kind::Timestamptz, |source, row| of(source, row).map(|it| Value::time(it.since)).into()),
        column("seen_at", Kind::Timestamptz, |source, row| of(source, row).map(|it| Value::time(it.seen_at)).into()),
    ],
    rows: |source| Ok(all(source)),
};

pub(crate) static MZ_CLUSTER_REPLICAS: Definition<Row> = Definition {
    schema: "mz_catalog",
    name: "mz_cluster_replicas",
    comment: "Every replica that was seen.",
    is_view: false,
    key: &[0],
    columns: &[ID, NAME, CLUSTER_ID, SIZE],
    rows: |source| Ok(all(source)),
};
