//! A stream of reports goes on at another node where the last one stopped: nothing lost, nothing counted twice.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::support::{client_at, nobody, quick, refusal, wire};
use futures::{FutureExt as _, Stream};
use loadline_client::v1::signals_server::{Signals, SignalsServer};
use loadline_client::v1::{
    ClusterSignals, Observation, ReportSignalsRequest, ReportSignalsResponse, cluster_signals, observation,
};
use loadline_client::{Acknowledged, Client, Endpoints, Error, Numbering, Options, SignalOptions, SignalStream, Tally};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status, Streaming};

/// What all nodes of a group have recorded: the rule of the state machine, and nothing else.
#[derive(Debug, Default)]
struct Log {
    sequence: u64,
    recorded: Vec<ReportSignalsRequest>,
}

impl Log {
    fn report(&mut self, report: ReportSignalsRequest) -> ReportSignalsResponse {
        let repeated_report = report.sequence <= self.sequence;
        if !repeated_report {
            self.sequence = report.sequence;
            self.recorded.push(report);
        }
        ReportSignalsResponse {
            revision: self.recorded.len() as u64,
            sequence: self.sequence,
            repeated_report,
            unknown_clusters: Vec::new(),
        }
    }
}

/// How one stream ends, after so many acknowledgements.
#[derive(Debug, Clone)]
enum End {
    /// The next report is recorded, and the connection breaks before its answer.
    LoseAnswer,
    /// The next report is neither recorded nor answered.
    Hang,
    Fail(Status),
}

#[derive(Debug, Clone)]
struct Node {
    log: Arc<Mutex<Log>>,
    ends: Arc<Mutex<VecDeque<(usize, End)>>>,
    cut: broadcast::Sender<()>,
    address: SocketAddr,
    /// One answer stands for all reports that have arrived.
    cumulative: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics while it holds this")
}

impl Node {
    /// A node of the group that has this log.
    async fn of(log: &Arc<Mutex<Log>>) -> Node {
        Node::answering(log, false).await
    }

    async fn answering(log: &Arc<Mutex<Log>>, cumulative: bool) -> Node {
        let inner = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let outer = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = outer.local_addr().expect("an address");
        let (cut, _) = broadcast::channel(4);
        tokio::spawn(wire(outer, inner.local_addr().expect("an address"), cut.clone()));
        let node = Node { log: Arc::clone(log), ends: Arc::default(), cut, address, cumulative };
        let router = tonic::transport::Server::builder().add_service(SignalsServer::new(node.clone()));
        tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(inner)));
        node
    }

    /// Streams end so, one after the other; the rest goes on for ever.
    fn will(&self, ends: impl IntoIterator<Item = (usize, End)>) {
        lock(&self.ends).extend(ends);
    }

    fn endpoint(&self) -> String {
        self.address.to_string()
    }
}

#[tonic::async_trait]
impl Signals for Node {
    type StreamSignalsStream = Pin<Box<dyn Stream<Item = Result<ReportSignalsResponse, Status>> + Send>>;

    async fn report_signals(
        &self,
        request: Request<ReportSignalsRequest>,
    ) -> Result<Response<ReportSignalsResponse>, Status> {
        Ok(Response::new(lock(&self.log).report(request.into_inner())))
    }

    async fn stream_signals(
        &self,
        request: Request<Streaming<ReportSignalsRequest>>,
    ) -> Result<Response<Self::StreamSignalsStream>, Status> {
        let script = lock(&self.ends).pop_front();
        let state = (self.clone(), request.into_inner(), script, 0_usize);
        let step = |(node, mut reports, script, answered): (Node, Streaming<_>, Option<(usize, End)>, usize)| async move {
            let report: ReportSignalsRequest = reports.message().await.ok()??;
            if let Some((after, end)) = &script
                && answered >= *after
            {
                match end {
                    End::Hang => return std::future::pending().await,
                    End::Fail(status) => return Some((Err(status.clone()), (node, reports, script.clone(), answered))),
                    End::LoseAnswer => {
                        lock(&node.log).report(report);
                        let _ = node.cut.send(());
                        return std::future::pending().await;
                    }
                }
            }
            let mut answer = lock(&node.log).report(report);
            while node.cumulative
                && let Some(Ok(Some(next))) = reports.message().now_or_never()
            {
                answer = lock(&node.log).report(next);
            }
            Some((Ok(answer), (node, reports, script, answered + 1)))
        };
        Ok(Response::new(Box::pin(futures::stream::unfold(state, step))))
    }
}

fn about(cluster: &str) -> Vec<ClusterSignals> {
    let observations = vec![Observation { age_ms: 5, seen: Some(observation::Seen::Alive(true)) }];
    vec![ClusterSignals { cluster: Some(cluster_signals::Cluster::Name(cluster.to_owned())), observations }]
}

fn from(first: u64) -> SignalOptions {
    SignalOptions { numbering: Numbering::From(first), ..SignalOptions::of("probe") }
}

/// Number and first cluster of each recorded report.
fn recorded(log: &Mutex<Log>) -> Vec<(u64, String)> {
    let cluster = |report: &ReportSignalsRequest| match report.clusters[0].cluster.clone() {
        Some(cluster_signals::Cluster::Name(name)) => name,
        other => panic!("{other:?}"),
    };
    lock(log).recorded.iter().map(|report| (report.sequence, cluster(report))).collect()
}

fn numbered(range: std::ops::RangeInclusive<u64>) -> Vec<(u64, String)> {
    range.map(|number| (number, format!("c{number}"))).collect()
}

async fn send_all(stream: &mut SignalStream, range: std::ops::RangeInclusive<u64>) -> Vec<Acknowledged> {
    let mut acknowledged = Vec::new();
    for number in range {
        acknowledged.extend(stream.send(about(&format!("c{number}"))).await.expect("taken in"));
    }
    acknowledged.extend(stream.flush().await.expect("acknowledged"));
    acknowledged
}

#[tokio::test]
async fn every_report_is_acknowledged_once_and_in_order() {
    let log = Arc::default();
    let node = Node::of(&log).await;
    let mut stream = client_at([node.endpoint()]).signal_stream(SignalOptions { unacknowledged_max: 4, ..from(1) });
    let acknowledged = send_all(&mut stream, 1..=100).await;
    assert_eq!(acknowledged.iter().map(|one| one.sequence).collect::<Vec<_>>(), (1..=100).collect::<Vec<_>>());
    assert_eq!(recorded(&log), numbered(1..=100));
    assert_eq!(stream.tally(), Tally { recorded: 100, ..Tally::default() });
    assert_eq!((stream.unacknowledged(), stream.next_sequence()), (0, 101));
    assert_eq!(stream.next().await, Ok(None), "nothing is awaited");
}

#[tokio::test]
async fn an_answer_that_stands_for_several_acknowledges_each_of_them_in_order() {
    let log = Arc::default();
    let node = Node::answering(&log, true).await;
    let mut stream = client_at([node.endpoint()]).signal_stream(SignalOptions { unacknowledged_max: 50, ..from(1) });
    let acknowledged = send_all(&mut stream, 1..=500).await;
    assert_eq!(acknowledged.iter().map(|one| one.sequence).collect::<Vec<_>>(), (1..=500).collect::<Vec<_>>());
    let shared = acknowledged.windows(2).filter(|pair| pair[0].revision == pair[1].revision).count();
    assert!(shared > 0, "no answer stood for more than one report");
    assert_eq!(recorded(&log), numbered(1..=500));
    assert_eq!(stream.tally(), Tally { recorded: 500, ..Tally::default() });
    assert_eq!((stream.unacknowledged(), stream.next().await), (0, Ok(None)));
}

#[tokio::test]
async fn what_was_not_acknowledged_goes_to_the_next_node_under_the_same_numbers() {
    let log = Arc::default();
    let (first, second) = (Node::of(&log).await, Node::of(&log).await);
    // The fourth is recorded and its answer lost; the second node loses its leader; a third stream carries the rest.
    first.will([(3, End::LoseAnswer)]);
    second.will([(2, End::Fail(refusal(Code::Unavailable, "OUTCOME_UNKNOWN", &[])))]);
    let mut stream = client_at([first.endpoint(), second.endpoint()]).signal_stream(from(1));
    let acknowledged = send_all(&mut stream, 1..=10).await;
    assert_eq!(acknowledged.iter().map(|one| one.sequence).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    assert_eq!(recorded(&log), numbered(1..=10), "nothing is lost and nothing is recorded twice");
    let repeated: Vec<u64> = acknowledged.iter().filter(|one| one.repeated).map(|one| one.sequence).collect();
    // Answers that were still on the wire are lost with it, too.
    assert!(repeated.last() == Some(&4), "the one whose answer was lost was heard before: {repeated:?}");
    let tally = stream.tally();
    assert_eq!(tally.repeated, repeated.len() as u64);
    assert_eq!((tally.recorded + tally.repeated, tally.refused, tally.renumbered), (10, 0, 0));
    assert!(tally.resent >= 2, "{tally:?}");
}

#[tokio::test]
async fn a_node_that_hangs_is_left_and_the_wait_makes_the_news_older() {
    let log = Arc::default();
    let (first, second) = (Node::of(&log).await, Node::of(&log).await);
    first.will([(1, End::Hang)]);
    let mut stream = client_at([first.endpoint(), second.endpoint()]).signal_stream(from(1));
    let acknowledged = send_all(&mut stream, 1..=2).await;
    assert_eq!(acknowledged.len(), 2);
    let ages: Vec<u64> = lock(&log).recorded.iter().map(|report| report.clusters[0].observations[0].age_ms).collect();
    // The time for one attempt is 300 ms.
    assert!(ages[0] < 300 && ages[1] >= 300, "{ages:?}");
    assert!(acknowledged[1].took >= Duration::from_millis(300), "{acknowledged:?}");
}

#[tokio::test]
async fn a_report_that_is_refused_is_given_up_and_those_behind_it_go_on() {
    let log = Arc::default();
    let node = Node::of(&log).await;
    node.will([(1, End::Fail(refusal(Code::InvalidArgument, "INVALID_REQUEST", &[])))]);
    let mut stream = client_at([node.endpoint()]).signal_stream(from(1));
    let mut refused = 0;
    for number in 1..=4 {
        refused += usize::from(stream.send(about(&format!("c{number}"))).await.is_err());
    }
    loop {
        match stream.next().await {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => {
                assert_eq!(error.refusal().map(|refusal| refusal.reason.as_str()), Some("INVALID_REQUEST"));
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 1);
    assert_eq!(recorded(&log).iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!((stream.tally().recorded, stream.tally().refused), (3, 1));
}

#[tokio::test]
async fn numbers_that_were_used_before_are_left_behind_unless_the_caller_keeps_them() {
    let log = Arc::new(Mutex::new(Log { sequence: u64::MAX / 2, recorded: Vec::new() }));
    let node = Node::of(&log).await;
    let client = client_at([node.endpoint()]);
    let mut kept = client.signal_stream(from(1));
    let acknowledged = send_all(&mut kept, 1..=2).await;
    assert!(acknowledged.iter().all(|one| one.repeated), "{acknowledged:?}");
    assert_eq!(recorded(&log), []);

    let mut by_clock = client.signal_stream(SignalOptions::of("probe"));
    let acknowledged = send_all(&mut by_clock, 1..=3).await;
    assert!(acknowledged.iter().all(|one| !one.repeated), "{acknowledged:?}");
    let names: Vec<String> = recorded(&log).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["c1", "c2", "c3"]);
    let tally = by_clock.tally();
    assert_eq!((tally.recorded, tally.repeated), (3, 0));
    assert!(tally.renumbered >= 1, "{tally:?}");
}

#[tokio::test]
async fn when_nobody_is_there_the_error_says_so_and_the_reports_wait() {
    let log = Arc::default();
    let absent = nobody().await;
    let options = Options { connect_patience: Some(Duration::from_millis(200)), ..quick() };
    let client = Client::connect(Endpoints::parse([&absent]).expect("an endpoint"), options);
    let mut stream = client.signal_stream(from(1));
    let error = stream.send(about("c1")).await.expect_err("nobody listens");
    let Error::Unavailable { tried, maybe_done: false, .. } = &error else { panic!("{error:?}") };
    assert_eq!(tried.len(), 1);
    assert_eq!(stream.unacknowledged(), 1);

    // Somebody comes.
    let node = Node::of(&log).await;
    let listener = TcpListener::bind(&absent).await.expect("the address is free");
    tokio::spawn(wire(listener, node.address, node.cut.clone()));
    let mut left = 50;
    while stream.next().await.is_err() {
        left -= 1;
        assert!(left > 0, "the stream does not come back");
    }
    assert_eq!(recorded(&log), numbered(1..=1));
}
