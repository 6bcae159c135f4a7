//! One Raft node: proposer, network, membership, leadership, reads.
