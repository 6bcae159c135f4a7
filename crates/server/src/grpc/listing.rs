//! Resources in the order in which they are listed and watched, a bounded number at a time.

use loadline_api::v1::Resource;
use loadline_state_machine::{ResourceKind, State};

/// Up to `count` resources after a position, each with its own position: sizes by rank, the others by name. Nothing if the
/// position is none of this kind.
pub(super) fn rows(
    state: &State,
    kind: ResourceKind,
    after: Option<&str>,
    count: usize,
) -> Option<Vec<(String, Resource)>> {
    Some(match kind {
        ResourceKind::Size => {
            let after: Option<u32> = after.map(str::parse).transpose().ok()?;
            let rest = state.sizes().filter(|size| after.is_none_or(|after| size.rank > after));
            rest.take(count).map(|size| (size.rank.to_string(), size.into())).collect()
        }
        ResourceKind::Cluster => {
            let rest = state.clusters_after(after);
            rest.take(count).map(|cluster| (cluster.name.clone(), cluster.into())).collect()
        }
        ResourceKind::Setting => {
            let mut settings = state.settings();
            settings.sort_by(|a, b| a.name.cmp(&b.name));
            settings.retain(|setting| after.is_none_or(|after| setting.name.as_str() > after));
            settings.iter().take(count).map(|setting| (setting.name.clone(), setting.into())).collect()
        }
    })
}
