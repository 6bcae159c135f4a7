//! `operator raft`: members of the group, and who leads it.

use loadline_client::v1::PeerStatus;

use super::Session;
use crate::args::Raft;
use crate::exit::Failed;
use crate::output::nodes::PeerView;
use crate::output::{Format, json_line, list, pretty};

pub(crate) async fn raft(what: Raft, mut session: Session<'_>) -> Result<(), Failed> {
    match what {
        Raft::ListPeers => {
            let peers = session.client.list_peers().await?;
            show(peers, &mut session)
        }
        Raft::AddPeer { peer, replace } => {
            let peers = session.client.add_peer(&peer, replace.as_deref()).await?;
            session.console.say(&match replace {
                Some(replaced) => format!("{peer} votes now, in place of {replaced}"),
                None => format!("{peer} votes now"),
            });
            show(peers, &mut session)
        }
        Raft::RemovePeer { peer } => {
            let peers = session.client.remove_peer(&peer).await?;
            session.console.say(&format!("{peer} is no longer a member; its data folder can be thrown away"));
            show(peers, &mut session)
        }
        Raft::TransferLeadership { to, if_leader } => transfer(to.as_deref(), if_leader, session).await,
    }
}

async fn transfer(to: Option<&str>, if_leader: bool, session: Session<'_>) -> Result<(), Failed> {
    let from = if if_leader {
        let asked = session.client.status().await?;
        // A node that is not a member, or is not there yet, has nothing to give away.
        if asked.id == 0 || asked.role != "leader" {
            session.console.say(&format!("{} does not lead; nothing to do", named(&asked.name, asked.id)));
            return Ok(());
        }
        Some(asked.id.to_string())
    } else {
        None
    };
    let answer = session.client.transfer_leadership(to, from.as_deref()).await?;
    match session.format {
        Format::Json | Format::Jsonl | Format::Yaml => {
            let value = serde_json::json!({ "leader_id": answer.leader_id, "leader_name": answer.leader_name });
            let text = if session.format == Format::Json { pretty(&value)? } else { json_line(&value)? };
            session.console.data(&text)
        }
        Format::Name => session.console.line(&format!("nodes/{}", answer.leader_name)),
        _ => session.console.line(&format!("{} leads", named(&answer.leader_name, answer.leader_id))),
    }
}

fn named(name: &str, id: u64) -> String {
    if name.is_empty() { format!("node {id}") } else { name.to_owned() }
}

fn show(peers: Vec<PeerStatus>, session: &mut Session<'_>) -> Result<(), Failed> {
    let views: Vec<PeerView> = peers.into_iter().map(PeerView::from).collect();
    let text = list(session.format, "peers", None, &views)?;
    session.console.data(&text)
}
