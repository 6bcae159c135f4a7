//! `get` and `describe`.

use loadline_client::v1::Resource;
use loadline_client::{Kind, Scope};

use super::Session;
use super::status::{node_views, of_nodes};
use crate::args::GetArgs;
use crate::exit::{Exit, Failed};
use crate::noun::{Noun, Selection};
use crate::output::resources::{ClusterView, ResourceView, SettingView, SizeView};
use crate::output::scaling::{ActionView, DecisionView, OperationView, RoleView, StrategyView};
use crate::output::signals::SignalView;
use crate::output::{Format, View, describe as pairs, list, one};

pub(crate) async fn get(args: &GetArgs, session: Session<'_>) -> Result<(), Failed> {
    let scope = Scope {
        dead_letters: args.dead_letters,
        cluster: args.cluster.clone(),
        history: args.history,
        count_max: args.limit.and_then(|limit| usize::try_from(limit).ok()),
    };
    of(&args.what.words, &scope, session).await
}

async fn of(words: &[String], scope: &Scope, mut session: Session<'_>) -> Result<(), Failed> {
    let (noun, names) = Selection::parse(words)?.one_type()?;
    let kind = match noun {
        Noun::Resource(kind) => kind,
        Noun::Node => return of_nodes(&names, session).await,
    };
    let found = fetch(kind, &names, scope, &mut session).await?;
    // One name gives one object; a type gives a list, however many there are.
    let text = show(kind, found.views, found.revision, names.len() == 1, session.format)?;
    if text.is_empty() && names.is_empty() {
        session.console.say(&format!("there are no {}", kind.plural()));
    }
    session.console.data(&text)?;
    found.missing.map_or(Ok(()), Err)
}

pub(crate) async fn describe(words: &[String], mut session: Session<'_>) -> Result<(), Failed> {
    let (noun, names) = Selection::parse(words)?.one_type()?;
    if !matches!(session.format, Format::Table | Format::Wide) {
        return of(words, &Scope::default(), session).await;
    }
    let (each, missing): (Vec<String>, _) = match noun {
        Noun::Resource(kind) => {
            let found = fetch(kind, &names, &Scope::default(), &mut session).await?;
            (found.views.iter().map(|view| pairs(&view.pairs())).collect(), found.missing)
        }
        Noun::Node => {
            let (views, missing) = node_views(&names, &session).await?;
            (views.iter().map(|view| pairs(&view.pairs())).collect(), missing)
        }
    };
    session.console.data(&each.join("\n"))?;
    missing.map_or(Ok(()), Err)
}

/// What was there, and what was not: those that are there are shown all the same.
struct Fetched {
    views: Vec<ResourceView>,
    revision: u64,
    missing: Option<Failed>,
}

async fn fetch(kind: Kind, names: &[String], scope: &Scope, session: &mut Session<'_>) -> Result<Fetched, Failed> {
    let scaling = matches!(kind, Kind::Strategy | Kind::Decision | Kind::Operation | Kind::Action);
    if *scope != Scope::default() && (!scaling || !names.is_empty()) {
        return Err(Failed::usage(
            "--cluster, --history and --limit are for lists of strategies, decisions, operations and actions",
        ));
    }
    if names.is_empty() {
        let listing = match scaling {
            true => session.client.list_scaling(kind, scope, session.reading).await?,
            false => session.client.list(kind, session.reading).await?,
        };
        return Ok(Fetched { views: known(listing.resources), revision: listing.revision, missing: None });
    }
    let mut fetched = Fetched { views: Vec::new(), revision: 0, missing: None };
    for name in names {
        match session.client.get(kind, name, session.reading).await.map_err(Failed::from) {
            Ok(found) => {
                fetched.revision = fetched.revision.max(found.revision);
                fetched.views.extend(known(vec![found.resource]));
            }
            Err(failed) if failed.exit == Exit::NotFound => {
                if let Some(earlier) = &fetched.missing {
                    session.console.fail(earlier);
                }
                fetched.missing = Some(failed);
            }
            Err(failed) => return Err(failed),
        }
    }
    Ok(fetched)
}

fn known(resources: Vec<Resource>) -> Vec<ResourceView> {
    resources.into_iter().filter_map(ResourceView::of).collect()
}

/// Many of a kind, or one, in the format that was asked for.
pub(super) fn show(
    kind: Kind,
    views: Vec<ResourceView>,
    revision: u64,
    single: bool,
    format: Format,
) -> Result<String, Failed> {
    match kind {
        Kind::Size => put(kind, sizes(views), revision, single, format),
        Kind::Cluster => put(kind, clusters(views), revision, single, format),
        Kind::Setting => put(kind, settings(views), revision, single, format),
        Kind::Strategy => put(kind, strategies(views), revision, single, format),
        Kind::Decision => put(kind, decisions(views), revision, single, format),
        Kind::Operation => put(kind, operations(views), revision, single, format),
        Kind::Action => put(kind, actions(views), revision, single, format),
        Kind::Role => put(kind, roles(views), revision, single, format),
        Kind::Signal => put(kind, signals(views), revision, single, format),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the views are made for this call")]
fn put<V: View>(kind: Kind, views: Vec<V>, revision: u64, single: bool, format: Format) -> Result<String, Failed> {
    match views.as_slice() {
        [view] if single => one(format, view),
        [] if single => Ok(String::new()),
        views => list(format, kind.plural(), Some(revision), views),
    }
}

fn sizes(views: Vec<ResourceView>) -> Vec<SizeView> {
    let of = |view| if let ResourceView::Size(size) = view { Some(size) } else { None };
    views.into_iter().filter_map(of).collect()
}

fn clusters(views: Vec<ResourceView>) -> Vec<ClusterView> {
    let of = |view| if let ResourceView::Cluster(cluster) = view { Some(cluster) } else { None };
    views.into_iter().filter_map(of).collect()
}

fn settings(views: Vec<ResourceView>) -> Vec<SettingView> {
    let of = |view| if let ResourceView::Setting(setting) = view { Some(setting) } else { None };
    views.into_iter().filter_map(of).collect()
}

fn strategies(views: Vec<ResourceView>) -> Vec<StrategyView> {
    let of = |view| if let ResourceView::Strategy(it) = view { Some(it) } else { None };
    views.into_iter().filter_map(of).collect()
}

fn decisions(views: Vec<ResourceView>) -> Vec<DecisionView> {
    let of = |view| if let ResourceView::Decision(it) = view { Some(it) } else { None };
    views.into_iter().filter_map(of).collect()
}

fn operations(views: Vec<ResourceView>) -> Vec<OperationView> {
    let of = |view| if let ResourceView::Operation(it) = view { Some(it) } else { None };
    views.into_iter().filter_map(of).collect()
}

fn actions(views: Vec<ResourceView>) -> Vec<ActionView> {
    let of = |view| if let ResourceView::Action(it) = view { Some(it) } else { None };
    views.into_iter().filter_map(of).collect()
}

fn signals(views: Vec<ResourceView>) -> Vec<SignalView> {
    let of = |view| if let ResourceView::Signal(it) = view { Some(*it) } else { None };
    views.into_iter().filter_map(of).collect()
}

fn roles(views: Vec<ResourceView>) -> Vec<RoleView> {
    let of = |view| if let ResourceView::Role(it) = view { Some(it) } else { None };
    views.into_iter().filter_map(of).collect()
}
