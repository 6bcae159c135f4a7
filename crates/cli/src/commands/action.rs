//! `action retry|resolve|abandon`: what an operator does about an action that does not settle by itself.

use clap::{Args, Subcommand};
use loadline_client::ScalingWrite;
use loadline_client::v1::{AbandonActionRequest, ResolveActionRequest, RetryActionRequest};

use super::scaling::bare;
use super::write::report;
use super::{Session, writing};
use crate::exit::Failed;

#[derive(Debug, Subcommand)]
pub(crate) enum ActionVerb {
    /// Wait no longer: try it again now, read it back now, or decide afresh about what was given up
    Retry {
        #[command(flatten)]
        which: Which,
    },
    /// Say what came of it, after you have looked at the backend yourself
    Resolve {
        #[command(flatten)]
        which: Which,
        /// It was done
        #[arg(long, required_unless_present = "failed", conflicts_with = "failed")]
        succeeded: bool,
        /// It was not done, and will not be
        #[arg(long)]
        failed: bool,
    },
    /// Give it up, whatever came of it; what is wanted is decided afresh
    Abandon {
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Its id, such as a12.3
    action: String,
    /// Why, for whoever wonders
    #[arg(long)]
    reason: String,
}

pub(crate) async fn action(verb: ActionVerb, mut session: Session<'_>) -> Result<(), Failed> {
    let (write, word) = match verb {
        ActionVerb::Retry { which: Which { action, reason } } => {
            let request = RetryActionRequest { options: None, action: bare(&action), reason };
            (ScalingWrite::RetryAction(request), "to be tried again")
        }
        ActionVerb::Resolve { which: Which { action, reason }, succeeded, failed: _ } => {
            let request = ResolveActionRequest { options: None, action: bare(&action), succeeded, reason };
            let word = if succeeded { "resolved as succeeded" } else { "resolved as failed" };
            (ScalingWrite::ResolveAction(request), word)
        }
        ActionVerb::Abandon { which: Which { action, reason } } => {
            let request = AbandonActionRequest { options: None, action: bare(&action), reason };
            (ScalingWrite::AbandonAction(request), "abandoned")
        }
    };
    let answer = session.client.write_scaling(write, writing(false)).await?;
    report(&mut session, answer, word, false)
}
