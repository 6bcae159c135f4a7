//! One file per verb, or per few that belong together.

pub(crate) mod action;
mod apply;
pub(crate) mod audit;
pub(crate) mod backtest;
mod config;
mod explain;
mod get;
mod get_sql;
pub(crate) mod guard;
pub(crate) mod load;
mod raft;
mod replica;
mod replicas;
mod roles;
mod scaling;
mod serve;
mod signal;
mod sleepers;
mod snapshot;
pub(crate) mod sql;
mod status;
mod version;
mod wait;
mod watch;
pub(crate) mod whatif;
mod write;

use std::time::Duration;

use clap::CommandFactory as _;
use loadline_client::{Client, Options, Reading, Writing, default_actor};

use crate::args::{Cli, Config, Create, Global, Operator, Verb};
use crate::audit_args::AuditVerb;
use crate::console::Console;
use crate::context::{self, File, Resolved, Wishes};
use crate::dev;
use crate::exit::{Exit, Failed};
use crate::hooks::Hooks;
use crate::output::Format;
use crate::role_args::Grant;
use crate::scaling_args::Update;
use crate::{bench, plan};

/// A command that speaks to a group.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) client: Client,
    pub(crate) format: Format,
    pub(crate) reading: Reading,
    pub(crate) console: &'a mut Console,
    global: &'a Global,
    timeout: Duration,
}

/// How long to wait for anybody to accept a connection: a group that restarts needs a moment, one that is not there should
/// not keep anybody waiting for the whole time-out.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn run(cli: Cli, hooks: &Hooks, console: &mut Console) -> Result<(), Failed> {
    let global = cli.global;
    match cli.verb {
        Verb::Serve(args) => serve::serve(&args, hooks),
        Verb::Replica(options) => replica::replica(&options),
        Verb::Dev(args) => dev::run(args, local_format(&global), console),
        Verb::Config { what: Config::Check(args) } => config::check(&args, local_format(&global), console),
        Verb::Config { what } => config::contexts(what, &global, console),
        Verb::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "loadline", &mut script);
            console.data(&String::from_utf8_lossy(&script))
        }
        Verb::Version => version::version(local_format(&global), console),
        Verb::Plan(args) => plan::run(&args, local_format(&global), console),
        Verb::Backtest(args) => {
            let shown = backtest::Shown::of(&global)?;
            match args.history.is_given() {
                true => backtest::run(&args, &args.history.open(console)?, &actor(&global), shown, console),
                false => with_group(Verb::Backtest(args), &global, console),
            }
        }
        Verb::WhatIf(args) if args.history.is_given() => {
            whatif::at_rest(&args, &actor(&global), local_format(&global), console)
        }
        Verb::Bench { what } => bench::run(&what, local_format(&global), console),
        Verb::Audit { what } if what.needs_no_group() => audit::at_rest(&what, &global, console),
        Verb::Explain(args) if args.history.is_given() => explain::offline(&args, local_format(&global), console),
        Verb::Sql(args) => sql::run(&args, &global, console),
        Verb::Operator { what: Operator::Snapshot { what: crate::args::Snapshot::Inspect { file } } } => {
            snapshot::inspect(&file, local_format(&global), console)
        }
        Verb::Audit { what: AuditVerb::Export(mut args) } => {
            args.take_output(global.other_output())?;
            with_group(Verb::Audit { what: AuditVerb::Export(args) }, &global, console)
        }
        verb => with_group(verb, &global, console),
    }
}

/// For verbs that need no group, and so no context: a broken file of contexts is none of their business.
fn local_format(global: &Global) -> Format {
    global.format().unwrap_or_default()
}

/// Who asks.
fn actor(global: &Global) -> String {
    global.actor.clone().unwrap_or_else(default_actor)
}

fn with_group(verb: Verb, global: &Global, console: &mut Console) -> Result<(), Failed> {
    let resolved = resolve(global)?;
    if resolved.output == Format::Sql && !matches!(&verb, Verb::Get(args) if !args.watch) {
        return Err(Failed::usage("-o sql is for get strategies, get clusters and get settings"));
    }
    let options = Options {
        timeout: resolved.timeout,
        attempt_timeout: Options::default().attempt_timeout.min(resolved.timeout),
        connect_patience: Some(CONNECT_PATIENCE),
        actor: actor(global),
        token: resolved.token.clone(),
        ..Options::default()
    };
    let client = Client::connect(resolved.endpoints.clone(), options);
    let reading = if global.stale { Reading::Stale } else { Reading::Linearizable };
    let session = Session { client, format: resolved.output, reading, console, global, timeout: resolved.timeout };
    let ended = block_on(dispatch(verb, named_actor(global), session))?;
    ended.map_err(|failed| match (&resolved.context, failed.exit) {
        (Some(context), Exit::Unavailable) => {
            let hint =
                format!("the endpoints are those of context '{context}'; is that group running? See loadline status");
            failed.hint(hint)
        }
        (None, Exit::Unavailable) if global.endpoints.is_empty() => {
            failed.hint("there is no current context; start a group with loadline dev, or name a node with --endpoint")
        }
        _ => failed,
    })
}

async fn dispatch(verb: Verb, actor_named: Option<String>, session: Session<'_>) -> Result<(), Failed> {
    match verb {
        Verb::Status => status::status(session).await,
        Verb::Create { what: Create::Strategy(args) } => scaling::create(args, session).await,
        Verb::Create { what: Create::Replica(args) } => replicas::create(args, session).await,
        Verb::Create { what } => write::create(what, session).await,
        Verb::Update { what: Update::Role(args) } => roles::update(&args, session).await,
        Verb::Update { what } => scaling::update(what, session).await,
        Verb::Grant { what: Grant::Usage(args) } => roles::grant(&args, session).await,
        Verb::Revoke { what } => roles::revoke(&what, session).await,
        Verb::Enable { what } => scaling::switch(what, true, session).await,
        Verb::Disable { what } => scaling::switch(what, false, session).await,
        Verb::Explain(args) => explain::explain(&args, session).await,
        Verb::Pause(args) => scaling::pause(args, session).await,
        Verb::Resume { cluster } => scaling::resume(cluster, session).await,
        Verb::Wake(args) => sleepers::wake(args, session).await,
        Verb::Savings(args) => sleepers::savings(&args, session).await,
        Verb::Override(args) => sleepers::overrides(args, session).await,
        Verb::Approve { action } => scaling::approve(&action, session).await,
        Verb::Reject { action, reason } => scaling::reject(&action, reason, session).await,
        Verb::Signal(args) => scaling::signal(args, session).await,
        Verb::Action { what } => action::action(what, session).await,
        Verb::Load(args) => load::load(args, session).await,
        Verb::Get(args) if args.watch => watch::watch(&args, session).await,
        Verb::Get(args) if session.format == Format::Sql => get_sql::get(&args, session).await,
        Verb::Get(args) => get::get(&args, session).await,
        Verb::Describe { what } => get::describe(&what.words, session).await,
        Verb::Delete(args) => write::delete(&args, session).await,
        Verb::Rename { what } => write::rename(what, session).await,
        Verb::Set { name, value, write } => write::set(name, value, write, session).await,
        Verb::Reset { names, dry_run } => write::reset(names, dry_run, session).await,
        Verb::Apply { file, if_revision, dry_run } => apply::apply(&file, if_revision, writing(dry_run), session).await,
        Verb::Diff { file } => apply::diff(&file, session).await,
        Verb::Wait(args) => wait::wait(&args, session).await,
        Verb::WhatIf(args) => whatif::of_group(&args, session).await,
        Verb::Backtest(args) => backtest::of_group(&args, session).await,
        Verb::Audit { what } => audit::running(&what, actor_named, session).await,
        Verb::Operator { what: Operator::Raft { what } } => raft::raft(what, session).await,
        Verb::Operator { what: Operator::Snapshot { what } } => snapshot::snapshot(what, session).await,
        Verb::Serve(_)
        | Verb::Replica(_)
        | Verb::Dev(_)
        | Verb::Config { .. }
        | Verb::Completion { .. }
        | Verb::Version
        | Verb::Plan(_)
        | Verb::Sql(_)
        | Verb::Bench { .. } => {
            unreachable!("verbs that need no group are handled before")
        }
    }
}

/// Whose doings are asked for: only whom the command line names.
fn named_actor(global: &Global) -> Option<String> {
    global.actor.clone().filter(|_| global.actor_named)
}

pub(crate) fn resolve(global: &Global) -> Result<Resolved, Failed> {
    // A variable that is set to nothing is meant as one that is not set.
    let wishes = Wishes {
        context: global.context.clone().filter(|name| !name.is_empty()),
        endpoints: global.endpoints.iter().filter(|endpoint| !endpoint.is_empty()).cloned().collect(),
        timeout: global.timeout,
        output: global.format(),
        token: global.token.clone().filter(|token| !token.reveal().trim().is_empty()),
    };
    // Whoever names the endpoints needs no file, and may have no home folder to keep one in.
    let file = match context::path() {
        Ok(path) => File::read(&path)?,
        Err(_) if !wishes.endpoints.is_empty() => File::default(),
        Err(failed) => return Err(failed),
    };
    file.resolve(&wishes)
}

/// One thread is plenty for a client.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(future))
}

pub(crate) fn writing(dry_run: bool) -> Writing {
    if dry_run { Writing::Rehearse } else { Writing::Record }
}
