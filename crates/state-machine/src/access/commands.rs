//! How roles come, change and go.

use super::rejection::AccessRejection;
use super::{
    CLUSTERS_PER_ROLE_MAX, PasswordChange, ROLES_MAX, Role, ScramVerifier, TOKENS_PER_ROLE_MAX, Token, UsageOn,
};
use crate::decide::Moment;
use crate::names::{check_name, check_range, shortened};
use crate::resource::check_etag;
use crate::{Cluster, ClusterId, Event, Field, Hash, Rejection, ResourceName, Revision, Span, State};

/// What a statement, or a reader of the audit, would take for something else.
const RESERVED: [&str; 5] = ["all", "anonymous", "current_user", "none", "public"];
/// RFC 7677 asks for at least this many.
const ITERATIONS_MIN: u64 = 4_096;
/// Every login pays for them.
const ITERATIONS_MAX: u64 = 1_000_000;
const SALT_BYTES: (u64, u64) = (8, 64);
const TOKEN_ID_BYTES: (u64, u64) = (8, 32);
/// A hundred years; whoever wants more wants no end.
const EXPIRY_MAX: Span = Span::from_days(36_525);

pub(crate) fn create(
    state: &State,
    at: Moment,
    name: &str,
    superuser: bool,
    verifier: Option<&ScramVerifier>,
    if_not_exists: bool,
) -> Result<Vec<Event>, Rejection> {
    check_role_name(name)?;
    if let Some(role) = state.roles.get(name) {
        let (resource, etag) = (ResourceName::role(name), role.updated);
        return match if_not_exists {
            true => Ok(vec![]),
            false => Err(Rejection::AlreadyExists { field: Field::Name, resource, etag }),
        };
    }
    let count = state.roles.len();
    if count >= ROLES_MAX {
        return Err(AccessRejection::TooManyRoles { count: count as u64, count_max: ROLES_MAX as u64 }.into());
    }
    verifier.map_or(Ok(()), check_verifier)?;
    let role = Role {
        name: name.to_owned(),
        superuser,
        all_clusters: false,
        clusters: Vec::new(),
        verifier: verifier.cloned(),
        tokens: Vec::new(),
        created: at.revision(),
        updated: at.revision(),
        created_at: at.now,
    };
    keep_the_key(state, name, Some(&role))?;
    Ok(vec![Event::RoleCreated { role: Box::new(role) }])
}

pub(crate) fn alter(
    state: &State,
    at: Moment,
    name: &str,
    superuser: Option<bool>,
    password: &PasswordChange,
    etag: Option<Revision>,
) -> Result<Vec<Event>, Rejection> {
    let before = existing(state, name, Field::Name)?;
    check_etag(|| ResourceName::role(name), etag, Some(before.updated))?;
    let verifier = match password {
        PasswordChange::Keep => before.verifier.clone(),
        PasswordChange::Clear => None,
        PasswordChange::Set(verifier) => {
            check_verifier(verifier)?;
            Some(verifier.clone())
        }
    };
    let role = Role { superuser: superuser.unwrap_or(before.superuser), verifier, ..before.clone() };
    if role == *before {
        return Ok(vec![]);
    }
    changed(state, at, role).map(|role| vec![Event::RoleChanged { role: Box::new(role) }])
}

pub(crate) fn drop(
    state: &State,
    name: &str,
    etag: Option<Revision>,
    allow_missing: bool,
) -> Result<Vec<Event>, Rejection> {
    match existing(state, name, Field::Name) {
        Err(Rejection::NotFound { .. }) if allow_missing => Ok(vec![]),
        Err(rejection) => Err(rejection),
        Ok(role) => {
            check_etag(|| ResourceName::role(name), etag, Some(role.updated))?;
            keep_the_key(state, name, None)?;
            Ok(vec![Event::RoleDropped { role: Box::new(role.clone()) }])
        }
    }
}

pub(crate) fn create_token(
    state: &State,
    at: Moment,
    role: &str,
    id: &str,
    hash: Hash,
    expires_in: Option<Span>,
) -> Result<Vec<Event>, Rejection> {
    let before = existing(state, role, Field::Role)?;
    check_token_id(id)?;
    if let Some(span) = expires_in {
        check_range(Field::Expiry, span.as_millis(), 1, EXPIRY_MAX.as_millis())?;
    }
    if state.roles.token(id).is_some() {
        return Err(AccessRejection::TokenTaken { token: id.to_owned() }.into());
    }
    check_count(before, Field::Token, before.tokens.len(), TOKENS_PER_ROLE_MAX)?;
    let token = Token { id: id.to_owned(), hash, created_at: at.now, expires_at: expires_in.map(|span| at.now + span) };
    let tokens = before.tokens.iter().cloned().chain([token]).collect();
    let role = changed(state, at, Role { tokens, ..before.clone() })?;
    Ok(vec![Event::TokenCreated { role: Box::new(role), token: id.to_owned() }])
}

pub(crate) fn drop_token(
    state: &State,
    at: Moment,
    role: &str,
    id: &str,
    allow_missing: bool,
) -> Result<Vec<Event>, Rejection> {
    let before = existing(state, role, Field::Role)?;
    let tokens: Vec<Token> = before.tokens.iter().filter(|token| token.id != id).cloned().collect();
    if tokens.len() == before.tokens.len() {
        return match allow_missing {
            true => Ok(vec![]),
            false => Err(AccessRejection::TokenNotFound { role: role.to_owned(), token: shortened(id) }.into()),
        };
    }
    let role = changed(state, at, Role { tokens, ..before.clone() })?;
    Ok(vec![Event::TokenDropped { role: Box::new(role), token: id.to_owned() }])
}

pub(crate) fn grant(state: &State, at: Moment, role: &str, on: &UsageOn) -> Result<Vec<Event>, Rejection> {
    let before = existing(state, role, Field::Role)?;
    let mut role = before.clone();
    let on = match on {
        UsageOn::AllClusters => {
            role.all_clusters = true;
            None
        }
        UsageOn::Cluster(name) => {
            let id = cluster(state, name)?.id;
            if let Err(place) = role.clusters.binary_search(&id) {
                check_count(before, Field::Clusters, role.clusters.len(), CLUSTERS_PER_ROLE_MAX)?;
                role.clusters.insert(place, id);
            }
            Some(id)
        }
    };
    if role == *before {
        return Ok(vec![]);
    }
    Ok(vec![Event::UsageGranted { role: Box::new(changed(state, at, role)?), on }])
}

/// What was granted on all clusters is taken back from all; that leaves what was granted on each by its name, and the other
/// way round.
pub(crate) fn revoke(state: &State, at: Moment, role: &str, on: &UsageOn) -> Result<Vec<Event>, Rejection> {
    let before = existing(state, role, Field::Role)?;
    let mut role = before.clone();
    let on = match on {
        UsageOn::AllClusters => {
            role.all_clusters = false;
            None
        }
        UsageOn::Cluster(name) => {
            let id = cluster(state, name)?.id;
            role.clusters.retain(|has| *has != id);
            Some(id)
        }
    };
    if role == *before {
        return Ok(vec![]);
    }
    Ok(vec![Event::UsageRevoked { role: Box::new(changed(state, at, role)?), on }])
}

/// What a cluster that goes takes with it: the privileges on it.
pub(crate) fn cluster_goes(state: &State, at: Moment, gone: ClusterId, events: &mut Vec<Event>) {
    let users = state.roles.iter().filter(|role| role.clusters.binary_search(&gone).is_ok());
    for role in users {
        let clusters = role.clusters.iter().copied().filter(|id| *id != gone).collect();
        let role = Role { clusters, updated: at.revision_of(events.len()), ..role.clone() };
        events.push(Event::UsageRevoked { role: Box::new(role), on: Some(gone) });
    }
}

/// A backup in which nobody can log in must not open a group that is closed: our roles stay.
fn backup_decides(state: &State, backup: &State) -> bool {
    backup.roles.closed() || !state.roles.closed()
}

/// The roles after a restore. Ours, if they stay, keep their USAGE on clusters by name: an id of another life may be that
/// of another cluster.
pub(crate) fn restored(state: &State, backup: &State, at: Moment, events: &mut Vec<Event>) {
    let theirs = backup_decides(state, backup);
    let from = if theirs { &backup.roles } else { &state.roles };
    for role in from.iter() {
        let mut role = Role { updated: at.revision_of(events.len()), ..role.clone() };
        if !theirs {
            let names = role.clusters.iter().filter_map(|id| state.clusters.name(*id));
            let mut clusters: Vec<ClusterId> = names.filter_map(|name| backup.clusters.id(name)).collect();
            clusters.sort_unstable();
            role.clusters = clusters;
        }
        events.push(Event::RoleRestored { role: Box::new(role) });
    }
}

/// Those that the backup does not have, if it decides about roles.
pub(crate) fn gone(state: &State, backup: &State, events: &mut Vec<Event>) {
    if backup_decides(state, backup) {
        let gone = state.roles.iter().filter(|role| backup.roles.get(&role.name).is_none());
        events.extend(gone.map(|role| Event::RoleDropped { role: Box::new(role.clone()) }));
    }
}

/// What a role in a snapshot or backup must fulfil. Clusters have been read before.
pub(crate) fn is_possible(state: &State, role: &Role) -> bool {
    let ids: Vec<&str> = role.tokens.iter().map(|token| token.id.as_str()).collect();
    let distinct = ids.iter().enumerate().all(|(place, id)| !ids[..place].contains(id));
    state.roles.last().is_none_or(|last| last.name < role.name)
        && state.roles.len() < ROLES_MAX
        && check_role_name(&role.name).is_ok()
        && role.verifier.as_ref().is_none_or(|verifier| check_verifier(verifier).is_ok())
        && ids.len() <= TOKENS_PER_ROLE_MAX
        && distinct
        && ids.iter().all(|id| check_token_id(id).is_ok() && state.roles.token(id).is_none())
        && role.clusters.len() <= CLUSTERS_PER_ROLE_MAX
        && role.clusters.windows(2).all(|pair| pair[0] < pair[1])
        && role.clusters.iter().all(|id| state.clusters.by_id(*id).is_some())
}

fn changed(state: &State, at: Moment, role: Role) -> Result<Role, Rejection> {
    keep_the_key(state, &role.name, Some(&role))?;
    Ok(Role { updated: at.revision(), ..role })
}

fn keep_the_key(state: &State, name: &str, after: Option<&Role>) -> Result<(), Rejection> {
    if state.roles.would_lock_out(name, after) { Err(AccessRejection::NoSuperuserLeft.into()) } else { Ok(()) }
}

fn existing<'a>(state: &'a State, name: &str, field: Field) -> Result<&'a Role, Rejection> {
    check_name(field, name)?;
    state.roles.get(name).ok_or_else(|| Rejection::NotFound { resource: ResourceName::role(name) })
}

fn cluster<'a>(state: &'a State, name: &str) -> Result<&'a Cluster, Rejection> {
    let missing = || Rejection::NotFound { resource: ResourceName::cluster(shortened(name)) };
    state.clusters.get(name).ok_or_else(missing)
}

fn check_role_name(name: &str) -> Result<(), Rejection> {
    check_name(Field::Name, name)?;
    if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
        return Err(AccessRejection::ReservedRole { name: name.to_owned() }.into());
    }
    Ok(())
}

fn check_verifier(verifier: &ScramVerifier) -> Result<(), Rejection> {
    check_range(Field::Iterations, verifier.iterations.into(), ITERATIONS_MIN, ITERATIONS_MAX)?;
    check_range(Field::Salt, verifier.salt.len() as u64, SALT_BYTES.0, SALT_BYTES.1)
}

fn check_token_id(id: &str) -> Result<(), Rejection> {
    check_name(Field::Token, id)?;
    check_range(Field::Token, id.len() as u64, TOKEN_ID_BYTES.0, TOKEN_ID_BYTES.1)
}

fn check_count(role: &Role, field: Field, count: usize, count_max: usize) -> Result<(), Rejection> {
    if count < count_max {
        return Ok(());
    }
    let (count, count_max) = (count as u64, count_max as u64);
    Err(AccessRejection::TooManyOfRole { role: role.name.clone(), field, count, count_max }.into())
}
