//! What only the leader does: it acts on the backends and looks at them, tells what scaling does, and raises the rules once
//! every node knows them. It also tells the group, once, what its own configuration says about settings that nobody has set.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use loadline_executor::{Duties, Duty, Executor, Leadership, Tenure};
use loadline_raft_node::Node;
use loadline_state_machine::{Actor, Command, RULES_VERSION_MAX, Request, RulesVersion};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::proposals::Proposals;
use crate::scaling_log::TellScaling;

/// How often the leader looks whether an upgrade is complete. Nobody waits for it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Does the leader's duties until `closing`.
pub(crate) async fn lead(
    node: Node,
    proposals: Proposals,
    executor: Executor,
    collecting: bool,
    suggestions: Vec<Suggestion>,
    closing: CancellationToken,
) {
    let name = node.status().name;
    let actor = Actor::node(format!("node {name}"), "duty");
    let suggest =
        SuggestSettings { view: node.clone(), proposals: proposals.clone(), actor: actor.clone(), suggestions };
    let raise_rules = RaiseRules { view: node.clone(), proposals, actor };
    let leadership = leaderships(&node).take_until(closing.cancelled_owned());
    let duties = Duties::new().with(raise_rules).with(suggest).with(TellScaling { node });
    let duties = if collecting { duties.with(executor.collecting()) } else { duties };
    executor.join(duties).run(leadership).await;
}

/// The leaderships of this node, in the terms of whoever acts under them.
fn leaderships(node: &Node) -> impl Stream<Item = Option<Leadership>> + use<> {
    WatchStream::new(node.leadership()).map(|leadership| {
        leadership.map(|leadership| Leadership::new(leadership.epoch, move || leadership.lease.holds()))
    })
}

/// After an upgrade of all nodes, raises the version of the rules that entries are applied by.
struct RaiseRules {
    view: Node,
    proposals: Proposals,
    actor: Actor,
}

impl Duty for RaiseRules {
    fn name(&self) -> &'static str {
        "raise-rules"
    }

    fn perform(&self, tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let (current, known) = (self.view.latest().rules(), self.view.rules_known_to_all());
                if let Some(to) = next_rules(current, RULES_VERSION_MAX, known)
                    && tenure.may_act()
                {
                    self.raise(current, to).await;
                }
            }
        })
    }
}

impl RaiseRules {
    async fn raise(&self, from: RulesVersion, to: RulesVersion) {
        // No request id: raised twice is raised once.
        let commands = vec![Command::RaiseRules { to }];
        let request = Request { actor: self.actor.clone(), request_id: None, commands };
        match self.proposals.propose(request).await.map(|receipt| receipt.result) {
            Ok(Ok(_)) => info!(%from, %to, "every node knows the new rules; entries are applied by them from now on"),
            Ok(Err(refused)) => warn!(%from, %to, "the rules stay as they are: {}", refused.rejection),
            Err(error) => warn!(%from, %to, "the rules stay as they are for now: {error}"),
        }
    }
}

/// Settings as this node was configured, by name.
pub(crate) type Suggestion = (&'static str, String);

/// What a node was configured with becomes a setting of the group if nobody has ever set it: state changes through the log
/// alone, and a node that starts with another variable must not undo what an operator said. The first leader that has one wins.
struct SuggestSettings {
    view: Node,
    proposals: Proposals,
    actor: Actor,
    suggestions: Vec<Suggestion>,
}

impl Duty for SuggestSettings {
    fn name(&self) -> &'static str {
        "suggest-settings"
    }

    fn perform(&self, tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                for (name, value) in self.unsaid() {
                    if tenure.may_act() {
                        self.suggest(name, value).await;
                    }
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })
    }
}

impl SuggestSettings {
    fn unsaid(&self) -> Vec<&Suggestion> {
        let state = self.view.latest();
        let unsaid = |name: &str| state.setting(name).is_some_and(|setting| setting.updated.is_none());
        self.suggestions.iter().filter(|(name, _)| unsaid(name)).collect()
    }

    async fn suggest(&self, name: &str, value: &str) {
        // No request id: suggested twice is set once.
        let commands = vec![Command::SuggestSetting { name: name.to_owned(), value: value.to_owned() }];
        let request = Request { actor: self.actor.clone(), request_id: None, commands };
        match self.proposals.propose(request).await.map(|receipt| receipt.result) {
            Ok(Ok(_)) => info!(name, value, "nobody had set this; it is as this node is configured now"),
            Ok(Err(refused)) => {
                warn!(name, value, "what this node is configured with is refused: {}", refused.rejection);
            }
            Err(error) => warn!(name, value, "what this node is configured with is not a setting yet: {error}"),
        }
    }
}

/// The version to raise to: the highest that this node and every other one knows, if that is above the current one. A
/// node that has not said what it knows holds it up: it could not go on applying.
fn next_rules(current: RulesVersion, here: RulesVersion, everywhere: Option<RulesVersion>) -> Option<RulesVersion> {
    everywhere.map(|known| known.min(here)).filter(|to| *to > current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_raised_only_to_what_every_node_knows() {
        let check = |current, here, everywhere: Option<u32>, expected: Option<u32>| {
            let next = next_rules(RulesVersion(current), RulesVersion(here), everywhere.map(RulesVersion));
            assert_eq!(next, expected.map(RulesVersion));
        };
        check(1, 1, Some(1), None);
        check(1, 2, Some(1), None);
        check(1, 2, None, None);
        check(1, 2, Some(2), Some(2));
        check(1, 2, Some(3), Some(2));
        check(2, 2, Some(1), None);
    }
}
