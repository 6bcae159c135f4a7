//! Roles, their credentials and their privileges. No secret leaves this side: the group gets what is kept of it.

use std::fmt;
use std::time::Duration;

use loadline_api::v1::{
    CreateRoleRequest, CreateTokenRequest, DeleteRequest, DeleteTokenRequest, UpdateRoleRequest, UsageRequest,
    WriteResponse,
};

use crate::admin::{Writing, options};
use crate::call::Repeat;
use crate::client::Client;
use crate::error::Error;

/// A token of a role, for every call. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// On what USAGE is granted or revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usage {
    Cluster(String),
    /// Also those to come.
    AllClusters,
}

/// What is kept of a token: its id, its hash, and how long it is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenKept {
    pub id: String,
    pub hash: [u8; 32],
    pub expires_in: Option<Duration>,
}

macro_rules! sending {
    ($method:ident) => {
        |channel, request| async move { Client::admin(channel).$method(request).await }
    };
}

impl Client {
    /// `verifier` is what is kept of its password, in the text of PostgreSQL.
    pub async fn create_role(
        &self,
        name: &str,
        superuser: bool,
        verifier: Option<&str>,
        writing: Writing,
    ) -> Result<WriteResponse, Error> {
        let ask = |id| CreateRoleRequest {
            options: Some(options(id, writing)),
            name: name.to_owned(),
            superuser,
            verifier: verifier.unwrap_or_default().to_owned(),
            if_not_exists: false,
        };
        self.call(self.limits(), Repeat::Freely, ask, sending!(create_role)).await
    }

    /// What is absent stays as it is; an empty verifier takes the password away.
    pub async fn update_role(
        &self,
        name: &str,
        superuser: Option<bool>,
        verifier: Option<&str>,
        etag: &str,
        writing: Writing,
    ) -> Result<WriteResponse, Error> {
        let ask = |id| UpdateRoleRequest {
            options: Some(options(id, writing)),
            name: name.to_owned(),
            superuser,
            verifier: verifier.map(str::to_owned),
            etag: etag.to_owned(),
        };
        self.call(self.limits(), Repeat::Freely, ask, sending!(update_role)).await
    }

    pub async fn delete_role(
        &self,
        name: &str,
        etag: &str,
        allow_missing: bool,
        writing: Writing,
    ) -> Result<WriteResponse, Error> {
        let ask = |id| DeleteRequest {
            options: Some(options(id, writing)),
            name: name.to_owned(),
            etag: etag.to_owned(),
            allow_missing,
            cascade: false,
        };
        self.call(self.limits(), Repeat::Freely, ask, sending!(delete_role)).await
    }

    pub async fn grant_usage(&self, role: &str, on: &Usage, writing: Writing) -> Result<WriteResponse, Error> {
        let ask = |id| usage(role, on, options(id, writing));
        self.call(self.limits(), Repeat::Freely, ask, sending!(grant_usage)).await
    }

    pub async fn revoke_usage(&self, role: &str, on: &Usage, writing: Writing) -> Result<WriteResponse, Error> {
        let ask = |id| usage(role, on, options(id, writing));
        self.call(self.limits(), Repeat::Freely, ask, sending!(revoke_usage)).await
    }

    pub async fn create_token(&self, role: &str, kept: &TokenKept, writing: Writing) -> Result<WriteResponse, Error> {
        let ask = |id| CreateTokenRequest {
            options: Some(options(id, writing)),
            role: role.to_owned(),
            token_id: kept.id.clone(),
            token_hash: kept.hash.to_vec().into(),
            expires_in_ms: kept.expires_in.map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        };
        self.call(self.limits(), Repeat::Freely, ask, sending!(create_token)).await
    }

    pub async fn delete_token(&self, role: &str, token_id: &str, writing: Writing) -> Result<WriteResponse, Error> {
        let ask = |id| DeleteTokenRequest {
            options: Some(options(id, writing)),
            role: role.to_owned(),
            token_id: token_id.to_owned(),
            allow_missing: false,
        };
        self.call(self.limits(), Repeat::Freely, ask, sending!(delete_token)).await
    }
}

fn usage(role: &str, on: &Usage, options: loadline_api::v1::WriteOptions) -> UsageRequest {
    let (cluster, all_clusters) = match on {
        Usage::Cluster(name) => (name.clone(), false),
        Usage::AllClusters => (String::new(), true),
    };
    UsageRequest { options: Some(options), role: role.to_owned(), cluster, all_clusters }
}
