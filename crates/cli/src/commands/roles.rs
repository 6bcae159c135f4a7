//! `create role`, `create token`, `update role`, `grant`, `revoke`, `delete role`.
//!
//! A password is read from a file or from stdin, never from the command line, which others can see; what is kept of it is
//! made here, so it does not travel. A token is made here, too, and printed once.

use std::io::Read as _;
use std::time::Duration;

use loadline_client::{TokenKept, Usage, Writing};
use loadline_credentials::scram;
use loadline_credentials::token::Token;

use super::write::{report, said};
use super::{Session, writing};
use crate::args::DeleteArgs;
use crate::exit::{Exit, Failed};
use crate::output::{Format, json_line, pretty};
use crate::role_args::{CreateRoleArgs, PasswordArgs, Revoke, UpdateRoleArgs, UsageArgs};

const PASSWORD_BYTES_MAX: u64 = 1 << 10;

pub(crate) async fn create(args: &CreateRoleArgs, mut session: Session<'_>) -> Result<(), Failed> {
    let verifier = verifier(&args.password)?;
    let writing = writing(args.dry_run);
    let answer = session.client.create_role(&args.name, args.superuser, verifier.as_deref(), writing).await?;
    report(&mut session, answer, "created", args.dry_run)
}

pub(crate) async fn update(args: &UpdateRoleArgs, mut session: Session<'_>) -> Result<(), Failed> {
    let verifier = match args.no_password {
        true => Some(String::new()),
        false => verifier(&args.password)?,
    };
    let writing = writing(args.write.dry_run);
    let (verifier, etag) = (verifier.as_deref(), args.write.etag.as_str());
    let answer = session.client.update_role(&args.name, args.superuser, verifier, etag, writing).await?;
    report(&mut session, answer, "updated", args.write.dry_run)
}

pub(crate) async fn delete(name: &str, args: &DeleteArgs, session: Session<'_>) -> Result<(), Failed> {
    let write = &args.write;
    let answer = session.client.delete_role(name, &write.etag, args.ignore_not_found, writing(write.dry_run)).await?;
    let changed = answer.results.first().is_some_and(|result| result.changed);
    let word = if changed { "deleted" } else { "not found" };
    session.console.data(&(said(&format!("roles/{name}"), word, write.dry_run) + "\n"))
}

pub(crate) async fn grant(args: &UsageArgs, mut session: Session<'_>) -> Result<(), Failed> {
    let answer = session.client.grant_usage(&args.role, &usage(args), writing(args.dry_run)).await?;
    report(&mut session, answer, "updated", args.dry_run)
}

pub(crate) async fn revoke(what: &Revoke, mut session: Session<'_>) -> Result<(), Failed> {
    match what {
        Revoke::Usage(args) => {
            let answer = session.client.revoke_usage(&args.role, &usage(args), writing(args.dry_run)).await?;
            report(&mut session, answer, "updated", args.dry_run)
        }
        Revoke::Token { role, id } => {
            let answer = session.client.delete_token(role, id, Writing::Record).await?;
            report(&mut session, answer, "updated", false)
        }
    }
}

fn usage(args: &UsageArgs) -> Usage {
    args.cluster.clone().map_or(Usage::AllClusters, Usage::Cluster)
}

/// Prints the token, which nobody can print a second time.
pub(crate) async fn create_token(role: &str, expires_in: Option<Duration>, session: Session<'_>) -> Result<(), Failed> {
    let token = Token::mint();
    let kept = TokenKept { id: token.id().to_owned(), hash: token.hash().0, expires_in };
    session.client.create_token(role, &kept, Writing::Record).await?;
    let shown = serde_json::json!({"role": role, "id": token.id(), "token": token.reveal()});
    let text = match session.format {
        Format::Json | Format::Yaml => pretty(&shown)?,
        Format::Jsonl => json_line(&shown)?,
        Format::Name => format!("{}\n", token.id()),
        Format::Table | Format::Wide | Format::Csv | Format::Sql => {
            session.console.say("this is the only time that the token is shown; whoever has it is this role");
            format!("{}\n", token.reveal())
        }
    };
    session.console.data(&text)
}

/// What is kept of the password, if one is given.
fn verifier(args: &PasswordArgs) -> Result<Option<String>, Failed> {
    let text = match (&args.password_file, args.password_stdin) {
        (None, false) => return Ok(None),
        (Some(path), _) => std::fs::read_to_string(path)
            .map_err(|error| Failed::new(Exit::Failure, format!("{}: {error}", path.display())))?,
        (None, true) => {
            let mut text = String::new();
            std::io::stdin().take(PASSWORD_BYTES_MAX).read_to_string(&mut text)?;
            text
        }
    };
    // The line ends where an editor or echo ended it; blanks are part of a password.
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(Failed::usage("the password is empty"));
    }
    Ok(Some(scram::text(&scram::verifier(password))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_comes_from_a_file_and_only_what_is_kept_of_it_goes_on() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "two words \n").expect("written");
        let args = PasswordArgs { password_file: Some(file.path().to_owned()), password_stdin: false };
        let text = verifier(&args).expect("read").expect("given");
        assert!(scram::parse(&text).is_some() && !text.contains("two"));
        std::fs::write(file.path(), "\n").expect("written");
        assert_eq!(verifier(&args).expect_err("empty").exit, Exit::Usage);
        assert_eq!(verifier(&PasswordArgs { password_file: None, password_stdin: false }), Ok(None));
    }
}
