//! What explanations are made of: lines, each with what it is about, and facts, which also know where in the log they come from.
//!
//! Text, JSON and SQL show the same facts. The lines of a decision are made in `explain`; where they come from only somebody knows
//! who has the journal.

use crate::Time;

/// What a line of an explanation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// The cluster that is explained.
    Cluster,
    /// The one that stops everything, where it is off.
    Switch,
    Pause,
    Override,
    Idle,
    Signal,
    Strategy,
    /// What all strategies together want.
    Wanted,
    /// What has to be done for that.
    Plan,
    /// The same with the strategies in dry run.
    DryRun,
    Brake,
    Conclusion,
    /// When it would come out differently by itself.
    Change,
    Operation,
    Action,
    /// What somebody asked for by hand.
    Asked,
    Pending,
    Decision,
}

impl Topic {
    pub fn code(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Switch => "switch",
            Self::Pause => "pause",
            Self::Override => "override",
            Self::Idle => "idle",
            Self::Signal => "signal",
            Self::Strategy => "strategy",
            Self::Wanted => "wanted",
            Self::Plan => "plan",
            Self::DryRun => "dry_run",
            Self::Brake => "brake",
            Self::Conclusion => "conclusion",
            Self::Change => "change",
            Self::Operation => "operation",
            Self::Action => "action",
            Self::Asked => "asked",
            Self::Pending => "pending",
            Self::Decision => "decision",
        }
    }

    /// What stands above its lines.
    pub fn heading(self) -> Option<&'static str> {
        match self {
            Self::Signal => Some("signals:"),
            Self::Strategy => Some("strategies, in the order in which they run:"),
            Self::DryRun => Some("with those in dry run:"),
            _ => None,
        }
    }
}

/// One line of an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub topic: Topic,
    /// What of it: the name of a signal or replica, the id of a strategy, the code of a brake.
    pub name: String,
    pub text: String,
    /// How far it stands to the right.
    pub depth: usize,
}

impl Said {
    #[expect(clippy::needless_pass_by_value, reason = "names, ids and codes are written alike")]
    pub(super) fn new(topic: Topic, name: impl ToString, text: impl Into<String>) -> Self {
        let depth = usize::from(topic.heading().is_some());
        Self { topic, name: name.to_string(), text: text.into(), depth }
    }

    pub(super) fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

/// With what stands above them.
pub(super) fn lines_of(said: &[Said]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut above = None;
    for one in said {
        if above != Some(one.topic) {
            above = Some(one.topic);
            lines.extend(one.topic.heading().map(str::to_owned));
        }
        lines.push(format!("{:indent$}{}", "", one.text, indent = 2 * one.depth));
    }
    lines
}

/// One line of an explanation, with where in the log it comes from and who is behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// What is explained: `actions/a12.0`.
    pub subject: String,
    /// Its place in the explanation, from 0.
    pub ordinal: u32,
    /// What it is about: `signal`, `strategy`, `brake`, `attempt`, `effect` ...
    pub topic: &'static str,
    /// What of it: the name of a signal, the id of a strategy, the code of a brake.
    pub name: String,
    pub text: String,
    /// How far it stands to the right where it is shown as text, and what stands above it.
    pub depth: usize,
    pub heading: Option<&'static str>,
    /// The entry of the log that it comes from, and when that was.
    pub index: Option<u64>,
    pub at: Option<Time>,
    /// Who asked for that.
    pub actor: Option<String>,
    pub source: Option<String>,
    pub proof: Option<String>,
    pub request_id: Option<String>,
    /// Of an attempt: which of our nodes made it, in which epoch.
    pub node_id: Option<u64>,
    pub epoch: Option<String>,
    /// The thing that it names: `strategies/s4.0`.
    pub resource: Option<String>,
}

impl Fact {
    /// The line, with where it comes from.
    pub fn line(&self) -> String {
        let mut line = format!("{:indent$}{}", "", self.text, indent = 2 * self.depth);
        let who = self.actor.as_ref().map(|actor| match &self.source {
            Some(source) if !source.is_empty() => format!("by {actor} from {source}"),
            _ => format!("by {actor}"),
        });
        let place = self.index.map(|index| format!("index {index}"));
        let parts: Vec<String> = place.into_iter().chain(who).collect();
        if !parts.is_empty() {
            line.push_str(&format!(" [{}]", parts.join(", ")));
        }
        line
    }

    /// All of them as text, with what stands above some of them.
    pub fn lines(facts: &[Fact]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut above = None;
        for fact in facts {
            if above != Some(fact.topic) {
                above = Some(fact.topic);
                let indent = 2 * fact.depth.saturating_sub(1);
                lines.extend(fact.heading.map(|heading| format!("{:indent$}{heading}", "")));
            }
            lines.push(fact.line());
        }
        lines
    }
}
