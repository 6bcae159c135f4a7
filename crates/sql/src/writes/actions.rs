//! Rows of `mz_scaling_actions`: the audit. Settled ones can be taken out of the table; the journal keeps them.

use std::collections::BTreeMap;

use loadline_state_machine::{ClusterId, Command};

use super::Row;
use crate::to_command::Change;

/// One command for each cluster: a privilege on it is needed.
pub(super) fn delete(rows: &[Row<'_>], change: &mut Change) {
    let mut by_cluster: BTreeMap<ClusterId, Vec<u64>> = BTreeMap::new();
    for row in rows {
        if let (Ok(number), Ok(cluster)) = (row.key(0).parse(), row.key(1).parse()) {
            by_cluster.entry(cluster).or_default().push(number);
        }
    }
    for (cluster, numbers) in by_cluster {
        change.add(Command::DeleteActions { cluster, numbers }, None);
    }
}
