//! From what the state machine keeps to what a caller sees. One way only: callers ask with requests, not with resources.

use loadline_state_machine::{
    Answer, ClusterView, Done, Resource, ResourceChange, RoleView, SettingView, SignalStanding, SignalView, Size,
    Standing, State, Time, TokenView,
};

use crate::{scale_to_zero, scaling, v1};

impl From<&Size> for v1::Size {
    fn from(size: &Size) -> v1::Size {
        v1::Size {
            name: size.name.clone(),
            rank: size.rank,
            slots: size.slots,
            price_micros_per_hour: size.price_micros_per_hour,
            etag: size.updated.to_string(),
            create_revision: size.created.index.0,
            update_revision: size.updated.index.0,
        }
    }
}

/// `state` is where a pause is looked up, and the backend of those that name none of their own.
pub fn cluster(shown: &ClusterView, state: &State) -> v1::Cluster {
    let ClusterView { cluster, backend } = shown;
    let default = || state.default_backend().unwrap_or_default().to_owned();
    v1::Cluster {
        name: cluster.name.clone(),
        id: cluster.id.to_string(),
        etag: cluster.updated.to_string(),
        create_revision: cluster.created.index.0,
        update_revision: cluster.updated.index.0,
        create_time_ms: millis(cluster.created_at),
        backend: backend.as_ref().map_or_else(default, ToString::to_string),
        backend_is_default: backend.is_none(),
        pause: state.standing(cluster.id).and_then(Standing::pause).map(scaling::pause),
        idle: state.idle_state(cluster.id).map(|idle| scale_to_zero::idle_state(&idle, state)),
        r#override: state.standing(cluster.id).and_then(Standing::floor).map(scale_to_zero::overridden),
    }
}

impl From<&SettingView> for v1::Setting {
    fn from(setting: &SettingView) -> v1::Setting {
        v1::Setting {
            name: setting.name.clone(),
            value: setting.value.clone(),
            default_value: setting.default_value.clone(),
            is_default: setting.is_default,
            description: setting.description.clone(),
            // Nobody has ever set it: there is no event that an etag could name.
            etag: setting.updated.map(|updated| updated.to_string()).unwrap_or_default(),
            update_revision: setting.updated.map_or(0, |updated| updated.index.0),
        }
    }
}

/// `state` is where the names of clusters are looked up.
fn role(role: &RoleView, state: &State) -> v1::Role {
    let name = |id| state.cluster_by_id(id).map(|cluster| cluster.name.clone());
    let mut clusters: Vec<String> = role.clusters.iter().copied().filter_map(name).collect();
    clusters.sort_unstable();
    v1::Role {
        name: role.name.clone(),
        superuser: role.superuser,
        has_password: role.has_password,
        all_clusters: role.all_clusters,
        clusters,
        tokens: role.tokens.iter().map(token).collect(),
        etag: role.updated.to_string(),
        create_revision: role.created.index.0,
        update_revision: role.updated.index.0,
        create_time_ms: millis(role.created_at),
    }
}

fn token(token: &TokenView) -> v1::Token {
    v1::Token {
        id: token.id.clone(),
        create_time_ms: millis(token.created_at),
        expire_time_ms: token.expires_at.map_or(0, millis),
    }
}

/// `state` is where the name of a cluster is looked up, and the time that an age is counted to.
fn signal(shown: &SignalView, state: &State) -> v1::Signal {
    let SignalView { signal, standing, .. } = shown;
    let age = standing.collected_at.map_or(0, |at| state.now().since(at).as_millis());
    v1::Signal {
        name: signal.name.to_string(),
        r#type: signal.kind.as_str().to_owned(),
        target: Some(scaling::target(&signal.target, state)),
        every_ms: signal.every.map_or(0, |every| every.as_millis()),
        options: signal.options.iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect(),
        etag: signal.updated.to_string(),
        create_revision: signal.created.index.0,
        update_revision: signal.updated.index.0,
        create_time_ms: millis(signal.created_at),
        update_time_ms: millis(signal.updated_at),
        collect_time_ms: standing.collected_at.map_or(0, millis),
        value_milli: standing.value_milli,
        age_ms: age,
        stale: shown.is_stale(),
        error_count: standing.errors,
        error: standing.error.as_deref().unwrap_or_default().to_owned(),
        fail_time_ms: standing.failed_at.map_or(0, millis),
    }
}

/// With what came of it by now, if it is still there.
fn current(shown: &SignalView, state: &State) -> SignalView {
    let now = state.signal_view(&shown.signal.name).filter(|now| now.signal.created == shown.signal.created);
    let (standing, freshness) = now.map_or((SignalStanding::default(), None), |now| (now.standing, now.freshness));
    SignalView { signal: shown.signal.clone(), standing, freshness }
}

impl From<&Size> for v1::Resource {
    fn from(size: &Size) -> v1::Resource {
        v1::Resource { resource: Some(v1::resource::Resource::Size(size.into())) }
    }
}

impl From<&SettingView> for v1::Resource {
    fn from(setting: &SettingView) -> v1::Resource {
        v1::Resource { resource: Some(v1::resource::Resource::Setting(setting.into())) }
    }
}

/// A resource of any kind. `state` is where names and counts are looked up that the resource itself does not hold.
pub fn resource(resource: &Resource, state: &State) -> v1::Resource {
    use v1::resource::Resource as Wire;
    let wire = match resource {
        Resource::Size(size) => return size.into(),
        Resource::Cluster(shown) => Wire::Cluster(cluster(shown, state)),
        Resource::Setting(setting) => return setting.into(),
        Resource::Strategy(strategy) => Wire::Strategy(scaling::strategy(strategy, state)),
        Resource::Decision(decision) => Wire::Decision(scaling::decision(decision, state)),
        Resource::Operation(operation) => Wire::Operation(scaling::operation(operation, None, state)),
        Resource::Action(action) => Wire::Action(scaling::action(action, state)),
        Resource::Role(shown) => Wire::Role(role(shown, state)),
        Resource::Signal(shown) => Wire::Signal(signal(&current(shown, state), state)),
    };
    v1::Resource { resource: Some(wire) }
}

pub fn resource_change(change: &ResourceChange, state: &State) -> v1::ResourceChange {
    v1::ResourceChange {
        name: change.name.to_string(),
        resource: change.resource.as_ref().map(|it| resource(it, state)),
    }
}

pub fn write_result(done: &Done, state: &State) -> v1::WriteResult {
    let resource = match &done.answer {
        Answer::Size(size) => Some(size.into()),
        Answer::Cluster(cluster) => Some(resource(&Resource::Cluster(cluster.clone().into()), state)),
        Answer::PlacedCluster(placed) => Some(resource(&Resource::Cluster(placed.clone()), state)),
        Answer::Setting(setting) => Some(setting.into()),
        Answer::Strategy(strategy) => Some(resource(&Resource::Strategy(strategy.clone()), state)),
        Answer::Action(action) => Some(resource(&Resource::Action(action.clone()), state)),
        Answer::Role(role) => Some(resource(&Resource::Role(role.as_ref().clone()), state)),
        Answer::Signal(signal) => {
            let (standing, freshness) = (SignalStanding::default(), None);
            let shown = SignalView { signal: signal.as_ref().clone(), standing, freshness };
            Some(resource(&Resource::Signal(Box::new(shown)), state))
        }
        // Nothing is left of what was deleted, and the rest is not the answer to any write of a resource.
        Answer::Nothing
        | Answer::Node(_)
        | Answer::Epoch(_)
        | Answer::Restored { .. }
        | Answer::Restoring { .. }
        | Answer::Reported(_)
        | Answer::Woke(_) => None,
    };
    v1::WriteResult { resource, changed: done.changed }
}

/// Milliseconds since 1970, as the wire has them.
pub fn millis(time: Time) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::{
        Actor, Cluster, ClusterId, Command, Entry, LogIndex, Request, ResourceName, Revision, Sealed, apply,
    };

    use super::*;

    fn shown() -> v1::Resource {
        v1::Resource { resource: Some(v1::resource::Resource::Cluster(cluster(&demo(), &State::new()))) }
    }

    fn revision(index: u64, ordinal: u32) -> Revision {
        Revision { index: LogIndex(index), ordinal }
    }

    fn demo() -> ClusterView {
        let cluster = Cluster {
            id: ClusterId { index: LogIndex(7), ordinal: 1 },
            name: "demo".to_owned(),
            created: revision(7, 1),
            updated: revision(9, 0),
            created_at: Time::from_millis(1_700_000_000_000),
        };
        cluster.into()
    }

    fn with_default_backend(name: &str) -> State {
        let set = Command::SetSetting { name: "default_backend".to_owned(), value: name.to_owned(), etag: None };
        let request = Request { actor: Actor::default(), request_id: None, commands: vec![set] };
        let mut state = State::new();
        let entry = Entry { stamped_at: Time::from_millis(1), requests: vec![request] };
        apply(&mut state, LogIndex(1), &Sealed::seal(entry));
        state
    }

    #[test]
    fn a_size_shows_all_it_has() {
        let size = Size {
            name: "100cc".to_owned(),
            rank: 10,
            slots: 4,
            price_micros_per_hour: 250_000,
            created: revision(5, 0),
            updated: revision(6, 2),
        };
        let expected = v1::Size {
            name: "100cc".to_owned(),
            rank: 10,
            slots: 4,
            price_micros_per_hour: 250_000,
            etag: "6.2".to_owned(),
            create_revision: 5,
            update_revision: 6,
        };
        assert_eq!(v1::Size::from(&size), expected);
    }

    #[test]
    fn a_cluster_keeps_its_id_and_its_time_and_says_where_it_lives() {
        let nowhere = v1::Cluster {
            name: "demo".to_owned(),
            id: "c7.1".to_owned(),
            etag: "9.0".to_owned(),
            create_revision: 7,
            update_revision: 9,
            create_time_ms: 1_700_000_000_000,
            backend: String::new(),
            backend_is_default: true,
            pause: None,
            idle: None,
            r#override: None,
        };
        assert_eq!(cluster(&demo(), &State::new()), nowhere);
        let state = with_default_backend("local");
        let by_default = v1::Cluster { backend: "local".to_owned(), ..nowhere.clone() };
        assert_eq!(cluster(&demo(), &state), by_default);
        let placed = ClusterView { backend: Some("remote".into()), ..demo() };
        let own = v1::Cluster { backend: "remote".to_owned(), backend_is_default: false, ..nowhere };
        assert_eq!(cluster(&placed, &state), own);
    }

    #[test]
    fn a_setting_that_nobody_set_has_no_etag() {
        let mut setting = SettingView {
            name: "request_window".to_owned(),
            value: "10m".to_owned(),
            default_value: "10m".to_owned(),
            is_default: true,
            description: "How long.".to_owned(),
            updated: None,
        };
        let shown = v1::Setting::from(&setting);
        assert_eq!((shown.etag.as_str(), shown.update_revision, shown.is_default), ("", 0, true));
        setting.updated = Some(revision(3, 0));
        let shown = v1::Setting::from(&setting);
        assert_eq!((shown.etag.as_str(), shown.update_revision), ("3.0", 3));
    }

    #[test]
    fn what_is_gone_has_a_name_and_nothing_else() {
        let gone = ResourceChange { name: ResourceName::cluster("demo"), resource: None };
        assert_eq!(
            resource_change(&gone, &State::new()),
            v1::ResourceChange { name: "clusters/demo".to_owned(), resource: None }
        );
        let put = ResourceChange { name: ResourceName::cluster("demo"), resource: Some(Resource::Cluster(demo())) };
        assert_eq!(resource_change(&put, &State::new()).resource, Some(shown()));
    }

    #[test]
    fn a_write_shows_what_it_left_behind() {
        let expected = v1::WriteResult { resource: Some(shown()), changed: true };
        for answer in [Answer::Cluster(demo().cluster), Answer::PlacedCluster(demo())] {
            assert_eq!(write_result(&Done { changed: true, answer }, &State::new()), expected);
        }
        let gone = Done { changed: false, answer: Answer::Nothing };
        assert_eq!(write_result(&gone, &State::new()), v1::WriteResult { resource: None, changed: false });
    }
}
