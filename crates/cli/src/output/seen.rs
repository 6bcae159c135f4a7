//! What was seen of clusters at a moment of a history: their replicas, and what was reported about them. A running group shows the same in its
//! tables `loadline.replicas` and `loadline.signals`.

use loadline_state_machine::{Replica, State, Time};
use serde::Serialize;

use super::signals::show_milli;
use super::{Column, View};
use crate::text::show_time;

/// One replica.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ReplicaView {
    cluster: String,
    name: String,
    size: String,
    ready: bool,
    cordoned: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hydrated_objects: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_objects: Option<u64>,
    crashes: u64,
    ooms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<&'static str>,
    since: String,
    seen_at: String,
}

/// Something that was reported about a cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ReportView {
    cluster: String,
    /// `activity`, `metric`, or `collector`: a sign of life.
    kind: &'static str,
    /// The name of a metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// Of activity, when it was last used, or since when nobody was seen to.
    value: String,
    collector: String,
    as_of: String,
}

fn time(at: Time) -> String {
    show_time(i64::try_from(at.as_millis()).unwrap_or(i64::MAX))
}

impl ReplicaView {
    fn of(cluster: &str, it: &Replica) -> ReplicaView {
        ReplicaView {
            cluster: cluster.to_owned(),
            name: it.name.to_string(),
            size: it.size.to_string(),
            ready: it.ready,
            cordoned: it.cordoned,
            incarnation: it.incarnation.as_deref().map(str::to_owned),
            hydrated_objects: it.hydration.as_ref().map(|it| it.hydrated),
            total_objects: it.hydration.as_ref().map(|it| it.total),
            crashes: it.crashes.iter().map(|crash| crash.count).sum(),
            ooms: it.crashes.iter().map(|crash| crash.oom_count).sum(),
            notice: it.notice.as_ref().map(|notice| notice.kind.as_str()),
            since: time(it.since),
            seen_at: time(it.seen_at),
        }
    }

    /// By cluster and name.
    pub(crate) fn all(state: &State) -> Vec<ReplicaView> {
        let mut all = Vec::new();
        for cluster in state.clusters_after(None) {
            let standing = state.standing(cluster.id);
            let replicas = standing.iter().flat_map(|standing| &standing.signals().replicas);
            all.extend(replicas.map(|replica| ReplicaView::of(&cluster.name, replica)));
        }
        all
    }
}

impl ReportView {
    /// By cluster.
    pub(crate) fn all(state: &State) -> Vec<ReportView> {
        let mut all = Vec::new();
        for cluster in state.clusters_after(None) {
            let Some(standing) = state.standing(cluster.id) else { continue };
            let signals = standing.signals();
            let mut put = |kind, subject: Option<&str>, value: String, collector: &str, as_of: Time| {
                all.push(ReportView {
                    cluster: cluster.name.clone(),
                    kind,
                    subject: subject.map(str::to_owned),
                    value,
                    collector: collector.to_owned(),
                    as_of: time(as_of),
                });
            };
            if let Some(it) = &signals.activity {
                let value = match it.last_at {
                    Some(last) => format!("last used {}", time(last)),
                    None => format!("not used since {}", time(it.none_since)),
                };
                put("activity", None, value, &it.collector, it.as_of);
            }
            for it in &signals.metrics {
                put("metric", Some(&it.name), show_milli(it.value_milli), &it.collector, it.as_of);
            }
            for it in &signals.collectors {
                let value = it.confirmed_at.map(|at| format!("all as before {}", time(at))).unwrap_or_default();
                put("collector", None, value, &it.collector, it.at);
            }
        }
        all
    }
}

impl View for ReplicaView {
    const COLUMNS: &'static [Column] = &[
        Column::always("CLUSTER"),
        Column::always("NAME"),
        Column::always("SIZE"),
        Column::always("READY"),
        Column::always("CORDONED"),
        Column::always("HYDRATED"),
        Column::always("CRASHES"),
        Column::always("NOTICE"),
        Column::always("SINCE"),
        Column::wide("INCARNATION"),
        Column::wide("OOMS"),
        Column::wide("SEEN"),
    ];

    fn cells(&self) -> Vec<String> {
        let hydrated = self.hydrated_objects.zip(self.total_objects).map(|(done, total)| format!("{done}/{total}"));
        vec![
            self.cluster.clone(),
            self.name.clone(),
            self.size.clone(),
            self.ready.to_string(),
            self.cordoned.to_string(),
            hydrated.unwrap_or_default(),
            self.crashes.to_string(),
            self.notice.unwrap_or_default().to_owned(),
            self.since.clone(),
            self.incarnation.clone().unwrap_or_default(),
            self.ooms.to_string(),
            self.seen_at.clone(),
        ]
    }

    fn name(&self) -> String {
        format!("replicas/{}/{}", self.cluster, self.name)
    }
}

impl View for ReportView {
    const COLUMNS: &'static [Column] = &[
        Column::always("CLUSTER"),
        Column::always("KIND"),
        Column::always("SUBJECT"),
        Column::always("VALUE"),
        Column::always("COLLECTOR"),
        Column::always("AS-OF"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.cluster.clone(),
            self.kind.to_owned(),
            self.subject.clone().unwrap_or_default(),
            self.value.clone(),
            self.collector.clone(),
            self.as_of.clone(),
        ]
    }

    fn name(&self) -> String {
        let subject = self.subject.as_ref().map(|subject| format!("/{subject}")).unwrap_or_default();
        format!("reports/{}/{}{subject}", self.cluster, self.kind)
    }
}
