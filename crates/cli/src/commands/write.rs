//! `create`, `delete`, `rename`, `set`, `reset`: one change each, or several that happen together.

use loadline_client::Kind;
use loadline_client::v1::change::Change;
use loadline_client::v1::{
    Cluster, CreateClusterRequest, CreateSizeRequest, DeleteRequest, RenameClusterRequest, SetSettingRequest, Size,
    StrategyTarget, UpdateClusterRequest, WriteResponse, WriteResult,
};

use super::scaling::Deletion;
use super::{Session, writing};
use crate::args::{Create, DeleteArgs, Rename, WriteArgs};
use crate::exit::Failed;
use crate::noun::{Named, Noun, Selection};
use crate::output::resources::ResourceView;
use crate::output::{Format, json_line, pretty, yaml_documents};

pub(crate) async fn create(what: Create, mut session: Session<'_>) -> Result<(), Failed> {
    let (change, dry_run) = match what {
        Create::Size { name, slots, price, rank, dry_run } => {
            let rank = rank.unwrap_or_default();
            let size = Size { name, rank, slots, price_micros_per_hour: price, ..Size::default() };
            (Change::CreateSize(CreateSizeRequest { options: None, size: Some(size) }), dry_run)
        }
        Create::Strategy(args) => return super::scaling::create(args, session).await,
        Create::Replica(args) => return super::replicas::create(args, session).await,
        Create::Role(args) => return super::roles::create(&args, session).await,
        Create::Token { role, expires_in } => return super::roles::create_token(&role, expires_in, session).await,
        Create::Cluster { name, backend, dry_run } => {
            let cluster = Cluster { name, backend: backend.unwrap_or_default(), ..Cluster::default() };
            (Change::CreateCluster(CreateClusterRequest { options: None, cluster: Some(cluster) }), dry_run)
        }
    };
    let answer = session.client.write(change, writing(dry_run)).await?;
    report(&mut session, answer, "created", dry_run)
}

pub(crate) async fn rename(what: Rename, mut session: Session<'_>) -> Result<(), Failed> {
    let Rename::Cluster { name, new_name, write } = what;
    let change = Change::RenameCluster(RenameClusterRequest { options: None, name, new_name, etag: write.etag });
    let answer = session.client.write(change, writing(write.dry_run)).await?;
    report(&mut session, answer, "renamed", write.dry_run)
}

/// `update cluster --backend`.
pub(crate) async fn place(
    name: String,
    backend: String,
    write: WriteArgs,
    mut session: Session<'_>,
) -> Result<(), Failed> {
    let change = Change::UpdateCluster(UpdateClusterRequest {
        options: None,
        name,
        new_name: None,
        backend: Some(backend),
        etag: write.etag,
    });
    let answer = session.client.write(change, writing(write.dry_run)).await?;
    report(&mut session, answer, "updated", write.dry_run)
}

pub(crate) async fn set(name: String, value: String, write: WriteArgs, mut session: Session<'_>) -> Result<(), Failed> {
    let change = Change::SetSetting(SetSettingRequest { options: None, name, value, etag: write.etag });
    let answer = session.client.write(change, writing(write.dry_run)).await?;
    report(&mut session, answer, "set", write.dry_run)
}

pub(crate) async fn reset(names: Vec<String>, dry_run: bool, session: Session<'_>) -> Result<(), Failed> {
    let noun = Noun::Resource(Kind::Setting);
    let things = names.into_iter().map(|name| Named { noun, name }).collect();
    let write = WriteArgs { etag: String::new(), dry_run };
    remove(things, None, false, false, &write, session).await
}

pub(crate) async fn delete(args: &DeleteArgs, session: Session<'_>) -> Result<(), Failed> {
    if let Some(names) = super::replicas::names(&args.words) {
        return super::replicas::delete(names, args, session).await;
    }
    let target = super::scaling::target(&args.target);
    match (Selection::parse(&args.words)?, target) {
        (Selection::All(Noun::Resource(Kind::Strategy)), Some(target)) => {
            super::scaling::delete_all(target, &args.write, session).await
        }
        (Selection::All(Noun::Resource(Kind::Strategy)), None) => Err(Failed::usage(
            "which of the strategies? Name what to delete",
        )
        .hint("an id such as s12.0, or --cluster NAME or --all-clusters [--like PATTERN] for all that are for that")),
        (Selection::All(noun), _) => Err(Failed::usage(format!("which of the {}? Name what to delete", noun.plural()))),
        (Selection::Some(things), target) => {
            if let [Named { noun: Noun::Resource(Kind::Role), name }] = things.as_slice() {
                return super::roles::delete(name, args, session).await;
            }
            let strategies = things.iter().all(|thing| thing.noun == Noun::Resource(Kind::Strategy));
            if target.is_some() && !strategies {
                return Err(Failed::usage(
                    "--cluster and --all-clusters say which strategies; nothing else has a target",
                ));
            }
            remove(things, target, args.ignore_not_found, args.cascade, &args.write, session).await
        }
    }
}

async fn remove(
    things: Vec<Named>,
    target: Option<StrategyTarget>,
    allow_missing: bool,
    cascade: bool,
    write: &WriteArgs,
    mut session: Session<'_>,
) -> Result<(), Failed> {
    if things.len() > 1 && !write.etag.is_empty() {
        return Err(Failed::usage("--etag is of one resource: delete them one by one"));
    }
    // What to say about each, and the change if there is one to make.
    let mut names = Vec::new();
    let mut changes = Vec::new();
    let mut missing = Vec::new();
    for thing in things {
        let Noun::Resource(kind) = thing.noun else {
            return Err(Failed::usage("nodes are not deleted: use loadline operator raft remove-peer"));
        };
        if kind == Kind::Strategy {
            match super::scaling::delete_one(thing.name, target.clone(), allow_missing, write, &session).await? {
                Deletion::Of(name, change) => {
                    names.push(name);
                    changes.push(*change);
                }
                Deletion::Missing(name) => missing.push(name),
            }
            continue;
        }
        names.push(format!("{}/{}", kind.plural(), thing.name));
        let request =
            DeleteRequest { options: None, name: thing.name, etag: write.etag.clone(), allow_missing, cascade };
        changes.push(match kind {
            Kind::Size => Change::DeleteSize(request),
            Kind::Cluster => Change::DeleteCluster(request),
            Kind::Setting => Change::DeleteSetting(request),
            Kind::Signal => Change::DeleteSignal(request),
            Kind::Role => return Err(Failed::usage("roles are deleted by themselves, one at a time")),
            Kind::Strategy | Kind::Decision | Kind::Operation | Kind::Action => {
                return Err(Failed::usage(format!("{} are not deleted: they are a record", kind.plural())));
            }
        });
    }
    let answer = match changes.as_slice() {
        [] => WriteResponse::default(),
        [_] => session.client.write(changes.remove(0), writing(write.dry_run)).await?,
        _ => session.client.transact(changes, writing(write.dry_run)).await?,
    };
    let word = |name: &str, changed: bool| match (name.starts_with("settings/"), changed) {
        (true, true) => "reset",
        (true, false) => "unchanged",
        (false, true) => "deleted",
        (false, false) => "not found",
    };
    let done = names.into_iter().zip(&answer.results).map(|(name, result)| (word(&name, result.changed), name));
    let all: Vec<(&str, String)> = done.chain(missing.into_iter().map(|name| ("not found", name))).collect();
    removed(&all, answer.revision, write.dry_run, &mut session)
}

/// What became of each that was to be deleted.
pub(super) fn removed(
    all: &[(&str, String)],
    revision: u64,
    dry_run: bool,
    session: &mut Session<'_>,
) -> Result<(), Failed> {
    for (word, name) in all {
        match session.format {
            Format::Name => session.console.line(name)?,
            Format::Json | Format::Jsonl => {
                let line = serde_json::json!({ "name": name, "result": word, "revision": revision });
                session.console.data(&json_line(&line)?)?;
            }
            _ => session.console.line(&said(name, word, dry_run))?,
        }
    }
    Ok(())
}

/// `clusters/demo created`, or the resource as it is now.
pub(crate) fn report(
    session: &mut Session<'_>,
    answer: WriteResponse,
    verb: &str,
    dry_run: bool,
) -> Result<(), Failed> {
    let malformed =
        || Failed::new(crate::exit::Exit::Failure, "the answer lacks the resource; is the node of another version?");
    let WriteResult { resource, changed } = answer.results.into_iter().next().ok_or_else(malformed)?;
    let view = resource.and_then(ResourceView::of).ok_or_else(malformed)?;
    let text = match session.format {
        Format::Json => pretty(&view)?,
        Format::Jsonl => json_line(&view)?,
        Format::Yaml => yaml_documents(&[view])?,
        Format::Name => view.full_name() + "\n",
        Format::Table | Format::Wide | Format::Csv | Format::Sql => {
            said(&view.full_name(), if changed { verb } else { "unchanged" }, dry_run) + "\n"
        }
    };
    session.console.data(&text)
}

pub(crate) fn said(name: &str, word: &str, dry_run: bool) -> String {
    if dry_run { format!("{name} {word} (dry run)") } else { format!("{name} {word}") }
}
