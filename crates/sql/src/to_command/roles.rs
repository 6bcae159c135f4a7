//! Roles and their privileges.
//!
//! A role can log in if it has something to log in with: `LOGIN` says nothing more, and `NOLOGIN` cannot hold beside a
//! password.

use loadline_state_machine::{Command, PasswordChange, ScramVerifier, UsageOn};

use super::{Change, MakeVerifier};
use crate::error::{SqlError, SqlState};
use crate::statement::{AlterRole, CreateRole, Password, Privileges, PrivilegesOn, RoleOptions};

/// What is kept of a password.
fn kept(password: &str, verifier: Option<MakeVerifier<'_>>) -> Result<ScramVerifier, SqlError> {
    let verifier = verifier.ok_or_else(|| {
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "passwords cannot be set over this connection")
    })?;
    Ok(verifier(password))
}

pub(super) fn create(create: &CreateRole, verifier: Option<MakeVerifier<'_>>) -> Result<Change, SqlError> {
    let CreateRole { name, if_not_exists, options } = create;
    let password = match &options.password {
        Some(Password::Is(password)) => Some(password),
        Some(Password::None) | None => None,
    };
    if options.login == Some(false) && password.is_some() {
        return Err(cannot_be_kept_out());
    }
    Ok(Change::one(Command::CreateRole {
        name: name.clone(),
        superuser: options.superuser.unwrap_or(false),
        verifier: password.map(|password| kept(password, verifier)).transpose()?,
        if_not_exists: *if_not_exists,
    }))
}

pub(super) fn alter(alter: &AlterRole, verifier: Option<MakeVerifier<'_>>) -> Result<Change, SqlError> {
    let AlterRole { name, options: RoleOptions { superuser, login, password } } = alter;
    if *login == Some(false) {
        return Err(cannot_be_kept_out());
    }
    let password = match password {
        None => PasswordChange::Keep,
        Some(Password::None) => PasswordChange::Clear,
        Some(Password::Is(password)) => PasswordChange::Set(kept(password, verifier)?),
    };
    Ok(Change::one(Command::AlterRole { name: name.clone(), superuser: *superuser, password, etag: None }))
}

fn cannot_be_kept_out() -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "a role that has a password or a token can log in")
        .with_hint("PASSWORD NULL takes the password away.")
}

pub(super) fn grant(privileges: &Privileges) -> Change {
    each(privileges, |role, on| Command::GrantUsage { role, on })
}

pub(super) fn revoke(privileges: &Privileges) -> Change {
    each(privileges, |role, on| Command::RevokeUsage { role, on })
}

fn each(privileges: &Privileges, command: impl Fn(String, UsageOn) -> Command) -> Change {
    let on: Vec<UsageOn> = match &privileges.on {
        PrivilegesOn::Clusters(names) => names.iter().map(|name| UsageOn::Cluster(name.clone())).collect(),
        PrivilegesOn::AllClusters => vec![UsageOn::AllClusters],
    };
    let both = privileges.roles.iter().flat_map(|role| on.iter().map(|on| (role.clone(), on.clone())));
    Change { commands: both.map(|(role, on)| command(role, on)).collect(), ..Change::default() }
}
