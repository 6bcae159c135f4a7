//! The figures of scaling: each is what the journal says, too.

use std::collections::BTreeMap;

use loadline_api::v1;
use loadline_api::v1::resource::Resource as Kept;

use crate::common::{Node, create_cluster, eventually, options, set};
use crate::scaling::{actions, all, on, ready, scaling, strategy};

/// One figure by its name and labels as Prometheus reads them; nothing if it is not there.
async fn figure(node: &Node, name: &str) -> Option<u64> {
    let (_, text) = node.get("/metrics").await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(line.parse().unwrap_or_else(|_| panic!("{name} is {line}")))
}

async fn becomes(node: &Node, name: &str, value: u64) {
    eventually(&format!("{name} is {value}"), async || figure(node, name).await == Some(value)).await;
}

/// How often each conclusion was recorded, as the history tells.
async fn conclusions(node: &Node) -> BTreeMap<String, u64> {
    let request = v1::ListScalingRequest { history: true, page_size: 1_000, ..all() };
    let listed = scaling(node).list_decisions(request).await.unwrap().into_inner();
    assert!(listed.next_page_token.is_empty(), "there are more than one page has");
    let mut counts = BTreeMap::new();
    for resource in listed.resources {
        let Some(Kept::Decision(decision)) = resource.resource else { panic!("not a decision") };
        *counts.entry(decision.conclusion.unwrap_or_default().code).or_insert(0) += 1;
    }
    counts
}

/// The counters and the history say the same.
async fn decisions_agree(node: &Node) {
    let agree = async || {
        for (code, count) in conclusions(node).await {
            let name = format!("loadline_auto_scaling_decisions_total{{conclusion=\"{code}\"}}");
            if figure(node, &name).await != Some(count) {
                return false;
            }
        }
        true
    };
    eventually("the decisions that are counted are those of the history", agree).await;
}

fn settled(kind: &str, call: &str, status: &str) -> String {
    // Labels are in the order of their names.
    format!("loadline_auto_scaling_actions_total{{action_type=\"{call}\",status=\"{status}\",strategy=\"{kind}\"}}")
}

fn unsettled(status: &str) -> String {
    format!("loadline_auto_scaling_unsettled_actions{{status=\"{status}\"}}")
}

#[tokio::test]
async fn what_waits_is_rejected_or_held_by_the_kill_switch_is_counted_by_status() {
    let node = ready().await;
    let (mut admin, mut scaling) = (node.admin(), scaling(&node));
    for status in ["AWAITING_APPROVAL", "PENDING", "CLAIMED", "UNKNOWN"] {
        assert_eq!(figure(&node, &unsettled(status)).await, Some(0), "none is not the same as not known");
    }
    assert_eq!(figure(&node, "loadline_widget_tick_errors_total{widget=\"auto_scaling\"}").await, Some(0));

    scaling
        .create_strategy(strategy("target_size", "demo", &[("SIZE", "100cc"), ("APPROVAL", "manual")]))
        .await
        .unwrap();
    becomes(&node, &unsettled("AWAITING_APPROVAL"), 1).await;
    let action = actions(&node).await.remove(0).id;
    let reject = v1::RejectActionRequest { options: options(), action, reason: "no".to_owned() };
    scaling.reject_action(reject).await.unwrap();
    becomes(&node, &settled("target_size", "create_replica", "REJECTED"), 1).await;
    becomes(&node, &unsettled("AWAITING_APPROVAL"), 0).await;

    let delete = v1::DeleteStrategiesRequest { options: options(), target: on("demo") };
    scaling.delete_strategies(delete).await.unwrap();
    admin.set_setting(set("auto_scaling_enabled", "false")).await.unwrap();
    admin.create_cluster(create_cluster("off")).await.unwrap();
    scaling.create_strategy(strategy("burst", "off", &[("BURST_SIZE", "25cc")])).await.unwrap();
    scaling.create_strategy(strategy("target_size", "off", &[("SIZE", "25cc")])).await.unwrap();
    becomes(&node, &settled("target_size", "create_replica", "SUPPRESSED"), 1).await;
    decisions_agree(&node).await;
    node.stop().await.0.unwrap();
}
