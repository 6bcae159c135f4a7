//! Which nodes a folder has, and where they listen.
//!
//! The address of a node is part of the group's membership, so a folder keeps the gRPC ports it was founded with. HTTP
//! ports are nobody's business but ours and may change.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::StartArgs;
use super::ports::{self, Wanted};
use crate::exit::{Exit, Failed};

const FILE: &str = "nodes.json";
const NODES_DEFAULT: u16 = 3;
const GRPC_PORT_DEFAULT: u16 = 7701;
const HTTP_PORT_DEFAULT: u16 = 8701;
const PG_PORT_DEFAULT: u16 = 5701;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layout {
    pub(super) nodes: Vec<Place>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) grpc_port: u16,
    pub(super) http_port: u16,
    /// For SQL. A folder of before there was any has none yet.
    #[serde(default)]
    pub(super) pg_port: u16,
}

impl Place {
    pub(super) fn grpc(&self) -> String {
        format!("127.0.0.1:{}", self.grpc_port)
    }

    pub(super) fn http(&self) -> String {
        format!("127.0.0.1:{}", self.http_port)
    }

    pub(super) fn pg(&self) -> String {
        format!("127.0.0.1:{}", self.pg_port)
    }
}

impl Layout {
    /// What was kept in `folder`, if anything was.
    pub(super) fn kept(folder: &Path) -> Result<Option<Layout>, Failed> {
        let path = folder.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Failed::new(Exit::Failure, format!("{} cannot be read: {error}", path.display())));
            }
        };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            Failed::new(Exit::Failure, format!("{} is not right: {error}", path.display())).hint(
                "without it nobody knows where these nodes listened; move the folder away, or use another --data-dir",
            )
        })
    }

    pub(super) fn keep(&self, folder: &Path) -> Result<(), Failed> {
        super::state::write_json(&folder.join(FILE), self)
    }

    pub(super) fn decide(args: &StartArgs, kept: Option<&Layout>) -> Result<Layout, Failed> {
        let folder = args.folder.data_dir.display();
        let count = match (args.nodes, kept.map(|kept| kept.nodes.len())) {
            (Some(count), Some(there)) if usize::from(count) != there => {
                return Err(Failed::usage(format!("{folder} has {there} nodes, and --nodes says {count}"))
                    .hint("leave --nodes away, or use another --data-dir"));
            }
            (_, Some(there)) => u16::try_from(there).unwrap_or(NODES_DEFAULT),
            (count, None) => count.unwrap_or(NODES_DEFAULT),
        };
        let before = |port: fn(&Place) -> u16| kept.map(|kept| kept.nodes.iter().map(port).collect::<Vec<u16>>());
        let grpc = match (args.grpc_port, before(|place| place.grpc_port)) {
            (Some(first), Some(before)) if first != 0 && before.first() != Some(&first) => {
                let founded = before.first().copied().unwrap_or_default();
                return Err(Failed::usage(format!(
                    "the nodes in {folder} know each other by their ports from {founded} on, and --grpc-port says {first}"
                ))
                .hint("leave --grpc-port away, or use another --data-dir"));
            }
            (_, Some(before)) => before,
            (first, None) => ports::series(first.unwrap_or(GRPC_PORT_DEFAULT), count, "--grpc-port", &[])?,
        };
        let http = match (args.http_port, before(|place| place.http_port)) {
            (None, Some(before)) => before,
            (first, _) => ports::series(first.unwrap_or(HTTP_PORT_DEFAULT), count, "--http-port", &grpc)?,
        };
        let taken: Vec<u16> = grpc.iter().chain(&http).copied().collect();
        // Whoever wants free ports for HTTP hardly wants this one to be taken.
        let wanted = args.pg_port.or(args.http_port.filter(|port| *port == 0));
        let pg = match (wanted, before(|place| place.pg_port).filter(|before| !before.contains(&0))) {
            (None, Some(before)) => before,
            (first, _) => ports::series(first.unwrap_or(PG_PORT_DEFAULT), count, "--pg-port", &taken)?,
        };
        let place = |(number, ((grpc_port, http_port), pg_port))| Place {
            name: format!("n{}", number + 1),
            grpc_port,
            http_port,
            pg_port,
        };
        let nodes = grpc.into_iter().zip(http).zip(pg).enumerate().map(place).collect();
        Ok(Layout { nodes })
    }

    pub(super) fn wanted(&self) -> Vec<Wanted> {
        let grpc = self.nodes.iter().map(|place| Wanted {
            port: place.grpc_port,
            what: format!("gRPC of {}", place.name),
            flag: "--grpc-port",
        });
        let http = self.nodes.iter().map(|place| Wanted {
            port: place.http_port,
            what: format!("HTTP of {}", place.name),
            flag: "--http-port",
        });
        let pg = self.nodes.iter().map(|place| Wanted {
            port: place.pg_port,
            what: format!("SQL of {}", place.name),
            flag: "--pg-port",
        });
        grpc.chain(http).chain(pg).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::FolderArgs;
    use super::*;

    fn args(nodes: Option<u16>, grpc_port: Option<u16>, http_port: Option<u16>) -> StartArgs {
        StartArgs {
            folder: FolderArgs { data_dir: ".loadline".into() },
            nodes,
            ephemeral: false,
            grpc_port,
            http_port,
            pg_port: None,
            no_demo: false,
            detach: false,
            detached: false,
        }
    }

    fn ports(layout: &Layout) -> Vec<(u16, u16)> {
        layout.nodes.iter().map(|place| (place.grpc_port, place.http_port)).collect()
    }

    #[test]
    fn a_new_folder_gets_three_nodes_on_ports_that_follow_each_other() {
        let layout = Layout::decide(&args(None, None, None), None).expect("a layout");
        assert_eq!(ports(&layout), [(7701, 8701), (7702, 8702), (7703, 8703)]);
        assert_eq!(layout.nodes[2].name, "n3");
        let layout = Layout::decide(&args(Some(1), Some(9000), Some(9100)), None).expect("a layout");
        assert_eq!(ports(&layout), [(9000, 9100)]);
    }

    #[test]
    fn a_kept_folder_keeps_its_nodes_and_their_grpc_ports() {
        let kept = Layout::decide(&args(Some(2), Some(9000), Some(9100)), None).expect("a layout");
        assert_eq!(Layout::decide(&args(None, None, None), Some(&kept)), Ok(kept.clone()));
        assert_eq!(Layout::decide(&args(Some(2), Some(9000), None), Some(&kept)), Ok(kept.clone()));
        let other_http = Layout::decide(&args(None, None, Some(9500)), Some(&kept)).expect("a layout");
        assert_eq!(ports(&other_http), [(9000, 9500), (9001, 9501)]);
        assert!(Layout::decide(&args(Some(3), None, None), Some(&kept)).expect_err("two").message.contains("2 nodes"));
        let failed = Layout::decide(&args(None, Some(7701), None), Some(&kept)).expect_err("other ports");
        assert!(failed.message.contains("from 9000 on"), "{}", failed.message);
    }

    #[test]
    fn what_is_kept_is_read_back_and_nonsense_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Layout::kept(folder.path()), Ok(None));
        let layout = Layout::decide(&args(None, None, None), None).expect("a layout");
        layout.keep(folder.path()).expect("kept");
        assert_eq!(Layout::kept(folder.path()), Ok(Some(layout)));
        let old = r#"{"nodes": [{"name": "n1", "grpc_port": 9000, "http_port": 9100}]}"#;
        std::fs::write(folder.path().join(FILE), old).expect("written");
        let kept = Layout::kept(folder.path()).expect("one of before there was SQL");
        let layout = Layout::decide(&args(None, None, None), kept.as_ref()).expect("a layout");
        assert_eq!(layout.nodes[0].pg_port, PG_PORT_DEFAULT);
        std::fs::write(folder.path().join(FILE), "{}").expect("written");
        assert!(Layout::kept(folder.path()).expect_err("nonsense").message.contains("nodes.json"));
    }
}
