//! How roles come, change and go, and what holds whatever is done with them.

use crate::common;
use crate::common::{World, access_samples, anonymous, create_cluster, proven, request_id, restore_commands};
use loadline_state_machine::{
    Actor, Answer, Command, Entry, Event, Field, Hash, PasswordChange, Proof, Rejection, RejectionClass, Request,
    Resource, ResourceName, RoleView, ScramVerifier, Sealed, Span, State, UsageOn,
};

fn text(text: &str) -> String {
    text.to_owned()
}

fn create(name: &str, superuser: bool, verifier: Option<ScramVerifier>) -> Command {
    Command::CreateRole { name: text(name), superuser, verifier, if_not_exists: false }
}

fn password() -> Option<ScramVerifier> {
    Some(access_samples::verifier())
}

fn token(role: &str, token: &str, expires_in: Option<Span>) -> Command {
    Command::CreateToken { role: text(role), token: text(token), hash: Hash([1; 32]), expires_in }
}

fn drop_role(name: &str) -> Command {
    Command::DropRole { name: text(name), etag: None, allow_missing: false }
}

fn grant(role: &str, cluster: &str) -> Command {
    Command::GrantUsage { role: text(role), on: UsageOn::Cluster(text(cluster)) }
}

fn revoke(role: &str, cluster: &str) -> Command {
    Command::RevokeUsage { role: text(role), on: UsageOn::Cluster(text(cluster)) }
}

fn pause(cluster: &str) -> Command {
    Command::PauseCluster { cluster: text(cluster), reason: text("test"), expires_in: None }
}

fn as_root(command: Command) -> Request {
    proven("root", Proof::Password, vec![command])
}

#[track_caller]
fn refused(world: &mut World, request: Request) -> &'static str {
    match world.ask(request).result {
        Err(refused) => refused.rejection.code(),
        Ok(done) => panic!("it should have been refused: {done:?}"),
    }
}

#[track_caller]
fn done(world: &mut World, request: Request) {
    let receipt = world.ask(request);
    assert!(receipt.result.is_ok(), "{receipt:?}");
}

/// Two clusters, a superuser, and a role with USAGE on the first.
fn world() -> World {
    let mut world = World::new();
    for command in [
        common::set("enable_auto_scaling", "true"),
        create_cluster("a"),
        create_cluster("b"),
        create("alice", false, None),
        grant("alice", "a"),
        create("root", true, password()),
    ] {
        world.must(command);
    }
    done(&mut world, as_root(token("alice", "token-of-alice", None)));
    world
}

fn as_alice(command: Command) -> Request {
    proven("alice", Proof::Token(text("token-of-alice")), vec![command])
}

#[test]
fn the_first_who_can_log_in_is_a_superuser_and_there_is_always_one_left() {
    let mut world = World::new();
    assert_eq!(refused(&mut world, anonymous(vec![create("alice", false, password())])), "NO_SUPERUSER_LEFT");
    world.must(create("alice", false, None));
    assert_eq!(refused(&mut world, anonymous(vec![token("alice", "token-of-alice", None)])), "NO_SUPERUSER_LEFT");
    world.must(create("root", true, None));
    let expiring = token("root", "token-of-root", Some(Span::from_hours(1)));
    assert_eq!(refused(&mut world, anonymous(vec![expiring])), "NO_SUPERUSER_LEFT", "one that expires locks out later");
    assert!(!world.state.login_needed());
    world.must(token("root", "token-of-root", None));
    assert!(world.state.login_needed());

    let clear = |superuser, password| Command::AlterRole { name: text("root"), superuser, password, etag: None };
    let take_back = Command::DropToken { role: text("root"), token: text("token-of-root"), allow_missing: false };
    for command in [drop_role("root"), clear(Some(false), PasswordChange::Keep), take_back.clone()] {
        assert_eq!(refused(&mut world, proven("x", Proof::Machine, vec![command])), "NO_SUPERUSER_LEFT");
    }
    let by_machine = |command| proven("x", Proof::Machine, vec![command]);
    done(&mut world, by_machine(clear(None, PasswordChange::Set(access_samples::verifier()))));
    done(&mut world, by_machine(take_back));
    assert_eq!(refused(&mut world, by_machine(clear(None, PasswordChange::Clear))), "NO_SUPERUSER_LEFT");
    done(&mut world, by_machine(create("second", true, password())));
    done(&mut world, by_machine(drop_role("root")));
    assert!(world.state.login_needed());
}

#[test]
fn a_privilege_that_was_taken_back_cannot_be_used_at_the_next_index_nor_later_in_the_same_entry() {
    let mut world = world();
    done(&mut world, as_alice(pause("a")));
    let applied = world.apply(vec![as_root(revoke("alice", "a")), as_alice(pause("a"))]);
    assert!(applied.receipts[0].result.is_ok());
    let denied = applied.receipts[1].result.as_ref().unwrap_err();
    assert_eq!(denied.rejection.code(), "USAGE_NEEDED");
    assert_eq!(
        denied.rejection.to_string(),
        "permission denied to pause cluster for cluster a: role alice needs USAGE on it (GRANT USAGE ON CLUSTER a TO alice)"
    );
    assert_eq!(applied.events.len(), 1, "only the privilege went: {:?}", applied.events);
}

#[test]
fn a_token_that_was_taken_back_or_has_expired_and_a_role_that_is_gone_count_at_once() {
    let mut world = world();
    let short = || proven("alice", Proof::Token(text("short-of-alice")), vec![pause("a")]);
    done(&mut world, as_root(token("alice", "short-of-alice", Some(Span::from_secs(60)))));
    world.pass_time(Span::from_millis(59_999));
    done(&mut world, short());
    world.pass_time(Span::from_millis(1));
    assert_eq!(refused(&mut world, short()), "TOKEN_GONE", "exactly at its end it has expired");

    let stolen = proven("root", Proof::Token(text("token-of-alice")), vec![create_cluster("c")]);
    assert_eq!(refused(&mut world, stolen), "TOKEN_GONE", "a token is of its role only");
    let take_back = Command::DropToken { role: text("alice"), token: text("token-of-alice"), allow_missing: false };
    done(&mut world, as_root(take_back));
    assert_eq!(refused(&mut world, as_alice(pause("a"))), "TOKEN_GONE");
    done(&mut world, as_root(drop_role("alice")));
    assert_eq!(refused(&mut world, proven("alice", Proof::Password, vec![pause("a")])), "ROLE_GONE");
}

#[test]
fn usage_follows_a_cluster_under_its_new_name_and_goes_with_it() {
    let mut world = world();
    done(&mut world, as_root(Command::RenameCluster { name: text("a"), to: text("c"), etag: None }));
    done(&mut world, as_root(create_cluster("a")));
    done(&mut world, as_alice(pause("c")));
    assert_eq!(refused(&mut world, as_alice(pause("a"))), "USAGE_NEEDED", "another cluster under the old name");

    let before = world.state.role("alice").unwrap().updated;
    let drop = Command::DropCluster { name: text("c"), etag: None, allow_missing: false };
    let applied = world.apply(vec![as_root(drop)]);
    let kinds: Vec<&str> = applied.events.iter().map(Event::kind_name).collect();
    assert_eq!(kinds, ["UsageRevoked", "ClusterDropped"]);
    let alice = world.state.role("alice").unwrap();
    assert!(alice.clusters.is_empty() && alice.updated > before);
    done(&mut world, as_root(create_cluster("c")));
    assert_eq!(refused(&mut world, as_alice(pause("c"))), "USAGE_NEEDED", "a new cluster has no users yet");
    world.through_snapshot();
}

#[test]
fn what_is_as_asked_changes_nothing_and_what_is_wrong_says_what_would_be_right() {
    let mut world = world();
    let etag = world.state.role("alice").unwrap().updated;
    for command in [
        grant("alice", "a"),
        revoke("alice", "b"),
        Command::RevokeUsage { role: text("alice"), on: UsageOn::AllClusters },
        Command::AlterRole { name: text("alice"), superuser: Some(false), password: PasswordChange::Keep, etag: None },
        Command::CreateRole { name: text("alice"), superuser: true, verifier: None, if_not_exists: true },
        Command::DropRole { name: text("nobody"), etag: None, allow_missing: true },
        Command::DropToken { role: text("alice"), token: text("another"), allow_missing: true },
    ] {
        let done = world.ask(as_root(command)).result.unwrap();
        assert!(!done[0].changed);
    }
    assert_eq!(world.state.role("alice").unwrap().updated, etag);

    let weak = ScramVerifier { iterations: 100, ..access_samples::verifier() };
    let unsalted = ScramVerifier { salt: vec![1; 7].into(), ..access_samples::verifier() };
    let stale = Some(common::revision("1.0"));
    for (command, code) in [
        (create("alice", false, None), "ALREADY_EXISTS"),
        (create("Public", false, None), "RESERVED_ROLE"),
        (create("a b", false, None), "INVALID_NAME"),
        (create("new", false, Some(weak)), "OUT_OF_RANGE"),
        (create("new", false, Some(unsalted)), "OUT_OF_RANGE"),
        (grant("nobody", "a"), "NOT_FOUND"),
        (grant("alice", "nowhere"), "NOT_FOUND"),
        (revoke("alice", "nowhere"), "NOT_FOUND"),
        (drop_role("nobody"), "NOT_FOUND"),
        (Command::DropRole { name: text("alice"), etag: stale, allow_missing: false }, "ETAG_MISMATCH"),
        (token("nobody", "token-of-nobody", None), "NOT_FOUND"),
        (token("root", "token-of-alice", None), "TOKEN_TAKEN"),
        (token("alice", "short", None), "OUT_OF_RANGE"),
        (token("alice", "token of alice", None), "INVALID_NAME"),
        (token("alice", "another-token", Some(Span::from_millis(0))), "OUT_OF_RANGE"),
        (
            Command::DropToken { role: text("alice"), token: text("another-token"), allow_missing: false },
            "TOKEN_NOT_FOUND",
        ),
    ] {
        assert_eq!(refused(&mut world, as_root(command.clone())), code, "{command:?}");
    }
}

#[test]
fn nobody_fills_the_memory_with_roles_tokens_or_grants() {
    let mut world = world();
    for number in 1..32 {
        done(&mut world, as_root(token("alice", &format!("token-number-{number}"), None)));
    }
    assert_eq!(refused(&mut world, as_root(token("alice", "one-too-many", None))), "TOO_MANY_OF_ROLE");

    let clusters = (0..1_000).map(|number| create_cluster(&format!("c{number}"))).collect();
    done(&mut world, proven("root", Proof::Password, clusters));
    let grants = (1..1_000).map(|number| grant("alice", &format!("c{number}"))).collect();
    done(&mut world, proven("root", Proof::Password, grants));
    let Err(last) = world.ask(as_root(grant("alice", "c0"))).result else { panic!("one too many") };
    assert!(last.rejection.to_string().ends_with("grant USAGE on all clusters instead"), "{}", last.rejection);
    assert_eq!(last.rejection.field(), Some(Field::Clusters.as_str()));

    let roles = (0..998).map(|number| create(&format!("r{number}"), false, None)).collect();
    done(&mut world, proven("root", Proof::Password, roles));
    assert_eq!(refused(&mut world, as_root(create("last", false, None))), "TOO_MANY_ROLES");
    world.through_snapshot();
}

#[test]
fn no_credential_shows_in_an_answer_in_what_is_watched_or_in_a_log_line() {
    let mut world = world();
    let applied = world.apply(vec![as_root(create("bob", false, password()))]);
    let view: RoleView = world.state.role("bob").unwrap().view();
    let done = applied.receipts[0].result.as_ref().unwrap();
    assert_eq!(done[0].answer, Answer::Role(Box::new(view.clone())));
    assert!(view.has_password);
    let name = ResourceName::role("bob");
    assert_eq!(world.state.resource(&name), Some(Resource::Role(view)));
    // 161 is a byte of the stored key, 178 one of the server key, 195 one of the hash of a token.
    let lines = [
        format!("{:?}", applied),
        format!(
            "{:?}",
            Sealed::seal(Entry { stamped_at: common::NOON, requests: vec![anonymous(access_samples::commands())] })
        ),
        format!("{:?}", access_samples::events()),
    ];
    for line in lines {
        let shown = ["161", "178", "a1a1", "b2b2", "7, 7"].into_iter().find(|secret| line.contains(secret));
        assert_eq!(shown, None, "{line}");
    }
}

#[test]
fn a_backup_brings_its_roles_back_and_never_opens_a_group_that_is_closed() {
    let restore = |world: &mut World, backup: &[u8]| {
        let commands = restore_commands(backup, world.next_index(), 500);
        done(world, proven("root", Proof::Password, commands));
    };
    let mut closed = world();
    let backup = closed.state.encode();

    let mut new = World::new();
    new.must(create_cluster("other"));
    new.must(create("forgotten", false, None));
    restore(&mut new, &backup);
    assert!(new.state.login_needed());
    assert_eq!(new.state.roles_after(None).map(|role| role.name.as_str()).collect::<Vec<_>>(), ["alice", "root"]);
    done(&mut new, as_alice(pause("a")));
    assert_eq!(refused(&mut new, as_alice(pause("b"))), "USAGE_NEEDED");
    new.through_snapshot();

    // A backup of another group, from before it had roles: its clusters have ids that are ours, too.
    let mut open = World::new();
    for name in ["x", "b", "a"] {
        open.must(create_cluster(name));
    }
    open.must(common::set("enable_auto_scaling", "true"));
    restore(&mut closed, &open.state.encode());
    assert!(closed.state.login_needed(), "a backup without roles must not let everybody in");
    done(&mut closed, as_alice(pause("a")));
    assert_eq!(refused(&mut closed, as_alice(pause("b"))), "USAGE_NEEDED", "USAGE follows the name, not the old id");
    assert_eq!(refused(&mut closed, as_alice(pause("x"))), "USAGE_NEEDED");
    closed.through_snapshot();
}

#[test]
fn how_somebody_is_known_is_written_and_read_back_and_what_was_only_said_has_the_bytes_it_always_had() {
    let proofs = [Proof::Said, Proof::Node, Proof::Machine, Proof::Password, Proof::Token(text("token-of-alice"))];
    for proof in proofs {
        for request_id in [None, Some(request_id(common::NOON, 7))] {
            let actor = Actor::new("alice", "test").proven(proof.clone());
            let request = Request { actor, request_id, commands: vec![Command::Tick] };
            assert_eq!(Request::decode(&request.encode()), Ok(request.clone()));
            let sealed = Sealed::seal(Entry { stamped_at: common::NOON, requests: vec![request] });
            assert_eq!(Sealed::open(sealed.bytes().to_vec()), Ok(sealed));
        }
    }
}

#[test]
fn a_snapshot_with_impossible_roles_is_refused() {
    let bytes = world().state.encode();
    let find = |needle: &[u8]| bytes.windows(needle.len()).position(|window| window == needle);
    // The only superuser turned into nobody: the name is followed by one byte that says what it is.
    let at = find(b"\x04root\x01").expect("the role is in there") + 5;
    let mut wrong = bytes.clone();
    wrong[at] = 0;
    let error = State::decode(&wrong).unwrap_err().to_string();
    assert!(error.contains("nobody can manage the roles"), "{error}");
    let mut wrong = bytes.clone();
    let at = find(b"\x04root\x01").expect("the role is in there");
    wrong[at + 1..at + 5].copy_from_slice(b"aaaa");
    assert!(State::decode(&wrong).is_err(), "roles are in the order of their names");
}

#[test]
fn a_refusal_for_lack_of_a_privilege_has_a_class_of_its_own() {
    for rejection in access_samples::rejections() {
        let class = Rejection::from(rejection.clone()).class();
        let denied = rejection.to_string().starts_with("permission denied");
        assert_eq!(denied, class == RejectionClass::Denied, "{rejection}");
    }
}
