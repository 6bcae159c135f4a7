//! What a caller gets back: recorded at an index, or refused with the fact that helps.

use serde::{Deserialize, Serialize};

use crate::encoding::{Decoder, Encoder};
use crate::{
    Action, Cluster, ClusterView, DecodeError, Epoch, LogIndex, NodeNumber, Rejection, ReportReceipt, Revision,
    RoleView, SettingView, Signal, Size, Strategy, Woke,
};

const RECEIPT_FORMAT: u16 = 1;

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Where the request was recorded. A repeat carries the index of the first time.
    pub index: LogIndex,
    pub result: Result<Vec<Done>, Refused>,
    /// True: this request had been answered before, and this is that answer.
    pub repeated: bool,
}

impl Receipt {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::with_format(RECEIPT_FORMAT);
        out.put(self);
        out.into_bytes()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::with_format("receipt", RECEIPT_FORMAT, bytes)?;
        let receipt = from.take()?;
        from.finish()?;
        Ok(receipt)
    }
}

/// Why a request was refused. Nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Which command of the request; 0 if it is about the request as a whole.
    pub ordinal: u32,
    pub rejection: Rejection,
}

/// What became of one command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// False: everything already was as asked.
    pub changed: bool,
    pub answer: Answer,
}

/// What a command left behind. New answers go at the end: the place is the number in stored receipts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Nothing,
    Size(Size),
    Cluster(Cluster),
    Setting(SettingView),
    Node(NodeNumber),
    Epoch(Epoch),
    Restored {
        incarnation: u64,
        backup_index: LogIndex,
        backup_incarnation: u64,
    },
    /// A restore is under way; its chunks must name `restore`, and the next one begins at `bytes_received`.
    Restoring {
        restore: Revision,
        bytes_received: u64,
    },
    Strategy(Strategy),
    Reported(ReportReceipt),
    /// As it is after the command. One that was to be claimed and is not `Claimed` here must not be called.
    Action(Box<Action>),
    /// A cluster that says itself where it lives, or has just stopped to.
    PlacedCluster(ClusterView),
    Role(Box<RoleView>),
    Signal(Box<Signal>),
    Woke(Box<Woke>),
}
