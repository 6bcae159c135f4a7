//! The figures of one node, as Prometheus text.
//!
//! What happens is counted where it happens ([`NodeObserver`], the gRPC edge, the proposals); what merely *is* (term,
//! indexes, free disk) is read when somebody asks. Labels have few values: methods, codes, results, roles. Never the name
//! of a resource.

use std::sync::Arc;
use std::time::Duration;

use loadline_raft_node::NodeObserver;
use prometheus::proto::MetricFamily;
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};

use crate::backend_figures::BackendFigures;

/// From a tenth of a millisecond (a fast disk) to ten seconds (a stalled one).
pub(crate) const SECONDS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const COUNTS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
const SIZES: [f64; 9] = [64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0];

/// What a node is at the moment of asking; see [`Metrics::render`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) role: &'static str,
    pub(crate) term: u64,
    pub(crate) has_leader: bool,
    pub(crate) last_index: u64,
    pub(crate) applied_index: u64,
    pub(crate) snapshot_index: u64,
    pub(crate) purged_index: u64,
    pub(crate) epoch_index: u64,
    pub(crate) rules_version: u32,
    pub(crate) ready: bool,
    pub(crate) disk_free_bytes: u64,
    pub(crate) disk_reserve_bytes: u64,
    pub(crate) disk_used_bytes: u64,
    pub(crate) journal_bytes: u64,
    pub(crate) journal_first_index: u64,
    /// By status.
    pub(crate) unsettled_actions: [(&'static str, u64); 4],
    pub(crate) dead_letters: u64,
}

/// The one part of this node that others would call a widget: what it times and counts goes under this label.
pub(crate) const WIDGET: &str = "auto_scaling";

/// The roles a node can have; each is a label, and exactly one is 1.
pub(crate) const ROLES: [&str; 6] = ["leader", "follower", "candidate", "learner", "joining", "stopped"];

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,

    role: IntGaugeVec,
    term: IntGauge,
    has_leader: IntGauge,
    last_index: IntGauge,
    applied_index: IntGauge,
    snapshot_index: IntGauge,
    purged_index: IntGauge,
    epoch_index: IntGauge,
    rules_version: IntGauge,
    ready: IntGauge,
    disk_free: IntGauge,
    disk_reserve: IntGauge,
    disk_used: IntGauge,

    elections_won: IntCounter,
    pub(crate) leader_changes: IntCounter,
    clock_skew: GaugeVec,
    peer_messages_refused: IntCounter,

    sync_duration: Histogram,
    synced_bytes: IntCounter,
    synced_records: IntCounter,
    apply_duration: Histogram,
    applied_entries: IntCounter,

    entry_requests: Histogram,
    entry_bytes: Histogram,
    answer_duration: Histogram,
    turned_away: IntCounterVec,
    pub(crate) proposals: IntCounterVec,
    pub(crate) proposals_in_flight: IntGauge,

    snapshot_duration: Histogram,
    snapshot_bytes: Gauge,
    truncated_entries: IntCounter,
    snapshots_installed: IntCounter,
    journal_bytes: IntGauge,
    journal_first_index: IntGauge,
    journal_segments_removed: IntCounter,
    history_lacking: IntGauge,
    history_fetched: IntCounter,

    pub(crate) grpc_requests: IntCounterVec,
    pub(crate) grpc_duration: HistogramVec,
    pub(crate) grpc_in_flight: IntGaugeVec,
    pub(crate) grpc_shed: IntCounterVec,
    pub(crate) watch_streams: IntGauge,
    pub(crate) watch_changes: IntCounter,

    pub(crate) scaling_decisions: IntCounterVec,
    pub(crate) scaling_actions: IntCounterVec,
    pub(crate) cooldown_skips: IntCounterVec,
    pub(crate) rate_limit_hits: IntCounterVec,
    tick_duration: Histogram,
    pub(crate) tick_errors: IntCounter,
    pub(crate) event_handling: HistogramVec,
    unsettled_actions: IntGaugeVec,
    dead_letters: IntGauge,

    /// Shared with the executor, which tells it what it does.
    pub(crate) backends: Arc<BackendFigures>,
}

/// Makes each metric and registers it. Names and labels are literals, so a mistake shows in the first test that starts.
pub(crate) struct Maker(Registry);

#[expect(clippy::expect_used, reason = "names and labels are literals below; any test that makes metrics would fail")]
impl Maker {
    pub(crate) fn keep<M: prometheus::core::Collector + Clone + 'static>(
        &self,
        metric: Result<M, prometheus::Error>,
    ) -> M {
        let metric = metric.expect("metric names and labels are valid");
        self.0.register(Box::new(metric.clone())).expect("each metric is registered once");
        metric
    }

    pub(crate) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.keep(IntGauge::new(name, help))
    }

    pub(crate) fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.keep(IntCounter::new(name, help))
    }

    pub(crate) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.keep(IntCounterVec::new(Opts::new(name, help), labels))
    }

    pub(crate) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.keep(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    pub(crate) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.keep(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
    }

    pub(crate) fn histograms(&self, name: &str, help: &str, buckets: &[f64], labels: &[&str]) -> HistogramVec {
        self.keep(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels))
    }
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let m = Maker(Registry::new());
        let build = m.gauges("loadline_build_info", "Always 1; the version is in the label.", &["version"]);
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Metrics {
            role: m.gauges("loadline_raft_role", "1 for the role that this node has, 0 for the others.", &["role"]),
            term: m.gauge("loadline_raft_term", "Current Raft term."),
            has_leader: m.gauge("loadline_raft_has_leader", "1 if this node knows a leader."),
            last_index: m.gauge("loadline_raft_last_index", "Index of the last entry in the log of this node."),
            applied_index: m.gauge("loadline_raft_applied_index", "Index of the last entry applied to the state."),
            snapshot_index: m.gauge("loadline_raft_snapshot_index", "Index that the last snapshot shows."),
            purged_index: m.gauge("loadline_raft_purged_index", "Index up to which the log has been purged."),
            epoch_index: m.gauge("loadline_raft_epoch_index", "Index at which the current leader was announced."),
            rules_version: m.gauge("loadline_rules_version", "Version of the rules that entries are applied by."),
            ready: m.gauge("loadline_ready", "1 if this node is ready for traffic; /readyz says why not."),
            disk_free: m.gauge("loadline_disk_free_bytes", "Free disk at the data folder."),
            disk_reserve: m.gauge("loadline_disk_reserve_bytes", "Free disk below which writes are refused."),
            disk_used: m.gauge("loadline_disk_used_bytes", "Size of the data folder."),

            elections_won: m.counter("loadline_raft_elections_won_total", "Elections that this node won."),
            leader_changes: m.counter("loadline_raft_leader_changes_total", "Changes of leader that this node saw."),
            clock_skew: m.keep(GaugeVec::new(
                Opts::new("loadline_raft_clock_skew_seconds", "How far the clock of a peer is ahead of this node's."),
                &["peer"],
            )),
            peer_messages_refused: m.counter(
                "loadline_raft_peer_messages_refused_total",
                "Messages of peers that made no sense or were meant for somebody else.",
            ),

            sync_duration: m.histogram(
                "loadline_wal_sync_duration_seconds",
                "Time to bring one batch of the write-ahead log to the disk.",
                &SECONDS,
            ),
            synced_bytes: m.counter("loadline_wal_synced_bytes_total", "Bytes of the log brought to the disk."),
            synced_records: m.counter("loadline_wal_synced_records_total", "Records of the log brought to the disk."),
            apply_duration: m.histogram(
                "loadline_apply_duration_seconds",
                "Time to apply one batch of entries.",
                &SECONDS,
            ),
            applied_entries: m.counter("loadline_applied_entries_total", "Entries applied since this process began."),

            entry_requests: m.histogram("loadline_entry_requests", "Requests packed into one entry.", &COUNTS),
            entry_bytes: m.histogram("loadline_entry_size_bytes", "Size of one entry as proposed.", &SIZES),
            answer_duration: m.histogram(
                "loadline_proposal_duration_seconds",
                "Time from taking in a request at the leader to its receipt.",
                &SECONDS,
            ),
            turned_away: m.counters(
                "loadline_proposals_turned_away_total",
                "Requests that the proposer of this node did not let into the log, by reason.",
                &["reason"],
            ),
            proposals: m.counters(
                "loadline_proposals_total",
                "Requests that this node had recorded, here or at the leader, by result.",
                &["result"],
            ),
            proposals_in_flight: m.gauge("loadline_proposals_in_flight", "Requests that wait for their receipt."),

            snapshot_duration: m.histogram(
                "loadline_snapshot_build_duration_seconds",
                "Time to write a snapshot.",
                &SECONDS,
            ),
            snapshot_bytes: m.keep(Gauge::new("loadline_snapshot_size_bytes", "Size of the last snapshot written.")),
            truncated_entries: m.counter(
                "loadline_wal_truncated_entries_total",
                "Uncommitted entries cut off the log because another leader decided otherwise.",
            ),
            snapshots_installed: m.counter(
                "loadline_snapshots_installed_total",
                "Times that the state was replaced by a snapshot of the leader.",
            ),
            journal_bytes: m.gauge("loadline_journal_bytes", "Bytes of the journal on disk."),
            journal_first_index: m.gauge("loadline_journal_first_index", "The oldest entry in the journal of this node."),
            journal_segments_removed: m.counter(
                "loadline_journal_segments_removed_total",
                "Old segments of the journal that were let go, as journal_retention and journal_bytes_max say.",
            ),
            history_lacking: m.gauge(
                "loadline_journal_lacking_entries",
                "Entries that a snapshot stood in for, and that the journal of this node does not have yet.",
            ),
            history_fetched: m.counter(
                "loadline_journal_fetched_entries_total",
                "Old entries that were fetched from another node.",
            ),

            grpc_requests: m.counters(
                "loadline_grpc_requests_total",
                "gRPC calls that ended, by method and code.",
                &["method", "code"],
            ),
            grpc_duration: m.histograms(
                "loadline_grpc_request_duration_seconds",
                "Time of a gRPC call, to its last byte.",
                &SECONDS,
                &["method"],
            ),
            grpc_in_flight: m.gauges(
                "loadline_grpc_requests_in_flight",
                "gRPC calls under way, by service.",
                &["service"],
            ),
            grpc_shed: m.counters(
                "loadline_grpc_requests_shed_total",
                "gRPC calls refused because too many were under way, by service.",
                &["service"],
            ),
            watch_streams: m.gauge("loadline_watch_streams", "Open watches."),
            watch_changes: m.counter("loadline_watch_changes_total", "Changes of resources sent to watchers."),

            scaling_decisions: m.counters(
                "loadline_auto_scaling_decisions_total",
                "Decisions that this node applied, by conclusion. Every node counts all of them.",
                &["conclusion"],
            ),
            scaling_actions: m.counters(
                "loadline_auto_scaling_actions_total",
                "Scaling actions that were settled, by strategy, call and status. Every node counts all of them.",
                &["strategy", "action_type", "status"],
            ),
            cooldown_skips: m.counters(
                "loadline_auto_scaling_cooldown_skips_total",
                "Decisions in which a strategy was held by a cooldown. Every node counts all of them.",
                &["strategy"],
            ),
            rate_limit_hits: m.counters(
                "loadline_auto_scaling_rate_limit_hits_total",
                "Decisions that the rate limit of their cluster held; after a hundred clusters the rest is \"other\". Every \
                 node counts all of them.",
                &["cluster_id"],
            ),
            tick_duration: m
                .histograms(
                    "loadline_widget_tick_duration_seconds",
                    "Time to apply one batch of entries, with everything that was decided because of it.",
                    &SECONDS,
                    &["widget"],
                )
                .with_label_values(&[WIDGET]),
            tick_errors: m
                .counters(
                    "loadline_widget_tick_errors_total",
                    "Strategies that came to no decision. Every node counts all of them.",
                    &["widget"],
                )
                .with_label_values(&[WIDGET]),
            event_handling: m.histograms(
                "loadline_widget_event_handling_duration_seconds",
                "Time from taking in what happened until it was recorded, applied and decided upon, by what it was.",
                &SECONDS,
                &["widget", "event_type"],
            ),
            unsettled_actions: m.gauges(
                "loadline_auto_scaling_unsettled_actions",
                "Actions that are not settled yet, by status; UNKNOWN are those whose outcome nobody knows.",
                &["status"],
            ),
            dead_letters: m.gauge(
                "loadline_auto_scaling_dead_letters",
                "Actions that failed too often, and that nobody has dealt with.",
            ),

            backends: Arc::new(BackendFigures::new(&m)),
            registry: m.0,
        }
    }

    /// All figures, with what is read at the moment of asking.
    pub(crate) fn render(&self, standing: &Standing, more: Vec<MetricFamily>) -> Result<String, prometheus::Error> {
        for role in ROLES {
            self.role.with_label_values(&[role]).set((standing.role == role).into());
        }
        self.term.set(signed(standing.term));
        self.has_leader.set(standing.has_leader.into());
        self.last_index.set(signed(standing.last_index));
        self.applied_index.set(signed(standing.applied_index));
        self.snapshot_index.set(signed(standing.snapshot_index));
        self.purged_index.set(signed(standing.purged_index));
        self.epoch_index.set(signed(standing.epoch_index));
        self.rules_version.set(standing.rules_version.into());
        self.ready.set(standing.ready.into());
        self.disk_free.set(signed(standing.disk_free_bytes));
        self.disk_reserve.set(signed(standing.disk_reserve_bytes));
        self.disk_used.set(signed(standing.disk_used_bytes));
        self.journal_bytes.set(signed(standing.journal_bytes));
        self.journal_first_index.set(signed(standing.journal_first_index));
        for (status, count) in standing.unsettled_actions {
            self.unsettled_actions.with_label_values(&[status]).set(signed(count));
        }
        self.dead_letters.set(signed(standing.dead_letters));
        let mut text = Vec::new();
        let mut families = self.registry.gather();
        families.extend(more);
        TextEncoder::new().encode(&families, &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

/// Gauges are signed; no index, term or disk comes near the end of that.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a size needs no more than 53 bits of precision in a graph")]
fn float(value: u64) -> f64 {
    value as f64
}

impl NodeObserver for Metrics {
    fn synced(&self, took: Duration, bytes: usize, records: usize) {
        self.sync_duration.observe(took.as_secs_f64());
        self.synced_bytes.inc_by(bytes as u64);
        self.synced_records.inc_by(records as u64);
    }

    fn truncated(&self, entries: u64) {
        self.truncated_entries.inc_by(entries);
    }

    fn applied(&self, entries: usize, took: Duration) {
        self.apply_duration.observe(took.as_secs_f64());
        self.tick_duration.observe(took.as_secs_f64());
        self.applied_entries.inc_by(entries as u64);
    }

    fn proposed(&self, requests: usize, bytes: usize) {
        self.entry_requests.observe(float(requests as u64));
        self.entry_bytes.observe(float(bytes as u64));
    }

    fn answered(&self, took: Duration) {
        self.answer_duration.observe(took.as_secs_f64());
    }

    fn refused(&self, reason: &'static str) {
        self.turned_away.with_label_values(&[reason]).inc();
    }

    fn snapshot_built(&self, took: Duration, bytes: u64) {
        self.snapshot_duration.observe(took.as_secs_f64());
        self.snapshot_bytes.set(float(bytes));
    }

    fn snapshot_installed(&self, _bytes: u64) {
        self.snapshots_installed.inc();
    }

    fn history_let_go(&self, segments: u64) {
        self.journal_segments_removed.inc_by(segments);
    }

    fn history_lacking(&self, entries: u64) {
        self.history_lacking.set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    fn history_fetched(&self, entries: u64) {
        self.history_fetched.inc_by(entries);
    }

    fn peer_message_refused(&self) {
        self.peer_messages_refused.inc();
    }

    fn elected(&self) {
        self.elections_won.inc();
    }

    fn clock_skew(&self, peer: u64, millis: i64) {
        let seconds = Duration::from_millis(millis.unsigned_abs()).as_secs_f64();
        self.clock_skew.with_label_values(&[&peer.to_string()]).set(if millis < 0 { -seconds } else { seconds });
    }
}
