//! Starting, ending and starting again.

use std::sync::Arc;

use loadline_executor::{Backends, Unwatched};
use loadline_log::{ModelDisk, Threading};
use loadline_raft_node::{NoObserver, PlainDial, StopReason, SystemClock};
use loadline_server::{Listeners, ServeError, World, serve, serve_in, serve_on};

use crate::common::{Node, PATIENCE, Place, create_cluster, eventually, named};

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_named_with_its_key_and_the_folder_stays_untouched() {
    let place = Place::new().await;
    for (key, other) in [("grpc_listen", "http_listen"), ("http_listen", "grpc_listen")] {
        let mut config = place.config("n1", &[&place.grpc]);
        config.data_dir = place.folder.path().join(key);
        // Only one of the two is taken.
        match other {
            "http_listen" => config.http_listen = "127.0.0.1:0".to_owned(),
            _ => config.grpc_listen = "127.0.0.1:0".to_owned(),
        }
        let taken = if key == "grpc_listen" { &place.grpc } else { &place.http };
        let error = Box::pin(serve(config, std::future::pending())).await.unwrap_err();
        let text = with_causes(&error);
        assert!(text.starts_with(&format!("cannot listen on {taken} ({key})")), "{text}");
        assert!(text.contains("in use"), "{text}");
        assert!(!place.folder.path().join(key).exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_has_one_node_at_a_time() {
    let node = Node::alone().await;
    let place = Place::new().await;
    let mut config = place.config("n1", &[&place.grpc]);
    config.data_dir = node.folder.path().join("data");
    let error = serve_on(place.listeners, config, std::future::pending()).await.unwrap_err();
    assert!(matches!(error, ServeError::DataDir(_)), "{error:?}");
    let text = with_causes(&error);
    assert!(text.contains(&std::process::id().to_string()), "it says who has it: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_is_there_after_a_restart() {
    let node = Node::alone().await;
    node.admin().create_cluster(create_cluster("demo")).await.unwrap();
    let before = node.status().await;
    let (grpc, http) = (node.grpc.clone(), node.http.clone());
    let (ended, folder) = node.stop().await;
    ended.unwrap();

    let place = Place { folder, ..Place::new().await };
    let mut config = place.config("n1", &[&grpc]);
    (config.grpc_listen, config.http_listen, config.advertise) = (grpc.clone(), http.clone(), grpc.clone());
    let listeners = Listeners::bind(&config).await.unwrap();
    let node = Place { listeners, grpc, http, folder: place.folder }.start(config);
    node.until_ready().await;
    node.admin().get_cluster(named("demo")).await.unwrap();
    let after = node.status().await;
    assert_eq!((after.id, &after.group, after.incarnation), (before.id, &before.group, before.incarnation));
    assert!(after.term > before.term && after.applied_index > before.applied_index);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_disk_fails_ends_by_itself_and_says_what_to_do() {
    let place = Place::new().await;
    let config = place.config("n1", &[&place.grpc]);
    let disk = ModelDisk::new(7);
    let world = World {
        disk: Arc::new(disk.clone()),
        wal_segment_bytes: 1 << 20,
        audit_index: None,
        dial: Arc::new(PlainDial),
        clock: Arc::new(SystemClock),
        threading: Threading::Thread,
        pace: None,
        backends: Backends::new(),
        collecting: true,
        witness: Arc::new(Unwatched),
        onlooker: Arc::new(NoObserver),
        signing_seed: None,
        replay_starts: 0,
        fetch_history: false,
    };
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", place.grpc)).unwrap().connect_lazy();
    let running = tokio::spawn(serve_in(world, place.listeners, config, std::future::pending()));
    let mut admin = loadline_api::v1::admin_client::AdminClient::new(channel);
    eventually("it records", async || admin.create_cluster(create_cluster("a")).await.is_ok()).await;
    disk.fail_sync(1);
    // Whether this one is answered depends on which file the failing sync was for: the log's own, or the journal's.
    let _ = tokio::time::timeout(PATIENCE, admin.create_cluster(create_cluster("b"))).await;
    let error = tokio::time::timeout(PATIENCE, running).await.expect("the node ends").unwrap().unwrap_err();
    assert!(matches!(error, ServeError::Stopped { reason: StopReason::Storage { .. } }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("look at the disk first") && text.contains("remove-peer"), "{text}");
}
