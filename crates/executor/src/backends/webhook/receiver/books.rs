//! What the reference receiver remembers, and how it decides. Pure: no HTTP, no files, no clock.
//!
//! Read [`Books::execute`] first; it is the contract in forty lines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::backends::webhook::message::{Answer, CallBody, DrainedBody, Observed, OrderBody, ReplicaBody};

/// A status code and a body.
pub type Reply = (u16, Answer);

/// Everything that must survive a restart of the receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    /// The highest epoch seen, as text. Epochs have a fixed width, so that later ones compare greater.
    pub highest: String,
    /// Every order that was accepted, by its key.
    pub orders: BTreeMap<String, Entry>,
    /// By the id of the cluster, then by name.
    pub replicas: BTreeMap<String, BTreeMap<String, Replica>>,
    /// How many replicas were ever made; the number of one is its incarnation.
    pub lives: u64,
    /// What was kept of replicas before they went: by the id of the cluster, then by name.
    #[serde(default)]
    pub checkpoints: BTreeMap<String, BTreeMap<String, Checkpoint>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub parameters: String,
    pub epoch: String,
    /// Status and body of every answer to this key from now on. Nothing while it is under way.
    pub reply: Option<Reply>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub size: String,
    pub incarnation: String,
    pub cordoned: bool,
    /// The key of the order that made it.
    pub made_by: String,
}

/// Of which size and life it is. A real receiver has something to keep; the next replica of the name goes on from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub size: String,
    pub incarnation: String,
}

impl Books {
    /// Carries an order out, unless there is a reason not to. What has changed must be on disk before the answer goes out.
    pub fn execute(&mut self, order: &OrderBody, fences: bool) -> Reply {
        if let Some(refusal) = self.accept(order, fences) {
            return refusal;
        }
        self.complete(order)
    }

    /// Enters the order as under way; or the answer, if it is not to be carried out.
    pub fn accept(&mut self, order: &OrderBody, fences: bool) -> Option<Reply> {
        // A later leader has been here: whoever sends this does not know yet that it is none any more.
        if fences && order.epoch < self.highest {
            let reason = Some("a later leader has been here".to_owned());
            return Some((412, Answer { highest: Some(self.highest.clone()), reason, ..about(order) }));
        }
        // The same key again is the same order again: nothing is done, and the answer is the one from then.
        if let Some(known) = self.lookup(order) {
            return Some(known);
        }
        if order.epoch > self.highest {
            self.highest.clone_from(&order.epoch);
        }
        let entry = Entry { parameters: order.parameters.clone(), epoch: order.epoch.clone(), reply: None };
        self.orders.insert(order.key.clone(), entry);
        None
    }

    /// Does what was accepted, and enters what came of it.
    pub fn complete(&mut self, order: &OrderBody) -> Reply {
        let reply = self.carry_out(order);
        if let Some(entry) = self.orders.get_mut(&order.key) {
            entry.reply = Some(reply.clone());
        }
        reply
    }

    /// What has become of an order. 404 with the key: nothing is known about it.
    pub fn find(&self, order: &OrderBody) -> Reply {
        self.lookup(order).unwrap_or_else(|| (404, about(order)))
    }

    /// From now on, nothing of a lower epoch is carried out.
    pub fn fence(&mut self, epoch: &str) -> Reply {
        let status = if *epoch < *self.highest { 412 } else { 200 };
        if *epoch > *self.highest {
            epoch.clone_into(&mut self.highest);
        }
        (status, Answer { highest: Some(self.highest.clone()), ..Answer::default() })
    }

    pub fn observe(&self, cluster: &str) -> Observed {
        let replicas = self.replicas.get(cluster).into_iter().flatten();
        let shown = replicas.map(|(name, replica)| ReplicaBody {
            name: name.clone(),
            size: replica.size.clone(),
            incarnation: Some(replica.incarnation.clone()),
            ready: !replica.cordoned,
            hydration: None,
            crashes: 0,
            crash_reason: None,
            oom: false,
        });
        Observed { cluster: cluster.to_owned(), replicas: shown.collect() }
    }

    fn lookup(&self, order: &OrderBody) -> Option<Reply> {
        let known = self.orders.get(&order.key)?;
        // Never carried out, and never answered with what came of the other one.
        if known.parameters != order.parameters {
            return Some((409, Answer { known: Some(known.parameters.clone()), ..about(order) }));
        }
        Some(known.reply.clone().unwrap_or_else(|| (202, about(order))))
    }

    fn carry_out(&mut self, order: &OrderBody) -> Reply {
        let CallBody { kind, replica: name, size, incarnation } = &order.call;
        let replicas = self.replicas.entry(order.cluster.id.clone()).or_default();
        if kind == "create_replica" {
            if replicas.contains_key(name) {
                return refused(order, format!("there is a replica {name} already"));
            }
            self.lives += 1;
            let incarnation = format!("life-{}", self.lives);
            let made_by = order.key.clone();
            let made = Replica { size: size.clone(), incarnation: incarnation.clone(), cordoned: false, made_by };
            replicas.insert(name.clone(), made);
            return (200, Answer { incarnation: Some(incarnation), ..about(order) });
        }
        // Everything else is about one life of that name. Another one that has the name by now is none of its business.
        let meant = replicas
            .get_mut(name)
            .filter(|replica| incarnation.as_ref().is_none_or(|incarnation| *incarnation == replica.incarnation));
        match (kind.as_str(), meant) {
            ("drop_replica", meant) => {
                if meant.is_some() {
                    replicas.remove(name);
                }
                // Gone is what was asked for.
                (200, about(order))
            }
            ("cordon_replica" | "uncordon_replica", Some(replica)) => {
                replica.cordoned = kind == "cordon_replica";
                (200, about(order))
            }
            ("drain_replica", Some(_)) => {
                (200, Answer { drained: Some(DrainedBody { moved: 0, left: 0 }), ..about(order) })
            }
            ("checkpoint_replica", Some(replica)) => {
                let kept = Checkpoint { size: replica.size.clone(), incarnation: replica.incarnation.clone() };
                self.checkpoints.entry(order.cluster.id.clone()).or_default().insert(name.clone(), kept);
                (200, about(order))
            }
            ("cordon_replica" | "uncordon_replica" | "drain_replica" | "checkpoint_replica", None) => {
                refused(order, format!("the replica {name} that is meant is gone"))
            }
            _ => refused(order, format!("there is no call {kind}")),
        }
    }
}

/// Every answer about an order repeats its key. Without it, the answer is not believed.
pub(super) fn about(order: &OrderBody) -> Answer {
    Answer { key: Some(order.key.clone()), ..Answer::default() }
}

/// For good: the same order would be refused again.
fn refused(order: &OrderBody, reason: String) -> Reply {
    (422, Answer { reason: Some(reason), retryable: Some(false), ..about(order) })
}
