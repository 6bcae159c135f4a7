//! Which of several commands of one request something followed from.
//!
//! The log keeps of every event the request that brought it about, and not the command: a request is one deed. Who looks for one kind of command
//! wants what that one did, and what it did shows by its kind.

use loadline_state_machine::{Command, Event, Request};

/// The commands that bring an event about themselves. What is not here, any command of its request may have.
const MAKERS: &[(&str, &[&str])] = &[
    ("LeaderAnnounced", &["AnnounceLeader"]),
    ("NodeAdmitted", &["AdmitNode"]),
    ("GroupFounded", &["FoundGroup"]),
    ("SizeCreated", &["CreateSize"]),
    ("SizeChanged", &["ChangeSize"]),
    ("SizeDropped", &["DropSize"]),
    ("ClusterCreated", &["CreateCluster"]),
    ("ClusterRenamed", &["RenameCluster"]),
    ("ClusterDropped", &["DropCluster", "DropClusterCascade"]),
    // A new name says once more where the cluster lives.
    ("ClusterPlaced", &["PlaceCluster", "RenameCluster", "FinishRestore"]),
    ("SettingSet", &["SetSetting", "SuggestSetting"]),
    ("SettingReset", &["ResetSetting"]),
    ("StrategyCreated", &["CreateStrategy"]),
    ("StrategyChanged", &["ChangeStrategy"]),
    ("StrategyDropped", &["DropStrategy", "DropStrategies", "DropCluster", "DropClusterCascade"]),
    ("StrategyStateSet", &["SetStrategyState"]),
    ("ClusterPaused", &["PauseCluster"]),
    ("ClusterResumed", &["ResumeCluster"]),
    ("ReplicaAsked", &["CreateReplica", "DropReplica"]),
    ("ActionApproved", &["ApproveAction"]),
    ("ActionClaimed", &["ClaimAction"]),
    ("ActionHurried", &["RetryAction"]),
    ("ActionRowsDeleted", &["DeleteActions"]),
    ("RoleCreated", &["CreateRole"]),
    ("RoleChanged", &["AlterRole"]),
    ("RoleDropped", &["DropRole"]),
    ("UsageGranted", &["GrantUsage"]),
    ("UsageRevoked", &["RevokeUsage", "DropCluster", "DropClusterCascade"]),
    ("TokenCreated", &["CreateToken"]),
    ("TokenDropped", &["DropToken"]),
    ("SignalCreated", &["CreateSignal"]),
    ("SignalChanged", &["ChangeSignal"]),
    ("SignalDropped", &["DropSignal", "DropCluster", "DropClusterCascade"]),
    ("ClusterWoken", &["WakeCluster"]),
    ("ClusterOverridden", &["OverrideCluster"]),
    ("OverrideEnded", &["ClearOverride"]),
    ("BackendDescribed", &["DescribeBackend"]),
];

/// Whether an event followed from a command of this kind, among those of its request.
pub(super) fn followed_from(event: &Event, kind: u16, request: &Request) -> bool {
    let makers = makers(event);
    let makes = |command: &&Command| makers.is_empty() || makers.contains(&command.kind_name());
    let of_kind = |command: &Command| command.kind() == kind;
    match request.commands.iter().any(|command| makes(&command)) {
        true => request.commands.iter().filter(makes).any(of_kind),
        false => request.commands.iter().any(of_kind),
    }
}

fn makers(event: &Event) -> &'static [&'static str] {
    MAKERS.iter().find(|(made, _)| *made == event.kind_name()).map_or(&[], |(_, makers)| makers)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use loadline_state_machine::Cause;

    use super::*;
    use crate::part::asker;
    use crate::trail::{Scanned, Trail};
    use crate::{ExportFile, Source};

    #[test]
    fn every_event_of_a_command_that_stands_alone_is_one_that_it_is_known_to_make() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/everything.format1.rules1.export");
        let file = ExportFile::open(&golden).unwrap();
        let index = Scanned::read(&file, || {}).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        Trail { source: &file, index: &index }
            .walk(1, *file.range().unwrap().end(), |opened| {
                for (cause, event) in opened.events.iter().filter(|(cause, _)| *cause != Cause::Reaction) {
                    let Some([command]) = asker(&opened.entry, *cause).map(|request| request.commands.as_slice())
                    else {
                        continue;
                    };
                    let makers = makers(event);
                    let known = makers.is_empty() || makers.contains(&command.kind_name());
                    assert!(known, "{} follows from {}", event.kind_name(), command.kind_name());
                    seen.insert(event.kind_name());
                }
                true
            })
            .unwrap();
        let unseen: Vec<&str> = MAKERS.iter().map(|(made, _)| *made).filter(|made| !seen.contains(made)).collect();
        assert_eq!(unseen, Vec::<&str>::new());
    }
}
