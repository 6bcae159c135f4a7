//! A retry is not a second request: what is remembered, for how long, and what is refused instead of being done twice.

use crate::common::{NOON, World, anonymous, create_cluster, identified, request_id, set};
use loadline_state_machine::{
    Actor, Answer, COMMANDS_PER_REQUEST_MAX, Command, Done, LogIndex, NodeNumber, Receipt, Refused, Rejection, Request,
    RequestId, Span, State, Time,
};

const WINDOW: Span = Span::from_mins(10);

fn refused(receipt: &Receipt) -> &Rejection {
    match &receipt.result {
        Err(Refused { ordinal: 0, rejection }) => rejection,
        other => panic!("expected a refusal of the whole request, not {other:?}"),
    }
}

/// How many clusters there are: each test creates one per request that is done.
fn done(world: &World) -> usize {
    world.state.cluster_count()
}

#[test]
fn a_repeat_gets_the_first_answer_at_the_first_index_and_nothing_happens() {
    let mut world = World::new();
    let request = identified(request_id(NOON, 1), vec![create_cluster("demo")]);
    let first = world.ask(request.clone());
    world.must(Command::RenameCluster { name: "demo".to_owned(), to: "prod".to_owned(), etag: None });
    world.pass_time(Span::from_mins(1));
    let applied = world.apply(vec![request]);
    assert_eq!(applied.events, []);
    assert_eq!(applied.causes, []);
    assert_eq!(applied.receipts, [Receipt { repeated: true, ..first.clone() }]);
    assert_eq!(first.index, LogIndex(1));
    assert!(world.state.cluster("demo").is_none(), "the answer is of then, the state is of now");
}

#[test]
fn the_answer_to_a_long_transaction_is_the_same_later_and_after_a_snapshot() {
    let mut world = World::new();
    let commands = (0..COMMANDS_PER_REQUEST_MAX).map(|number| create_cluster(&format!("cluster-{number}"))).collect();
    let request = identified(request_id(NOON, 1), commands);
    let first = world.ask(request.clone());
    assert_eq!(first.result.as_ref().map(Vec::len), Ok(COMMANDS_PER_REQUEST_MAX));
    let snapshot = world.state.encode();
    world.state = State::decode(&snapshot).unwrap();
    assert_eq!(world.state.encode(), snapshot);
    assert_eq!(world.ask(request), Receipt { repeated: true, ..first });
}

#[test]
fn a_retry_that_comes_by_another_way_is_still_the_same_request() {
    let mut world = World::new();
    let request = identified(request_id(NOON, 1), vec![create_cluster("demo")]);
    let first = world.ask(request.clone());
    let by_another_way = Request { actor: Actor::new("alice", "another node"), ..request };
    assert_eq!(world.ask(by_another_way), Receipt { repeated: true, ..first });
}

#[test]
fn another_request_under_a_used_id_is_refused_and_the_first_answer_stays() {
    let mut world = World::new();
    let id = request_id(NOON, 1);
    let request = identified(id, vec![create_cluster("demo")]);
    let first = world.ask(request.clone());
    let others = [
        identified(id, vec![create_cluster("other")]),
        identified(id, vec![create_cluster("demo"), Command::Tick]),
        identified(id, vec![]),
        Request { actor: Actor::new("bob", "test"), ..request.clone() },
    ];
    for other in others {
        assert_eq!(refused(&world.ask(other)), &Rejection::RequestIdReused { id, index: LogIndex(1) });
    }
    assert_eq!(world.ask(request), Receipt { repeated: true, ..first });
    assert_eq!(done(&world), 1);
}

#[test]
fn an_id_that_is_no_uuid_of_version_7_is_refused() {
    let mut world = World::new();
    let id = RequestId(request_id(NOON, 1).0 ^ 1 << 76);
    assert_eq!(refused(&world.ask(identified(id, vec![create_cluster("a")]))), &Rejection::RequestIdNotV7 { id });
    assert_eq!(done(&world), 0);
    assert_eq!(world.state.request_count(), 0);
}

#[test]
fn an_id_is_remembered_for_the_window_and_refused_afterwards_never_done_again() {
    let mut world = World::new();
    let id = request_id(NOON, 1);
    let request = identified(id, vec![create_cluster("demo")]);
    world.ask(request.clone());
    world.must(Command::DropCluster { name: "demo".to_owned(), etag: None, allow_missing: false });

    world.time = NOON + WINDOW;
    assert!(world.ask(request.clone()).repeated, "just inside the window");
    world.pass_time(Span::from_millis(1));
    let now = world.time;
    let floor = Time::from_millis(NOON.as_millis() + 1);
    assert_eq!(refused(&world.ask(request)), &Rejection::RequestTooOld { id, made_at: NOON, floor, now });
    assert_eq!(world.state.request_count(), 0, "it is forgotten");
    assert_eq!(done(&world), 0);
}

#[test]
fn an_id_that_was_too_old_from_the_beginning_is_refused_and_not_remembered() {
    let mut world = World::new();
    let id = request_id(NOON.before(Span::from_mins(11)), 1);
    assert!(matches!(refused(&world.ask(identified(id, vec![create_cluster("a")]))), Rejection::RequestTooOld { .. }));
    assert_eq!(world.state.request_count(), 0);
    assert_eq!(done(&world), 0);
}

#[test]
fn an_id_from_the_future_is_refused_until_its_time_has_come() {
    let mut world = World::new();
    let made_at = NOON + WINDOW + Span::from_millis(1);
    let id = request_id(made_at, 1);
    let request = identified(id, vec![create_cluster("a")]);
    let expected = Rejection::RequestFromFuture { id, made_at, now: NOON, window: WINDOW };
    assert_eq!(refused(&world.ask(request.clone())), &expected);
    world.pass_time(Span::from_millis(1));
    assert_eq!(world.ask(request.clone()).result.map(|done| done.len()), Ok(1), "the refusal was not remembered");
    assert!(world.ask(request).repeated);
}

#[test]
fn a_refusal_is_remembered_like_any_answer() {
    let mut world = World::new();
    let drop = Command::DropCluster { name: "demo".to_owned(), etag: None, allow_missing: false };
    let request = identified(request_id(NOON, 1), vec![drop]);
    let first = world.ask(request.clone());
    assert!(matches!(refused(&first), Rejection::NotFound { .. }));
    world.must(create_cluster("demo"));
    assert_eq!(world.ask(request), Receipt { repeated: true, ..first });
    assert_eq!(done(&world), 1, "the retry did not drop what came later");
}

#[test]
fn when_too_many_are_remembered_the_oldest_go_and_are_refused_from_then_on() {
    let mut world = World::new();
    world.must(set("request_window_count", "100"));
    let request = |number: u64| {
        let id = request_id(NOON + Span::from_millis(number), number);
        identified(id, vec![create_cluster(&format!("c{number}"))])
    };
    world.pass_time(Span::from_secs(1));
    for number in 0..100 {
        world.ask(request(number));
    }
    assert!(world.ask(request(0)).repeated, "a hundred are remembered");
    world.ask(request(100));
    assert_eq!(world.state.request_count(), 100);

    let id = request_id(NOON, 0);
    let floor = NOON + Span::from_millis(1);
    let expected = Rejection::RequestTooOld { id, made_at: NOON, floor, now: world.time };
    assert!(expected.to_string().contains("ids from before 2026-11-16T12:00:00.001Z are no longer remembered"));
    assert_eq!(refused(&world.ask(request(0))), &expected);
    assert!(world.ask(request(1)).repeated, "the second oldest is still there");
    assert_eq!(done(&world), 101);

    // More room does not bring back what was forgotten.
    world.must(set("request_window_count", "1000"));
    assert_eq!(refused(&world.ask(request(0))), &expected);
}

#[test]
fn an_old_id_that_comes_when_the_memory_is_full_is_done_once_and_refused_afterwards() {
    let mut world = World::new();
    world.must(set("request_window_count", "100"));
    world.pass_time(Span::from_mins(1));
    for number in 0..100 {
        world.ask(identified(request_id(world.time, number), vec![Command::Tick]));
    }
    let late = identified(request_id(NOON, 1), vec![create_cluster("late")]);
    assert!(world.ask(late.clone()).result.is_ok());
    assert!(matches!(refused(&world.ask(late)), Rejection::RequestTooOld { .. }));
    assert_eq!(done(&world), 1);
}

#[test]
fn a_shorter_window_forgets_at_once_and_a_longer_one_brings_nothing_back() {
    let mut world = World::new();
    let request = identified(request_id(NOON, 1), vec![create_cluster("demo")]);
    world.ask(request.clone());
    world.pass_time(Span::from_mins(5));
    world.must(set("request_window", "1 minute"));
    assert!(matches!(refused(&world.ask(request.clone())), Rejection::RequestTooOld { .. }));
    world.must(set("request_window", "1 day"));
    assert!(matches!(refused(&world.ask(request)), Rejection::RequestTooOld { .. }));
    assert_eq!(done(&world), 1);
}

#[test]
fn one_entry_forgets_a_bounded_number_and_what_it_leaves_is_refused_all_the_same() {
    let mut world = World::new();
    let requests = (0..5_000).map(|number| identified(request_id(NOON, number), vec![Command::Tick])).collect();
    world.apply(requests);
    assert_eq!(world.state.request_count(), 5_000);
    world.pass_time(Span::from_hours(1));
    let mut left = Vec::new();
    for _ in 0..6 {
        world.apply(vec![]);
        left.push(world.state.request_count());
    }
    assert_eq!(left, [4_000, 3_000, 2_000, 1_000, 0, 0]);

    let mut world = World::new();
    let requests = (0..5_000).map(|number| identified(request_id(NOON, number), vec![Command::Tick])).collect();
    world.apply(requests);
    world.pass_time(Span::from_hours(1));
    let last = identified(request_id(NOON, 4_999), vec![Command::Tick]);
    assert!(matches!(refused(&world.ask(last)), Rejection::RequestTooOld { .. }), "not yet forgotten, but too old");
}

#[test]
fn the_memory_stays_bounded_however_many_requests_an_entry_packs() {
    let mut world = World::new();
    world.must(set("request_window_count", "100"));
    for round in 0..4 {
        let requests =
            (0..3_000).map(|number| identified(request_id(NOON, round * 3_000 + number), vec![Command::Tick]));
        world.apply(requests.collect());
        assert_eq!(world.state.request_count(), 100, "of one millisecond, only those that had to go");
        world.pass_time(Span::from_millis(1));
    }
}

#[test]
fn without_an_id_a_request_is_done_as_often_as_it_is_asked() {
    let mut world = World::new();
    world.must(Command::FoundGroup { nodes: 3 });
    let admit = || anonymous(vec![Command::AdmitNode { name: "n".to_owned(), address: "host:1".to_owned() }]);
    let numbers: Vec<_> = (0..3).map(|_| world.ask(admit()).result).collect();
    let node = |number| Ok(vec![Done { changed: true, answer: Answer::Node(NodeNumber(number)) }]);
    assert_eq!(numbers, [node(4), node(5), node(6)]);
    assert_eq!(world.state.request_count(), 0);
}

#[test]
fn a_transaction_has_at_most_a_thousand_commands_and_at_least_one() {
    let mut world = World::new();
    let count_max = COMMANDS_PER_REQUEST_MAX as u64;
    let of = |count| anonymous((0..count).map(|number| create_cluster(&format!("c{number}"))).collect());
    assert_eq!(refused(&world.ask(of(0))), &Rejection::NoCommands);
    let too_many = Rejection::TooManyCommands { count: count_max + 1, count_max };
    assert_eq!(refused(&world.ask(of(count_max + 1))), &too_many);
    assert_eq!(done(&world), 0);
    assert_eq!(world.ask(of(count_max)).result.map(|done| done.len()), Ok(COMMANDS_PER_REQUEST_MAX));
    assert_eq!(done(&world), COMMANDS_PER_REQUEST_MAX);
}
