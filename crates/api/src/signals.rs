//! Reports of collectors: from the wire to a command, and its receipt back.

use loadline_state_machine::{
    ClusterRef, ClusterReport, Command, LogIndex, NoticeKind, Observation, ReportReceipt, Seen, Span,
};

use crate::fields::{Findings, Invalid};
use crate::scaling_writes::id;
use crate::v1;

/// The bytes of a report on the wire.
pub fn report_bytes(request: &v1::ReportSignalsRequest) -> usize {
    prost::Message::encoded_len(request)
}

/// One report, as the command that records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub command: Command,
}

impl Report {
    pub fn read(request: v1::ReportSignalsRequest) -> Result<Report, Invalid> {
        let mut findings = Findings::default();
        if request.sequence == 0 {
            findings.add("sequence".to_owned(), "is required: 1 or more, and higher with every report");
        }
        let mut clusters = Vec::with_capacity(request.clusters.len());
        for (number, signals) in request.clusters.into_iter().enumerate() {
            let path = format!("clusters[{number}]");
            let cluster = findings.take(cluster(&path, signals.cluster));
            let mut observations = Vec::with_capacity(signals.observations.len());
            for (place, observation) in signals.observations.into_iter().enumerate() {
                let path = format!("{path}.observations[{place}]");
                observations.extend(findings.take(read_observation(&path, observation)));
            }
            clusters.extend(cluster.map(|cluster| ClusterReport { cluster, observations }));
        }
        let command = Command::ReportSignals { collector: request.collector, sequence: request.sequence, clusters };
        findings.into_result(Some(Report { command }))
    }
}

fn cluster(path: &str, cluster: Option<v1::cluster_signals::Cluster>) -> Result<ClusterRef, Invalid> {
    use v1::cluster_signals::Cluster;
    match cluster {
        Some(Cluster::Name(name)) => Ok(ClusterRef::Name(name)),
        Some(Cluster::Id(text)) => id(&format!("{path}.id"), &text).map(ClusterRef::Id),
        None => Err(Invalid::one(path, "names no cluster: give its name or its id")),
    }
}

fn read_observation(path: &str, observation: v1::Observation) -> Result<Observation, Invalid> {
    use v1::observation::Seen as Wire;
    let given = |text: String| (!text.is_empty()).then_some(text);
    let span = |millis: Option<u64>| millis.map(Span::from_millis);
    let seen = match observation.seen {
        None => return Err(Invalid::one(path, "says nothing: give what was seen")),
        Some(Wire::Alive(true)) => Seen::Alive,
        Some(Wire::Alive(false)) => return Err(Invalid::one(format!("{path}.alive"), "must be true")),
        Some(Wire::Activity(it)) => Seen::Activity { idle_for: span(it.idle_for_ms) },
        Some(Wire::Replica(it)) => {
            Seen::Replica { name: it.name, size: it.size, incarnation: given(it.incarnation), ready: it.ready }
        }
        Some(Wire::Gone(it)) => Seen::ReplicaGone { name: it.name, incarnation: given(it.incarnation) },
        Some(Wire::Hydration(it)) => Seen::Hydration { replica: it.replica, total: it.total, hydrated: it.hydrated },
        Some(Wire::Crash(it)) => {
            Seen::Crash { replica: it.replica, oom: it.oom, reason: it.reason, count: it.count.max(1) }
        }
        Some(Wire::Metric(it)) => Seen::Metric { name: it.name, value_milli: it.value_milli },
        Some(Wire::Notice(it)) => {
            let kind = match it.r#type() {
                v1::NoticeType::Spot => NoticeKind::Spot,
                v1::NoticeType::Preemption => NoticeKind::Preemption,
                v1::NoticeType::Unspecified => {
                    let wanted = "must be NOTICE_TYPE_SPOT or NOTICE_TYPE_PREEMPTION";
                    return Err(Invalid::one(format!("{path}.notice.type"), wanted));
                }
            };
            Seen::Notice { replica: it.replica, kind, gone_in: span(it.gone_in_ms) }
        }
    };
    Ok(Observation { age: Span::from_millis(observation.age_ms), seen })
}

/// What became of a report.
pub fn report_response(receipt: &ReportReceipt, index: LogIndex) -> v1::ReportSignalsResponse {
    v1::ReportSignalsResponse {
        revision: index.0,
        sequence: receipt.sequence,
        repeated_report: receipt.repeated,
        unknown_clusters: receipt.unknown.clone(),
    }
}

#[cfg(test)]
mod tests {
    use v1::observation::Seen as Wire;

    use super::*;

    fn report(cluster: Option<v1::cluster_signals::Cluster>, seen: Option<Wire>) -> v1::ReportSignalsRequest {
        let observations = vec![v1::Observation { age_ms: 7, seen }];
        v1::ReportSignalsRequest {
            collector: "probe".to_owned(),
            sequence: 3,
            clusters: vec![v1::ClusterSignals { cluster, observations }],
        }
    }

    fn demo() -> Option<v1::cluster_signals::Cluster> {
        Some(v1::cluster_signals::Cluster::Name("demo".to_owned()))
    }

    #[track_caller]
    fn check(seen: Wire, expected: Seen) {
        let report = Report::read(report(demo(), Some(seen))).unwrap();
        let observations = vec![Observation { age: Span::from_millis(7), seen: expected }];
        let clusters = vec![ClusterReport { cluster: ClusterRef::Name("demo".to_owned()), observations }];
        let expected = Command::ReportSignals { collector: "probe".to_owned(), sequence: 3, clusters };
        assert_eq!(report.command, expected);
    }

    #[test]
    fn every_sight_becomes_its_observation() {
        check(Wire::Alive(true), Seen::Alive);
        check(Wire::Activity(v1::ActivitySeen { idle_for_ms: None }), Seen::Activity { idle_for: None });
        check(
            Wire::Activity(v1::ActivitySeen { idle_for_ms: Some(0) }),
            Seen::Activity { idle_for: Some(Span::from_millis(0)) },
        );
        let (name, size) = ("r1".to_owned(), "25cc".to_owned());
        check(
            Wire::Replica(v1::ReplicaSeen {
                name: name.clone(),
                size: size.clone(),
                incarnation: String::new(),
                ready: true,
            }),
            Seen::Replica { name: name.clone(), size, incarnation: None, ready: true },
        );
        check(
            Wire::Gone(v1::ReplicaGone { name: name.clone(), incarnation: "i-1".to_owned() }),
            Seen::ReplicaGone { name: name.clone(), incarnation: Some("i-1".to_owned()) },
        );
        check(
            Wire::Hydration(v1::HydrationSeen { replica: name.clone(), total: 4, hydrated: 3 }),
            Seen::Hydration { replica: name.clone(), total: 4, hydrated: 3 },
        );
        check(
            Wire::Crash(v1::CrashSeen { replica: name.clone(), oom: true, reason: "killed".to_owned(), count: 0 }),
            Seen::Crash { replica: name.clone(), oom: true, reason: "killed".to_owned(), count: 1 },
        );
        check(
            Wire::Metric(v1::MetricSeen { name: "load".to_owned(), value_milli: -5 }),
            Seen::Metric { name: "load".to_owned(), value_milli: -5 },
        );
        check(
            Wire::Notice(v1::NoticeSeen {
                replica: name.clone(),
                r#type: v1::NoticeType::Spot.into(),
                gone_in_ms: Some(9),
            }),
            Seen::Notice { replica: name, kind: NoticeKind::Spot, gone_in: Some(Span::from_millis(9)) },
        );
    }

    #[test]
    fn what_says_nothing_is_named_to_the_place() {
        let fields = |request| {
            let invalid = Report::read(request).unwrap_err();
            invalid.violations.into_iter().map(|violation| violation.field).collect::<Vec<_>>()
        };
        assert_eq!(fields(report(None, None)), ["clusters[0]", "clusters[0].observations[0]"]);
        let id = Some(v1::cluster_signals::Cluster::Id("7".to_owned()));
        assert_eq!(
            fields(report(id, Some(Wire::Alive(false)))),
            ["clusters[0].id", "clusters[0].observations[0].alive"]
        );
        let notice = Wire::Notice(v1::NoticeSeen::default());
        assert_eq!(fields(report(demo(), Some(notice))), ["clusters[0].observations[0].notice.type"]);
        assert_eq!(fields(v1::ReportSignalsRequest::default()), ["sequence"]);
    }
}
