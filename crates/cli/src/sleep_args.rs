//! The flags of the verbs about clusters that sleep: wake, savings, override.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::text::parse_duration;

#[derive(Debug, Args)]
pub(crate) struct WakeArgs {
    /// Names or ids of clusters, or ids of idle_suspend strategies
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "CLUSTER")]
    pub(crate) clusters: Vec<String>,
    /// Every cluster that is at zero
    #[arg(long)]
    pub(crate) all: bool,
    /// Why, for whoever wonders later
    #[arg(long, value_enum, default_value = "manual")]
    pub(crate) reason: ReasonWord,
    /// Wait until all of them are ready, for as long as a cold start may take
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ReasonWord {
    Manual,
    Scheduled,
    Webhook,
    ApiRequest,
}

impl ReasonWord {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ReasonWord::Manual => "manual",
            ReasonWord::Scheduled => "scheduled",
            ReasonWord::Webhook => "webhook",
            ReasonWord::ApiRequest => "api_request",
        }
    }
}

/// Whole days, as in `30d`.
fn parse_days(text: &str) -> Result<u32, String> {
    let days = text.trim().strip_suffix('d').and_then(|days| days.trim().parse::<u32>().ok());
    days.filter(|days| *days > 0).ok_or_else(|| format!("'{text}' is not a number of days; write 30d, for example"))
}

#[derive(Debug, Args)]
pub(crate) struct SavingsArgs {
    /// Only these clusters, by name or id, or those that these strategies rule
    #[arg(value_name = "CLUSTER")]
    pub(crate) clusters: Vec<String>,
    /// How far back, in whole days
    #[arg(long, value_name = "DAYS", default_value = "30d", value_parser = parse_days)]
    pub(crate) since: u32,
}

#[derive(Debug, Args)]
pub(crate) struct OverrideArgs {
    /// Name of the cluster
    pub(crate) cluster: String,
    /// At least so many replicas
    #[arg(long, value_name = "COUNT", required_unless_present = "clear")]
    pub(crate) min: Option<u32>,
    /// How long, such as 2h
    #[arg(long = "for", value_name = "DURATION", required_unless_present = "clear", value_parser = parse_duration)]
    pub(crate) lasts: Option<Duration>,
    /// Why, for whoever wonders
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// Of those that have to be made; that of the largest there is, or was, if not given
    #[arg(long)]
    pub(crate) size: Option<String>,
    /// End the override now
    #[arg(long, conflicts_with_all = ["min", "lasts", "size"])]
    pub(crate) clear: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_are_asked_for_in_whole_days() {
        assert_eq!((parse_days("30d"), parse_days("1d")), (Ok(30), Ok(1)));
        for wrong in ["", "30", "0d", "-1d", "12h", "d"] {
            assert!(parse_days(wrong).is_err(), "{wrong:?}");
        }
    }
}
