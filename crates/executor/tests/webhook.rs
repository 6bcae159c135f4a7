//! The webhook backend against the reference receiver, over real sockets: the suite, the ways in which a call goes wrong, and who is
//! trusted.

use crate::webhook_support;
use std::sync::Arc;
use std::time::Duration;

use crate::webhook_support::{Site, create, epoch, order, secrets, tls_site};
use loadline_executor::backends::settings::Secret;
use loadline_executor::backends::webhook::receiver::Trouble;
use loadline_executor::conformance::{Subject, suite};
use loadline_executor::{Backend, CallError, Found, Order};
use loadline_state_machine::{Call, ReplicaLife, Report};

/// What a call that is not answered takes in these tests.
const SHORT: Duration = Duration::from_millis(400);

fn created(incarnation: &str) -> Report {
    Report::Created { incarnation: Some(incarnation.to_owned()) }
}

#[tokio::test]
async fn it_keeps_what_every_backend_promises() {
    suite(|| async {
        let site = Site::start().await;
        // Two nodes have a client each.
        // One of the checks waits for all of the deadline.
        let webhook = || Arc::new(site.webhook_with(|config| config.call_deadline = Duration::from_secs(4)));
        Subject::new(webhook()).with_other_node(webhook()).keeping(site)
    })
    .await;
}

#[tokio::test]
async fn an_order_that_was_done_in_silence_is_unknown_and_then_found() {
    let site = Site::start().await;
    let webhook = site.webhook_with(|config| config.call_deadline = SHORT);
    let order = order("k1", 5, create("r1_auto", "25cc"));
    site.receiver.expect(Trouble::DoneInSilence);
    let answer = webhook.execute(&order).await;
    assert_eq!(answer, Err(CallError::Unknown { reason: "no answer before the deadline".to_owned() }));
    assert_eq!(webhook.find(&order).await, Ok(Found::Done(created("life-1"))));
    // Whoever does not look and sends again does no harm.
    assert_eq!(webhook.execute(&Order { attempt: 2, ..order }).await, Ok(created("life-1")));
    assert_eq!(site.receiver.books().lives, 1);
}

#[tokio::test]
async fn an_order_that_was_lost_is_unknown_and_not_seen() {
    let site = Site::start().await;
    let webhook = site.webhook_with(|config| config.call_deadline = SHORT);
    let order = order("k1", 5, create("r1_auto", "25cc"));
    site.receiver.expect(Trouble::Lost);
    assert!(matches!(webhook.execute(&order).await, Err(CallError::Unknown { .. })));
    assert_eq!(webhook.find(&order).await, Ok(Found::NotSeen));
    assert_eq!(webhook.execute(&Order { attempt: 2, ..order }).await, Ok(created("life-1")));
}

#[tokio::test]
async fn whatever_a_proxy_says_after_the_receiver_has_done_it_is_unknown() {
    let site = Site::start().await;
    let webhook = site.webhook();
    let proxies = [
        (200, "<html>Welcome</html>"),
        (302, ""),
        (500, "{}"),
        (502, "bad gateway"),
        (503, "upstream connect error or disconnect/reset before headers"),
        (504, ""),
    ];
    for (number, (status, body)) in proxies.into_iter().enumerate() {
        let order = order(&format!("k{number}"), 5, create(&format!("r{number}_auto"), "25cc"));
        site.receiver.expect(Trouble::Answer { status, body: body.to_owned() });
        let answer = webhook.execute(&order).await;
        assert!(matches!(answer, Err(CallError::Unknown { .. })), "{status} was taken for an answer: {answer:?}");
        let found = webhook.find(&order).await;
        assert!(matches!(found, Ok(Found::Done(_))), "after {status} it was not found: {found:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_takes_its_time_is_asked_until_it_is_through() {
    let site = Site::start().await;
    let webhook = site.webhook();
    site.receiver.expect(Trouble::UnderWay { questions: 3 });
    let first = order("k1", 5, create("r1_auto", "25cc"));
    assert_eq!(webhook.execute(&first).await, Ok(created("life-1")));
    site.receiver.expect(Trouble::Slow(Duration::from_millis(50)));
    assert_eq!(webhook.execute(&order("k2", 5, create("r2_auto", "25cc"))).await, Ok(created("life-2")));

    // One that is not through by the deadline is unknown, and found as under way.
    let hasty = site.webhook_with(|config| config.call_deadline = SHORT);
    site.receiver.expect(Trouble::UnderWay { questions: 1_000 });
    let third = order("k3", 5, create("r3_auto", "25cc"));
    assert!(matches!(hasty.execute(&third).await, Err(CallError::Unknown { .. })));
    assert_eq!(hasty.find(&third).await, Ok(Found::UnderWay));
    // The same key is not carried out beside it.
    assert!(matches!(hasty.execute(&Order { attempt: 2, ..third }).await, Err(CallError::Unknown { .. })));
    assert_eq!(site.receiver.books().lives, 2);
}

#[tokio::test]
async fn what_comes_after_its_deadline_is_not_carried_out() {
    let site = Site::start().await;
    let webhook = site.webhook_with(|config| config.call_deadline = SHORT);
    site.receiver.expect(Trouble::Slow(SHORT));
    let order = order("k1", 5, create("r1_auto", "25cc"));
    // Either the receiver says that it was too late, or nobody waits for it to say so.
    let answer = webhook.execute(&order).await;
    assert!(
        matches!(answer, Err(CallError::Unknown { .. } | CallError::Refused { retryable: true, .. })),
        "{answer:?}"
    );
    assert_eq!(webhook.find(&order).await, Ok(Found::NotSeen));
    assert_eq!(site.receiver.books().lives, 0);
}

#[tokio::test]
async fn a_busy_receiver_is_left_alone_for_as_long_as_it_asks() {
    let site = Site::start().await;
    let webhook = site.webhook();
    let first = order("k1", 5, create("r1_auto", "25cc"));
    site.receiver.expect(Trouble::Busy { retry_after_seconds: 0 });
    site.receiver.expect(Trouble::Busy { retry_after_seconds: 0 });
    assert_eq!(webhook.execute(&first).await, Ok(created("life-1")), "there was time to ask again");
    assert_eq!(site.receiver.arrived(), 3);
    site.receiver.expect(Trouble::Busy { retry_after_seconds: 3_600 });
    let second = order("k2", 5, create("r2_auto", "25cc"));
    let reason = "there is too much to do (it asks for 3600 s)".to_owned();
    assert_eq!(webhook.execute(&second).await, Err(CallError::Refused { retryable: true, reason }));
    assert_eq!(site.receiver.arrived(), 4, "nobody asked again before the time");
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_for_good_and_remembered() {
    let site = Site::start().await;
    let webhook = site.webhook();
    webhook.execute(&order("k1", 5, create("r1_auto", "25cc"))).await.unwrap();
    let again = order("k2", 5, create("r1_auto", "25cc"));
    let reason = "there is a replica r1_auto already".to_owned();
    assert_eq!(webhook.execute(&again).await, Err(CallError::Refused { retryable: false, reason: reason.clone() }));
    assert_eq!(webhook.find(&again).await, Ok(Found::Failed { retryable: false, reason }));
    let gone = ReplicaLife { name: "r9_auto".into(), size: "25cc".into(), incarnation: Some("life-9".into()) };
    let answer = webhook.execute(&order("k3", 5, Call::CordonReplica(gone))).await;
    assert!(matches!(answer, Err(CallError::Refused { retryable: false, .. })), "{answer:?}");
}

#[tokio::test]
async fn keys_and_epochs_survive_a_restart_of_the_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("books.json");
    let order = order("k1", 5, create("r1_auto", "25cc"));
    {
        let site = Site::start_with(|options| options.file = Some(file.clone())).await;
        let webhook = site.webhook();
        webhook.execute(&order).await.unwrap();
        webhook.fence(epoch(7)).await.unwrap();
    }
    let site = Site::start_with(|options| options.file = Some(file.clone())).await;
    let webhook = site.webhook();
    assert_eq!(webhook.execute(&order).await, Err(CallError::Fenced { highest: epoch(7) }));
    assert_eq!(webhook.execute(&Order { epoch: epoch(7), ..order }).await, Ok(created("life-1")));
}

#[tokio::test]
async fn a_receiver_that_cannot_fence_says_so_and_is_believed() {
    let site = Site::start_with(|options| options.fences = false).await;
    let webhook = site.webhook();
    assert!(webhook.capabilities().fences, "nothing is done before the fence, and the fence asks");
    let reason = "the receiver says that it cannot fence".to_owned();
    let refusal = CallError::Refused { retryable: true, reason };
    assert_eq!(webhook.fence(epoch(5)).await, Err(refusal.clone()));
    assert!(!webhook.capabilities().fences);
    assert_eq!(webhook.fence(epoch(5)).await, Err(refusal), "nobody may take it for fenced");
    // What the configuration says is not asked.
    let told = site.webhook_with(|config| config.fences = Some(false));
    assert!(!told.capabilities().fences);
    assert_eq!(told.fence(epoch(5)).await, Ok(()));
}

#[tokio::test]
async fn who_does_not_know_the_secret_is_not_obeyed() {
    let site = Site::start().await;
    let order = order("k1", 5, create("r1_auto", "25cc"));
    let stranger = site.webhook_signing(secrets("not-the-secret-of-the-receiver", None));
    let answer = stranger.execute(&order).await;
    let reason = "answered 401 Unauthorized: no secret of the receiver makes this signature".to_owned();
    assert_eq!(answer, Err(CallError::Refused { retryable: true, reason }));
    assert!(matches!(stranger.fence(epoch(9)).await, Err(CallError::Refused { .. })));
    assert!(matches!(stranger.find(&order).await, Err(CallError::Refused { .. })));
    assert!(matches!(stranger.observe(&order.cluster).await, Err(CallError::Refused { .. })));
    assert_eq!(site.receiver.books(), Default::default());

    // While secrets change, both sides may do it when they like.
    let changing = site.webhook_signing(secrets("not-the-secret-of-the-receiver", Some(webhook_support::SECRET)));
    assert_eq!(changing.execute(&order).await, Ok(created("life-1")));
    let other = Site::start_with(|options| options.secrets.push(Secret::new("not-the-secret-of-the-receiver"))).await;
    let webhook = other.webhook_signing(secrets("not-the-secret-of-the-receiver", None));
    assert_eq!(webhook.execute(&order).await, Ok(created("life-1")));
}

#[tokio::test]
async fn a_signed_request_is_good_for_its_own_endpoint_and_its_own_time_only() {
    let site = Site::start().await;
    let order = order("k1", 5, create("r1_auto", "25cc"));
    let find = site.recorded_find(&order);
    assert_eq!(site.post("find", &find, 0).await.0, 404, "as it was meant: the key is not known");
    let (status, body) = site.post("execute", &find, 0).await;
    assert_eq!((status, body.contains("another endpoint")), (400, true), "{body}");
    let execute = find.replace("\"find\"", "\"execute\"");
    assert_eq!(site.post("execute", &execute, 301).await.0, 401, "somebody recorded it five minutes ago");
    assert_eq!(site.post("execute", &execute, 60).await.0, 408, "it has been on its way for longer than its deadline");
    assert_eq!(site.receiver.books(), Default::default());
    assert_eq!(site.post("execute", &execute, 0).await.0, 200);
}

#[tokio::test]
async fn where_there_is_no_connection_nothing_was_sent() {
    let address = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let webhook = webhook_support::webhook_at(&format!("http://{address}"), |_| {});
    let answer = webhook.execute(&order("k1", 5, create("r1_auto", "25cc"))).await;
    assert!(
        matches!(&answer, Err(CallError::Refused { retryable: true, reason }) if reason.contains("no connection")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn over_https_only_a_receiver_with_a_trusted_certificate_gets_an_order() {
    let site = tls_site().await;
    let order = order("k1", 5, create("r1_auto", "25cc"));
    let stranger = tls_site().await;
    let misled = site.webhook_with(|config| config.ca_file = Some(stranger.ca_file.clone()));
    let answer = misled.execute(&order).await;
    assert!(
        matches!(&answer, Err(CallError::Refused { retryable: true, reason }) if reason.contains("certificate")),
        "{answer:?}"
    );
    assert_eq!(site.site.receiver.arrived(), 0);
    let webhook = site.webhook_with(|config| config.ca_file = Some(site.ca_file.clone()));
    assert_eq!(webhook.execute(&order).await, Ok(created("life-1")));
}
