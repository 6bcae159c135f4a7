//! The least that every design has to do on this machine: make bytes durable, and go there and back.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tonic::transport::Channel;
use tonic::transport::server::TcpIncoming;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::figures::{millis, percentile};
use super::rows::Baseline;
use crate::exit::{Exit, Failed};

/// As many as there are nodes: they sync at the same time, and the disk is one.
const WRITERS: usize = 3;

/// What was measured so far, in every round.
#[derive(Debug)]
pub(super) struct Yardstick {
    files: Vec<File>,
    bytes: Vec<u8>,
    calls: HealthClient<Channel>,
    synced: Times,
    answered: Times,
    /// A few of both in a row, after a rest in which the processors went to sleep.
    rested: Times,
    /// Ends the server with it.
    _server: std::sync::mpsc::Sender<()>,
}

/// How long something took, every time.
#[derive(Debug, Default)]
struct Times {
    all: Vec<Duration>,
    /// Those from here on are of the benchmark that is under way.
    begins: usize,
}

impl Times {
    fn p50_ms(&self) -> f64 {
        at(&self.all[self.begins..], 50)
    }
}

/// To the thousandth.
fn at(took: &[Duration], percent: usize) -> f64 {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    (millis(percentile(&sorted, percent)) * 1_000.0).round() / 1_000.0
}

impl Yardstick {
    /// `bytes`: what one write of the benchmark puts into the log.
    pub(super) async fn new(folder: &Path, bytes: usize) -> Result<Yardstick, Failed> {
        let files = (0..WRITERS).map(|number| File::create(folder.join(format!("sync-{number}"))));
        let files = files.collect::<Result<Vec<File>, _>>()?;
        let (address, server) = serve()?;
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| Failed::new(Exit::Failure, error.to_string()))?
            .tcp_nodelay(true)
            .connect()
            .await
            .map_err(|error| Failed::new(Exit::Failure, format!("loopback cannot be measured: {error}")))?;
        let calls = HealthClient::new(channel);
        let (synced, answered, rested) = (Times::default(), Times::default(), Times::default());
        Ok(Yardstick { files, bytes: vec![0x5a; bytes], calls, synced, answered, rested, _server: server })
    }

    /// What comes from now on is another benchmark's. A quiet minute of the one before is no measure for it.
    pub(super) fn begin(&mut self) {
        for times in [&mut self.synced, &mut self.answered, &mut self.rested] {
            times.begins = times.all.len();
        }
    }

    /// So many syncs, and so many ways there and back, while this benchmark was under way.
    pub(super) fn floor_ms(&self, syncs: f64, round_trips: f64) -> f64 {
        syncs * self.synced.p50_ms() + round_trips * self.answered.p50_ms()
    }

    /// What was measured after a rest while this benchmark was under way. It must have been.
    pub(super) fn rested_ms(&self) -> f64 {
        self.rested.p50_ms()
    }

    /// One more round of both, each for so long.
    pub(super) async fn measure(&mut self, lasts: Duration) -> Result<(), Failed> {
        let until = Instant::now() + lasts;
        let synced = self.sync(Some(until)).await?;
        self.synced.all.extend(synced);
        let until = Instant::now() + lasts;
        while Instant::now() < until {
            let took = self.call().await?;
            self.answered.all.push(took);
        }
        Ok(())
    }

    /// Rests, then goes there and back so many times, with a sync in each gap, as one thing that follows from another does. So often.
    pub(super) async fn measure_rested(&mut self, count: u32, rest: Duration, round_trips: u32) -> Result<(), Failed> {
        for _ in 0..count {
            tokio::time::sleep(rest).await;
            let mut took = self.call().await?;
            for _ in 1..round_trips {
                let mut synced = self.sync(None).await?;
                synced.sort_unstable();
                // Most of them have it.
                took += synced[WRITERS / 2];
                took += self.call().await?;
            }
            self.rested.all.push(took);
        }
        Ok(())
    }

    /// Appends and syncs, by all writers at once, until then or once. How long it took, every time.
    async fn sync(&self, until: Option<Instant>) -> Result<Vec<Duration>, Failed> {
        let files = self.files.iter().map(File::try_clone).collect::<Result<Vec<File>, _>>()?;
        let bytes = self.bytes.clone();
        let syncing = tokio::task::spawn_blocking(move || {
            std::thread::scope(|scope| {
                let bytes = &bytes;
                let writers: Vec<_> =
                    files.into_iter().map(|file| scope.spawn(move || sync_until(file, bytes, until))).collect();
                writers.into_iter().map(|writer| writer.join()).collect::<Vec<_>>()
            })
        });
        let broke = |_| Failed::new(Exit::Failure, "a writer of the baseline broke down");
        let mut all = Vec::new();
        for took in syncing.await.map_err(|error| Failed::new(Exit::Failure, error.to_string()))? {
            all.extend(took.map_err(broke)??);
        }
        Ok(all)
    }

    /// There and back.
    async fn call(&mut self) -> Result<Duration, Failed> {
        let began = Instant::now();
        let asked = self.calls.check(HealthCheckRequest { service: String::new() }).await;
        asked.map_err(|status| Failed::new(Exit::Failure, format!("loopback: {}", status.message())))?;
        Ok(began.elapsed())
    }

    pub(super) fn baseline(&self, etcd_version: Option<String>) -> Baseline {
        let (synced, answered, rested) = (&self.synced.all, &self.answered.all, &self.rested.all);
        Baseline {
            rested_p50_ms: (!rested.is_empty()).then(|| at(rested, 50)),
            fdatasync_p50_ms: at(synced, 50),
            fdatasync_p99_ms: at(synced, 99),
            round_trip_p50_ms: at(answered, 50),
            round_trip_p99_ms: at(answered, 99),
            etcd_version,
        }
    }
}

fn sync_until(mut file: File, bytes: &[u8], until: Option<Instant>) -> std::io::Result<Vec<Duration>> {
    let mut took = Vec::new();
    loop {
        let began = Instant::now();
        file.write_all(bytes)?;
        file.sync_data()?;
        took.push(began.elapsed());
        if until.is_none_or(|until| Instant::now() >= until) {
            return Ok(took);
        }
    }
}

/// The smallest gRPC server there is, on a thread and a runtime of its own, as another process would have them.
fn serve() -> Result<(SocketAddr, std::sync::mpsc::Sender<()>), Failed> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (running, ended) = std::sync::mpsc::channel::<()>();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    std::thread::Builder::new().name("round-trips".to_owned()).spawn(move || {
        let serving = async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let (_, health) = tonic_health::server::health_reporter();
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let server = tonic::transport::Server::builder().add_service(health).serve_with_incoming(incoming);
            tokio::spawn(server);
            Ok::<_, std::io::Error>(())
        };
        if runtime.block_on(serving).is_ok() {
            // Until the yardstick is dropped.
            let _ = ended.recv();
        }
        runtime.shutdown_background();
    })?;
    Ok((address, running))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_are_measured_and_take_some_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut yardstick = Yardstick::new(folder.path(), 256).await.expect("a yardstick");
        yardstick.measure(Duration::from_millis(5)).await.expect("measured");
        let baseline = yardstick.baseline(None);
        assert!(baseline.fdatasync_p50_ms > 0.0 && baseline.round_trip_p50_ms > 0.0, "{baseline:?}");
        assert!(yardstick.floor_ms(1.0, 2.0) > baseline.round_trip_p50_ms * 2.0);
        assert!(baseline.rested_p50_ms.is_none(), "nobody rested");
    }

    #[tokio::test]
    async fn after_a_rest_a_few_of_both_are_measured_in_a_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut yardstick = Yardstick::new(folder.path(), 256).await.expect("a yardstick");
        let (rest, began) = (Duration::from_millis(5), Instant::now());
        yardstick.measure_rested(4, rest, 3).await.expect("measured");
        assert!(began.elapsed() >= rest * 4, "{:?}", began.elapsed());
        assert_eq!((yardstick.rested.all.len(), yardstick.synced.all.len(), yardstick.answered.all.len()), (4, 0, 0));
        assert!(yardstick.rested_ms() > 0.0 && yardstick.baseline(None).rested_p50_ms == Some(yardstick.rested_ms()));
        let written = yardstick.files[0].metadata().expect("a file").len();
        assert_eq!(written, 256 * 2 * 4, "a sync in every gap");
    }

    #[tokio::test]
    async fn a_benchmark_is_held_against_what_was_measured_during_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut yardstick = Yardstick::new(folder.path(), 256).await.expect("a yardstick");
        let times = |yardstick: &mut Yardstick, ms| {
            yardstick.synced.all.push(Duration::from_millis(ms));
            yardstick.answered.all.push(Duration::from_millis(ms));
        };
        times(&mut yardstick, 1);
        times(&mut yardstick, 1);
        yardstick.begin();
        times(&mut yardstick, 10);
        assert!((yardstick.floor_ms(1.0, 2.0) - 30.0).abs() < 1e-9);
        assert!((yardstick.baseline(None).fdatasync_p50_ms - 1.0).abs() < 1e-9, "the whole run");
    }
}
