//! What suspending was worth: days that were worked out by hand, and what the state says about them.

use crate::common::{World, claim, create_cluster, set};
use loadline_state_machine::{
    Call, ClusterId, ClusterRef, ClusterReport, Command, Day, NodeNumber, Observation, Options, Outcome, Report, Seen,
    Span, StrategyKind, TargetName, Time, WakeReason,
};

const HOUR_MILLIS: u32 = 3_600_000;

/// A cluster of one replica that costs 0.40 an hour, suspended after half an hour.
struct Scene {
    world: World,
    id: ClusterId,
}

/// A day of 2026 or 2027 as a person would write it down.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    day: String,
    idle_millis: u32,
    zero_millis: u32,
    saved_micros: u64,
}

fn told(day: &str, idle_millis: u32, zero_millis: u32, saved_micros: u64) -> Told {
    Told { day: day.to_owned(), idle_millis, zero_millis, saved_micros }
}

impl Scene {
    fn new(zone: &str) -> Self {
        let mut world = World::new();
        world.must(Command::AnnounceLeader { node: NodeNumber(1), term: 1 });
        for (name, value) in [
            ("enable_auto_scaling", "true"),
            ("default_backend", "sim"),
            ("signal_stale_after", "1d"),
            ("scale_to_zero_time_zone", zone),
        ] {
            world.must(set(name, value));
        }
        let name = "25cc".to_owned();
        world.must(Command::CreateSize { name, rank: None, slots: 1, price_micros_per_hour: 400_000 });
        world.must(create_cluster("demo"));
        let (kind, target) = (StrategyKind::IdleSuspend, TargetName::Cluster("demo".to_owned()));
        let options = Options::default();
        world.must(Command::CreateStrategy { target, kind, options, if_not_exists: false, unchecked: false });
        let id = world.state.cluster("demo").expect("it was created").id;
        let mut scene = Self { world, id };
        scene.replica("a", true);
        scene
    }

    /// The moment of which this is the text, as in `2026-11-16T12:00`.
    fn at(&mut self, moment: &str) {
        let time = moment_of(moment);
        assert!(time >= self.world.time, "{moment} is over");
        self.world.time = time;
    }

    fn seen(&mut self, seen: Seen) {
        let next = self.world.state.collector("watcher").map_or(1, |known| known.sequence + 1);
        let observations = vec![Observation { age: Span::from_millis(0), seen }];
        let clusters = vec![ClusterReport { cluster: ClusterRef::Id(self.id), observations }];
        self.world.must(Command::ReportSignals { collector: "watcher".to_owned(), sequence: next, clusters });
    }

    fn replica(&mut self, name: &str, ready: bool) {
        self.seen(Seen::Replica { name: name.to_owned(), size: "25cc".to_owned(), incarnation: None, ready });
    }

    fn used(&mut self) {
        self.seen(Seen::Activity { idle_for: Some(Span::from_millis(0)) });
        self.work();
    }

    fn alive(&mut self) {
        self.seen(Seen::Alive);
        self.work();
    }

    /// Whatever is to be done is done at once.
    fn work(&mut self) {
        let next = |world: &World| world.state.claimable_actions().next().cloned();
        while let Some(action) = next(&self.world) {
            let epoch = self.world.state.epoch().expect("a leader was announced");
            let attempt = action.attempt + 1;
            self.world.must(claim(&self.world.state, &action, epoch, attempt));
            let outcome = Outcome::Succeeded { report: Report::Nothing };
            self.world.must(Command::RecordOutcome { action: action.id, epoch, attempt, outcome });
            if let Call::CreateReplica(made) = &action.call {
                self.replica(&made.name, true);
            }
        }
    }

    fn check(&mut self, expected: &[Told]) {
        self.world.must(Command::Tick);
        for world in [self.world.clone(), self.world.through_snapshot()] {
            let days = world.state.savings(self.id, Day::default()).into_iter().map(|it| it.row);
            let days: Vec<Told> = days
                .map(|row| told(&row.day.to_string(), row.idle_millis, row.zero_millis, row.saved_micros))
                .collect();
            assert_eq!(days, expected);
        }
    }
}

fn moment_of(text: &str) -> Time {
    let (day, clock) = text.split_once('T').expect("a day and a time");
    let day: Day = day.parse().expect("a day");
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().expect("a number")).collect();
    let seconds = parts[0] * 3_600 + parts[1] * 60 + parts.get(2).copied().unwrap_or_default();
    Time::from_millis(u64::from(day.0) * 86_400_000 + seconds * 1_000)
}

#[test]
fn a_day_adds_up_to_the_cent() {
    let mut scene = Scene::new("");
    scene.used();
    // Suspended the moment that half an hour is over.
    scene.at("2026-11-16T12:30:01");
    scene.alive();
    // Asleep for 2 hours, 29 minutes and 59 seconds.
    scene.at("2026-11-16T15:00");
    scene.used();
    let asleep: u32 = HOUR_MILLIS * 5 / 2 - 1_000;
    let saved = u64::from(asleep) * 400_000 / u64::from(HOUR_MILLIS);
    assert_eq!(saved, 999_888, "2.5 hours at 0.40 are 1.00, less a second");
    scene.check(&[told("2026-11-16", 3 * HOUR_MILLIS, asleep, saved)]);
    // A quiet minute is not idleness.
    scene.at("2026-11-16T15:01");
    scene.used();
    scene.check(&[told("2026-11-16", 3 * HOUR_MILLIS, asleep, saved)]);
    // What goes on counts, too: five hours without use, four and a half of them asleep.
    scene.at("2026-11-16T15:31:01");
    scene.alive();
    scene.at("2026-11-16T20:01");
    scene.check(&[told("2026-11-16", 8 * HOUR_MILLIS, 2 * asleep + 2 * HOUR_MILLIS, saved + saved + 800_000)]);
}

#[test]
fn a_night_is_cut_at_midnight_and_loses_nothing() {
    let mut scene = Scene::new("");
    // A price at which no hour is a whole number of millionths.
    scene.world.must(Command::ChangeSize {
        name: "25cc".to_owned(),
        rank: None,
        slots: None,
        price_micros_per_hour: Some(333_333),
        etag: None,
    });
    scene.at("2026-11-16T22:00");
    scene.used();
    scene.at("2026-11-16T23:00");
    scene.alive();
    scene.at("2026-11-17T00:30:01");
    scene.used();
    let expected = [
        told("2026-11-16", 2 * HOUR_MILLIS, HOUR_MILLIS, 333_333),
        told("2026-11-17", HOUR_MILLIS / 2 + 1_000, HOUR_MILLIS / 2 + 1_000, 166_759),
    ];
    let whole = u64::from(HOUR_MILLIS + HOUR_MILLIS / 2 + 1_000) * 333_333 / u64::from(HOUR_MILLIS);
    assert_eq!(expected[0].saved_micros + expected[1].saved_micros, whole);
    scene.check(&expected);
    // The price of another day changes nothing about this one.
    scene.world.must(Command::ChangeSize {
        name: "25cc".to_owned(),
        rank: None,
        slots: None,
        price_micros_per_hour: Some(1),
        etag: None,
    });
    scene.check(&expected);
}

#[test]
fn days_have_23_and_25_hours_where_clocks_change() {
    let check = |used: &str, asleep: &str, looked: &str, expected: &[Told]| {
        let mut scene = Scene::new("Europe/Berlin");
        scene.at(used);
        scene.used();
        scene.at(asleep);
        scene.alive();
        scene.at(looked);
        scene.alive();
        scene.check(expected);
    };
    // Clocks go forward on 2027-03-28: from 23:00Z to 22:00Z, 23 hours.
    check(
        "2027-03-27T22:00",
        "2027-03-27T23:00",
        "2027-03-28T23:00",
        &[
            told("2027-03-27", HOUR_MILLIS, 0, 0),
            told("2027-03-28", 23 * HOUR_MILLIS, 23 * HOUR_MILLIS, 9_200_000),
            told("2027-03-29", HOUR_MILLIS, HOUR_MILLIS, 400_000),
        ],
    );
    // And back on 2027-10-31: from 22:00Z to 23:00Z, 25 hours.
    check(
        "2027-10-30T21:00",
        "2027-10-30T22:00",
        "2027-10-31T23:30",
        &[
            told("2027-10-30", HOUR_MILLIS, 0, 0),
            told("2027-10-31", 25 * HOUR_MILLIS, 25 * HOUR_MILLIS, 10_000_000),
            told("2027-11-01", HOUR_MILLIS / 2, HOUR_MILLIS / 2, 200_000),
        ],
    );
}

#[test]
fn while_nobody_looks_a_cluster_is_not_known_to_be_idle_but_known_to_be_at_zero() {
    let mut scene = Scene::new("");
    scene.world.must(set("signal_stale_after", "10m"));
    scene.used();
    scene.at("2026-11-16T12:40");
    scene.alive();
    // Ten minutes after the last word it is no longer known whether anybody uses it.
    scene.at("2026-11-16T14:40");
    let expected = [told("2026-11-16", HOUR_MILLIS * 50 / 60, 2 * HOUR_MILLIS, 800_000)];
    scene.check(&expected);
    scene.used();
    scene.check(&expected);
}

#[test]
fn a_switch_stops_the_count_and_old_days_go() {
    let mut scene = Scene::new("");
    scene.world.must(set("scale_to_zero_savings_days", "2"));
    scene.used();
    scene.at("2026-11-16T13:00");
    scene.alive();
    scene.at("2026-11-19T01:00");
    scene.alive();
    let day = 24 * HOUR_MILLIS;
    let expected = [told("2026-11-18", day, day, 9_600_000), told("2026-11-19", HOUR_MILLIS, HOUR_MILLIS, 400_000)];
    scene.check(&expected);
    scene.used();
    scene.check(&expected);
    scene.world.must(set("scale_to_zero_cost_tracking", "off"));
    scene.at("2026-11-19T02:00");
    scene.alive();
    scene.at("2026-11-19T05:00");
    scene.used();
    scene.check(&expected);
}

#[test]
fn what_sleeps_says_since_when_nobody_uses_it_though_the_keep_alive_window_is_longer() {
    let mut scene = Scene::new("");
    scene.world.must(set("scale_to_zero_idle_threshold", "1m"));
    let since = |scene: &Scene| scene.world.state.idle_state(scene.id).expect("a strategy rules it").idle_since;
    scene.used();
    scene.at("2026-11-16T12:00:59");
    scene.alive();
    assert_eq!(since(&scene), None, "it was used within the last minute");
    scene.at("2026-11-16T12:01:01");
    scene.alive();
    let idle = scene.world.state.idle_state(scene.id).expect("a strategy rules it");
    assert!(idle.is_scaled_to_zero());
    assert_eq!(since(&scene), Some(moment_of("2026-11-16T12:00")));
}

#[test]
fn a_change_of_leader_in_an_idle_window_and_in_a_wake_restarts_no_clock() {
    let mut scene = Scene::new("");
    scene.used();
    scene.at("2026-11-16T12:20");
    scene.world.must(Command::AnnounceLeader { node: NodeNumber(2), term: 2 });
    scene.world = scene.world.through_snapshot();
    // Half an hour after the last use, not after the new leader.
    scene.at("2026-11-16T12:30:01");
    scene.alive();
    let idle = |scene: &Scene| scene.world.state.idle_state(scene.id).expect("a strategy rules it");
    assert_eq!(idle(&scene).scaled_to_zero_at, Some(moment_of("2026-11-16T12:30:01")));
    scene.at("2026-11-16T13:00");
    let wake = Command::WakeCluster { cluster: "demo".to_owned(), reason: WakeReason::Manual };
    scene.world.must(wake.clone());
    scene.at("2026-11-16T13:00:20");
    scene.world.must(Command::AnnounceLeader { node: NodeNumber(3), term: 3 });
    scene.world.must(wake);
    assert_eq!(scene.world.state.claimable_actions().count(), 1, "one replica comes back, once");
    scene.work();
    let woken = idle(&scene);
    let last = woken.last_wake.expect("it was woken");
    assert_eq!((last.at, last.ready_at), (moment_of("2026-11-16T13:00"), Some(moment_of("2026-11-16T13:00:20"))));
    assert_eq!((woken.start_expected, woken.replicas, woken.serves), (Some(Span::from_secs(20)), 1, true));
}
