//! Cooldowns and the rate limit hold, whoever leads.
//!
//! Counted here from what was done, and not from what the state remembers of it: a new leader that forgets must be found out.

use std::collections::BTreeMap;

use loadline_state_machine::{ClusterId, Event, OperationEnd, Reason, Span, State, Time};

use super::{Agreed, Invariant};
use crate::record::{Applied, Sighting};

#[derive(Debug, Default)]
pub(super) struct Brakes {
    log: Agreed,
    completed: BTreeMap<ClusterId, Time>,
    /// When calls were claimed that the limit counts.
    claimed: BTreeMap<ClusterId, Vec<Time>>,
}

/// A span as a setting shows it: "1s", "10m", "500ms".
fn span(text: &str) -> Option<Span> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit.trim() {
        "ms" => Some(Span::from_millis(number)),
        "s" => Some(Span::from_secs(number)),
        "m" | "min" => Some(Span::from_mins(number)),
        "h" => Some(Span::from_mins(number.checked_mul(60)?)),
        _ => None,
    }
}

fn setting(state: &State, name: &str) -> String {
    state.setting(name).map(|setting| setting.value).unwrap_or_default()
}

impl Brakes {
    fn begun(&self, applied: &Applied, operation: &loadline_state_machine::Operation) -> Result<(), String> {
        let Some(completed) = self.completed.get(&operation.cluster) else { return Ok(()) };
        let Some(cooldown) = span(&setting(&applied.state, "auto_scaling_cluster_cooldown")) else { return Ok(()) };
        // Somebody waits for a cluster that wakes: that is not held.
        let wakes = operation.units.iter().any(|unit| unit.planned.reason == Reason::Woken);
        let gone = applied.state.standing(operation.cluster).is_none_or(|it| it.signals().replicas.is_empty());
        if wakes || gone || applied.time >= *completed + cooldown {
            return Ok(());
        }
        Err(format!(
            "at {} operation {} of cluster {} began {} ms after the last one was completed, with a cooldown of {} ms",
            applied.index,
            operation.id,
            operation.cluster,
            applied.time.since(*completed).as_millis(),
            cooldown.as_millis()
        ))
    }

    fn counted(&mut self, applied: &Applied, action: &loadline_state_machine::Action) -> Result<(), String> {
        if !action.call.is_counted() {
            return Ok(());
        }
        let limit = setting(&applied.state, "auto_scaling_rate_limit").parse::<usize>().ok();
        let window = span(&setting(&applied.state, "auto_scaling_rate_window"));
        let (Some(limit), Some(window)) = (limit, window) else { return Ok(()) };
        let claimed = self.claimed.entry(action.cluster).or_default();
        claimed.push(applied.time);
        claimed.retain(|at| applied.time.since(*at) < window);
        if claimed.len() > limit {
            return Err(format!(
                "at {} action {} of cluster {} is call {} within {} ms, and the limit is {limit}",
                applied.index,
                action.id,
                action.cluster,
                claimed.len(),
                window.as_millis()
            ));
        }
        Ok(())
    }
}

impl Invariant for Brakes {
    fn name(&self) -> &'static str {
        "brakes"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        let Some(applied) = self.log.first(sighting) else { return Ok(()) };
        for event in &applied.events {
            match event {
                Event::OperationBegun { operation } => self.begun(applied, operation)?,
                Event::OperationEnded { operation, end: OperationEnd::Completed } => {
                    self.completed.insert(operation.cluster, applied.time);
                }
                Event::ActionClaimed { action } => self.counted(applied, action)?,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_settings_show_them() {
        assert_eq!(span("1s"), Some(Span::from_secs(1)));
        assert_eq!(span("250ms"), Some(Span::from_millis(250)));
        assert_eq!(span("2h"), Some(Span::from_mins(120)));
        assert_eq!(span("soon"), None);
    }
}
