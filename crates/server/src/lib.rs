//! The composition root: wires the node together and serves gRPC and HTTP.
