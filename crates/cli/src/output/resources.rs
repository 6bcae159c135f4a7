//! Sizes, clusters and settings as they are shown; what scaling keeps is in `scaling.rs`.
//!
//! As objects they have the form of a manifest (`kind`, `name`, `spec`), so that what `get -o yaml` prints can be
//! edited and given to `apply -f`. What the system adds stands in `metadata`, which `apply` leaves alone.

use std::fmt;

use loadline_client::v1::{self, resource};
use serde::Serialize;

use super::idle::{IdleView, OverrideView};
use super::scaling::{ActionView, DecisionView, OperationView, RoleView, StrategyView};
use super::signals::SignalView;
use super::{Column, View};
use crate::text::{show_price, show_time};

/// A resource of any kind. The columns of each kind are its own, so a table holds one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum ResourceView {
    Size(SizeView),
    Cluster(ClusterView),
    Setting(SettingView),
    Strategy(StrategyView),
    Decision(DecisionView),
    Operation(OperationView),
    Action(ActionView),
    Role(RoleView),
    Signal(Box<SignalView>),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SizeView {
    kind: &'static str,
    pub(crate) name: String,
    pub(crate) spec: SizeSpec,
    metadata: Metadata,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SizeSpec {
    pub(crate) rank: u32,
    pub(crate) slots: u32,
    /// Decimal, per hour. A string, because JSON numbers lose exactness in many readers.
    pub(crate) price: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ClusterView {
    kind: &'static str,
    pub(crate) name: String,
    pub(crate) spec: ClusterSpec,
    metadata: Metadata,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ClusterSpec {
    /// Only where it names one itself: what `apply` of this file would say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SettingView {
    kind: &'static str,
    pub(crate) name: String,
    pub(crate) spec: SettingSpec,
    metadata: Metadata,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SettingSpec {
    pub(crate) value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct Metadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    etag: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    create_revision: Option<u64>,
    update_revision: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    create_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend_is_default: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause: Option<PauseView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<IdleView>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "override")]
    overridden: Option<OverrideView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_default: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

/// Held by hand.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct PauseView {
    reason: String,
    since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_time: Option<String>,
}

impl From<v1::Pause> for PauseView {
    fn from(pause: v1::Pause) -> PauseView {
        PauseView {
            reason: pause.reason,
            since: show_time(pause.since_ms),
            expire_time: (pause.expire_time_ms > 0).then(|| show_time(pause.expire_time_ms)),
        }
    }
}

impl fmt::Display for PauseView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.expire_time {
            Some(until) => write!(f, "until {until}")?,
            None => f.write_str("until resumed")?,
        }
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

impl ResourceView {
    /// Nothing for a resource of a kind that this version does not know.
    pub(crate) fn of(resource: v1::Resource) -> Option<ResourceView> {
        Some(match resource.resource? {
            resource::Resource::Size(size) => ResourceView::Size(size.into()),
            resource::Resource::Cluster(cluster) => ResourceView::Cluster(cluster.into()),
            resource::Resource::Setting(setting) => ResourceView::Setting(setting.into()),
            resource::Resource::Strategy(strategy) => ResourceView::Strategy(strategy.into()),
            resource::Resource::Decision(decision) => ResourceView::Decision(decision.into()),
            resource::Resource::Operation(operation) => ResourceView::Operation(operation.into()),
            resource::Resource::Action(action) => ResourceView::Action(action.into()),
            resource::Resource::Role(role) => ResourceView::Role(role.into()),
            resource::Resource::Signal(signal) => ResourceView::Signal(Box::new(signal.into())),
        })
    }

    pub(crate) fn etag(&self) -> &str {
        match self {
            ResourceView::Size(view) => &view.metadata.etag,
            ResourceView::Cluster(view) => &view.metadata.etag,
            ResourceView::Setting(view) => &view.metadata.etag,
            ResourceView::Strategy(StrategyView(shown))
            | ResourceView::Decision(DecisionView(shown))
            | ResourceView::Operation(OperationView(shown))
            | ResourceView::Action(ActionView(shown))
            | ResourceView::Role(RoleView(shown)) => &shown.etag,
            ResourceView::Signal(view) => &view.wire.etag,
        }
    }

    pub(crate) fn bare_name(&self) -> &str {
        match self {
            ResourceView::Size(view) => &view.name,
            ResourceView::Cluster(view) => &view.name,
            ResourceView::Setting(view) => &view.name,
            ResourceView::Strategy(StrategyView(shown))
            | ResourceView::Decision(DecisionView(shown))
            | ResourceView::Operation(OperationView(shown))
            | ResourceView::Action(ActionView(shown))
            | ResourceView::Role(RoleView(shown)) => &shown.name,
            ResourceView::Signal(view) => &view.name,
        }
    }

    /// `clusters/demo`.
    pub(crate) fn full_name(&self) -> String {
        match self {
            ResourceView::Size(view) => view.name(),
            ResourceView::Cluster(view) => view.name(),
            ResourceView::Setting(view) => view.name(),
            ResourceView::Strategy(view) => view.name(),
            ResourceView::Decision(view) => view.name(),
            ResourceView::Operation(view) => view.name(),
            ResourceView::Action(view) => view.name(),
            ResourceView::Role(view) => view.name(),
            ResourceView::Signal(view) => view.name(),
        }
    }

    pub(crate) fn cells(&self) -> Vec<String> {
        match self {
            ResourceView::Size(view) => view.cells(),
            ResourceView::Cluster(view) => view.cells(),
            ResourceView::Setting(view) => view.cells(),
            ResourceView::Strategy(view) => view.cells(),
            ResourceView::Decision(view) => view.cells(),
            ResourceView::Operation(view) => view.cells(),
            ResourceView::Action(view) => view.cells(),
            ResourceView::Role(view) => view.cells(),
            ResourceView::Signal(view) => view.cells(),
        }
    }

    /// The fields of the spec by name, as `wait --for` compares them and `diff` shows them.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        match self {
            ResourceView::Size(view) => vec![
                ("rank", view.spec.rank.to_string()),
                ("slots", view.spec.slots.to_string()),
                ("price", view.spec.price.clone()),
            ],
            ResourceView::Cluster(view) => {
                view.spec.backend.iter().map(|backend| ("backend", backend.clone())).collect()
            }
            ResourceView::Setting(view) => vec![("value", view.spec.value.clone())],
            ResourceView::Strategy(_) => vec![("state", self.cells().swap_remove(3))],
            ResourceView::Action(_) => vec![("status", self.cells().swap_remove(5))],
            ResourceView::Operation(_) => vec![("phase", self.cells().swap_remove(3))],
            ResourceView::Decision(_) | ResourceView::Role(_) => Vec::new(),
            ResourceView::Signal(view) => vec![("stale", view.wire.stale.to_string())],
        }
    }

    /// Everything that is known, for `describe`.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let (mut pairs, metadata) = match self {
            ResourceView::Size(view) => (
                vec![
                    ("Name", view.name.clone()),
                    ("Rank", view.spec.rank.to_string()),
                    ("Slots", view.spec.slots.to_string()),
                    ("Price per hour", view.spec.price.clone()),
                ],
                &view.metadata,
            ),
            ResourceView::Cluster(view) => (vec![("Name", view.name.clone())], &view.metadata),
            ResourceView::Setting(view) => {
                (vec![("Name", view.name.clone()), ("Value", view.spec.value.clone())], &view.metadata)
            }
            ResourceView::Strategy(view) => return view.pairs(),
            ResourceView::Decision(view) => return view.pairs(),
            ResourceView::Operation(view) => return view.pairs(),
            ResourceView::Action(view) => return view.pairs(),
            ResourceView::Role(view) => return view.pairs(),
            ResourceView::Signal(view) => return view.pairs(),
        };
        let number = |revision: Option<u64>| revision.map(|revision| revision.to_string()).unwrap_or_default();
        pairs.extend([
            ("Default", metadata.default_value.clone().unwrap_or_default()),
            ("Is default", metadata.is_default.map(|yes| yes.to_string()).unwrap_or_default()),
            ("Description", metadata.description.clone().unwrap_or_default()),
            ("Backend", metadata.backend.clone().unwrap_or_default()),
            ("By default", metadata.backend_is_default.map(|yes| yes.to_string()).unwrap_or_default()),
            ("Paused", metadata.pause.as_ref().map(ToString::to_string).unwrap_or_default()),
            ("Overridden", metadata.overridden.as_ref().map(ToString::to_string).unwrap_or_default()),
        ]);
        pairs.extend(metadata.idle.iter().flat_map(IdleView::pairs));
        pairs.extend([
            ("Id", metadata.id.clone().unwrap_or_default()),
            ("Created", metadata.create_time.clone().unwrap_or_default()),
            ("Created at revision", number(metadata.create_revision)),
            ("Changed at revision", number(Some(metadata.update_revision).filter(|revision| *revision > 0))),
            ("Etag", metadata.etag.clone()),
        ]);
        pairs
    }
}

impl From<v1::Size> for SizeView {
    fn from(size: v1::Size) -> SizeView {
        SizeView {
            kind: "size",
            name: size.name,
            spec: SizeSpec { rank: size.rank, slots: size.slots, price: show_price(size.price_micros_per_hour) },
            metadata: Metadata {
                etag: size.etag,
                create_revision: Some(size.create_revision),
                update_revision: size.update_revision,
                ..Metadata::default()
            },
        }
    }
}

impl From<v1::Cluster> for ClusterView {
    fn from(cluster: v1::Cluster) -> ClusterView {
        ClusterView {
            kind: "cluster",
            name: cluster.name,
            spec: ClusterSpec { backend: Some(cluster.backend.clone()).filter(|_| !cluster.backend_is_default) },
            metadata: Metadata {
                id: Some(cluster.id),
                etag: cluster.etag,
                create_revision: Some(cluster.create_revision),
                update_revision: cluster.update_revision,
                create_time: Some(show_time(cluster.create_time_ms)),
                // Not of the cluster itself: it changes with the setting.
                backend_is_default: Some(cluster.backend_is_default).filter(|_| !cluster.backend.is_empty()),
                backend: Some(cluster.backend).filter(|backend| !backend.is_empty()),
                pause: cluster.pause.map(PauseView::from),
                idle: cluster.idle.map(IdleView::from),
                overridden: cluster.r#override.map(OverrideView::from),
                ..Metadata::default()
            },
        }
    }
}

impl From<v1::Setting> for SettingView {
    fn from(setting: v1::Setting) -> SettingView {
        SettingView {
            kind: "setting",
            name: setting.name,
            spec: SettingSpec { value: setting.value },
            metadata: Metadata {
                etag: setting.etag,
                update_revision: setting.update_revision,
                default_value: Some(setting.default_value),
                is_default: Some(setting.is_default),
                description: Some(setting.description),
                ..Metadata::default()
            },
        }
    }
}

impl View for SizeView {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("RANK"),
        Column::always("SLOTS"),
        Column::always("PRICE"),
        Column::wide("ETAG"),
        Column::wide("CREATED"),
        Column::wide("CHANGED"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.spec.rank.to_string(),
            self.spec.slots.to_string(),
            self.spec.price.clone(),
            self.metadata.etag.clone(),
            self.metadata.create_revision.unwrap_or_default().to_string(),
            self.metadata.update_revision.to_string(),
        ]
    }

    fn name(&self) -> String {
        format!("sizes/{}", self.name)
    }
}

impl View for ClusterView {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("ID"),
        Column::always("BACKEND"),
        Column::always("CREATED"),
        Column::always("PAUSED"),
        Column::wide("ETAG"),
        Column::wide("CHANGED"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.metadata.id.clone().unwrap_or_default(),
            self.metadata.backend.clone().unwrap_or_default(),
            self.metadata.create_time.clone().unwrap_or_default(),
            self.metadata.pause.as_ref().map(ToString::to_string).unwrap_or_default(),
            self.metadata.etag.clone(),
            self.metadata.update_revision.to_string(),
        ]
    }

    fn name(&self) -> String {
        format!("clusters/{}", self.name)
    }
}

impl View for SettingView {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("VALUE"),
        Column::always("DEFAULT"),
        Column::wide("CHANGED"),
        Column::wide("ETAG"),
        Column::wide("DESCRIPTION"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.spec.value.clone(),
            self.metadata.default_value.clone().unwrap_or_default(),
            self.metadata.update_revision.to_string(),
            self.metadata.etag.clone(),
            self.metadata.description.clone().unwrap_or_default(),
        ]
    }

    fn name(&self) -> String {
        format!("settings/{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, list};
    use super::*;

    fn size() -> SizeView {
        v1::Size {
            name: "100cc".to_owned(),
            rank: 10,
            slots: 2,
            price_micros_per_hour: 250_000,
            etag: "4.0".to_owned(),
            create_revision: 4,
            update_revision: 4,
        }
        .into()
    }

    #[test]
    fn a_size_is_a_row_and_a_manifest() {
        let shown = |format| list(format, "sizes", None, &[size()]).expect("shown");
        assert_eq!(shown(Format::Table), "NAME    RANK   SLOTS   PRICE\n100cc   10     2       0.25\n");
        let yaml = "---\nkind: size\nname: 100cc\nspec:\n  rank: 10\n  slots: 2\n  price: \"0.25\"\n\
                    metadata:\n  etag: \"4.0\"\n  create_revision: 4\n  update_revision: 4\n";
        assert_eq!(shown(Format::Yaml), yaml);
        assert_eq!(shown(Format::Name), "sizes/100cc\n");
    }

    #[test]
    fn what_get_prints_as_yaml_can_be_applied() {
        let yaml = list(Format::Yaml, "sizes", None, &[size()]).expect("YAML");
        let items = crate::manifest::parse(&yaml).expect("a manifest");
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].full_name(), "sizes/100cc");
    }
}
