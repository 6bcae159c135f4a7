//! What somebody is told who may not, or who would lock everybody out.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::names::shortened;
use crate::{Field, RejectionClass};

/// New reasons go at the end: the place is the number in stored receipts.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum AccessRejection {
    #[error("a login is needed: give a token of a role, or log in with its password")]
    LoginRequired,
    #[error("role {role} does not exist any more: log in again")]
    RoleGone { role: String },
    #[error("token {token} was taken back or has expired: log in with another one")]
    TokenGone { token: String },
    #[error("permission denied to {}: role {role} is not a superuser", words(.what))]
    SuperuserNeeded { role: String, what: String },
    #[error("permission denied to {}: only a node of the group does that", words(.what))]
    NodesOnly { what: String },
    #[error(
        "permission denied to {} for cluster {cluster}: role {role} needs USAGE on it (GRANT USAGE ON CLUSTER {cluster} TO {role})",
        words(.what)
    )]
    UsageNeeded { role: String, what: String, cluster: String },
    #[error(
        "permission denied to {} for {target}: role {role} needs USAGE on every cluster that it is for, and has none on {missing} \
         of them{}",
        words(.what),
        for_example(.example)
    )]
    UsageOnEachNeeded { role: String, what: String, target: String, missing: u64, example: Option<String> },
    #[error(
        "after this no superuser could log in and nobody could manage roles: first give a superuser a password, or a token \
         that does not expire"
    )]
    NoSuperuserLeft,
    #[error("{name:?} cannot be the name of a role: it has a meaning of its own in statements")]
    ReservedRole { name: String },
    #[error("token {token} exists already: make another one")]
    TokenTaken { token: String },
    #[error("role {role} has no token {token}")]
    TokenNotFound { role: String, token: String },
    #[error("role {role} has {count} of them already, no more than {count_max} are possible{}", instead_of(.field))]
    TooManyOfRole { role: String, field: Field, count: u64, count_max: u64 },
    #[error("there are {count} roles already, no more than {count_max} are possible")]
    TooManyRoles { count: u64, count_max: u64 },
}

/// "CreateSize" as a person says it.
fn words(kind_name: &str) -> String {
    let mut words = String::with_capacity(kind_name.len() + 4);
    for (place, character) in kind_name.char_indices() {
        if place > 0 && character.is_ascii_uppercase() {
            words.push(' ');
        }
        words.push(character.to_ascii_lowercase());
    }
    words
}

fn for_example(example: &Option<String>) -> String {
    example.as_ref().map(|cluster| format!(", for example {cluster}")).unwrap_or_default()
}

fn instead_of(field: &Field) -> &'static str {
    match field {
        Field::Clusters => ": grant USAGE on all clusters instead",
        Field::Token => ": take one back first",
        _ => "",
    }
}

impl AccessRejection {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::LoginRequired => "LOGIN_REQUIRED",
            Self::RoleGone { .. } => "ROLE_GONE",
            Self::TokenGone { .. } => "TOKEN_GONE",
            Self::SuperuserNeeded { .. } => "SUPERUSER_NEEDED",
            Self::NodesOnly { .. } => "NODES_ONLY",
            Self::UsageNeeded { .. } => "USAGE_NEEDED",
            Self::UsageOnEachNeeded { .. } => "USAGE_ON_EACH_NEEDED",
            Self::NoSuperuserLeft => "NO_SUPERUSER_LEFT",
            Self::ReservedRole { .. } => "RESERVED_ROLE",
            Self::TokenTaken { .. } => "TOKEN_TAKEN",
            Self::TokenNotFound { .. } => "TOKEN_NOT_FOUND",
            Self::TooManyOfRole { .. } => "TOO_MANY_OF_ROLE",
            Self::TooManyRoles { .. } => "TOO_MANY_ROLES",
        }
    }

    pub(crate) fn class(&self) -> RejectionClass {
        match self {
            Self::LoginRequired | Self::RoleGone { .. } | Self::TokenGone { .. } => RejectionClass::Unauthenticated,
            Self::SuperuserNeeded { .. }
            | Self::NodesOnly { .. }
            | Self::UsageNeeded { .. }
            | Self::UsageOnEachNeeded { .. } => RejectionClass::Denied,
            Self::ReservedRole { .. } => RejectionClass::Invalid,
            Self::TokenTaken { .. } => RejectionClass::AlreadyExists,
            Self::TokenNotFound { .. } => RejectionClass::NotFound,
            Self::NoSuperuserLeft | Self::TooManyOfRole { .. } | Self::TooManyRoles { .. } => {
                RejectionClass::Precondition
            }
        }
    }

    pub(crate) fn field(&self) -> Option<Field> {
        match self {
            Self::ReservedRole { .. } => Some(Field::Name),
            Self::TokenTaken { .. } | Self::TokenNotFound { .. } => Some(Field::Token),
            Self::TooManyOfRole { field, .. } => Some(*field),
            _ => None,
        }
    }

    pub(crate) fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::LoginRequired | Self::NoSuperuserLeft => vec![],
            Self::RoleGone { role } => vec![("role", role.clone())],
            Self::TokenGone { token } | Self::TokenTaken { token } => vec![("token", token.clone())],
            Self::TokenNotFound { role, token } => vec![("role", role.clone()), ("token", token.clone())],
            Self::SuperuserNeeded { role, what } => {
                vec![("role", role.clone()), ("command", what.clone()), ("privilege", "SUPERUSER".to_owned())]
            }
            Self::NodesOnly { what } => vec![("command", what.clone())],
            Self::UsageNeeded { role, what, cluster } => vec![
                ("role", role.clone()),
                ("command", what.clone()),
                ("privilege", "USAGE".to_owned()),
                ("cluster", cluster.clone()),
            ],
            Self::UsageOnEachNeeded { role, what, target, missing, example } => vec![
                ("role", role.clone()),
                ("command", what.clone()),
                ("privilege", "USAGE".to_owned()),
                ("target", target.clone()),
                ("missing", missing.to_string()),
                ("cluster", example.clone().unwrap_or_default()),
            ],
            Self::ReservedRole { name } => vec![("name", shortened(name))],
            Self::TooManyOfRole { role, field, count, count_max } => vec![
                ("role", role.clone()),
                ("field", field.to_string()),
                ("count", count.to_string()),
                ("count_max", count_max.to_string()),
            ],
            Self::TooManyRoles { count, count_max } => {
                vec![("count", count.to_string()), ("count_max", count_max.to_string())]
            }
        }
    }
}
