//! `get -w`: what is there, then each change as it happens.

use std::collections::BTreeSet;

use loadline_client::{Kind, WatchEvent, WatchOptions};
use serde::Serialize;

use super::Session;
use crate::args::GetArgs;
use crate::exit::Failed;
use crate::noun::{Noun, Selection};
use crate::output::resources::ResourceView;
use crate::output::{Column, Format, Lines, csv_line, csv_name, json_line, yaml_documents};

pub(crate) async fn watch(args: &GetArgs, session: Session<'_>) -> Result<(), Failed> {
    let (noun, names) = Selection::parse(&args.what.words)?.one_type()?;
    let Noun::Resource(kind) = noun else {
        return Err(Failed::usage("nodes cannot be watched; ask again, as in: watch loadline status"));
    };
    let name = match names.as_slice() {
        [] => None,
        // The next one has another id.
        _ if kind == Kind::Decision => return Err(Failed::usage("a decision does not change; watch all decisions")),
        [name] => Some(format!("{}/{name}", kind.plural())),
        _ => return Err(Failed::usage("watch one resource, or all of a type")),
    };
    let of = Of::parse(args.cluster.as_deref(), kind, name.is_some())?;
    if let Some(cluster) = &of.cluster {
        // A name that is misspelt would be watched in vain.
        session.client.get(Kind::Cluster, cluster, session.reading).await?;
    }
    let options = WatchOptions {
        kinds: vec![kind],
        name,
        from_revision: args.from_revision.unwrap_or_default(),
        outage_max: session.timeout,
        ..WatchOptions::default()
    };
    let mut watch = session.client.watch(options);
    let mut screen = Screen { format: session.format, kind, of, lines: None };
    loop {
        let text = screen.show(watch.next().await?)?;
        if !text.is_empty() {
            session.console.data(&text)?;
        }
    }
}

/// Of which cluster. The group tells of all; the rest is left out here.
#[derive(Debug, Default)]
struct Of {
    cluster: Option<String>,
    /// What was shown: of what is gone only its name is told.
    known: BTreeSet<String>,
}

impl Of {
    fn parse(cluster: Option<&str>, kind: Kind, named: bool) -> Result<Of, Failed> {
        let has_cluster = matches!(kind, Kind::Decision | Kind::Operation | Kind::Action);
        if cluster.is_some() && (named || !has_cluster) {
            return Err(Failed::usage(
                "--cluster with --watch is for all decisions, operations or actions of a cluster",
            ));
        }
        Ok(Of { cluster: cluster.map(str::to_owned), known: BTreeSet::new() })
    }

    fn is_meant(&mut self, seen: &Seen) -> bool {
        let Some(cluster) = &self.cluster else { return true };
        match &seen.resource {
            // The second column, of all three kinds.
            Some(view) if view.cells().get(1) == Some(cluster) => {
                self.known.insert(seen.name.clone());
                true
            }
            Some(_) => false,
            None => self.known.remove(&seen.name),
        }
    }
}

/// One thing that was seen.
#[derive(Debug, Serialize)]
struct Seen {
    revision: u64,
    /// `existing`, `put` or `deleted`.
    event: &'static str,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<ResourceView>,
}

/// Turns events into text. A table gets its header with the first message.
#[derive(Debug)]
struct Screen {
    format: Format,
    kind: Kind,
    of: Of,
    lines: Option<Lines>,
}

impl Screen {
    fn show(&mut self, event: WatchEvent) -> Result<String, Failed> {
        let (mut seen, first) = match event {
            WatchEvent::Snapshot { revision, resources } => {
                let existing = |view: ResourceView| {
                    let name = view.full_name();
                    Seen { revision, event: "existing", name, resource: Some(view) }
                };
                (resources.into_iter().filter_map(ResourceView::of).map(existing).collect::<Vec<_>>(), true)
            }
            WatchEvent::Changes { revision, changes, .. } => {
                let each = changes.into_iter().map(|change| {
                    let resource = change.resource.and_then(ResourceView::of);
                    let event = if resource.is_some() { "put" } else { "deleted" };
                    Seen { revision, event, name: change.name, resource }
                });
                (each.collect(), false)
            }
            WatchEvent::Progress { .. } => return Ok(String::new()),
        };
        seen.retain(|one| self.of.is_meant(one));
        if seen.is_empty() && !first {
            return Ok(String::new());
        }
        match self.format {
            Format::Json | Format::Jsonl => seen.iter().map(json_line).collect(),
            Format::Yaml => yaml_documents(&seen),
            Format::Name => Ok(seen.iter().map(|one| format!("{}\n", one.name)).collect()),
            Format::Csv => self.csv(&seen, first),
            Format::Table | Format::Wide | Format::Sql => Ok(self.table(&seen)),
        }
    }

    fn table(&mut self, seen: &[Seen]) -> String {
        let wide = self.format == Format::Wide;
        let columns: Vec<Column> = columns(self.kind).iter().copied().filter(|column| wide || !column.wide).collect();
        let rows: Vec<Vec<String>> = seen.iter().map(|one| row(one, self.kind, wide)).collect();
        let mut text = String::new();
        let lines = self.lines.get_or_insert_with(|| {
            let heads = columns.iter().map(|column| column.head.to_owned());
            let header: Vec<String> = ["REVISION".to_owned(), "EVENT".to_owned()].into_iter().chain(heads).collect();
            // Room for the longest word of EVENT, which may come later.
            let room = vec![String::new(), "existing".to_owned()];
            let known: Vec<Vec<String>> = rows.iter().cloned().chain([room]).collect();
            let (lines, first) = Lines::new(&header, &known);
            text = first;
            lines
        });
        for row in &rows {
            text.push_str(&lines.line(row));
        }
        text
    }

    fn csv(&mut self, seen: &[Seen], first: bool) -> Result<String, Failed> {
        let mut text = String::new();
        if first || self.lines.is_none() {
            let heads = columns(self.kind).iter().map(|column| csv_name(column.head));
            let header: Vec<String> = ["revision".to_owned(), "event".to_owned()].into_iter().chain(heads).collect();
            text.push_str(&csv_line(&header)?);
            self.lines = Some(Lines::default());
        }
        for one in seen {
            text.push_str(&csv_line(&row(one, self.kind, true))?);
        }
        Ok(text)
    }
}

/// Of what is gone only the name is known.
fn row(one: &Seen, kind: Kind, wide: bool) -> Vec<String> {
    let cells = match &one.resource {
        Some(view) => view.cells(),
        None => {
            let name = one.name.split_once('/').map_or(one.name.as_str(), |(_, name)| name);
            let mut cells = vec![String::new(); columns(kind).len()];
            name.clone_into(&mut cells[0]);
            cells
        }
    };
    let shown = cells.into_iter().zip(columns(kind)).filter(|(_, column)| wide || !column.wide).map(|(cell, _)| cell);
    [one.revision.to_string(), one.event.to_owned()].into_iter().chain(shown).collect()
}

fn columns(kind: Kind) -> &'static [Column] {
    use crate::output::View;
    use crate::output::resources::{ClusterView, SettingView, SizeView};
    use crate::output::scaling::{ActionView, DecisionView, OperationView, RoleView, StrategyView};
    match kind {
        Kind::Size => SizeView::COLUMNS,
        Kind::Cluster => ClusterView::COLUMNS,
        Kind::Setting => SettingView::COLUMNS,
        Kind::Strategy => StrategyView::COLUMNS,
        Kind::Decision => DecisionView::COLUMNS,
        Kind::Operation => OperationView::COLUMNS,
        Kind::Action => ActionView::COLUMNS,
        Kind::Role => RoleView::COLUMNS,
        Kind::Signal => crate::output::signals::SignalView::COLUMNS,
    }
}

#[cfg(test)]
mod tests {
    use loadline_client::v1::{self, Cluster, Resource, ResourceChange, resource};

    use super::*;

    fn cluster(name: &str) -> Resource {
        let cluster = Cluster { name: name.into(), id: "c4.0".into(), create_time_ms: 1_000, ..Cluster::default() };
        Resource { resource: Some(resource::Resource::Cluster(cluster)) }
    }

    fn shown(format: Format) -> String {
        let mut screen = Screen { format, kind: Kind::Cluster, of: Of::default(), lines: None };
        let renamed = vec![
            ResourceChange { name: "clusters/demo".into(), resource: None },
            ResourceChange { name: "clusters/demo-2".into(), resource: Some(cluster("demo-2")) },
        ];
        [
            WatchEvent::Snapshot { revision: 4, resources: vec![cluster("demo")] },
            WatchEvent::Progress { revision: 5 },
            WatchEvent::Changes { revision: 6, time_ms: 0, changes: renamed },
        ]
        .into_iter()
        .map(|event| screen.show(event).expect("shown"))
        .collect()
    }

    #[test]
    fn a_table_goes_on_under_its_header() {
        let expected = "\
REVISION   EVENT      NAME   ID     BACKEND   CREATED                PAUSED
4          existing   demo   c4.0   -         1970-01-01T00:00:01Z   -
6          deleted    demo   -      -         -                      -
6          put        demo-2   c4.0   -         1970-01-01T00:00:01Z   -
";
        assert_eq!(shown(Format::Table), expected);
    }

    #[test]
    fn programs_get_a_line_for_each_event() {
        let lines: Vec<serde_json::Value> =
            shown(Format::Jsonl).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1], serde_json::json!({"revision": 6, "event": "deleted", "name": "clusters/demo"}));
        assert_eq!(lines[2]["resource"]["name"], "demo-2");
        assert_eq!(shown(Format::Name), "clusters/demo\nclusters/demo\nclusters/demo-2\n");
        let csv = shown(Format::Csv);
        assert_eq!(csv.lines().next(), Some("revision,event,name,id,backend,created,paused,etag,changed"));
        assert_eq!(csv.lines().count(), 4);
    }

    #[test]
    fn a_watch_from_a_revision_has_a_header_too() {
        let mut screen = Screen { format: Format::Table, kind: Kind::Cluster, of: Of::default(), lines: None };
        let changes = vec![ResourceChange { name: "clusters/demo".into(), resource: None }];
        let text = screen.show(WatchEvent::Changes { revision: 6, time_ms: 0, changes }).expect("shown");
        assert!(text.starts_with("REVISION   EVENT      NAME"), "{text}");
    }

    #[test]
    fn a_watch_of_one_cluster_leaves_out_the_others_and_what_is_gone_of_them() {
        let action = |id: &str, cluster: &str| {
            let it = v1::Action { id: id.into(), cluster: cluster.into(), ..v1::Action::default() };
            Resource { resource: Some(resource::Resource::Action(it)) }
        };
        let of = Of::parse(Some("demo"), Kind::Action, false).expect("right");
        let mut screen = Screen { format: Format::Name, kind: Kind::Action, of, lines: None };
        let gone = |name: &str| ResourceChange { name: name.into(), resource: None };
        let shown: Vec<String> = [
            WatchEvent::Snapshot { revision: 4, resources: vec![action("a1.0", "demo"), action("a1.1", "other")] },
            WatchEvent::Changes { revision: 6, time_ms: 0, changes: vec![gone("actions/a1.1")] },
            WatchEvent::Changes { revision: 7, time_ms: 0, changes: vec![gone("actions/a1.0")] },
        ]
        .into_iter()
        .map(|event| screen.show(event).expect("shown"))
        .collect();
        assert_eq!(shown, ["actions/a1.0\n", "", "actions/a1.0\n"]);
        assert!(
            Of::parse(Some("demo"), Kind::Size, false).is_err() && Of::parse(Some("demo"), Kind::Action, true).is_err()
        );
    }
}
