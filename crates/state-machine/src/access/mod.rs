//! Roles: who can log in, and on which clusters they may do something.
//!
//! A group in which no role has a credential is open: whoever reaches it may do everything, under the name that they give
//! themselves. From the first credential on it is closed, and it never opens again: there is always a superuser who can log
//! in, or a change is refused (see [`Roles::would_lock_out`]).
//!
//! - `commands` is how roles come, change and go; `authorize` is who may what; `rejection` is what they are told.
//! - What is checked when somebody logs in ([`ScramVerifier`], [`Token`]) is made at the edge, salts and all. No password and
//!   no token is ever in the log, and nothing in the log is enough to log in with.
//!
//! Deliberately not here: comparing a credential with what is stored, which the edge does before anything is proposed.

pub(crate) mod authorize;
pub(crate) mod commands;
pub(crate) mod rejection;

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::table::{Key, Table};
use crate::{Blob, ClusterId, Hash, Revision, State, Time};

/// Each is looked at when a cluster goes.
pub(crate) const ROLES_MAX: usize = 1_000;
/// Each event about a role carries all of them. Whoever needs more has USAGE on all clusters.
pub(crate) const CLUSTERS_PER_ROLE_MAX: usize = 1_000;
pub(crate) const TOKENS_PER_ROLE_MAX: usize = 32;

/// Somebody who can be given privileges, and who can log in if there is a password or a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    pub name: String,
    pub superuser: bool,
    /// USAGE on every cluster, also on those to come.
    pub all_clusters: bool,
    /// USAGE on these, ascending. By id: a cluster that takes the name of another does not take its users.
    pub clusters: Vec<ClusterId>,
    pub verifier: Option<ScramVerifier>,
    /// By age.
    pub tokens: Vec<Token>,
    pub created: Revision,
    /// The etag.
    pub updated: Revision,
    pub created_at: Time,
}

impl Role {
    pub fn can_log_in(&self) -> bool {
        self.verifier.is_some() || !self.tokens.is_empty()
    }

    /// A superuser who will still be able to log in when every token that expires has expired.
    pub(crate) fn keeps_the_key(&self) -> bool {
        self.superuser && (self.verifier.is_some() || self.tokens.iter().any(|token| token.expires_at.is_none()))
    }

    pub(crate) fn has_usage(&self, cluster: ClusterId) -> bool {
        self.superuser || self.all_clusters || self.clusters.binary_search(&cluster).is_ok()
    }

    /// What everybody may see of it.
    pub fn view(&self) -> RoleView {
        RoleView {
            name: self.name.clone(),
            superuser: self.superuser,
            all_clusters: self.all_clusters,
            clusters: self.clusters.clone(),
            has_password: self.verifier.is_some(),
            tokens: self.tokens.iter().map(Token::view).collect(),
            created: self.created,
            updated: self.updated,
            created_at: self.created_at,
        }
    }
}

/// A role without what is checked when it logs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleView {
    pub name: String,
    pub superuser: bool,
    /// USAGE on every cluster, also on those to come.
    pub all_clusters: bool,
    /// USAGE on these, ascending.
    pub clusters: Vec<ClusterId>,
    pub has_password: bool,
    /// By age.
    pub tokens: Vec<TokenView>,
    pub created: Revision,
    /// The etag.
    pub updated: Revision,
    pub created_at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    pub id: String,
    pub created_at: Time,
    pub expires_at: Option<Time>,
}

/// What a server keeps of a password under SCRAM-SHA-256 (RFC 5802, RFC 7677).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScramVerifier {
    pub iterations: u32,
    pub salt: Blob,
    pub stored_key: [u8; 32],
    pub server_key: [u8; 32],
}

/// Whoever reads a log file must not get what a guesser of passwords needs.
impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SCRAM-SHA-256, {} iterations", self.iterations)
    }
}

/// What is kept of a token. It is random and long, so a plain hash gives nothing away.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Part of the token, and no secret: it finds the row whose hash is then compared.
    pub id: String,
    pub hash: Hash,
    pub created_at: Time,
    pub expires_at: Option<Time>,
}

impl Token {
    /// Exactly at its end it has expired.
    pub fn is_valid_at(&self, now: Time) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }

    fn view(&self) -> TokenView {
        TokenView { id: self.id.clone(), created_at: self.created_at, expires_at: self.expires_at }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {}", self.id)
    }
}

/// What becomes of a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PasswordChange {
    Keep,
    Set(ScramVerifier),
    Clear,
}

/// On what USAGE is granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UsageOn {
    Cluster(String),
    /// Also those to come.
    AllClusters,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles {
    by_name: Table<Key, Arc<Role>>,
    /// Whose token it is, by its id.
    token_owners: Table<Key, Key>,
    /// How many can log in, and how many of them [keep the key](Role::keeps_the_key).
    logins: usize,
    keepers: usize,
}

impl Roles {
    pub(crate) fn get(&self, name: &str) -> Option<&Role> {
        self.by_name.get(name).map(Arc::as_ref)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Role> {
        self.by_name.values().map(Arc::as_ref)
    }

    pub(crate) fn last(&self) -> Option<&Role> {
        self.by_name.get_max().map(|(_, role)| role.as_ref())
    }

    /// By name, from the first name after `name`, or from the beginning.
    pub(crate) fn after(&self, name: Option<&str>) -> impl Iterator<Item = &Role> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range::<_, str>((from, Bound::Unbounded)).map(|(_, role)| role.as_ref())
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn token(&self, id: &str) -> Option<(&Role, &Token)> {
        let role = self.get(self.token_owners.get(id)?)?;
        role.tokens.iter().find(|token| token.id == id).map(|token| (role, token))
    }

    /// Somebody can log in, so everybody has to.
    pub(crate) fn closed(&self) -> bool {
        self.logins > 0
    }

    /// There is a superuser who can log in for good.
    pub(crate) fn has_key(&self) -> bool {
        self.keepers > 0
    }

    /// Whether nobody could manage roles any more if this role were so, or, without one, were gone.
    pub(crate) fn would_lock_out(&self, name: &str, after: Option<&Role>) -> bool {
        let before = self.get(name);
        let count = |role: Option<&Role>, is: fn(&Role) -> bool| usize::from(role.is_some_and(is));
        let logins = self.logins + count(after, Role::can_log_in) - count(before, Role::can_log_in);
        let keepers = self.keepers + count(after, Role::keeps_the_key) - count(before, Role::keeps_the_key);
        // Closed before and nobody left would open the group to everybody, which is no better.
        (self.closed() || logins > 0) && keepers == 0
    }

    pub(crate) fn put(&mut self, role: &Role) {
        self.remove(&role.name);
        let name: Key = role.name.as_str().into();
        for token in &role.tokens {
            self.token_owners.insert(token.id.as_str().into(), Key::clone(&name));
        }
        self.logins += usize::from(role.can_log_in());
        self.keepers += usize::from(role.keeps_the_key());
        self.by_name.insert(name, Arc::new(role.clone()));
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let Some(role) = self.by_name.remove(name) else { return };
        for token in &role.tokens {
            self.token_owners.remove(token.id.as_str());
        }
        self.logins -= usize::from(role.can_log_in());
        self.keepers -= usize::from(role.keeps_the_key());
    }
}

impl State {
    /// Whether everybody has to log in: some role has a password or a token.
    pub fn login_needed(&self) -> bool {
        self.roles.closed()
    }

    pub fn role(&self, name: &str) -> Option<&Role> {
        self.roles.get(name)
    }

    /// By name, from the first name after `name`: the next page of a listing. Without it, from the beginning.
    pub fn roles_after(&self, name: Option<&str>) -> impl Iterator<Item = &Role> {
        self.roles.after(name)
    }

    pub fn role_count(&self) -> usize {
        self.roles.len()
    }

    /// The token of this id, and whose it is. Whether it is the right one is for the caller to compare.
    pub fn token(&self, id: &str) -> Option<(&Role, &Token)> {
        self.roles.token(id)
    }
}
