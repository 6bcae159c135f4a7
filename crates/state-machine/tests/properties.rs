//! What holds after any sequence of commands, whatever they are.

use crate::common;
use std::collections::{BTreeMap, BTreeSet};

use crate::common::{NOON, World, access_samples, proven, request_id};
use loadline_state_machine::{
    Actor, Applied, Cluster, Command, Entry, Epoch, Event, Hash, LogIndex, NodeNumber, PasswordChange, Proof, Receipt,
    Request, Resource, ResourceName, Revision, Role, RulesVersion, Sealed, SettingView, Size, Span, State, Time,
    UsageOn, apply, decode_caused_events, pass, rehearse, resource_changes,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Few names, so that commands meet each other.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        9 => select(vec!["a", "b", "c", "d", "e"]).prop_map(str::to_owned),
        1 => select(vec!["", "a/b", "-x", "größe"]).prop_map(str::to_owned),
    ]
}

fn setting() -> impl Strategy<Value = String> {
    select(vec!["request_window", "request_window_count", "enable_auto_scaling", "request_windows"])
        .prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = String> {
    select(vec!["1m", "5 minutes", "1 day", "100", "101", "true", "off", "nonsense", "0"]).prop_map(str::to_owned)
}

/// Mostly none, sometimes one that can be right, because indexes are small.
fn etag() -> impl Strategy<Value = Option<Revision>> {
    prop_oneof![4 => Just(None), 1 => revision().prop_map(Some)]
}

fn revision() -> impl Strategy<Value = Revision> {
    (0..40u64, 0..3u32).prop_map(|(index, ordinal)| Revision { index: LogIndex(index), ordinal })
}

fn command() -> impl Strategy<Value = Command> {
    let rank = || proptest::option::of(0..60u32);
    prop_oneof![
        1 => Just(Command::Tick),
        1 => (1..4u64, 0..6u64).prop_map(|(node, term)| Command::AnnounceLeader { node: NodeNumber(node), term }),
        1 => (0..2u32).prop_map(|to| Command::RaiseRules { to: RulesVersion(to) }),
        1 => (0..5u64).prop_map(|nodes| Command::FoundGroup { nodes }),
        1 => name().prop_map(|name| Command::AdmitNode { name, address: "10.0.0.4:7001".to_owned() }),
        4 => (name(), rank(), 0..3u32, 0..9u64).prop_map(|(name, rank, slots, price_micros_per_hour)| {
            Command::CreateSize { name, rank, slots, price_micros_per_hour }
        }),
        3 => (name(), rank(), proptest::option::of(0..3u32), etag()).prop_map(|(name, rank, slots, etag)| {
            Command::ChangeSize { name, rank, slots, price_micros_per_hour: None, etag }
        }),
        2 => (name(), etag(), any::<bool>())
            .prop_map(|(name, etag, allow_missing)| Command::DropSize { name, etag, allow_missing }),
        4 => name().prop_map(|name| Command::CreateCluster { name }),
        4 => (name(), name(), etag()).prop_map(|(name, to, etag)| Command::RenameCluster { name, to, etag }),
        2 => (name(), etag(), any::<bool>())
            .prop_map(|(name, etag, allow_missing)| Command::DropCluster { name, etag, allow_missing }),
        3 => (setting(), value(), etag()).prop_map(|(name, value, etag)| Command::SetSetting { name, value, etag }),
        1 => (setting(), etag()).prop_map(|(name, etag)| Command::ResetSetting { name, etag }),
        1 => (0..9u64).prop_map(|bytes_total| Command::BeginRestore { bytes_total, hash: Hash::of(b"") }),
        1 => (revision(), 0..9u64, vec(any::<u8>(), 0..9)).prop_map(|(restore, offset, bytes)| {
            Command::RestoreChunk { restore, offset, bytes: bytes.into() }
        }),
        1 => revision().prop_map(|restore| Command::FinishRestore { restore }),
        1 => proptest::option::of(revision()).prop_map(|restore| Command::AbortRestore { restore }),
        3 => about_roles(),
    ]
}

fn role() -> impl Strategy<Value = String> {
    select(vec!["alice", "bob", "public"]).prop_map(str::to_owned)
}

fn token() -> impl Strategy<Value = String> {
    select(vec!["token-of-alice", "token-of-bob", "token"]).prop_map(str::to_owned)
}

fn usage() -> impl Strategy<Value = UsageOn> {
    prop_oneof![1 => Just(UsageOn::AllClusters), 3 => name().prop_map(UsageOn::Cluster)]
}

fn about_roles() -> impl Strategy<Value = Command> {
    let verifier = || proptest::option::of(Just(access_samples::verifier()));
    let password =
        select(vec![PasswordChange::Keep, PasswordChange::Clear, PasswordChange::Set(access_samples::verifier())]);
    let expiry = proptest::option::of((1..5u64).prop_map(Span::from_mins));
    prop_oneof![
        (role(), any::<bool>(), verifier(), any::<bool>()).prop_map(|(name, superuser, verifier, if_not_exists)| {
            Command::CreateRole { name, superuser, verifier, if_not_exists }
        }),
        (role(), any::<Option<bool>>(), password, etag())
            .prop_map(|(name, superuser, password, etag)| Command::AlterRole { name, superuser, password, etag }),
        (role(), etag(), any::<bool>()).prop_map(|(name, etag, allow_missing)| Command::DropRole {
            name,
            etag,
            allow_missing
        }),
        (role(), usage()).prop_map(|(role, on)| Command::GrantUsage { role, on }),
        (role(), usage()).prop_map(|(role, on)| Command::RevokeUsage { role, on }),
        (role(), token(), expiry).prop_map(|(role, token, expires_in)| {
            Command::CreateToken { role, token, hash: Hash([1; 32]), expires_in }
        }),
        (role(), token(), any::<bool>()).prop_map(|(role, token, allow_missing)| Command::DropToken {
            role,
            token,
            allow_missing
        }),
    ]
}

/// Mostly a node, which may do everything whoever can log in.
fn proof() -> impl Strategy<Value = Proof> {
    prop_oneof![
        6 => Just(Proof::Node),
        2 => Just(Proof::Said),
        1 => Just(Proof::Machine),
        1 => Just(Proof::Password),
        1 => token().prop_map(Proof::Token),
    ]
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// An entry: how far the leader's clock has moved, and requests.
    Entry {
        clock: i64,
        requests: Vec<Request>,
    },
    Passed,
    /// A backup of what is there now is taken.
    Backup,
    /// The last backup is restored, by one transaction.
    Restore,
}

fn request() -> impl Strategy<Value = Request> {
    let id = proptest::option::of((0..20 * 60_000u64, 0..4u64));
    let actor = (select(vec!["alice", "bob"]), proof());
    (actor, id, vec(command(), 0..4)).prop_map(|((actor, proof), id, commands)| Request {
        actor: Actor::new(actor, "test").proven(proof),
        // Ids from around the beginning: some will be too old, some from the future, some the same.
        request_id: id.map(|(millis, number)| request_id(NOON + Span::from_millis(millis / 60_000 * 60_000), number)),
        commands,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (-60_000..180_000i64, vec(request(), 0..4)).prop_map(|(clock, requests)| Step::Entry { clock, requests }),
        1 => Just(Step::Passed),
        1 => Just(Step::Backup),
        1 => Just(Step::Restore),
    ]
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..40)
}

/// Everything that one run has left: the state, and what each index brought about.
#[derive(Debug)]
struct Run {
    world: World,
    backup: Vec<u8>,
    log: Vec<(Option<Sealed>, Applied)>,
}

impl Run {
    fn new() -> Self {
        Self { world: World::new(), backup: State::new().encode(), log: Vec::new() }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Backup => self.backup = self.world.state.encode(),
            Step::Passed => {
                let index = self.world.next_index();
                let applied = pass(&mut self.world.state, index, b"membership");
                self.log.push((None, applied));
            }
            Step::Restore => {
                // Another restore may be under way, and would be given up by the first event of the new one.
                let by_node = |commands| vec![proven("n1", Proof::Node, commands)];
                self.entry(by_node(vec![Command::AbortRestore { restore: None }]));
                let index = self.world.next_index();
                let before = self.world.state.clone();
                self.entry(by_node(common::restore_commands(&self.backup, index, 50)));
                self.check_restored(&before);
            }
            Step::Entry { clock, requests } => {
                let millis = self.world.time.as_millis().saturating_add_signed(*clock);
                self.world.time = Time::from_millis(millis);
                self.entry(requests.clone());
            }
        }
    }

    /// Everything is as it was in the backup, but for the etags.
    fn check_restored(&self, before: &State) {
        let (_, applied) = self.log.last().expect("the restore is in the log");
        assert!(applied.receipts[0].result.is_ok(), "{:?}", applied.receipts[0].result);
        let backup = State::decode(&self.backup).expect("our own backup can be read");
        let state = &self.world.state;
        let size = |size: &Size| Size { updated: Revision::default(), ..size.clone() };
        assert_eq!(state.sizes().map(size).collect::<Vec<_>>(), backup.sizes().map(size).collect::<Vec<_>>());
        let cluster = |cluster: &Cluster| Cluster { updated: Revision::default(), ..cluster.clone() };
        assert_eq!(
            state.clusters_after(None).map(cluster).collect::<Vec<_>>(),
            backup.clusters_after(None).map(cluster).collect::<Vec<_>>()
        );
        let setting = |setting: SettingView| SettingView { updated: None, ..setting };
        assert_eq!(
            state.settings().into_iter().map(setting).collect::<Vec<_>>(),
            backup.settings().into_iter().map(setting).collect::<Vec<_>>()
        );
        assert!(state.incarnation() > backup.incarnation());
        // But that a backup in which nobody can log in does not open a group that is closed.
        let from = if backup.login_needed() || !before.login_needed() { &backup } else { before };
        let role = |role: &Role| Role { updated: Revision::default(), clusters: vec![], ..role.clone() };
        assert_eq!(
            state.roles_after(None).map(role).collect::<Vec<_>>(),
            from.roles_after(None).map(role).collect::<Vec<_>>()
        );
    }

    fn entry(&mut self, requests: Vec<Request>) {
        let sealed = Sealed::seal(Entry { stamped_at: self.world.time, requests });
        let index = self.world.next_index();
        let applied = apply(&mut self.world.state, index, &sealed);
        self.log.push((Some(sealed), applied));
    }
}

fn run(steps: &[Step]) -> Run {
    let mut run = Run::new();
    for step in steps {
        run.step(step);
    }
    run
}

/// The resources of a state, with their etags.
fn resources(state: &State) -> BTreeMap<ResourceName, Resource> {
    let sizes = state.sizes().cloned().map(Resource::Size);
    let clusters = state.clusters_after(None).map(|it| Resource::Cluster(state.cluster_view(it)));
    let settings = state.settings().into_iter().map(Resource::Setting);
    let roles = state.roles_after(None).map(|role| Resource::Role(role.view()));
    sizes.chain(clusters).chain(settings).chain(roles).map(|resource| (resource.name(), resource)).collect()
}

fn check_tables(state: &State) -> Result<(), TestCaseError> {
    let sizes: Vec<_> = state.sizes().collect();
    let names: BTreeSet<_> = sizes.iter().map(|size| &size.name).collect();
    prop_assert_eq!(names.len(), sizes.len(), "names of sizes are unique");
    prop_assert!(sizes.windows(2).all(|pair| pair[0].rank < pair[1].rank), "the ladder ascends");
    prop_assert_eq!(sizes.len(), state.size_count());
    for size in &sizes {
        prop_assert_eq!(state.size(&size.name), Some(*size), "both views show the same");
        prop_assert!(size.slots > 0 && size.rank > 0 && size.created <= size.updated);
    }
    let clusters: Vec<_> = state.clusters_after(None).collect();
    prop_assert!(clusters.windows(2).all(|pair| pair[0].name < pair[1].name), "names of clusters ascend");
    let ids: BTreeSet<_> = clusters.iter().map(|cluster| cluster.id).collect();
    prop_assert_eq!(ids.len(), clusters.len(), "ids of clusters are unique");
    prop_assert_eq!(clusters.len(), state.cluster_count());
    for (place, cluster) in clusters.iter().enumerate() {
        prop_assert_eq!(state.cluster(&cluster.name), Some(*cluster));
        prop_assert_eq!(state.cluster_by_id(cluster.id), Some(*cluster));
        let rest: Vec<_> = state.clusters_after(Some(&cluster.name)).collect();
        prop_assert_eq!(rest.as_slice(), &clusters[place + 1..], "a page begins after the last name");
    }
    let roles: Vec<_> = state.roles_after(None).collect();
    prop_assert!(roles.windows(2).all(|pair| pair[0].name < pair[1].name), "names of roles ascend");
    prop_assert_eq!(roles.len(), state.role_count());
    prop_assert_eq!(state.login_needed(), roles.iter().any(|role| role.can_log_in()));
    prop_assert!(!state.login_needed() || roles.iter().any(|role| role.superuser && role.can_log_in()), "locked out");
    for role in &roles {
        prop_assert!(role.clusters.iter().all(|id| state.cluster_by_id(*id).is_some()), "USAGE on what is gone");
        for token in &role.tokens {
            prop_assert_eq!(state.token(&token.id), Some((*role, token)), "a token is of one role");
        }
    }
    Ok(())
}

/// What one entry may do to the counters, the clock and the etags.
fn check_step(before: &State, after: &State, applied: &Applied) -> Result<(), TestCaseError> {
    prop_assert!(after.now() >= before.now(), "time went back");
    prop_assert_eq!(after.now(), applied.time);
    prop_assert_eq!(after.hash(), applied.hash);
    prop_assert_ne!(after.hash(), before.hash());
    prop_assert!(after.incarnation() >= before.incarnation());
    prop_assert!(after.epoch() >= before.epoch(), "an epoch went back");
    prop_assert!(after.rules() >= before.rules());
    prop_assert!(after.login_needed() || !before.login_needed(), "a group that was closed is open");

    prop_assert_eq!(applied.causes.len(), applied.events.len());
    let caused: Vec<_> = applied.causes.iter().copied().zip(applied.events.iter().cloned()).collect();
    prop_assert_eq!(decode_caused_events(&applied.encode_events()), Ok(caused));

    // A watcher who follows the changes sees what somebody who asks sees.
    let mut watched = resources(before);
    for change in resource_changes(&applied.events) {
        match change.resource {
            Some(resource) => watched.insert(change.name, resource),
            None => watched.remove(&change.name),
        };
    }
    let asked = resources(after);
    prop_assert_eq!(&watched, &asked);

    // An etag changes when its resource does, and only then; it names an event of this entry.
    for (name, resource) in &asked {
        match resources(before).get(name) {
            Some(earlier) if earlier.etag() == resource.etag() => prop_assert_eq!(earlier, resource),
            _ => {
                let etag = resource.etag().expect("what has changed has an etag");
                prop_assert_eq!(etag.index, applied.index);
                prop_assert!((etag.ordinal as usize) < applied.events.len());
            }
        }
    }
    Ok(())
}

fn node_numbers(applied: &Applied) -> impl Iterator<Item = u64> + '_ {
    applied.events.iter().filter_map(|event| match event {
        Event::NodeAdmitted { node, .. } => Some(node.0),
        _ => None,
    })
}

/// 256 times 2 rounds; `PROPTEST_CASES=20000` makes it a long night.
fn rounds() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases * 2, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(rounds())]

    #[test]
    fn any_sequence_of_commands_keeps_the_invariants(steps in history()) {
        let mut run = Run::new();
        let mut admitted = BTreeSet::new();
        let mut epochs: BTreeSet<Epoch> = BTreeSet::new();
        for step in &steps {
            let before = run.world.state.clone();
            let from = run.log.len();
            run.step(step);
            let new = &run.log[from..];
            // A restore is two entries; what is in between is checked by the tables alone.
            if let [(_, applied)] = new {
                check_step(&before, &run.world.state, applied)?;
            }
            check_tables(&run.world.state)?;
            for (sealed, applied) in new {
                prop_assert_eq!(applied.receipts.len(), sealed.as_ref().map_or(0, |it| it.entry().requests.len()));
                let asked = sealed.iter().flat_map(|it| &it.entry().requests).zip(&applied.receipts);
                for (_, receipt) in asked.filter(|(request, _)| request.actor.proof == Proof::Said) {
                    let through = receipt.result.is_ok() && !receipt.repeated;
                    prop_assert!(!(before.login_needed() && through), "nobody knows who that was");
                }
                for number in node_numbers(applied) {
                    prop_assert!(admitted.iter().all(|earlier| *earlier < number), "node {number} was given before");
                    admitted.insert(number);
                }
                for event in &applied.events {
                    if let Event::LeaderAnnounced { epoch, .. } = event {
                        prop_assert!(epochs.iter().all(|earlier| earlier <= epoch));
                        epochs.insert(*epoch);
                    }
                }
            }
        }
    }

    #[test]
    fn the_same_log_gives_the_same_state_and_the_same_answers(steps in history()) {
        let first = run(&steps);
        let mut state = State::new();
        for (sealed, applied) in &first.log {
            let again = match sealed {
                // From the bytes, as another node would.
                Some(sealed) => {
                    let opened = Sealed::open(sealed.bytes().to_vec()).expect("what was sealed can be opened");
                    apply(&mut state, applied.index, &opened)
                }
                None => pass(&mut state, applied.index, b"membership"),
            };
            prop_assert_eq!(&again, applied);
        }
        prop_assert_eq!(&state, &first.world.state);
        prop_assert_eq!(state.encode(), first.world.state.encode());
    }

    #[test]
    fn a_snapshot_in_the_middle_changes_nothing(steps in history(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(steps.len());
        let whole = run(&steps);
        let mut parts = run(&steps[..cut]);
        let bytes = parts.world.state.encode();
        parts.world.state = State::decode(&bytes).expect("our own snapshot can be read");
        prop_assert_eq!(parts.world.state.encode(), bytes, "encoding is canonical");
        for step in &steps[cut..] {
            parts.step(step);
        }
        prop_assert_eq!(&parts.log, &whole.log);
        prop_assert_eq!(&parts.world.state, &whole.world.state);
        prop_assert_eq!(parts.world.state.encode(), whole.world.state.encode());
    }

    #[test]
    fn a_refused_transaction_leaves_nothing_behind_but_its_answer(
        steps in history(),
        commands in vec(command(), 0..5),
        number in 0..3u64,
    ) {
        let mut world = run(&steps).world;
        // A command that is always refused, after all the others.
        let mut commands = commands;
        commands.push(Command::CreateCluster { name: "a/b".to_owned() });
        let id = request_id(world.state.now().max(world.time), 1_000 + number);
        let before = world.state.clone();
        let request = common::identified(id, commands);
        let rehearsed = rehearse(&world.state, &request, world.time);
        let applied = world.apply(vec![request.clone()]);
        let Receipt { result, repeated, index } = &applied.receipts[0];
        prop_assert!(result.is_err() && !repeated && *index == applied.index);
        prop_assert_eq!(result, &rehearsed);
        prop_assert_eq!(resources(&world.state), resources(&before));
        prop_assert_eq!(world.state.incarnation(), before.incarnation());
        prop_assert_eq!(world.state.rules(), before.rules());
        prop_assert_eq!(world.state.epoch(), before.epoch());
        // Only the reaction to the passing of time may have brought events about, as without the request.
        let mut without = World { state: before, time: world.time };
        prop_assert_eq!(&applied.events, &without.apply(vec![]).events);
        prop_assert_eq!(world.state.request_count(), without.state.request_count() + 1);

        let again = world.ask(request);
        prop_assert_eq!(again, Receipt { repeated: true, ..applied.receipts[0].clone() });
    }

    #[test]
    fn asking_twice_under_one_id_does_it_once(steps in history(), commands in vec(command(), 1..4)) {
        let mut world = run(&steps).world;
        let id = request_id(world.state.now().max(world.time), 1_000);
        let request = common::identified(id, commands);
        let first = world.apply(vec![request.clone()]);
        let resources_then = resources(&world.state);
        world.pass_time(Span::from_secs(1));
        let second = world.apply(vec![request.clone(), request]);
        let expected = Receipt { repeated: true, ..first.receipts[0].clone() };
        prop_assert_eq!(second.receipts, vec![expected.clone(), expected]);
        prop_assert_eq!(resources(&world.state), resources_then);
    }

    #[test]
    fn a_rehearsal_says_what_would_be_answered_and_writes_nothing(steps in history(), commands in vec(command(), 0..4)) {
        let mut world = run(&steps).world;
        world.pass_time(Span::from_mins(3));
        let request = proven("alice", Proof::Node, commands);
        let before = world.state.clone();
        let rehearsed = rehearse(&world.state, &request, world.time);
        prop_assert_eq!(&world.state, &before);
        prop_assert_eq!(world.ask(request).result, rehearsed);
    }
}
