//! What an event says, in one line for people. The words are made when somebody looks; nothing that is stored holds them.

use loadline_state_machine::{
    AbortReason, Action, ClusterId, Command, Event, Observation, Operation, OperationEnd, Options, Override,
    PasswordChange, Pause, Request, ResumeReason, Role, Seen, Signal, Size, Step, Strategy, Target, Wake, show_milli,
};

/// What clusters are called by whoever reads; one that nobody knows is called by its id.
pub trait ClusterNames {
    fn name_of(&self, cluster: ClusterId) -> Option<String>;
}

impl ClusterNames for loadline_state_machine::State {
    fn name_of(&self, cluster: ClusterId) -> Option<String> {
        self.cluster_by_id(cluster).map(|it| it.name.clone())
    }
}

/// Nobody knows any names.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNames;

impl ClusterNames for NoNames {
    fn name_of(&self, _: ClusterId) -> Option<String> {
        None
    }
}

/// One line, with what the request says that brought it about where the event does not: a changed role is told as it is then, and what was
/// changed of it stands in the command.
pub fn words_asked(event: &Event, asked: Option<&Request>, names: &dyn ClusterNames) -> String {
    let Event::RoleChanged { role } = event else { return words(event, names) };
    let changes: Vec<&str> =
        asked.iter().flat_map(|request| &request.commands).flat_map(|it| role_changes(it, &role.name)).collect();
    if changes.is_empty() { words(event, names) } else { format!("role {} changed: {}", role.name, changes.join(", ")) }
}

/// What a command changes of a role.
fn role_changes(command: &Command, role: &str) -> Vec<&'static str> {
    let Command::AlterRole { name, superuser, password, .. } = command else { return Vec::new() };
    if name != role {
        return Vec::new();
    }
    let superuser = superuser.map(|superuser| if superuser { "made a superuser" } else { "no longer a superuser" });
    let password = match password {
        PasswordChange::Keep => None,
        PasswordChange::Set(_) => Some("given a password"),
        PasswordChange::Clear => Some("left without a password"),
    };
    superuser.into_iter().chain(password).collect()
}

/// One line.
pub fn words(event: &Event, names: &dyn ClusterNames) -> String {
    let called = |cluster: ClusterId| names.name_of(cluster).unwrap_or_else(|| cluster.to_string());
    match event {
        Event::LeaderAnnounced { node, term, epoch } => format!("node {node} leads in term {term}, epoch {epoch}"),
        Event::RulesRaised { from, to } => format!("rules raised from version {from} to {to}"),
        Event::NodeAdmitted { node, name, address } => format!("node {name} at {address} admitted as number {node}"),
        Event::GroupFounded { nodes } => format!("group founded with {nodes} nodes"),

        Event::SizeCreated { size } => format!("size {} created: {}", size.name, size_words(size)),
        Event::SizeChanged { before, size } => {
            format!("size {} changed from {} to {}", size.name, size_words(before), size_words(size))
        }
        Event::SizeDropped { size } => format!("size {} deleted", size.name),
        Event::SizeRestored { size } => format!("size {} restored: {}", size.name, size_words(size)),

        Event::ClusterCreated { cluster } => format!("cluster {} created as {}", cluster.name, cluster.id),
        Event::ClusterRenamed { from, cluster } => format!("cluster {from} renamed to {}", cluster.name),
        Event::ClusterDropped { cluster } => format!("cluster {} deleted", cluster.name),
        Event::ClusterPlaced { cluster, backend } => match backend {
            Some(backend) => format!("cluster {} lives on backend {backend}", cluster.name),
            None => format!("cluster {} lives where default_backend says", cluster.name),
        },
        Event::ClusterRestored { cluster } => format!("cluster {} restored as {}", cluster.name, cluster.id),
        Event::ClusterKnowledgeRestored { cluster, .. } => format!("what is known of {} restored", called(*cluster)),

        Event::SettingSet { name, value, .. } => format!("setting {name} set to {value}"),
        Event::SettingReset { name, .. } => format!("setting {name} set back to its default"),
        Event::SettingRestored { name, value: Some(value), .. } => format!("setting {name} restored to {value}"),
        Event::SettingRestored { name, value: None, .. } => format!("setting {name} restored to its default"),

        Event::RestoreBegun { bytes_total, .. } => format!("restore of a backup of {bytes_total} bytes begun"),
        Event::RestoreChunkStored { offset, bytes, .. } => {
            format!("{} bytes of the backup stored at {offset}", bytes.as_slice().len())
        }
        Event::RestoreFinished { incarnation, backup_index, backup_incarnation, .. } => format!(
            "backup of index {backup_index} of incarnation {backup_incarnation} put in place as incarnation {incarnation}"
        ),
        Event::RestoreAborted { reason, .. } => match reason {
            AbortReason::Asked => "restore given up".to_owned(),
            AbortReason::Superseded => "restore given up for another one".to_owned(),
            AbortReason::Idle => "restore given up: nothing came for too long".to_owned(),
        },

        Event::StrategyCreated { strategy } => format!("{} created{}", strategy_words(strategy, names), with(strategy)),
        Event::StrategyChanged { before, strategy } => {
            format!(
                "{} changed: {}",
                strategy_words(strategy, names),
                option_changes(&before.options, &strategy.options)
            )
        }
        Event::StrategyDropped { strategy } => format!("{} deleted", strategy_words(strategy, names)),
        Event::StrategyRestored { strategy } => {
            format!("{} restored{}", strategy_words(strategy, names), with(strategy))
        }
        Event::StrategyFaulted { cluster, strategy, reason } => {
            format!("strategy {strategy} failed on {}: {reason}", called(*cluster))
        }
        Event::StrategyStateSet { cluster, kind, state } => match state {
            Some(_) => format!("what {kind} remembers of {} set by hand", called(*cluster)),
            None => format!("what {kind} remembers of {} forgotten by hand", called(*cluster)),
        },

        Event::SignalsReported { collector, cluster, observations, .. } => {
            let seen: Vec<String> = observations.iter().map(observation).collect();
            format!("{collector} saw of {}: {}", called(*cluster), seen.join("; "))
        }
        Event::CollectorHeard { collector, .. } => format!("{collector} had nothing to say about any cluster"),

        Event::ClusterPaused { cluster, pause } => format!("{} paused{}", called(*cluster), pause_words(pause)),
        Event::ClusterResumed { cluster, reason } => format!("{} resumed: {}", called(*cluster), ended(*reason)),
        Event::ReplicaAsked { cluster, asked } => {
            format!("{} on {}, {}", step(&asked.step), called(*cluster), asked.reason)
        }

        Event::DecisionMade { decision } => {
            let wanted: Vec<String> =
                decision.desired.iter().map(|it| format!("{} of size {}", it.name, it.size)).collect();
            let wanted = if wanted.is_empty() { "nothing".to_owned() } else { wanted.join(", ") };
            let held: Vec<&str> = decision.brakes.iter().map(|held| held.brake.code()).collect();
            let held = if held.is_empty() { String::new() } else { format!(", held by {}", held.join(", ")) };
            format!(
                "decision {} on {}: {}, wanted {wanted}{held}",
                decision.id,
                called(decision.cluster),
                decision.conclusion.code()
            )
        }

        Event::ActionPlanned { action } => format!("{} planned for {}: {}", call(action), action.by, action.reason),
        Event::ActionApproved { action } => format!("{} approved", call(action)),
        Event::ActionClaimed { action } => match action.attempts.last() {
            Some(attempt) => format!(
                "{} claimed by node {} in epoch {}, attempt {}",
                call(action),
                attempt.node,
                attempt.epoch,
                attempt.number
            ),
            None => format!("{} claimed", call(action)),
        },
        Event::ActionReturned { action } => format!("{} failed and is tried again{}", call(action), said(action)),
        Event::ActionUnsure { action } => format!("{}: nobody knows what came of it{}", call(action), said(action)),
        Event::ActionSettled { action, .. } => format!("{} {}{}", call(action), action.status.code(), said(action)),
        Event::ActionHurried { action } => format!("{} hurried", call(action)),
        Event::DeadLetterCleared { action, reason } => {
            format!("{} cleared from the dead letters: {reason}", call(action))
        }
        Event::ActionRowsDeleted { cluster, numbers } => {
            format!("{} rows of settled actions of {} no longer shown", numbers.len(), called(*cluster))
        }

        Event::OperationBegun { operation } => {
            format!("{} on {} begun", operation_words(operation), called(operation.cluster))
        }
        Event::OperationAdvanced { operation } => {
            format!("{} on {} is {}", operation_words(operation), called(operation.cluster), operation.phase().as_str())
        }
        Event::OperationEnded { operation, end } => {
            let why = match end {
                OperationEnd::Failed(reason) => format!(": {}", reason.text()),
                OperationEnd::Completed | OperationEnd::Cancelled => String::new(),
            };
            format!("{} on {} {}{why}", operation_words(operation), called(operation.cluster), end.code())
        }

        Event::RoleCreated { role } => format!("role {} created{}", role.name, role_words(role)),
        Event::RoleChanged { role } => format!("role {} changed{}", role.name, role_words(role)),
        Event::RoleDropped { role } => format!("role {} deleted", role.name),
        Event::RoleRestored { role } => format!("role {} restored{}", role.name, role_words(role)),
        Event::UsageGranted { role, on } => format!("usage on {} granted to {}", usage(*on, names), role.name),
        Event::UsageRevoked { role, on } => format!("usage on {} taken from {}", usage(*on, names), role.name),
        Event::TokenCreated { role, token } => format!("token {token} made for {}", role.name),
        Event::TokenDropped { role, token } => format!("token {token} of {} taken back", role.name),

        Event::SignalCreated { signal } => format!("{} created", signal_words(signal, names)),
        Event::SignalChanged { before, signal } => {
            format!("{} changed: {}", signal_words(signal, names), option_changes(&before.options, &signal.options))
        }
        Event::SignalDropped { signal } => format!("{} deleted", signal_words(signal, names)),
        Event::SignalRestored { signal } => format!("{} restored", signal_words(signal, names)),
        Event::SignalFailed { signal, error } => format!("signal {signal} could not be collected: {error}"),

        Event::ClusterWoken { cluster, wake } => format!("{} woken: {}", called(*cluster), wake_words(wake)),
        Event::ClusterOverridden { cluster, floor } => {
            format!("{} overridden: {}", called(*cluster), floor_words(floor))
        }
        Event::OverrideEnded { cluster, reason } => {
            format!("override of {} ended: {}", called(*cluster), ended(*reason))
        }

        Event::BackendDescribed { backend, checkpoints: true } => {
            format!("backend {backend} keeps checkpoints of what is suspended")
        }
        Event::BackendDescribed { backend, checkpoints: false } => format!("backend {backend} keeps no checkpoints"),

        Event::CourseNoted { cluster, kind, .. } => format!("{kind} noted what it recommends for {}", called(*cluster)),
    }
}

fn size_words(size: &Size) -> String {
    let Size { rank, slots, price_micros_per_hour, .. } = size;
    format!("rank {rank}, {slots} slots, {price_micros_per_hour} millionths an hour")
}

fn target(target: &Target, names: &dyn ClusterNames) -> String {
    match target {
        Target::Cluster(id) => names.name_of(*id).unwrap_or_else(|| id.to_string()),
        Target::Pattern(pattern) => format!("clusters like '{pattern}'"),
        Target::All => "all clusters".to_owned(),
    }
}

fn strategy_words(strategy: &Strategy, names: &dyn ClusterNames) -> String {
    format!("strategy {} ({} for {})", strategy.id, strategy.kind, target(&strategy.target, names))
}

fn with(strategy: &Strategy) -> String {
    let all: Vec<String> = strategy.options.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if all.is_empty() { String::new() } else { format!(" with {}", all.join(", ")) }
}

/// What became of each option that is not what it was.
fn option_changes(before: &Options, after: &Options) -> String {
    let known = |options: &Options| -> std::collections::BTreeMap<String, String> {
        options.iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect()
    };
    let (before, after) = (known(before), known(after));
    let mut changes: Vec<String> = Vec::new();
    for (key, value) in &after {
        match before.get(key) {
            Some(old) if old == value => {}
            Some(old) => changes.push(format!("{key} from {old} to {value}")),
            None => changes.push(format!("{key} to {value}")),
        }
    }
    changes.extend(
        before
            .iter()
            .filter(|(key, _)| !after.contains_key(*key))
            .map(|(key, old)| format!("{key} from {old} to its default")),
    );
    if changes.is_empty() { "nothing in its options".to_owned() } else { changes.join(", ") }
}

fn signal_words(signal: &Signal, names: &dyn ClusterNames) -> String {
    format!("signal {} ({} for {})", signal.name, signal.kind, target(&signal.target, names))
}

fn observation(observation: &Observation) -> String {
    let what = match &observation.seen {
        Seen::Alive => "nothing new".to_owned(),
        Seen::Activity { idle_for: Some(span) } => format!("idle for {span}"),
        Seen::Activity { idle_for: None } => "no activity".to_owned(),
        Seen::Replica { name, size, ready, .. } => {
            format!("replica {name} of size {size}, {}", if *ready { "ready" } else { "not ready" })
        }
        Seen::ReplicaGone { name, .. } => format!("replica {name} gone"),
        Seen::Hydration { replica, total, hydrated } => format!("{replica} has {hydrated} of {total} objects hydrated"),
        Seen::Crash { replica, reason, count, .. } => {
            format!("{count} crashes of {replica} {reason}").trim_end().to_owned()
        }
        Seen::Metric { name, value_milli } => format!("{name} = {}", show_milli(*value_milli)),
        Seen::Notice { replica, kind, .. } => format!("{} notice for {replica}", kind.as_str()),
    };
    if observation.age.as_millis() == 0 { what } else { format!("{what} ({} ago)", observation.age) }
}

fn pause_words(pause: &Pause) -> String {
    let until = pause.expires_at.map(|at| format!(" until {at}")).unwrap_or_default();
    if pause.reason.is_empty() { until } else { format!("{until}: {}", pause.reason) }
}

fn ended(reason: ResumeReason) -> &'static str {
    match reason {
        ResumeReason::Asked => "somebody asked for it",
        ResumeReason::Expired => "time was up",
    }
}

/// What was asked for, as the log has it; a long one is cut off. What is secret in it shows itself as such.
pub(crate) fn asked_words(command: &Command) -> String {
    const LETTERS_MAX: usize = 200;
    let whole = format!("{command:?}");
    match whole.char_indices().nth(LETTERS_MAX) {
        Some((cut, _)) => format!("{}...", &whole[..cut]),
        None => whole,
    }
}

/// What a step of a plan does.
pub fn step(step: &Step) -> String {
    match step {
        Step::Create(it) => format!("create replica {} of size {}", it.name, it.size),
        Step::Drop { replica, .. } => format!("drop replica {} of size {}", replica.name, replica.size),
        Step::Suspend { replica, .. } => format!("suspend replica {} of size {}", replica.name, replica.size),
        Step::Replace { old, new, .. } => {
            format!("replace {} of size {} by {} of size {}", old.name, old.size, new.name, new.size)
        }
    }
}

fn call(action: &Action) -> String {
    format!("action {} ({} of {})", action.id, action.call, action.cluster_name)
}

fn said(action: &Action) -> String {
    action.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default()
}

fn operation_words(operation: &Operation) -> String {
    format!("operation {} ({})", operation.id, operation.kind.as_str())
}

fn role_words(role: &Role) -> String {
    let superuser = role.superuser.then_some("superuser");
    let password = role.verifier.is_some().then_some("with a password");
    let parts: Vec<&str> = superuser.into_iter().chain(password).collect();
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}

fn usage(on: Option<ClusterId>, names: &dyn ClusterNames) -> String {
    on.map_or_else(|| "all clusters".to_owned(), |id| names.name_of(id).unwrap_or_else(|| id.to_string()))
}

fn wake_words(wake: &Wake) -> String {
    format!("{}{}", wake.reason.as_str(), if wake.cold { ", from zero" } else { "" })
}

fn floor_words(floor: &Override) -> String {
    let Override { replicas_min, size, reason, by, expires_at, .. } = floor;
    format!("at least {replicas_min} replicas of size {size} until {expires_at}, by {by}: {reason}")
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::{Actor, Command, Entry, LogIndex, Request, Sealed, State, Time, apply};

    use super::*;

    #[test]
    fn an_event_says_what_happened_under_the_names_that_are_known() {
        let mut state = State::new();
        let commands = vec![
            Command::SetSetting { name: "enable_auto_scaling".into(), value: "true".into(), etag: None },
            Command::CreateSize { name: "25cc".into(), rank: None, slots: 2, price_micros_per_hour: 250_000 },
            Command::CreateCluster { name: "demo".into() },
            Command::PauseCluster { cluster: "demo".into(), reason: "moving".into(), expires_in: None },
        ];
        let request = Request { actor: Actor::new("alice", "test"), request_id: None, commands };
        let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(1_000), requests: vec![request] });
        let applied = apply(&mut state, LogIndex(1), &sealed);
        let said: Vec<String> = applied.events.iter().map(|event| words(event, &state)).collect();
        assert_eq!(
            said,
            [
                "setting enable_auto_scaling set to true",
                "size 25cc created: rank 10, 2 slots, 250000 millionths an hour",
                "cluster demo created as c1.2",
                "demo paused: moving",
            ]
        );
        assert_eq!(words(&applied.events[3], &NoNames), "c1.2 paused: moving");
    }
}
