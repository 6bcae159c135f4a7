//! A strategy whose scope is `MANAGED_ONLY` changes nothing but what Loadline named.

use loadline_state_machine::{Event, ReplicaScope};

use super::{Agreed, Invariant};
use crate::record::Sighting;

/// What Loadline names ends so.
const MANAGED_SUFFIX: &str = "_auto";

#[derive(Debug, Default)]
pub(super) struct ManagedOnly {
    log: Agreed,
}

impl Invariant for ManagedOnly {
    fn name(&self) -> &'static str {
        "managed-only"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        let Some(applied) = self.log.first(sighting) else { return Ok(()) };
        for event in &applied.events {
            let Event::DecisionMade { decision } = event else { continue };
            for stage in &decision.stages {
                let scope = applied.state.strategy(stage.strategy).and_then(|strategy| strategy.configuration().ok());
                if scope.is_none_or(|configuration| configuration.scope != ReplicaScope::ManagedOnly) {
                    continue;
                }
                let others = stage
                    .changes
                    .iter()
                    .map(|change| change.alteration.name())
                    .find(|name| !name.ends_with(MANAGED_SUFFIX));
                if let Some(name) = others {
                    return Err(format!(
                        "at {} strategy {} may touch only what is managed, and wants to change {name}",
                        applied.index, stage.strategy
                    ));
                }
            }
        }
        Ok(())
    }
}
