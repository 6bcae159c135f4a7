//! `bench sql`: a question over the whole audit, while others write.
//!
//! Ten thousand clusters each want a replica while the kill switch is off, so there are ten thousand actions that would have been
//! carried out: as many rows as are asked for, and no backend. A thousand commands a second go through the log meanwhile, paced
//! and not as fast as they can, because the question is what somebody waits who asks a group that is in use. Reads are
//! linearizable, at the leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use loadline_client::v1::change::Change;
use loadline_client::v1::strategy_target::Target;
use loadline_client::v1::{CreateSizeRequest, CreateStrategyRequest, Size, Strategy, StrategyTarget};
use loadline_client::{Client, Writing};
use tokio::time::Instant;
use tokio_postgres::NoTls;

use super::drive::closed_loop;
use super::figures::{Figures, Sample};
use super::group::Group;
use super::rows::Row;
use super::stage::{Beside, Stage, create_clusters, set_setting, value};
use super::world::mix;
use super::write::pause;
use crate::exit::{Exit, Failed};

/// How many of them share the writes; each waits for its answer before its next.
const WRITERS: u32 = 32;
/// Nobody waits longer for the actions to be there.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Well under a second, also for the slowest of a hundred.
const P99_MS_MAX: f64 = 500.0;

const ASK: &str = "SELECT c.name, a.action_type, count(*) AS actions, count(*) FILTER (WHERE NOT a.executed) AS not_done, \
                   max(a.created_at) AS latest \
                   FROM mz_internal.mz_scaling_actions a JOIN loadline.clusters c ON c.id = a.cluster_id \
                   GROUP BY c.name, a.action_type ORDER BY actions DESC, c.name LIMIT 20";
const COUNT: &str = "SELECT count(*) FROM mz_internal.mz_scaling_actions";

#[derive(Debug, Clone, Args)]
pub(crate) struct Asked {
    /// Rows of actions
    #[arg(long = "actions", value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    actions: u32,
    /// Writes per second beside the question
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    writes: u32,
}

pub(super) async fn measure(asked: &Asked, stage: &mut Stage<'_>) -> Result<Vec<Row>, Failed> {
    stage.begin("sql", Beside::Nothing).await?;
    stage.tell("sql: starting three nodes");
    let mut group = Group::start(stage.folder(), "sql", &[]).await?;
    let leader = group.leader().await?;
    stage.tell(&format!("sql: making {} actions", asked.actions));
    build(&Group::connect([group.nodes()[leader].endpoint.as_str()])?, asked.actions).await?;
    let client = Arc::new(connect(&group.nodes()[leader].pg).await?);
    all_there(&client, asked.actions).await?;
    let (mut alone, mut beside, mut writes) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=stage.args.rounds {
        stage.tell(&format!("sql: round {round} of {}", stage.args.rounds));
        stage.yardstick().await?;
        alone.push(questions(&client, stage.args.lasts).await?);
        let leader = group.leader().await?;
        let writers = Group::connect([group.nodes()[leader].endpoint.as_str()])?;
        let began = Instant::now();
        let (asking, written) = tokio::try_join!(questions(&client, stage.args.lasts), async {
            // As long as the question is asked, its warm-up included.
            written(&writers, asked, stage.args.lasts + stage.args.lasts / 5).await
        })?;
        beside.push(asking);
        writes.push(Sample::new(written, began.elapsed()));
    }
    let name = |text: &str| format!("{text} over {} actions", asked.actions);
    let quiet = Row::new(&name("sql join and aggregate"), Some(1), Figures::of(&alone));
    let busy = Row::new(&format!("{} beside writes", name("sql join and aggregate")), Some(1), Figures::of(&beside));
    let met = busy.figures.map(|figures| figures.p99_ms <= P99_MS_MAX);
    let ratio = busy.figures.zip(quiet.figures).map(|(busy, quiet)| busy.p50_ms / quiet.p50_ms);
    let writing = Row::new("sql writes beside it", usize::try_from(WRITERS).ok(), Figures::of(&writes));
    let busy = busy.against("p50 without writes", ratio).goal("well under 1 s: p99 <= 500 ms", met);
    Ok(vec![quiet, busy, writing])
}

async fn connect(address: &str) -> Result<tokio_postgres::Client, Failed> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "5432"));
    let mut config = tokio_postgres::Config::new();
    config.host(host).port(port.parse().unwrap_or_default()).user("bench").dbname("loadline");
    let (client, connection) = config.connect(NoTls).await.map_err(|error| failed("connecting", &error))?;
    tokio::spawn(connection);
    Ok(client)
}

fn failed(what: &str, error: &tokio_postgres::Error) -> Failed {
    Failed::new(Exit::Failure, format!("{what} over SQL: {error:?}"))
}

/// One action for each cluster, none of which is carried out.
async fn build(client: &Client, clusters: u32) -> Result<(), Failed> {
    let size = Size { name: "100cc".to_owned(), slots: 1, price_micros_per_hour: 1, ..Size::default() };
    let strategy = Strategy {
        r#type: "target_size".to_owned(),
        target: Some(StrategyTarget { target: Some(Target::All(true)) }),
        options: [("SIZE".to_owned(), "100cc".to_owned())].into(),
        ..Strategy::default()
    };
    let off = set_setting("auto_scaling_enabled", "false");
    let size = Change::CreateSize(CreateSizeRequest { options: None, size: Some(size) });
    client.transact(vec![off, size], Writing::Record).await?;
    create_clusters(client, clusters).await?;
    let strategy = CreateStrategyRequest { options: None, strategy: Some(strategy), allow_existing: false };
    client.transact(vec![Change::CreateStrategy(strategy)], Writing::Record).await?;
    Ok(())
}

async fn all_there(client: &tokio_postgres::Client, wanted: u32) -> Result<(), Failed> {
    let until = Instant::now() + PATIENCE;
    loop {
        let row = client.query_one(COUNT, &[]).await.map_err(|error| failed("counting", &error))?;
        let count: i64 = row.get(0);
        if count >= i64::from(wanted) {
            return Ok(());
        }
        if Instant::now() > until {
            let message = format!("only {count} of {wanted} actions came about within {PATIENCE:?}");
            return Err(Failed::new(Exit::TimedOut, message));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// One caller, who asks again as soon as the answer is there.
async fn questions(client: &Arc<tokio_postgres::Client>, lasts: Duration) -> Result<Sample, Failed> {
    let client = Arc::clone(client);
    closed_loop(1, lasts, move |_, _| {
        let client = Arc::clone(&client);
        async move {
            let rows = client.query(ASK, &[]).await.map_err(|error| failed("asking", &error))?;
            if rows.is_empty() {
                return Err(Failed::new(Exit::Failure, "the question had no answer"));
            }
            Ok(())
        }
    })
    .await
}

/// So many writes a second, at even times. One that takes longer than its turn does not make up for it: that would be a burst
/// nobody asked for.
async fn written(client: &Client, asked: &Asked, lasts: Duration) -> Result<Vec<Duration>, Failed> {
    let turn = Duration::from_secs(1) * WRITERS / asked.writes;
    let until = Instant::now() + lasts;
    let next = Arc::new(AtomicU64::new(0));
    let clusters = u64::from(asked.actions);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (client, next) = (client.clone(), Arc::clone(&next));
        writers.spawn(async move {
            let mut took = Vec::new();
            let mut turns = tokio::time::interval_at(Instant::now() + turn * writer / WRITERS, turn);
            turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            while Instant::now() < until {
                turns.tick().await;
                let number = next.fetch_add(1, Ordering::Relaxed);
                let began = Instant::now();
                pause(&client, mix(number) % clusters, value(0, number)).await?;
                took.push(began.elapsed());
            }
            Ok::<_, Failed>(took)
        });
    }
    let mut all = Vec::new();
    while let Some(ended) = writers.join_next().await {
        all.extend(ended.map_err(|error| Failed::new(Exit::Failure, format!("a writer broke down: {error}")))??);
    }
    Ok(all)
}
