//! The statements there are.
//!
//! What is ours has a type here. What reads or writes tables is left as the syntax tree of `sqlparser`, for whoever runs
//! it. Names are as they are stored: an unquoted one has been folded to lower case. Two statements are equal if they mean
//! the same, wherever in the text they stood.

mod place;
mod value;

pub use loadline_state_machine::{SignalKind, Span, StrategyKind, TargetName, WakeReason};
pub use place::Place;
pub use sqlparser::ast::{SetExpr, Statement as Tree};
pub use value::Value;

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    CreateStrategy(CreateStrategy),
    AlterStrategy(AlterStrategy),
    DropStrategy(DropStrategy),
    /// `DROP ALL SCALING STRATEGIES FOR ...`: those for exactly this target.
    DropStrategies {
        target: TargetName,
    },
    ShowStrategies {
        target: Option<TargetName>,
    },
    ShowActions(ShowActions),

    CreateSignal(CreateSignal),
    AlterSignal(AlterSignal),
    DropSignal {
        name: String,
        if_exists: bool,
    },
    ShowSignals,

    /// `ALTER SYSTEM SET`: a setting of the group, not of the session.
    SetSetting {
        name: String,
        value: Value,
    },
    ResetSetting {
        name: String,
    },
    /// A setting of the group or a parameter of the session; nothing: all of them.
    Show {
        name: Option<String>,
    },

    CreateCluster(CreateCluster),
    RenameCluster {
        name: String,
        to: String,
    },
    /// Where its replicas live from now on; nothing: wherever `default_backend` says.
    PlaceCluster {
        name: String,
        backend: Option<String>,
    },
    DropCluster {
        name: String,
        if_exists: bool,
        cascade: bool,
    },
    CreateReplica(CreateReplica),
    DropReplica {
        cluster: String,
        replica: String,
        if_exists: bool,
    },

    Wake(Wake),
    OverrideCluster(OverrideCluster),
    ClearOverride {
        cluster: String,
    },

    /// `EXPLAIN SCALING FOR CLUSTER`: why it is as it is.
    ExplainCluster {
        cluster: String,
    },
    /// `EXPLAIN SCALING ACTION`: the decision behind an action, named by its number or its id.
    ExplainAction {
        action: String,
    },

    Begin(TransactionModes),
    Commit,
    Rollback,
    /// `SET TRANSACTION`: for this one; `SET SESSION CHARACTERISTICS`: for those to come.
    SetTransaction {
        modes: TransactionModes,
        session: bool,
    },

    CreateRole(CreateRole),
    AlterRole(AlterRole),
    DropRole {
        name: String,
        if_exists: bool,
    },
    /// `GRANT USAGE ON ...`
    Grant(Privileges),
    Revoke(Privileges),

    /// `SET`: a parameter of this session only.
    SetSession {
        name: String,
        /// Several are one list, as in `SET search_path = a, b`; none is the default.
        values: Vec<Value>,
        /// Until the end of the transaction.
        local: bool,
    },
    /// `RESET`: back to the default; nothing: all of them.
    ResetSession {
        name: Option<String>,
    },
    /// `DISCARD ALL`.
    Discard,
    /// `DEALLOCATE`: forget a prepared statement; nothing: all of them.
    Deallocate {
        name: Option<String>,
    },
    /// `CLOSE ALL`, which pools say before they hand a connection on. There are no cursors that SQL could name.
    CloseAll,
    /// `UNLISTEN *`, likewise.
    UnlistenAll,

    /// `SELECT`, `WITH`, `VALUES`, `TABLE`.
    Query(Box<Tree>),
    /// `INSERT`, `UPDATE`, `DELETE`.
    Write(Box<Tree>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct CreateStrategy {
    pub if_not_exists: bool,
    pub target: TargetName,
    pub kind: StrategyKind,
    pub options: Vec<StrategyOption>,
}

/// Only what it names is changed.
#[derive(Clone, Debug, PartialEq)]
pub struct AlterStrategy {
    pub target: TargetName,
    pub kind: StrategyKind,
    pub options: Vec<StrategyOption>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DropStrategy {
    pub if_exists: bool,
    pub target: TargetName,
    pub kind: StrategyKind,
}

/// `COOLDOWN = '5m'`.
#[derive(Clone, Debug, PartialEq)]
pub struct StrategyOption {
    /// As in the reference: `COOLDOWN`. It may be one of another kind of strategy.
    pub name: &'static str,
    pub value: Value,
    pub name_place: Place,
    pub value_place: Place,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ShowActions {
    pub cluster: Option<String>,
    pub limit: Option<u64>,
}

/// `CREATE SIGNAL name FROM PROMETHEUS (...) EVERY '5s' FOR ...`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateSignal {
    pub name: String,
    pub if_not_exists: bool,
    pub kind: SignalKind,
    pub target: TargetName,
    pub every: Option<Span>,
    pub options: Vec<SignalSaying>,
}

/// What is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlterSignal {
    pub name: String,
    pub target: Option<TargetName>,
    pub every: Option<Span>,
    pub options: Vec<SignalSaying>,
    /// Options that go back to their defaults.
    pub reset: Vec<&'static str>,
}

/// One option of a signal, and where it stood.
#[derive(Clone, PartialEq)]
pub struct SignalSaying {
    /// As in SQL: `BEARER_TOKEN`. It may be one of another kind of signal.
    pub name: &'static str,
    pub value: Value,
    pub name_place: Place,
    pub value_place: Place,
}

impl std::fmt::Debug for SignalSaying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Statements are logged when something goes wrong with them, as it does if somebody has put a secret in.
        write!(f, "{} = ***", self.name)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct CreateCluster {
    pub name: String,
    pub if_not_exists: bool,
    /// The size of a first replica, if there is to be one.
    pub size: Option<String>,
    pub backend: Option<String>,
}

/// `WAKE`: what was suspended comes back.
#[derive(Clone, Debug, PartialEq)]
pub struct Wake {
    /// Nothing: every cluster that is at zero.
    pub clusters: Option<Vec<String>>,
    pub reason: WakeReason,
}

/// `OVERRIDE CLUSTER`: at least so many replicas, for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct OverrideCluster {
    pub cluster: String,
    pub replicas_min: u32,
    pub size: Option<String>,
    pub expires_in: Span,
    pub reason: String,
}

/// `CREATE CLUSTER REPLICA cluster.replica SIZE = '..'`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateReplica {
    pub cluster: String,
    pub replica: String,
    pub if_not_exists: bool,
    pub size: String,
}

/// What is not said is as the session has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransactionModes {
    pub isolation: Option<Isolation>,
    pub read_only: Option<bool>,
}

/// Any of them may be asked for. A transaction is one request of the log, so each of them gets the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

/// What a role is given beside its name. What is not said stays as it is, or is what a new role has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoleOptions {
    pub superuser: Option<bool>,
    pub login: Option<bool>,
    pub password: Option<Password>,
}

/// Never shown: see its `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// In clear, or a verifier that somebody has made already.
    Is(String),
    /// `PASSWORD NULL`: the role has none.
    None,
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Statements are logged when something goes wrong with them.
        f.write_str(if *self == Self::None { "None" } else { "***" })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct CreateRole {
    pub name: String,
    pub if_not_exists: bool,
    pub options: RoleOptions,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AlterRole {
    pub name: String,
    pub options: RoleOptions,
}

/// `USAGE` on these clusters, to or from these roles.
#[derive(Clone, Debug, PartialEq)]
pub struct Privileges {
    pub on: PrivilegesOn,
    pub roles: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PrivilegesOn {
    Clusters(Vec<String>),
    /// Those there are and those that will be.
    AllClusters,
}
