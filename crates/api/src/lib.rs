//! The wire: generated protobuf code and conversions to the domain's own types.
