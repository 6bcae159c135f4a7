//! `create|update|enable|disable strategy`, `pause`, `resume`, `approve`, `reject`.

use std::collections::BTreeMap;
use std::time::Duration;

use loadline_client::v1::change::Change;
use loadline_client::v1::resource::Resource as Kept;
use loadline_client::v1::strategy_target::Target;
use loadline_client::v1::{
    ApproveActionRequest, CreateStrategyRequest, DeleteStrategiesRequest, DeleteStrategyRequest, PauseClusterRequest,
    RejectActionRequest, ResumeClusterRequest, Strategy, StrategyTarget, UpdateStrategyRequest,
};
use loadline_client::{Kind, Reading, ScalingWrite};

pub(crate) use super::signal::signal;
use super::write::{removed, report, said};
use super::{Session, writing};
use crate::args::WriteArgs;
use crate::exit::{Exit, Failed};
use crate::output::{Format, json_line};
use crate::scaling_args::{CreateStrategyArgs, PauseArgs, StrategyRef, Switch, TargetArgs, Update};

pub(crate) async fn create(args: CreateStrategyArgs, mut session: Session<'_>) -> Result<(), Failed> {
    let target = target(&args.target).ok_or_else(no_target)?;
    let strategy = Strategy {
        r#type: args.kind,
        target: Some(target),
        options: args.options.into_iter().collect(),
        ..Strategy::default()
    };
    let request = CreateStrategyRequest { options: None, strategy: Some(strategy), allow_existing: args.if_not_exists };
    let write = ScalingWrite::CreateStrategy(request);
    let answer = session.client.write_scaling(write, writing(args.dry_run)).await?;
    report(&mut session, answer, "created", args.dry_run)
}

pub(crate) async fn update(what: Update, session: Session<'_>) -> Result<(), Failed> {
    let (strategy, options, reset, write) = match what {
        Update::Cluster { name, backend, write } => return super::write::place(name, backend, write, session).await,
        Update::Role(args) => return super::roles::update(&args, session).await,
        Update::Strategy { strategy, options, reset, write } => (strategy, options, reset, write),
    };
    if options.is_empty() && reset.is_empty() {
        return Err(Failed::usage("nothing to change: name an option with --option KEY=VALUE or --reset KEY"));
    }
    change(&strategy, options.into_iter().collect(), reset, write, "updated", session).await
}

/// `enable` and `disable`.
pub(crate) async fn switch(what: Switch, on: bool, session: Session<'_>) -> Result<(), Failed> {
    let Switch::Strategy { strategy, write } = what;
    let options = BTreeMap::from([("enabled".to_owned(), on.to_string())]);
    change(&strategy, options, Vec::new(), write, if on { "enabled" } else { "disabled" }, session).await
}

async fn change(
    strategy: &StrategyRef,
    set: BTreeMap<String, String>,
    reset: Vec<String>,
    write: WriteArgs,
    verb: &str,
    mut session: Session<'_>,
) -> Result<(), Failed> {
    let (target, kind) = find(strategy, &session).await?;
    let request = UpdateStrategyRequest {
        options: None,
        target: Some(target),
        r#type: kind,
        set,
        reset,
        etag: write.etag.clone(),
    };
    let answer = session.client.write_scaling(ScalingWrite::UpdateStrategy(request), writing(write.dry_run)).await?;
    report(&mut session, answer, verb, write.dry_run)
}

/// Target and type of a strategy. They never change, so what is looked up by its id once can be written under them.
async fn find(strategy: &StrategyRef, session: &Session<'_>) -> Result<(StrategyTarget, String), Failed> {
    match target(&strategy.target) {
        Some(target) => Ok((target, strategy.which.clone())),
        None => by_id(&strategy.which, session).await,
    }
}

async fn by_id(id: &str, session: &Session<'_>) -> Result<(StrategyTarget, String), Failed> {
    let looks_like_id = id.strip_prefix('s').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if !looks_like_id {
        return Err(no_target());
    }
    let found = session.client.get(Kind::Strategy, id, session.reading).await?;
    match found.resource.resource {
        Some(Kept::Strategy(Strategy { target: Some(target), r#type, .. })) => Ok((target, r#type)),
        _ => Err(Failed::new(Exit::Failure, "the answer lacks the strategy; is the node of another version?")),
    }
}

/// A strategy that is to be deleted.
pub(super) enum Deletion {
    /// What it is called, and the change.
    Of(String, Box<Change>),
    Missing(String),
}

/// One strategy by its id, as in `delete strategy s12.0`, or by its type for this target.
pub(super) async fn delete_one(
    which: String,
    target: Option<StrategyTarget>,
    allow_missing: bool,
    write: &WriteArgs,
    session: &Session<'_>,
) -> Result<Deletion, Failed> {
    let (name, target, kind) = match target {
        Some(target) => (format!("strategies/{which} {}", in_words(&target)), target, which),
        None => {
            let name = format!("strategies/{which}");
            match by_id(&which, session).await {
                Ok((target, kind)) => (name, target, kind),
                Err(failed) if failed.exit == Exit::NotFound && allow_missing => return Ok(Deletion::Missing(name)),
                Err(failed) => return Err(failed),
            }
        }
    };
    let request = DeleteStrategyRequest {
        options: None,
        target: Some(target),
        r#type: kind,
        etag: write.etag.clone(),
        allow_missing,
    };
    Ok(Deletion::Of(name, Box::new(Change::DeleteStrategy(request))))
}

/// Every strategy that is for exactly this target.
pub(super) async fn delete_all(
    target: StrategyTarget,
    write: &WriteArgs,
    mut session: Session<'_>,
) -> Result<(), Failed> {
    if !write.etag.is_empty() {
        return Err(Failed::usage("--etag is of one resource: name the strategy"));
    }
    // Only to be able to name them: which are deleted is decided when it is recorded.
    let listing = session.client.list(Kind::Strategy, Reading::Linearizable).await?;
    let known = listing.resources.into_iter().filter_map(|it| match it.resource {
        Some(Kept::Strategy(strategy)) if strategy.target.as_ref() == Some(&target) => Some(strategy.id),
        _ => None,
    });
    let known: Vec<(&str, String)> = known.map(|id| ("deleted", format!("strategies/{id}"))).collect();
    let words = in_words(&target);
    let change = Change::DeleteStrategies(DeleteStrategiesRequest { options: None, target: Some(target) });
    let answer = session.client.write(change, writing(write.dry_run)).await?;
    if known.is_empty() {
        session.console.say(&format!("there are no strategies {words}"));
    }
    removed(&known, answer.revision, write.dry_run, &mut session)
}

fn in_words(target: &StrategyTarget) -> String {
    match &target.target {
        Some(Target::Cluster(name)) => format!("for {name}"),
        Some(Target::Pattern(pattern)) => format!("for clusters like '{pattern}'"),
        Some(Target::All(_)) | None => "for all clusters".to_owned(),
    }
}

pub(super) fn target(args: &TargetArgs) -> Option<StrategyTarget> {
    let target = match (&args.cluster, args.all_clusters, &args.like) {
        (Some(name), _, _) => Target::Cluster(name.clone()),
        (None, true, Some(pattern)) => Target::Pattern(pattern.clone()),
        (None, true, None) => Target::All(true),
        (None, false, _) => return None,
    };
    Some(StrategyTarget { target: Some(target) })
}

fn no_target() -> Failed {
    Failed::usage("for which clusters?")
        .hint("name one with --cluster NAME, or all with --all-clusters [--like PATTERN]")
}

pub(crate) async fn pause(args: PauseArgs, mut session: Session<'_>) -> Result<(), Failed> {
    let name = format!("clusters/{}", args.cluster);
    let request = PauseClusterRequest {
        options: None,
        cluster: args.cluster,
        reason: args.reason,
        expires_in_ms: args.lasts.map(millis).unwrap_or_default(),
    };
    let answer = session.client.write_scaling(ScalingWrite::PauseCluster(request), writing(false)).await?;
    let changed = answer.results.first().is_some_and(|result| result.changed);
    done(&name, if changed { "paused" } else { "unchanged" }, answer.revision, false, &mut session)
}

pub(crate) async fn resume(cluster: String, mut session: Session<'_>) -> Result<(), Failed> {
    let name = format!("clusters/{cluster}");
    let request = ResumeClusterRequest { options: None, cluster };
    let answer = session.client.write_scaling(ScalingWrite::ResumeCluster(request), writing(false)).await?;
    let changed = answer.results.first().is_some_and(|result| result.changed);
    done(&name, if changed { "resumed" } else { "was not paused" }, answer.revision, false, &mut session)
}

pub(crate) async fn approve(action: &str, mut session: Session<'_>) -> Result<(), Failed> {
    let write = ScalingWrite::ApproveAction(ApproveActionRequest { options: None, action: bare(action) });
    let answer = session.client.write_scaling(write, writing(false)).await?;
    report(&mut session, answer, "approved", false)
}

pub(crate) async fn reject(action: &str, reason: String, mut session: Session<'_>) -> Result<(), Failed> {
    let write = ScalingWrite::RejectAction(RejectActionRequest { options: None, action: bare(action), reason });
    let answer = session.client.write_scaling(write, writing(false)).await?;
    report(&mut session, answer, "rejected", false)
}

/// `a412.3`, also from `actions/a412.3`, as `-o name` prints it.
pub(super) fn bare(action: &str) -> String {
    action.rsplit_once('/').map_or(action, |(_, id)| id).to_owned()
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn done(
    name: &str,
    word: &str,
    revision: u64,
    dry_run: bool,
    session: &mut Session<'_>,
) -> Result<(), Failed> {
    match session.format {
        Format::Name => session.console.line(name),
        Format::Json | Format::Jsonl => {
            let line = serde_json::json!({ "name": name, "result": word, "revision": revision });
            session.console.data(&json_line(&line)?)
        }
        _ => session.console.line(&said(name, word, dry_run)),
    }
}
