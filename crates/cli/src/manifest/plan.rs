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

/// Field, value now, value wanted. Nothing wanted means the default.
pub(crate) type Difference = (String, Option<String>, Option<String>);

/// What is there under a manifest's name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Found {
    Resource(Box<ResourceView>),
    Strategy(v1::Strategy),
    Signal(v1::Signal),
}

impl Found {
    pub(crate) fn etag(&self) -> &str {
        match self {
            Found::Resource(view) => view.etag(),
            Found::Strategy(strategy) => &strategy.etag,
            Found::Signal(signal) => &signal.etag,
        }
    }

    /// The revision of its last change, with which every etag begins. Nothing for a setting that nobody ever changed.
    pub(crate) fn changed_at(&self) -> Option<u64> {
        self.etag().split('.').next().and_then(|revision| revision.parse().ok())
    }
}

/// One manifest, what it changes, and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// Of a strategy that is to be created: not known yet.
    pub(crate) name: Option<String>,
    /// Of a strategy: type and target, by which people know it.
    pub(crate) about: Option<String>,
    pub(crate) change: Change,
    pub(crate) fields: Vec<Difference>,
    /// Nothing if it is as wanted.
    pub(crate) request: Option<change::Change>,
}

/// The change carries the etag of what was found: if somebody else changes it between reading and writing, the whole
/// transaction is refused rather than half of it overwritten.
pub(crate) fn plan(wanted: &Manifest, found: Option<&Found>) -> Step {
    let (name, about, fields) = match (&wanted.spec, found) {
        (Spec::Strategy(strategy), found) => {
            let found = found.and_then(|found| if let Found::Strategy(found) = found { Some(found) } else { None });
            let name = found.map(|found| format!("strategies/{}", found.id));
            (name, Some(strategy.about()), strategy.differences(found))
        }
        (Spec::Signal(signal), found) => {
            let found = found.and_then(|found| if let Found::Signal(found) = found { Some(found) } else { None });
            (Some(wanted.full_name()), None, signal.differences(found))
        }
        (spec, found) => {
            let found =
                found.and_then(|found| if let Found::Resource(view) = found { Some(view.as_ref()) } else { None });
            (Some(wanted.full_name()), None, differences(spec, found))
        }
    };
    let change = match found {
        None => Change::Created,
        Some(_) if fields.is_empty() => Change::Unchanged,
        Some(_) => Change::Configured,
    };
    let etag = found.map(|found| found.etag().to_owned()).unwrap_or_default();
    let request = match change {
        Change::Unchanged => None,
        Change::Created => Some(create(wanted)),
        Change::Configured => configure(wanted, &fields, etag),
    };
    Step { name, about, change, fields, request }
}

fn differences(spec: &Spec, found: Option<&ResourceView>) -> Vec<Difference> {
    let now = |field: &str| -> Option<String> {
        let fields = found?.fields();
        fields.into_iter().find(|(name, _)| *name == field).map(|(_, value)| value)
    };
    if let Spec::Cluster { backend: Some(wanted) } = spec {
        // None of its own, on either side.
        let (now, wanted) = (now("backend"), Some(wanted.clone()).filter(|name| !name.is_empty()));
        return if now == wanted { vec![] } else { vec![("backend".to_owned(), now, wanted)] };
    }
    wanted_fields(spec)
        .into_iter()
        .map(|(field, value)| (field.to_owned(), now(field), Some(value)))
        .filter(|(_, now, wanted)| now != wanted)
        .collect()
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
        Spec::Cluster { .. } | Spec::Strategy(_) | Spec::Signal(_) => Vec::new(),
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
        Spec::Cluster { backend } => {
            let cluster = v1::Cluster { name, backend: backend.clone().unwrap_or_default(), ..v1::Cluster::default() };
            change::Change::CreateCluster(v1::CreateClusterRequest { options: None, cluster: Some(cluster) })
        }
        // A setting is always there; one that is not known gets its refusal from the group.
        Spec::Setting { value } => set(name, value.clone(), String::new()),
        Spec::Strategy(strategy) => strategy.create(),
        Spec::Signal(signal) => signal.create(name),
    }
}

fn configure(wanted: &Manifest, fields: &[Difference], etag: String) -> Option<change::Change> {
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
        Spec::Cluster { backend } => Some(change::Change::UpdateCluster(v1::UpdateClusterRequest {
            options: None,
            name,
            new_name: None,
            backend: Some(backend.clone()?),
            etag,
        })),
        Spec::Setting { value } => Some(set(name, value.clone(), etag)),
        Spec::Strategy(strategy) => Some(strategy.configure(fields, etag)),
        Spec::Signal(signal) => Some(signal.configure(name, fields, etag)),
    }
}

fn set(name: String, value: String, etag: String) -> change::Change {
    change::Change::SetSetting(v1::SetSettingRequest { options: None, name, value, etag })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn size_there(slots: u32) -> Found {
        let size = v1::Size {
            name: "100cc".into(),
            rank: 10,
            slots,
            price_micros_per_hour: 250_000,
            etag: "4.0".into(),
            ..v1::Size::default()
        };
        Found::Resource(Box::new(ResourceView::Size(size.into())))
    }

    fn wanted() -> Manifest {
        parse("kind: size\nname: 100cc\nspec: {slots: 1, price: 0.25}").expect("a manifest").remove(0)
    }

    #[test]
    fn what_is_not_there_is_created() {
        let step = plan(&wanted(), None);
        assert_eq!((step.change, step.name.as_deref()), (Change::Created, Some("sizes/100cc")));
        assert!(matches!(step.request, Some(change::Change::CreateSize(_))));
    }

    #[test]
    fn what_is_as_wanted_stays_and_absent_fields_are_not_compared() {
        let name = Some("sizes/100cc".to_owned());
        let expected = Step { name, about: None, change: Change::Unchanged, fields: Vec::new(), request: None };
        assert_eq!(plan(&wanted(), Some(&size_there(1))), expected);
    }

    #[test]
    fn a_cluster_moves_where_the_file_says_and_stays_where_it_says_nothing() {
        let there = |backend: &str, backend_is_default| {
            let (name, etag, backend) = ("demo".to_owned(), "7.0".to_owned(), backend.to_owned());
            let cluster = v1::Cluster { name, etag, backend, backend_is_default, ..v1::Cluster::default() };
            Found::Resource(Box::new(ResourceView::Cluster(cluster.into())))
        };
        let moved = |spec: &str, found: &Found| {
            let wanted = parse(&format!("kind: cluster\nname: demo\nspec: {spec}")).expect("a manifest").remove(0);
            match plan(&wanted, Some(found)).request {
                Some(change::Change::UpdateCluster(update)) => Some((update.backend, update.etag)),
                None => None,
                other => panic!("{other:?}"),
            }
        };
        let to = |backend: &str| Some((Some(backend.to_owned()), "7.0".to_owned()));
        assert_eq!(moved("{}", &there("remote", false)), None);
        assert_eq!(moved("{backend: remote}", &there("remote", false)), None);
        assert_eq!(moved("{backend: local}", &there("remote", false)), to("local"));
        // It lives there because of the setting, and is to live there whatever the setting says.
        assert_eq!(moved("{backend: local}", &there("local", true)), to("local"));
        assert_eq!(moved("{backend: ''}", &there("remote", false)), to(""));
        assert_eq!(moved("{backend: ''}", &there("local", true)), None);
        let wanted = parse("kind: cluster\nname: demo\nspec: {backend: local}").expect("a manifest").remove(0);
        let Some(change::Change::CreateCluster(create)) = plan(&wanted, None).request else { panic!("not created") };
        assert_eq!(create.cluster.map(|it| it.backend).as_deref(), Some("local"));
        let wrong = parse("kind: cluster\nname: demo\nspec: {backend: [local]}").expect_err("not a name");
        assert!(wrong.message.contains("spec.backend: [\"local\"] is not the name of a backend"), "{}", wrong.message);
    }

    #[test]
    fn what_differs_is_changed_under_the_etag_that_was_read() {
        let step = plan(&wanted(), Some(&size_there(7)));
        assert_eq!(step.change, Change::Configured);
        assert_eq!(step.fields, [("slots".to_owned(), Some("7".to_owned()), Some("1".to_owned()))]);
        let Some(change::Change::UpdateSize(request)) = step.request else { panic!("{step:?}") };
        assert_eq!((request.etag.as_str(), request.slots, request.rank), ("4.0", Some(1), None));
    }

    fn strategy_there(options: &[(&str, &str)]) -> Found {
        let target = v1::strategy_target::Target::Cluster("demo".into());
        Found::Strategy(v1::Strategy {
            id: "s12.0".into(),
            r#type: "target_size".into(),
            target: Some(v1::StrategyTarget { target: Some(target) }),
            options: options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            etag: "12.0".into(),
            ..v1::Strategy::default()
        })
    }

    fn wanted_strategy() -> Manifest {
        let text =
            "kind: strategy\nspec: {type: target_size, target: {cluster: demo}, options: {SIZE: 100cc, COOLDOWN: 5m}}";
        parse(text).expect("a manifest").remove(0)
    }

    #[test]
    fn a_strategy_with_the_same_options_stays_however_they_are_written() {
        let there = strategy_there(&[("size", "100cc"), ("cooldown_s", "300"), ("config_version", "1")]);
        let step = plan(&wanted_strategy(), Some(&there));
        assert_eq!((step.change, step.request), (Change::Unchanged, None));
        assert_eq!(step.name.as_deref(), Some("strategies/s12.0"));
        assert_eq!(step.about.as_deref(), Some("target_size for demo"));
    }

    #[test]
    fn an_option_that_the_file_does_not_have_goes_back_to_its_default() {
        let there = strategy_there(&[("size", "25cc"), ("dry_run", "true"), ("config_version", "1")]);
        let step = plan(&wanted_strategy(), Some(&there));
        let text = |text: &str| Some(text.to_owned());
        let expected = [
            ("cooldown_s".to_owned(), None, text("300")),
            ("dry_run".to_owned(), text("true"), None),
            ("size".to_owned(), text("25cc"), text("100cc")),
        ];
        assert_eq!(step.fields, expected);
        let Some(change::Change::UpdateStrategy(request)) = step.request else { panic!("{:?}", step.request) };
        assert_eq!((request.etag.as_str(), request.reset), ("12.0", vec!["dry_run".to_owned()]));
        assert_eq!(
            request.set.into_iter().collect::<Vec<_>>(),
            [("cooldown_s", "300"), ("size", "100cc")].map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
    }
}
