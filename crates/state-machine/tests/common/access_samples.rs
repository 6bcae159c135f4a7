//! One of everything about roles that has a place in the log, in a receipt or in a state.

use loadline_state_machine::{
    AccessRejection, ClusterId, Command, Event, Field, Hash, LogIndex, PasswordChange, Role, ScramVerifier, Span,
    Token, UsageOn,
};

use super::{NOON, revision};

pub fn verifier() -> ScramVerifier {
    ScramVerifier { iterations: 4_096, salt: vec![7; 16].into(), stored_key: [0xa1; 32], server_key: [0xb2; 32] }
}

pub fn role() -> Role {
    Role {
        name: "ops".to_owned(),
        superuser: false,
        all_clusters: true,
        clusters: vec![ClusterId { index: LogIndex(300), ordinal: 1 }],
        verifier: Some(verifier()),
        tokens: vec![Token {
            id: "0123456789abcdef".to_owned(),
            hash: Hash([0xc3; 32]),
            created_at: NOON,
            expires_at: Some(NOON + Span::from_hours(1)),
        }],
        created: revision("17.0"),
        updated: revision("412.3"),
        created_at: NOON,
    }
}

pub fn commands() -> Vec<Command> {
    let name = || "ops".to_owned();
    let token = || "0123456789abcdef".to_owned();
    vec![
        Command::CreateRole { name: name(), superuser: true, verifier: Some(verifier()), if_not_exists: true },
        Command::AlterRole {
            name: name(),
            superuser: Some(false),
            password: PasswordChange::Set(verifier()),
            etag: Some(revision("412.3")),
        },
        Command::DropRole { name: name(), etag: None, allow_missing: true },
        Command::GrantUsage { role: name(), on: UsageOn::Cluster("demo".to_owned()) },
        Command::RevokeUsage { role: name(), on: UsageOn::AllClusters },
        Command::CreateToken {
            role: name(),
            token: token(),
            hash: Hash([0xc3; 32]),
            expires_in: Some(Span::from_hours(1)),
        },
        Command::DropToken { role: name(), token: token(), allow_missing: false },
    ]
}

pub fn events() -> Vec<Event> {
    let on = Some(ClusterId { index: LogIndex(300), ordinal: 1 });
    let token = || "0123456789abcdef".to_owned();
    vec![
        Event::RoleCreated { role: Box::new(role()) },
        Event::RoleChanged { role: Box::new(Role { verifier: None, ..role() }) },
        Event::RoleDropped { role: Box::new(Role { tokens: vec![], ..role() }) },
        Event::UsageGranted { role: Box::new(role()), on },
        Event::UsageRevoked { role: Box::new(role()), on: None },
        Event::TokenCreated { role: Box::new(role()), token: token() },
        Event::TokenDropped { role: Box::new(role()), token: token() },
        Event::RoleRestored { role: Box::new(role()) },
    ]
}

pub fn rejections() -> Vec<AccessRejection> {
    let text = |text: &str| text.to_owned();
    let (role, token) = (|| text("ops"), || text("0123456789abcdef"));
    vec![
        AccessRejection::LoginRequired,
        AccessRejection::RoleGone { role: role() },
        AccessRejection::TokenGone { token: token() },
        AccessRejection::SuperuserNeeded { role: role(), what: text("CreateSize") },
        AccessRejection::NodesOnly { what: text("AnnounceLeader") },
        AccessRejection::UsageNeeded { role: role(), what: text("PauseCluster"), cluster: text("demo") },
        AccessRejection::UsageOnEachNeeded {
            role: role(),
            what: text("CreateStrategy"),
            target: text("all clusters"),
            missing: 2,
            example: Some(text("demo")),
        },
        AccessRejection::NoSuperuserLeft,
        AccessRejection::ReservedRole { name: text("public") },
        AccessRejection::TokenTaken { token: token() },
        AccessRejection::TokenNotFound { role: role(), token: token() },
        AccessRejection::TooManyOfRole { role: role(), field: Field::Clusters, count: 1_000, count_max: 1_000 },
        AccessRejection::TooManyRoles { count: 1_000, count_max: 1_000 },
    ]
}
