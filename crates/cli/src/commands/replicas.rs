//! `create replica` and `delete replica`: what somebody wants beside the strategies.

use loadline_client::ScalingWrite;
use loadline_client::v1::{CreateReplicaRequest, DeleteReplicaRequest, WriteResponse};

use super::scaling::done;
use super::{Session, writing};
use crate::args::DeleteArgs;
use crate::exit::Failed;
use crate::scaling_args::CreateReplicaArgs;

pub(super) async fn create(args: CreateReplicaArgs, mut session: Session<'_>) -> Result<(), Failed> {
    let name = full_name(&args.cluster, &args.name);
    let request = CreateReplicaRequest {
        options: None,
        cluster: args.cluster,
        replica: args.name,
        size: args.size,
        allow_existing: args.if_not_exists,
    };
    let answer = session.client.write_scaling(ScalingWrite::CreateReplica(request), writing(args.dry_run)).await?;
    let word = if changed(&answer) { "asked for" } else { "unchanged" };
    done(&name, word, answer.revision, args.dry_run, &mut session)
}

/// The words behind `replica`; nothing if something else is meant.
pub(super) fn names(words: &[String]) -> Option<Vec<String>> {
    let (first, rest) = words.split_first()?;
    match first.split_once('/') {
        Some(("replica" | "replicas", name)) if rest.is_empty() => Some(vec![name.to_owned()]),
        None if first == "replica" || first == "replicas" => Some(rest.to_vec()),
        _ => None,
    }
}

pub(super) async fn delete(names: Vec<String>, args: &DeleteArgs, mut session: Session<'_>) -> Result<(), Failed> {
    let usage = "loadline delete replica NAME --cluster CLUSTER";
    let (Some(cluster), [replica]) = (&args.target.cluster, names.as_slice()) else {
        return Err(Failed::usage("which replica of which cluster?").hint(usage));
    };
    if !args.write.etag.is_empty() {
        return Err(Failed::usage("a replica has no etag: what was seen of it is what is meant"));
    }
    let request = DeleteReplicaRequest {
        options: None,
        cluster: cluster.clone(),
        replica: replica.clone(),
        allow_missing: args.ignore_not_found,
    };
    let write = ScalingWrite::DeleteReplica(request);
    let answer = session.client.write_scaling(write, writing(args.write.dry_run)).await?;
    let word = if changed(&answer) { "to be dropped" } else { "unchanged" };
    done(&full_name(cluster, replica), word, answer.revision, args.write.dry_run, &mut session)
}

fn full_name(cluster: &str, replica: &str) -> String {
    format!("clusters/{cluster}/replicas/{replica}")
}

fn changed(answer: &WriteResponse) -> bool {
    answer.results.first().is_some_and(|result| result.changed)
}
