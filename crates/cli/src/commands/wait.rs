//! `wait --for`: until something is so, or the time is up.

use loadline_client::{Kind, WatchEvent, WatchOptions};

use super::Session;
use crate::args::WaitArgs;
use crate::exit::{Exit, Failed};
use crate::noun::{Named, Noun, Selection};
use crate::output::resources::ResourceView;
use crate::text::did_you_mean;

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Exists,
    Deleted,
    Field { field: String, value: String },
}

impl Condition {
    fn parse(text: &str, kind: Kind) -> Result<Condition, Failed> {
        let fields: &[&str] = match kind {
            Kind::Size => &["rank", "slots", "price"],
            Kind::Cluster => &[],
            Kind::Setting => &["value"],
            Kind::Strategy => &["state"],
            Kind::Decision => &[],
            Kind::Operation => &["phase"],
            Kind::Action => &["status"],
            Kind::Role => &[],
            Kind::Signal => &["stale"],
        };
        match text.split_once('=') {
            None if text == "exists" => Ok(Condition::Exists),
            None if text == "deleted" || text == "delete" => Ok(Condition::Deleted),
            Some((field, value)) if fields.contains(&field) => {
                Ok(Condition::Field { field: field.to_owned(), value: value.to_owned() })
            }
            Some((field, _)) => {
                let hint = did_you_mean(field, fields.iter().copied());
                Err(Failed::usage(format!("a {kind} has no field '{field}'{hint}")))
            }
            None => {
                let hint = did_you_mean(text, ["exists", "deleted"]);
                Err(Failed::usage(format!("'{text}' cannot be waited for{hint}"))
                    .hint("write exists, deleted, or FIELD=VALUE"))
            }
        }
    }

    fn holds(&self, now: Option<&ResourceView>) -> bool {
        match (self, now) {
            (Condition::Exists, now) => now.is_some(),
            (Condition::Deleted, now) => now.is_none(),
            (Condition::Field { field, value }, Some(view)) => {
                view.fields().iter().any(|(name, now)| name == field && now == value)
            }
            (Condition::Field { .. }, None) => false,
        }
    }
}

pub(crate) async fn wait(args: &WaitArgs, session: Session<'_>) -> Result<(), Failed> {
    let things = match Selection::parse(&args.words)? {
        Selection::Some(things) => things,
        Selection::All(noun) => return Err(Failed::usage(format!("which of the {}? Name one", noun.plural()))),
    };
    let [Named { noun: Noun::Resource(kind), name }] = things.as_slice() else {
        return Err(Failed::usage("wait for one resource"));
    };
    if *kind == Kind::Decision {
        return Err(Failed::usage("a decision does not change; wait for an action or an operation"));
    }
    let condition = Condition::parse(&args.condition, *kind)?;
    let full_name = format!("{}/{name}", kind.plural());
    let options = WatchOptions {
        kinds: vec![*kind],
        name: Some(full_name.clone()),
        outage_max: session.timeout,
        ..WatchOptions::default()
    };
    let mut watch = session.client.watch(options);
    let waiting = async {
        loop {
            let now = match watch.next().await? {
                WatchEvent::Snapshot { resources, .. } => {
                    resources.into_iter().filter_map(ResourceView::of).find(|view| view.bare_name() == name)
                }
                WatchEvent::Changes { changes, .. } => {
                    let mut ours = changes.into_iter().filter(|change| change.name == full_name);
                    let Some(last) = ours.next_back() else { continue };
                    last.resource.and_then(ResourceView::of)
                }
                WatchEvent::Progress { .. } => continue,
            };
            if condition.holds(now.as_ref()) {
                return Ok::<(), Failed>(());
            }
        }
    };
    match tokio::time::timeout(session.timeout, waiting).await {
        Ok(ended) => ended?,
        Err(_) => {
            let message = format!("{full_name}: not {} within {:?}", args.condition, session.timeout);
            return Err(Failed::new(Exit::TimedOut, message).hint("wait longer with --timeout"));
        }
    }
    session.console.line(&format!("{full_name} {}", args.condition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_about_existence_or_a_field_of_the_kind() {
        let field = Condition::Field { field: "value".into(), value: "a=b".into() };
        assert_eq!(Condition::parse("value=a=b", Kind::Setting), Ok(field));
        assert_eq!(Condition::parse("deleted", Kind::Cluster), Ok(Condition::Deleted));
        for (text, kind) in
            [("exist", Kind::Size), ("slot=3", Kind::Size), ("value=1", Kind::Cluster), ("", Kind::Size)]
        {
            assert_eq!(Condition::parse(text, kind).expect_err(text).exit, Exit::Usage, "{text}");
        }
        let failed = Condition::parse("slot=3", Kind::Size).expect_err("no such field");
        assert!(failed.message.contains("did you mean 'slots'?"), "{}", failed.message);
    }
}
