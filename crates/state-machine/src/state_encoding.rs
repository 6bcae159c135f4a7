//! A state as bytes: the body of a snapshot and of a backup.
//!
//! Rows in frames, table by table, in the order of their keys. Equal states give equal bytes. What is read back is
//! checked as if it came from a stranger (a backup does), so no sequence of bytes yields a state that `apply` could not
//! have reached in its tables' own terms: unique names and ranks, settings in their bounds, chunks without gaps.

use std::sync::Arc;

use loadline_mutants::Mutant;
use serde::{Deserialize, Serialize};

use crate::access::commands as access;
use crate::configured::{SignalRow, SignalStanding, commands as configured};
use crate::encoding::{Decoder, Rows};
use crate::nodes::{Leader, Nodes};
use crate::requests::{Floor, Remembered, Requests};
use crate::restore::{RESTORE_BYTES_MAX, Staging, StagingHead};
use crate::scaling::encoding as scaling;
use crate::settings::{self, SettingRow};
use crate::table::{Key, Table};
use crate::{
    Blob, Cluster, ClusterId, DecodeError, Hash, LogIndex, RULES_VERSION_MAX, RequestId, Role, RulesVersion, Signal,
    Size, State, Time, clusters, sizes,
};

const STATE_FORMAT: u16 = 1;

/// The tables by their numbers, in the order in which they are written. A number is never given to another table; a table
/// that is not there is empty, so a state from before a table existed is read as it was.
mod table {
    pub(super) const HEAD: u16 = 1;
    pub(super) const CHECKPOINT: u16 = 2;
    pub(super) const SIZE: u16 = 10;
    pub(super) const CLUSTER: u16 = 20;
    /// Where a cluster lives, if it says so itself.
    pub(super) const PLACEMENT: u16 = 21;
    pub(super) const SETTING: u16 = 30;
    pub(super) const ROLE: u16 = 35;
    /// With what came of it.
    pub(super) const SIGNAL: u16 = 36;
    pub(super) const STAGING: u16 = 40;
    pub(super) const STAGING_CHUNK: u16 = 41;
    pub(super) const REQUEST: u16 = 50;
    // From 60 on: `scaling::encoding`.
}

/// What there is one of. The only row of its table, and the first.
#[derive(Serialize, Deserialize)]
struct Head {
    applied: LogIndex,
    hash: Hash,
    now: Time,
    rules: RulesVersion,
    incarnation: u64,
    leader: Option<Leader>,
    nodes: Nodes,
    requests_floor: Floor,
}

impl State {
    pub fn encode(&self) -> Vec<u8> {
        let mut whole = Vec::new();
        self.encode_in_pieces(|piece| whole.extend_from_slice(piece));
        whole
    }

    /// The same bytes, without having all of them in memory.
    pub fn encode_in_pieces(&self, mut take: impl FnMut(&[u8])) {
        let mut out = Rows::with_format(STATE_FORMAT, &mut take);
        let head = Head {
            applied: self.applied,
            hash: self.hash,
            now: self.now,
            rules: self.rules,
            incarnation: self.incarnation,
            leader: self.leader,
            nodes: self.nodes,
            requests_floor: self.requests.floor(),
        };
        out.row(table::HEAD, &head);
        for checkpoint in &self.checkpoints {
            out.row(table::CHECKPOINT, &checkpoint);
        }
        for size in self.sizes.ladder() {
            out.row(table::SIZE, size);
        }
        for cluster in self.clusters.after(None) {
            out.row(table::CLUSTER, cluster);
        }
        for placement in self.clusters.placements() {
            out.row(table::PLACEMENT, &placement);
        }
        for setting in self.settings.rows() {
            out.row(table::SETTING, &setting);
        }
        for role in self.roles.iter() {
            out.row(table::ROLE, role);
        }
        for signal in self.signals.iter() {
            out.row(table::SIGNAL, &(signal.signal.as_ref(), &signal.standing));
        }
        if let Some(staging) = &self.restore {
            out.row(table::STAGING, &staging.head);
            for chunk in &staging.chunks {
                out.row(table::STAGING_CHUNK, &chunk);
            }
        }
        for (id, remembered) in self.requests.rows().filter(|_| !Mutant::SnapshotWithoutRequests.is_on()) {
            out.frame(table::REQUEST, |row| {
                row.put(&id);
                remembered.write(row);
            });
        }
        scaling::write(self, &mut out);
        out.finish();
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::with_format("state", STATE_FORMAT, bytes)?;
        let mut reading = Reading { state: Self::new(), scaling: scaling::Reading::default(), last: None };
        while !from.is_empty() {
            let (table, mut row) = from.frame("table of a state")?;
            reading.row(table, &mut row)?;
            row.finish()?;
        }
        from.finish()?;
        reading.finish()
    }
}

/// A state that is being read, row by row.
struct Reading {
    state: State,
    scaling: scaling::Reading,
    last: Option<u16>,
}

impl Reading {
    fn row(&mut self, table: u16, row: &mut Decoder<'_>) -> Result<(), DecodeError> {
        let in_order = match self.last {
            None => table == table::HEAD,
            Some(last) => table >= last && table != table::HEAD,
        };
        check(in_order, || format!("a row of table {table} after {:?}", self.last))?;
        self.last = Some(table);
        match table {
            table::HEAD => self.head(&row.take()?),
            table::CHECKPOINT => self.checkpoint(row.take()?),
            table::SIZE => self.size(&row.take()?),
            table::CLUSTER => self.cluster(&row.take()?),
            table::PLACEMENT => self.placement(row.take()?),
            table::SETTING => self.setting(row.take()?),
            table::ROLE => self.role(&row.take()?),
            table::SIGNAL => self.signal(row.take()?),
            table::STAGING => self.staging(row.take()?),
            table::STAGING_CHUNK => self.chunk(row.take()?),
            table::REQUEST => self.request(row),
            other => scaling::read(&mut self.state, &mut self.scaling, other, row),
        }
    }

    fn head(&mut self, head: &Head) -> Result<(), DecodeError> {
        if head.rules > RULES_VERSION_MAX {
            return Err(DecodeError::RulesTooNew { to: head.rules.0, known: RULES_VERSION_MAX.0 });
        }
        check(head.applied == LogIndex(0) || head.hash != Hash::default(), || {
            format!("index {} was applied, but nothing is in the hash chain", head.applied)
        })?;
        check(head.leader.is_none_or(|leader| leader.announced <= head.applied), || {
            format!("a leader was announced after index {}", head.applied)
        })?;
        check(head.nodes.founding <= head.nodes.highest, || {
            format!("{} nodes, but numbers only up to {}", head.nodes.founding, head.nodes.highest)
        })?;
        self.state.applied = head.applied;
        self.state.hash = head.hash;
        self.state.now = head.now;
        self.state.rules = head.rules;
        self.state.incarnation = head.incarnation;
        self.state.leader = head.leader;
        self.state.nodes = head.nodes;
        self.state.requests = Requests::with_floor(head.requests_floor);
        Ok(())
    }

    fn checkpoint(&mut self, (index, hash): (LogIndex, Hash)) -> Result<(), DecodeError> {
        let ascending = self.state.checkpoints.get_max().is_none_or(|(last, _)| *last < index);
        check(ascending && index <= self.state.applied, || format!("checkpoint {index} is out of place"))?;
        self.state.checkpoints.insert(index, hash);
        Ok(())
    }

    fn size(&mut self, size: &Size) -> Result<(), DecodeError> {
        let ascending = self.state.sizes.largest().is_none_or(|last| last.rank < size.rank);
        let fits = self.state.sizes.get(&size.name).is_none() && sizes::check(&self.state.sizes, size).is_ok();
        check(ascending && fits, || format!("size {:?} at rank {} is impossible", size.name, size.rank))?;
        self.state.sizes.put(size);
        Ok(())
    }

    fn cluster(&mut self, cluster: &Cluster) -> Result<(), DecodeError> {
        let fits = clusters::is_possible(&self.state.clusters, cluster);
        check(fits, || format!("cluster {:?} with id {} is impossible", cluster.name, cluster.id))?;
        self.state.clusters.put(cluster);
        Ok(())
    }

    fn placement(&mut self, (id, backend): (ClusterId, Key)) -> Result<(), DecodeError> {
        let fits = clusters::is_possible_place(&self.state.clusters, id, &backend);
        check(fits, || format!("cluster {id} cannot live on {backend:?}"))?;
        self.state.clusters.place(id, Some(backend));
        Ok(())
    }

    fn setting(&mut self, (name, row): (&str, SettingRow)) -> Result<(), DecodeError> {
        let ascending = self.state.settings.last_name().is_none_or(|last| last < name);
        let fits = settings::is_possible(self.state.rules, name, row.value.as_ref());
        check(ascending && fits, || format!("setting {name:?} is impossible"))?;
        self.state.settings.put(name, row);
        Ok(())
    }

    fn role(&mut self, role: &Role) -> Result<(), DecodeError> {
        check(access::is_possible(&self.state, role), || format!("role {:?} is impossible", role.name))?;
        self.state.roles.put(role);
        Ok(())
    }

    fn signal(&mut self, (signal, standing): (Signal, SignalStanding)) -> Result<(), DecodeError> {
        let row = SignalRow { signal: Arc::new(signal), standing };
        check(configured::is_possible(&self.state, &row), || format!("signal {:?} is impossible", row.signal.name))?;
        self.state.signals.put_row(row);
        Ok(())
    }

    fn staging(&mut self, head: StagingHead) -> Result<(), DecodeError> {
        let fits = self.state.restore.is_none() && (1..=RESTORE_BYTES_MAX).contains(&head.bytes_total);
        check(fits, || format!("restore {} is impossible", head.restore))?;
        let staging = Staging { head, chunks: Table::new() };
        self.state.restore = Some(Arc::new(staging));
        Ok(())
    }

    fn chunk(&mut self, (offset, bytes): (u64, Blob)) -> Result<(), DecodeError> {
        let staging = self.state.restore.as_mut().map(Arc::make_mut);
        let fits = staging.as_ref().is_some_and(|staging| {
            let left = staging.head.bytes_total - staging.received();
            offset == staging.received() && (1..=left).contains(&(bytes.len() as u64))
        });
        check(fits, || format!("the chunk of a restore at {offset} is out of place"))?;
        if let Some(staging) = staging {
            staging.chunks.insert(offset, bytes);
        }
        Ok(())
    }

    fn request(&mut self, row: &mut Decoder<'_>) -> Result<(), DecodeError> {
        let (id, remembered) = (row.take::<RequestId>()?, Remembered::read(row)?);
        let ascending = self.state.requests.latest().is_none_or(|last| last < id);
        check(ascending, || format!("request {id} is out of place"))?;
        self.state.requests.remember(id, remembered);
        Ok(())
    }

    fn finish(self) -> Result<State, DecodeError> {
        let roles = &self.state.roles;
        check(!roles.closed() || roles.has_key(), || "nobody can manage the roles".to_owned())?;
        match self.last {
            Some(_) => scaling::check_whole(&self.state).map(|()| self.state),
            None => Err(DecodeError::Truncated { what: "state" }),
        }
    }
}

fn check(holds: bool, detail: impl FnOnce() -> String) -> Result<(), DecodeError> {
    if holds { Ok(()) } else { Err(DecodeError::Inconsistent { what: "state", detail: detail() }) }
}
