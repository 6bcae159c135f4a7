//! From what a caller asks about roles to commands of the state machine.

use loadline_credentials::scram;
use loadline_state_machine::{Command, Hash, PasswordChange, ScramVerifier, Span, UsageOn};

use crate::fields::{self, Findings, Invalid};
use crate::v1;
use crate::writes::Write;

impl Write {
    pub fn create_role(request: v1::CreateRoleRequest) -> Result<Write, Invalid> {
        let v1::CreateRoleRequest { options, name, superuser, verifier, if_not_exists } = request;
        let mut findings = Findings::default();
        let verifier = match verifier.as_str() {
            "" => Some(None),
            text => findings.take(read(text)).map(Some),
        };
        let command = verifier.map(|verifier| Command::CreateRole { name, superuser, verifier, if_not_exists });
        Write::one(options, command, "", RENAMED, findings)
    }

    pub fn update_role(request: v1::UpdateRoleRequest) -> Result<Write, Invalid> {
        let v1::UpdateRoleRequest { options, name, superuser, verifier, etag } = request;
        let mut findings = Findings::default();
        if superuser.is_none() && verifier.is_none() {
            findings.add("superuser".to_owned(), "or verifier is required: say what is to change");
        }
        let password = match verifier.as_deref() {
            None => Some(PasswordChange::Keep),
            Some("") => Some(PasswordChange::Clear),
            Some(text) => findings.take(read(text)).map(PasswordChange::Set),
        };
        let etag = findings.take(fields::etag("etag", &etag));
        let command = password.zip(etag).map(|(password, etag)| Command::AlterRole { name, superuser, password, etag });
        Write::one(options, command, "", RENAMED, findings)
    }

    pub fn delete_role(request: v1::DeleteRequest) -> Result<Write, Invalid> {
        let v1::DeleteRequest { options, name, etag, allow_missing, .. } = request;
        let mut findings = Findings::default();
        let etag = findings.take(fields::etag("etag", &etag));
        let command = etag.map(|etag| Command::DropRole { name, etag, allow_missing });
        Write::one(options, command, "", &[], findings)
    }

    pub fn grant_usage(request: v1::UsageRequest) -> Result<Write, Invalid> {
        Write::about_usage(request, |role, on| Command::GrantUsage { role, on })
    }

    pub fn revoke_usage(request: v1::UsageRequest) -> Result<Write, Invalid> {
        Write::about_usage(request, |role, on| Command::RevokeUsage { role, on })
    }

    fn about_usage(
        request: v1::UsageRequest,
        command: impl FnOnce(String, UsageOn) -> Command,
    ) -> Result<Write, Invalid> {
        let v1::UsageRequest { options, role, cluster, all_clusters } = request;
        let mut findings = Findings::default();
        let on = match (cluster.is_empty(), all_clusters) {
            (true, true) => Some(UsageOn::AllClusters),
            (false, false) => Some(UsageOn::Cluster(cluster)),
            _ => {
                findings.add("cluster".to_owned(), "or all_clusters is required, and not both");
                None
            }
        };
        Write::one(options, on.map(|on| command(role, on)), "", &[("name", "cluster")], findings)
    }

    pub fn create_token(request: v1::CreateTokenRequest) -> Result<Write, Invalid> {
        let v1::CreateTokenRequest { options, role, token_id: token, token_hash, expires_in_ms } = request;
        let mut findings = Findings::default();
        let hash: Option<[u8; 32]> = token_hash.as_ref().try_into().ok();
        if hash.is_none() {
            findings.add("token_hash".to_owned(), format!("must be 32 bytes, and has {}", token_hash.len()));
        }
        let expires_in = (expires_in_ms > 0).then(|| Span::from_millis(expires_in_ms));
        let command = hash.map(|hash| Command::CreateToken { role, token, hash: Hash(hash), expires_in });
        Write::one(options, command, "", &[("token", "token_id"), ("expires_in", "expires_in_ms")], findings)
    }

    pub fn delete_token(request: v1::DeleteTokenRequest) -> Result<Write, Invalid> {
        let v1::DeleteTokenRequest { options, role, token_id: token, allow_missing } = request;
        let command = Command::DropToken { role, token, allow_missing };
        Write::one(options, Some(command), "", &[("token", "token_id")], Findings::default())
    }
}

/// What the state machine finds in a verifier is in the one text of it.
const RENAMED: &[(&str, &str)] = &[("iterations", "verifier"), ("salt", "verifier")];

/// The text is not repeated: it may be a password that somebody put there by mistake.
fn read(text: &str) -> Result<ScramVerifier, Invalid> {
    let expected = "must be SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY, never the password itself";
    scram::parse(text).ok_or_else(|| Invalid::one("verifier", expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "019a7f3e-0000-7000-8000-000000000001";

    fn options() -> Option<v1::WriteOptions> {
        Some(v1::WriteOptions { request_id: ID.to_owned(), validate_only: false })
    }

    #[test]
    fn a_password_in_the_place_of_a_verifier_is_refused_and_not_repeated() {
        let request = v1::CreateRoleRequest {
            options: options(),
            name: "ops".to_owned(),
            verifier: "hunter2".to_owned(),
            ..v1::CreateRoleRequest::default()
        };
        let invalid = Write::create_role(request).unwrap_err();
        assert_eq!(invalid.violations[0].field, "verifier");
        assert!(!invalid.to_string().contains("hunter2"), "{invalid}");
    }

    #[test]
    fn what_is_kept_of_a_password_goes_through_as_it_is() {
        let kept = scram::verifier("secret");
        let request = v1::CreateRoleRequest {
            options: options(),
            name: "ops".to_owned(),
            superuser: true,
            verifier: scram::text(&kept),
            if_not_exists: true,
        };
        let expected =
            Command::CreateRole { name: "ops".to_owned(), superuser: true, verifier: Some(kept), if_not_exists: true };
        let write = Write::create_role(request).unwrap();
        assert_eq!(write.commands, [expected]);
        assert_eq!(write.field(0, "iterations"), "verifier");
    }

    #[test]
    fn an_update_keeps_sets_or_clears_the_password_and_says_when_it_would_change_nothing() {
        let update = |superuser, verifier: Option<&str>| {
            let verifier = verifier.map(str::to_owned);
            let name = "ops".to_owned();
            Write::update_role(v1::UpdateRoleRequest {
                options: options(),
                name,
                superuser,
                verifier,
                etag: String::new(),
            })
        };
        let password = |write: Write| match &write.commands[0] {
            Command::AlterRole { password, .. } => password.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(password(update(Some(true), None).unwrap()), PasswordChange::Keep);
        assert_eq!(password(update(None, Some("")).unwrap()), PasswordChange::Clear);
        let kept = scram::verifier("secret");
        assert_eq!(password(update(None, Some(&scram::text(&kept))).unwrap()), PasswordChange::Set(kept));
        assert!(update(None, None).unwrap_err().to_string().contains("say what is to change"));
    }

    #[test]
    fn usage_is_on_one_cluster_or_on_all() {
        let usage = |cluster: &str, all_clusters| {
            let (role, cluster) = ("ops".to_owned(), cluster.to_owned());
            Write::grant_usage(v1::UsageRequest { options: options(), role, cluster, all_clusters })
                .map(|it| it.commands)
        };
        let granted = |on| Ok(vec![Command::GrantUsage { role: "ops".to_owned(), on }]);
        assert_eq!(usage("demo", false), granted(UsageOn::Cluster("demo".to_owned())));
        assert_eq!(usage("", true), granted(UsageOn::AllClusters));
        assert!(usage("", false).is_err() && usage("demo", true).is_err());
    }

    #[test]
    fn a_hash_of_another_length_is_no_hash_of_a_token() {
        let request = v1::CreateTokenRequest {
            options: options(),
            role: "ops".to_owned(),
            token_id: "0123456789abcdef".to_owned(),
            token_hash: vec![1; 31].into(),
            expires_in_ms: 0,
        };
        assert_eq!(Write::create_token(request).unwrap_err().violations[0].field, "token_hash");
    }
}
