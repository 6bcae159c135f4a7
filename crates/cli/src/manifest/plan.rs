//! From what is wanted and what is there to the changes between them. Pure: nothing is sent from here.

use loadline_client::v1::{self, change};

use super::{Manifest, Spec};
use crate::output::resources::ResourceView;
use crate::text::show_price;

/// What has to happen to one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Configured,
    Unchanged,
}

impl Change {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Change::Created => "created",
            Change::Configured => "configured",
            Change::Unchanged => "unchanged",
        }
    }
}

/// One manifest, what it changes, and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) change: Change,
    /// Field, value now, value wanted.
    pub(crate) fields: Vec<(&'static str, Option<String>, String)>,
    /// Nothing if it is as wanted.
    pub(crate) request: Option<change::Change>,
}

/// `found` is what is there under the manifest's name. The change carries its etag: if somebody else changes it between
/// reading and writing, the whole transaction is refused rather than half of it overwritten.
pub(crate) fn plan(wanted: &Manifest, found: Option<&ResourceView>) -> Step {
    let now = |field: &str| -> Option<String> {
        let fields = found?.fields();
        fields.into_iter().find(|(name, _)| *name == field).map(|(_, value)| value)
    };
    let fields: Vec<(&'static str, Option<String>, String)> = wanted_fields(&wanted.spec)
        .into_iter()
        .map(|(field, value)| (field, now(field), value))
        .filter(|(_, now, wanted)| now.as_ref() != Some(wanted))
        .collect();
    let change = match found {
        None => Change::Created,
        Some(_) if fields.is_empty() => Change::Unchanged,
        Some(_) => Change::Configured,
    };
    let etag = found.map(|found| found.etag().to_owned()).unwrap_or_default();
    let request = match change {
        Change::Unchanged => None,
        Change::Created => Some(create(wanted)),
        Change::Configured => configure(wanted, etag),
    };
    Step { name: wanted.full_name(), change, fields, request }
}

fn wanted_fields(spec: &Spec) -> Vec<(&'static str, String)> {
    match spec {
        Spec::Size { rank, slots, price_micros } => [
            ("rank", rank.map(|rank| rank.to_string())),
            ("slots", slots.map(|slots| slots.to_string())),
            ("price", price_micros.map(show_price)),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some((field, value?)))
        .collect(),
        Spec::Cluster => Vec::new(),
        Spec::Setting { value } => vec![("value", value.clone())],
    }
}

fn create(wanted: &Manifest) -> change::Change {
    let name = wanted.name.clone();
    match &wanted.spec {
        Spec::Size { rank, slots, price_micros } => {
            let size = v1::Size {
                name,
                rank: rank.unwrap_or_default(),
                slots: slots.unwrap_or_default(),
                price_micros_per_hour: price_micros.unwrap_or_default(),
                ..v1::Size::default()
            };
            change::Change::CreateSize(v1::CreateSizeRequest { options: None, size: Some(size) })
        }
        Spec::Cluster => {
            let cluster = v1::Cluster { name, ..v1::Cluster::default() };
            change::Change::CreateCluster(v1::CreateClusterRequest { options: None, cluster: Some(cluster) })
        }
        // A setting is always there; one that is not known gets its refusal from the group.
        Spec::Setting { value } => set(name, value.clone(), String::new()),
    }
}

fn configure(wanted: &Manifest, etag: String) -> Option<change::Change> {
    let name = wanted.name.clone();
    match &wanted.spec {
        Spec::Size { rank, slots, price_micros } => Some(change::Change::UpdateSize(v1::UpdateSizeRequest {
            options: None,
            name,
            rank: *rank,
            slots: *slots,
            price_micros_per_hour: *price_micros,
            etag,
        })),
        // A cluster has no fields that could differ.
        Spec::Cluster => None,
        Spec::Setting { value } => Some(set(name, value.clone(), etag)),
    }
}

fn set(name: String, value: String, etag: String) -> change::Change {
    change::Change::SetSetting(v1::SetSettingRequest { options: None, name, value, etag })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn size_there(slots: u32) -> ResourceView {
        let size = v1::Size {
            name: "100cc".into(),
            rank: 10,
            slots,
            price_micros_per_hour: 250_000,
            etag: "4.0".into(),
            ..v1::Size::default()
        };
        ResourceView::Size(size.into())
    }

    fn wanted() -> Manifest {
        parse("kind: size\nname: 100cc\nspec: {slots: 1, price: 0.25}").expect("a manifest").remove(0)
    }

    #[test]
    fn what_is_not_there_is_created() {
        let step = plan(&wanted(), None);
        assert_eq!((step.change, step.name.as_str()), (Change::Created, "sizes/100cc"));
        assert!(matches!(step.request, Some(change::Change::CreateSize(_))));
    }

    #[test]
    fn what_is_as_wanted_stays_and_absent_fields_are_not_compared() {
        assert_eq!(
            plan(&wanted(), Some(&size_there(1))),
            Step { name: "sizes/100cc".into(), change: Change::Unchanged, fields: Vec::new(), request: None }
        );
    }

    #[test]
    fn what_differs_is_changed_under_the_etag_that_was_read() {
        let step = plan(&wanted(), Some(&size_there(7)));
        assert_eq!(step.change, Change::Configured);
        assert_eq!(step.fields, [("slots", Some("7".to_owned()), "1".to_owned())]);
        let Some(change::Change::UpdateSize(request)) = step.request else { panic!("{step:?}") };
        assert_eq!((request.etag.as_str(), request.slots, request.rank), ("4.0", Some(1), None));
    }
}
