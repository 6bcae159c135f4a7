//! `status`, and nodes wherever a type can be named.

use std::collections::BTreeMap;

use super::Session;
use crate::exit::{Exit, Failed};
use crate::output::nodes::NodeView;
use crate::output::{list, one};

pub(crate) async fn status(session: Session<'_>) -> Result<(), Failed> {
    let views = all(&session).await;
    let text = list(session.format, "nodes", None, &views)?;
    session.console.data(&text)?;
    judge(&views)
}

/// `get nodes [NAME...]`.
pub(crate) async fn of_nodes(names: &[String], session: Session<'_>) -> Result<(), Failed> {
    let (views, missing) = node_views(names, &session).await?;
    let text = match views.as_slice() {
        [view] if names.len() == 1 => one(session.format, view)?,
        views => list(session.format, "nodes", None, views)?,
    };
    session.console.data(&text)?;
    missing.map_or(Ok(()), Err)?;
    judge(&views)
}

/// Nodes by name, id or endpoint; all of them if none is named. And an error for those that are not there.
pub(crate) async fn node_views(
    names: &[String],
    session: &Session<'_>,
) -> Result<(Vec<NodeView>, Option<Failed>), Failed> {
    let views = all(session).await;
    if names.is_empty() {
        return Ok((views, None));
    }
    if views.iter().all(|view| view.role.is_none()) {
        judge(&views)?;
    }
    let is = |view: &NodeView, name: &String| {
        view.name.as_ref() == Some(name)
            || view.id.map(|id| id.to_string()).as_ref() == Some(name)
            || view.endpoint == *name
    };
    let lacking: Vec<&str> =
        names.iter().filter(|name| !views.iter().any(|view| is(view, name))).map(String::as_str).collect();
    let missing =
        (!lacking.is_empty()).then(|| Failed::new(Exit::NotFound, format!("there is no node {}", lacking.join(", "))));
    Ok((views.into_iter().filter(|view| names.iter().any(|name| is(view, name))).collect(), missing))
}

async fn all(session: &Session<'_>) -> Vec<NodeView> {
    session.client.status_all().await.into_iter().map(NodeView::from).collect()
}

/// A status that shows something terrible must not end as if all were well.
fn judge(views: &[NodeView]) -> Result<(), Failed> {
    if views.iter().all(|view| view.role.is_none()) {
        return Err(Failed::new(Exit::Unavailable, "no node answers"));
    }
    let mut hashes: BTreeMap<u64, &str> = BTreeMap::new();
    for view in views {
        let (Some(index), Some(hash)) = (view.hash_index, view.state_hash.as_deref()) else { continue };
        if hash.is_empty() {
            continue;
        }
        if *hashes.entry(index).or_insert(hash) != hash {
            return Err(Failed::new(Exit::Failure, format!("the nodes disagree: their hashes at index {index} differ"))
                .hint("the nodes have different histories; save what you can (docs/operations.md) before you restart anything"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use loadline_client::NodeReport;
    use loadline_client::v1::NodeStatus;

    use super::*;

    fn node(hash_index: u64, state_hash: &str) -> NodeView {
        let status = NodeStatus {
            role: "follower".to_owned(),
            hash_index,
            state_hash: state_hash.to_owned(),
            ..NodeStatus::default()
        };
        NodeReport { endpoint: "a:1".to_owned(), known_as: None, status: Some(status), error: None }.into()
    }

    fn dead() -> NodeView {
        NodeReport { endpoint: "b:1".to_owned(), known_as: None, status: None, error: Some("gone".to_owned()) }.into()
    }

    #[test]
    fn nodes_that_disagree_at_one_index_are_a_failure() {
        assert_eq!(judge(&[node(10, "aa"), node(10, "bb")]).expect_err("they differ").exit, Exit::Failure);
        assert_eq!(judge(&[node(10, "aa"), node(10, "aa"), node(10, ""), dead()]), Ok(()));
    }

    #[test]
    fn only_a_group_of_which_nobody_answers_is_unavailable() {
        assert_eq!(judge(&[dead(), dead()]).expect_err("nobody").exit, Exit::Unavailable);
        assert_eq!(judge(&[dead(), node(10, "aa")]), Ok(()));
    }
}
