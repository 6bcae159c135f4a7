//! Service `Admin`.

use loadline_api::v1::resource::Resource as Kind;
use loadline_api::v1::{
    self, ListRequest, RenameClusterRequest, TransactRequest, UpdateSizeRequest, WriteOptions, WriteResponse,
    change::Change,
};
use tonic::Code;

use crate::common::{Node, create_cluster, create_size, delete, named, options, refused, set};

fn resource(answer: &WriteResponse) -> &Kind {
    answer.results[0].resource.as_ref().unwrap().resource.as_ref().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_are_created_read_changed_and_deleted() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let created = admin.create_size(create_size("small", 2)).await.unwrap().into_inner();
    let Kind::Size(size) = resource(&created) else { panic!("{created:?}") };
    let expected = v1::Size {
        name: "small".to_owned(),
        rank: 10,
        slots: 2,
        price_micros_per_hour: 250_000,
        etag: size.etag.clone(),
        create_revision: created.revision,
        update_revision: created.revision,
    };
    assert_eq!(*size, expected);
    assert!(created.results[0].changed && !created.repeated_request);

    let read = admin.get_size(named("small")).await.unwrap().into_inner();
    assert_eq!(read.resource.unwrap().resource, Some(Kind::Size(expected.clone())));
    assert!(read.revision >= created.revision);

    let update = |slots, etag: &str| UpdateSizeRequest {
        options: options(),
        name: "small".to_owned(),
        slots: Some(slots),
        etag: etag.to_owned(),
        ..UpdateSizeRequest::default()
    };
    let changed = admin.update_size(update(4, &size.etag)).await.unwrap().into_inner();
    let Kind::Size(after) = resource(&changed) else { panic!("{changed:?}") };
    assert_eq!((after.slots, after.rank, after.create_revision), (4, 10, created.revision));
    assert_ne!(after.etag, size.etag);
    let same = admin.update_size(update(4, "")).await.unwrap().into_inner();
    assert!(!same.results[0].changed);

    refused(admin.update_size(update(8, &size.etag)).await, Code::Aborted, "ETAG_MISMATCH", &["etag"]);
    refused(admin.create_size(create_size("small", 2)).await, Code::AlreadyExists, "ALREADY_EXISTS", &["size.name"]);
    let mut taken = create_size("other", 2);
    taken.size.as_mut().unwrap().rank = 10;
    refused(admin.create_size(taken).await, Code::AlreadyExists, "RANK_TAKEN", &["size.rank"]);

    let gone = admin.delete_size(delete("small")).await.unwrap().into_inner();
    assert_eq!(gone.results[0].resource, None);
    refused(admin.delete_size(delete("small")).await, Code::NotFound, "NOT_FOUND", &["name"]);
    let lenient = v1::DeleteRequest { allow_missing: true, ..delete("small") };
    assert!(!admin.delete_size(lenient).await.unwrap().into_inner().results[0].changed);
    refused(admin.get_size(named("small")).await, Code::NotFound, "NOT_FOUND", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_its_id_when_it_is_renamed() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let created = admin.create_cluster(create_cluster("demo")).await.unwrap().into_inner();
    let Kind::Cluster(cluster) = resource(&created) else { panic!("{created:?}") };
    assert!(cluster.create_time_ms > 1_600_000_000_000);
    let rename = |from: &str, to: &str| RenameClusterRequest {
        options: options(),
        name: from.to_owned(),
        new_name: to.to_owned(),
        etag: String::new(),
    };
    let renamed = admin.rename_cluster(rename("demo", "live")).await.unwrap().into_inner();
    let Kind::Cluster(after) = resource(&renamed) else { panic!("{renamed:?}") };
    assert_eq!((after.id.as_str(), after.name.as_str()), (cluster.id.as_str(), "live"));
    refused(admin.get_cluster(named("demo")).await, Code::NotFound, "NOT_FOUND", &[]);
    admin.get_cluster(named("live")).await.unwrap();
    refused(admin.rename_cluster(rename("demo", "x")).await, Code::NotFound, "NOT_FOUND", &["name"]);
    refused(admin.rename_cluster(rename("live", "a/b")).await, Code::InvalidArgument, "INVALID_NAME", &["new_name"]);
    admin.create_cluster(create_cluster("other")).await.unwrap();
    refused(admin.rename_cluster(rename("live", "other")).await, Code::AlreadyExists, "ALREADY_EXISTS", &["new_name"]);
    admin.delete_cluster(delete("live")).await.unwrap();
    refused(admin.delete_cluster(delete("live")).await, Code::NotFound, "NOT_FOUND", &["name"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_have_defaults_and_close_names_are_suggested() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let before = admin.get_setting(named("request_window")).await.unwrap().into_inner();
    let Some(Kind::Setting(setting)) = before.resource.unwrap().resource else { panic!() };
    assert!(setting.is_default && setting.etag.is_empty());
    let changed = admin.set_setting(set("request_window", "20 minutes")).await.unwrap().into_inner();
    let Kind::Setting(setting) = resource(&changed) else { panic!("{changed:?}") };
    assert_eq!((setting.value.as_str(), setting.is_default), ("20m", false));
    let reset = admin.delete_setting(delete("request_window")).await.unwrap().into_inner();
    let Kind::Setting(setting) = resource(&reset) else { panic!("{reset:?}") };
    assert_eq!((setting.value.as_str(), setting.is_default), ("10m", true));

    refused(
        admin.set_setting(set("request_window", "soon")).await,
        Code::InvalidArgument,
        "INVALID_SETTING",
        &["value"],
    );
    let typo =
        refused(admin.set_setting(set("request_windo", "1h")).await, Code::NotFound, "UNKNOWN_SETTING", &["name"]);
    assert!(typo.message().contains("request_window"), "{}", typo.message());
    let typo = refused(admin.get_setting(named("request_windo")).await, Code::NotFound, "UNKNOWN_SETTING", &[]);
    assert!(typo.message().contains("request_window"), "{}", typo.message());
    let all = admin.list_settings(ListRequest::default()).await.unwrap().into_inner();
    assert!(all.resources.len() >= 5 && all.next_page_token.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_not_a_second_request() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let request = create_cluster("demo");
    let first = admin.create_cluster(request.clone()).await.unwrap().into_inner();
    let again = admin.create_cluster(request.clone()).await.unwrap().into_inner();
    assert_eq!(again, WriteResponse { repeated_request: true, ..first });
    // The same id for something else.
    let other = v1::CreateClusterRequest { options: request.options.clone(), ..create_cluster("other") };
    refused(admin.create_cluster(other).await, Code::InvalidArgument, "REQUEST_ID_REUSED", &["options.request_id"]);
    // Somebody else under the same id is not the same request either.
    let mut stranger = tonic::Request::new(request);
    stranger.metadata_mut().insert("loadline-actor", "stranger".parse().unwrap());
    refused(admin.create_cluster(stranger).await, Code::InvalidArgument, "REQUEST_ID_REUSED", &["options.request_id"]);
    let at = |seconds| {
        let id = uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, 0)).to_string();
        let options = Some(WriteOptions { request_id: id, validate_only: false });
        v1::CreateClusterRequest { options, ..create_cluster("late") }
    };
    let id = ["options.request_id"];
    refused(admin.create_cluster(at(1_000_000_000)).await, Code::FailedPrecondition, "REQUEST_TOO_OLD", &id);
    refused(admin.create_cluster(at(100_000_000_000)).await, Code::InvalidArgument, "REQUEST_FROM_FUTURE", &id);
    refused(admin.get_cluster(named("late")).await, Code::NotFound, "NOT_FOUND", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn validation_decides_and_writes_nothing() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let before = node.status().await.last_index;
    let rehearsal = Some(WriteOptions { request_id: String::new(), validate_only: true });
    let answer = admin
        .create_size(v1::CreateSizeRequest { options: rehearsal.clone(), ..create_size("small", 2) })
        .await
        .unwrap()
        .into_inner();
    assert_eq!((answer.revision, answer.results.len()), (0, 1));
    let Kind::Size(size) = resource(&answer) else { panic!("{answer:?}") };
    assert_eq!(size.rank, 10);
    let wrong = v1::CreateSizeRequest { options: rehearsal, ..create_size("small", 0) };
    refused(admin.create_size(wrong).await, Code::InvalidArgument, "OUT_OF_RANGE", &["size.slots"]);
    refused(admin.get_size(named("small")).await, Code::NotFound, "NOT_FOUND", &[]);
    assert_eq!(node.status().await.last_index, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_at_the_door_and_never_reaches_the_log() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    admin.create_size(create_size("small", 2)).await.unwrap();
    let before = node.status().await.last_index;
    let (invalid, shape) = (Code::InvalidArgument, "INVALID_REQUEST");

    let no_size = v1::CreateSizeRequest { options: options(), size: None };
    refused(admin.create_size(no_size).await, invalid, shape, &["size"]);
    let nothing = v1::CreateSizeRequest::default();
    refused(admin.create_size(nothing).await, invalid, shape, &["options.request_id", "size"]);
    for id in ["", "nonsense", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"] {
        let options = Some(WriteOptions { request_id: id.to_owned(), validate_only: false });
        let request = v1::CreateClusterRequest { options, ..create_cluster("x") };
        refused(admin.create_cluster(request).await, invalid, shape, &["options.request_id"]);
    }
    let status = refused(admin.create_size(create_size("big", 0)).await, invalid, "OUT_OF_RANGE", &["size.slots"]);
    assert!(status.message().contains("between 1 and"), "{}", status.message());
    for name in ["", "a/b", "a b", "-a", &"x".repeat(64), "ü", "a\u{0}"] {
        refused(admin.create_cluster(create_cluster(name)).await, invalid, "INVALID_NAME", &["cluster.name"]);
        refused(admin.delete_size(delete(name)).await, invalid, "INVALID_NAME", &["name"]);
    }
    let update = UpdateSizeRequest {
        options: options(),
        name: "small".to_owned(),
        price_micros_per_hour: Some(u64::MAX),
        ..UpdateSizeRequest::default()
    };
    refused(admin.update_size(update).await, invalid, "OUT_OF_RANGE", &["price_micros_per_hour"]);
    let etag = v1::DeleteRequest { etag: "yesterday".to_owned(), ..delete("small") };
    refused(admin.delete_size(etag).await, invalid, shape, &["etag"]);
    refused(admin.get_size(named("")).await, invalid, shape, &["name"]);
    let strange = v1::GetRequest { name: "small".to_owned(), consistency: 7 };
    refused(admin.get_size(strange).await, invalid, shape, &["consistency"]);
    let mut anonymous = tonic::Request::new(create_cluster("x"));
    anonymous.metadata_mut().insert("loadline-actor", "x".repeat(129).parse().unwrap());
    refused(admin.create_cluster(anonymous).await, invalid, shape, &["loadline-actor"]);

    assert_eq!(node.status().await.last_index, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_happens_at_one_revision_or_not_at_all() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let transact = |changes: Vec<Change>| TransactRequest {
        options: options(),
        changes: changes.into_iter().map(|change| v1::Change { change: Some(change) }).collect(),
    };
    let both = vec![Change::CreateSize(create_size("small", 2)), Change::CreateCluster(create_cluster("demo"))];
    let done = admin.transact(transact(both)).await.unwrap().into_inner();
    assert_eq!(done.results.len(), 2);
    let half = vec![Change::DeleteCluster(delete("demo")), Change::CreateSize(create_size("small", 2))];
    let status = refused(
        admin.transact(transact(half)).await,
        Code::AlreadyExists,
        "ALREADY_EXISTS",
        &["changes[1].create_size.size.name"],
    );
    assert!(status.message().starts_with("changes[1]: "), "{}", status.message());
    admin.get_cluster(named("demo")).await.unwrap();
    refused(admin.transact(transact(vec![])).await, Code::InvalidArgument, "NO_COMMANDS", &["changes"]);
    let many = (0..1_001).map(|number| Change::CreateCluster(create_cluster(&format!("c{number}")))).collect();
    refused(admin.transact(transact(many)).await, Code::InvalidArgument, "TOO_MANY_COMMANDS", &["changes"]);
    let empty = TransactRequest { options: options(), changes: vec![v1::Change { change: None }] };
    refused(admin.transact(empty).await, Code::InvalidArgument, "INVALID_REQUEST", &["changes[0]"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged_and_a_token_fits_only_its_own_list() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let names: Vec<String> = (0..25).map(|number| format!("c{number:03}")).collect();
    let changes = names.iter().map(|name| v1::Change { change: Some(Change::CreateCluster(create_cluster(name))) });
    admin.transact(TransactRequest { options: options(), changes: changes.collect() }).await.unwrap();
    // The ladder is listed by rank, not by name.
    for (name, rank) in [("b", 30), ("a", 20), ("z", 10)] {
        let mut request = create_size(name, 1);
        request.size.as_mut().unwrap().rank = rank;
        admin.create_size(request).await.unwrap();
    }

    let mut seen = Vec::new();
    let mut request =
        ListRequest { page_size: 10, consistency: v1::Consistency::Stale.into(), ..ListRequest::default() };
    let mut pages = 0;
    loop {
        let page = admin.list_clusters(request.clone()).await.unwrap().into_inner();
        pages += 1;
        seen.extend(page.resources.into_iter().map(|resource| match resource.resource {
            Some(Kind::Cluster(cluster)) => cluster.name,
            other => panic!("{other:?}"),
        }));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!((pages, &seen), (3, &names));

    let token = request.page_token;
    let with = |token: &str| ListRequest { page_token: token.to_owned(), ..ListRequest::default() };
    let fields = ["page_token"];
    refused(admin.list_sizes(with(&token)).await, Code::InvalidArgument, "INVALID_REQUEST", &fields);
    refused(admin.list_clusters(with("c003")).await, Code::InvalidArgument, "INVALID_REQUEST", &fields);
    let first = admin.list_sizes(ListRequest { page_size: 2, ..ListRequest::default() }).await.unwrap().into_inner();
    let rest = admin.list_sizes(with(&first.next_page_token)).await.unwrap().into_inner();
    let sizes: Vec<String> = first
        .resources
        .into_iter()
        .chain(rest.resources)
        .map(|resource| match resource.resource {
            Some(Kind::Size(size)) => size.name,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sizes, ["z", "a", "b"]);
}
