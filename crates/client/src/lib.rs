//! Finds the leader from any endpoint and retries with the same request id.
