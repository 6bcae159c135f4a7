//! From statements to commands of the state machine.
//!
//! Here is only what a statement asks for. Whether it makes sense is decided by the state machine, as for every other way in;
//! [`Change::refused`] translates its answer back into the words and places of the statement.
//!
//! Not here: statements that only ask (`to_query`), and what belongs to a session (`crates/server`).

mod refused;
mod roles;
mod signals;
mod transaction;

use std::collections::BTreeSet;

use loadline_state_machine::{Command, Refused, Rejection, ScramVerifier, State, Strategy, StrategyId, read_option};

pub use refused::refused;
pub use transaction::Transaction;

use crate::error::SqlError;
use crate::statement::{CreateCluster, Place, Statement, StrategyKind, StrategyOption};

/// What one statement asks to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// None: all is as asked already.
    pub commands: Vec<Command>,
    /// What the client is told beside that it was done.
    pub notices: Vec<String>,
    options: Vec<OptionPlaces>,
    /// Where in the text what each command says stood, as far as that is one place.
    places: Vec<Option<usize>>,
    /// What the commands were computed from: they are refused if one of these was changed since.
    read: Vec<StrategyId>,
}

/// Where an option stood in the text.
#[derive(Clone, Debug, PartialEq)]
struct OptionPlaces {
    /// As it is stored.
    key: String,
    name: Place,
    value: Place,
}

impl Change {
    fn one(command: Command) -> Self {
        Self { commands: vec![command], ..Self::default() }
    }

    fn nothing(notice: String) -> Self {
        Self { notices: vec![notice], ..Self::default() }
    }

    pub(crate) fn add(&mut self, command: Command, place: Option<usize>) {
        self.commands.push(command);
        self.places.resize(self.commands.len(), None);
        if let Some(last) = self.places.last_mut() {
            *last = place;
        }
    }

    /// The commands hold only if this strategy is as it was read.
    pub(crate) fn touch(&mut self, strategy: StrategyId) {
        self.read.push(strategy);
    }

    pub(crate) fn note_once(&mut self, notice: &str) {
        if !self.notices.iter().any(|known| known == notice) {
            self.notices.push(notice.to_owned());
        }
    }

    /// The commands as one request, behind what they expect of the state that they were computed from.
    pub fn request(&self, from: &State) -> Vec<Command> {
        let mut commands = expectations(from, &self.read);
        commands.extend(self.commands.iter().cloned());
        commands
    }

    /// Why a request of [`Change::request`] was refused, at the place in the text that is to blame.
    pub fn refused_request(&self, from: &State, refused: &Refused) -> SqlError {
        let before = expectations(from, &self.read).len();
        let place = usize::try_from(refused.ordinal).ok().and_then(|ordinal| ordinal.checked_sub(before));
        self.refused(place, &refused.rejection)
    }

    /// Why one of the commands, by its place among them, was refused.
    pub(crate) fn refused(&self, place: Option<usize>, rejection: &Rejection) -> SqlError {
        let error = refused::refused_at(rejection, &self.options);
        let place = place.and_then(|place| self.places.get(place).copied().flatten());
        SqlError { position: error.position.or(place), ..error }
    }
}

/// What must still be so when commands are decided that were computed from this state.
pub(crate) fn expectations(from: &State, read: &[StrategyId]) -> Vec<Command> {
    let distinct: BTreeSet<StrategyId> = read.iter().copied().collect();
    let expected = distinct.into_iter().filter_map(|id| from.strategy(id));
    let expect = |strategy: &Strategy| Command::ExpectStrategy {
        strategy: strategy.id,
        target: crate::writes::target_name(from, strategy),
        etag: strategy.updated,
    };
    expected.map(expect).collect()
}

/// Makes of a password what may be kept of it. That needs salt, and so an edge.
pub type MakeVerifier<'a> = &'a dyn Fn(&str) -> ScramVerifier;

/// What a statement asks to be written; nothing if it is not one that writes.
///
/// `state` is what the session sees. It is asked only for what the log cannot decide by itself: whether something is there
/// that `IF NOT EXISTS` is about.
pub fn change(statement: &Statement, state: &State) -> Result<Option<Change>, SqlError> {
    change_with(statement, state, None)
}

/// As [`change`], where passwords can be set, too.
pub fn change_with(
    statement: &Statement,
    state: &State,
    verifier: Option<MakeVerifier<'_>>,
) -> Result<Option<Change>, SqlError> {
    Ok(Some(match statement {
        Statement::CreateStrategy(create) => {
            let (options, places) = options(create.kind, &create.options);
            let command = Command::CreateStrategy {
                target: create.target.clone(),
                kind: create.kind,
                options,
                if_not_exists: create.if_not_exists,
                unchecked: false,
            };
            Change { options: places, ..Change::one(command) }
        }
        Statement::AlterStrategy(alter) => {
            let (options, places) = options(alter.kind, &alter.options);
            let command = Command::ChangeStrategy {
                target: alter.target.clone(),
                kind: alter.kind,
                options,
                reset: Vec::new(),
                etag: None,
                unchecked: false,
            };
            Change { options: places, ..Change::one(command) }
        }
        Statement::DropStrategy(drop) => Change::one(Command::DropStrategy {
            target: drop.target.clone(),
            kind: drop.kind,
            etag: None,
            allow_missing: drop.if_exists,
        }),
        Statement::DropStrategies { target } => Change::one(Command::DropStrategies { target: target.clone() }),
        Statement::SetSetting { name, value } => {
            Change::one(Command::SetSetting { name: name.clone(), value: value.as_text(), etag: None })
        }
        Statement::ResetSetting { name } => Change::one(Command::ResetSetting { name: name.clone(), etag: None }),
        Statement::CreateCluster(create) => create_cluster(create, state)?,
        Statement::RenameCluster { name, to } => {
            Change::one(Command::RenameCluster { name: name.clone(), to: to.clone(), etag: None })
        }
        Statement::PlaceCluster { name, backend } => {
            Change::one(Command::PlaceCluster { name: name.clone(), backend: backend.clone(), etag: None })
        }
        Statement::DropCluster { name, if_exists, cascade } => {
            let (name, etag, allow_missing) = (name.clone(), None, *if_exists);
            Change::one(if *cascade {
                Command::DropClusterCascade { name, etag, allow_missing }
            } else {
                Command::DropCluster { name, etag, allow_missing }
            })
        }
        Statement::CreateRole(create) => roles::create(create, verifier)?,
        Statement::AlterRole(alter) => roles::alter(alter, verifier)?,
        Statement::DropRole { name, if_exists } => {
            Change::one(Command::DropRole { name: name.clone(), etag: None, allow_missing: *if_exists })
        }
        Statement::Grant(privileges) => roles::grant(privileges),
        Statement::Revoke(privileges) => roles::revoke(privileges),
        Statement::CreateSignal(create) => signals::create(create),
        Statement::AlterSignal(alter) => signals::alter(alter, state),
        Statement::DropSignal { name, if_exists } => {
            Change::one(Command::DropSignal { name: name.clone(), etag: None, allow_missing: *if_exists })
        }
        Statement::CreateReplica(create) => Change::one(Command::CreateReplica {
            cluster: create.cluster.clone(),
            replica: create.replica.clone(),
            size: create.size.clone(),
            if_not_exists: create.if_not_exists,
        }),
        Statement::DropReplica { cluster, replica, if_exists } => Change::one(Command::DropReplica {
            cluster: cluster.clone(),
            replica: replica.clone(),
            allow_missing: *if_exists,
        }),
        Statement::Wake(wake) => {
            let all = || {
                let at_zero = state.clusters_at_zero().filter_map(|id| state.cluster_by_id(id));
                at_zero.map(|cluster| cluster.name.clone()).collect()
            };
            let clusters: Vec<String> = wake.clusters.clone().unwrap_or_else(all);
            let mut change = Change::default();
            for cluster in clusters {
                change.add(Command::WakeCluster { cluster, reason: wake.reason }, None);
            }
            if change.commands.is_empty() {
                change.note_once("no cluster is at zero");
            }
            change
        }
        Statement::OverrideCluster(wanted) => Change::one(Command::OverrideCluster {
            cluster: wanted.cluster.clone(),
            replicas_min: wanted.replicas_min,
            size: wanted.size.clone(),
            reason: wanted.reason.clone(),
            expires_in: wanted.expires_in,
        }),
        Statement::ClearOverride { cluster } => Change::one(Command::ClearOverride { cluster: cluster.clone() }),
        _ => return Ok(None),
    }))
}

/// What the first replica of a cluster is called that is created with a size.
const FIRST_REPLICA: &str = "r1";

fn create_cluster(create: &CreateCluster, state: &State) -> Result<Change, SqlError> {
    let CreateCluster { name, if_not_exists, size, backend } = create;
    if *if_not_exists && state.cluster(name).is_some() {
        return Ok(Change::nothing(format!("cluster \"{name}\" already exists, skipping")));
    }
    let mut change = Change::one(Command::CreateCluster { name: name.clone() });
    if let Some(backend) = backend {
        let backend = Some(backend.clone());
        change.commands.push(Command::PlaceCluster { name: name.clone(), backend, etag: None });
    }
    if let Some(size) = size {
        change.commands.push(Command::CreateReplica {
            cluster: name.clone(),
            replica: FIRST_REPLICA.to_owned(),
            size: size.clone(),
            if_not_exists: false,
        });
    }
    Ok(change)
}

fn options(kind: StrategyKind, written: &[StrategyOption]) -> (loadline_state_machine::Options, Vec<OptionPlaces>) {
    let read = |option: &StrategyOption| read_option(kind, option.name, &option.value.as_text());
    let options = written.iter().map(read).collect();
    let places = written.iter().map(|option| OptionPlaces {
        key: read(option).0,
        name: option.name_place,
        value: option.value_place,
    });
    (options, places.collect())
}
