//! Paging: a page token says after which resource the next page begins, and that it was made for this very list.
//!
//! Callers pass it back as they got it. It is checked, because a token of another list would otherwise begin somewhere in
//! the middle without anybody noticing.

use loadline_state_machine::{Hash, ResourceKind};
use tonic::Status;

use super::errors;

const PAGE_SIZE_DEFAULT: usize = 100;
const PAGE_SIZE_MAX: usize = 1_000;
/// Bytes of the hash that stand in a token. It keeps out typing errors and other lists' tokens, not attackers: a token
/// reveals and permits nothing.
const CHECK_BYTES: usize = 4;

/// How many resources a page has: what was asked for, cut to what is allowed.
pub(super) fn page_size(asked: u32) -> usize {
    match usize::try_from(asked).unwrap_or(usize::MAX) {
        0 => PAGE_SIZE_DEFAULT,
        asked => asked.min(PAGE_SIZE_MAX),
    }
}

/// The token for the page after `position`.
pub(super) fn token(kind: ResourceKind, position: &str) -> String {
    let check = check(kind, position);
    check.iter().chain(position.as_bytes()).map(|byte| format!("{byte:02x}")).collect()
}

/// The position to go on after; `None` for the first page.
pub(super) fn position(kind: ResourceKind, token: &str) -> Result<Option<String>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    read(kind, token).map(Some).ok_or_else(|| not_of(kind))
}

/// The token is none that a list of this kind could have given.
pub(super) fn not_of(kind: ResourceKind) -> Status {
    let message =
        format!("is not one of a list of {kind}; pass next_page_token back as it came, or begin again without");
    errors::invalid_field("page_token", message)
}

fn read(kind: ResourceKind, token: &str) -> Option<String> {
    if !token.len().is_multiple_of(2) || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let bytes: Vec<u8> = (0..token.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&token[at..at + 2], 16))
        .collect::<Result<_, _>>()
        .ok()?;
    let (given, position) = bytes.split_at_checked(CHECK_BYTES)?;
    let position = String::from_utf8(position.to_vec()).ok()?;
    (given == check(kind, &position)).then_some(position)
}

fn check(kind: ResourceKind, position: &str) -> [u8; CHECK_BYTES] {
    let hash = Hash::of(format!("{kind}/{position}").as_bytes());
    [hash.0[0], hash.0[1], hash.0[2], hash.0[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_position() {
        for text in ["demo", "a", "ünïcode", ""] {
            let token = token(ResourceKind::Cluster, text);
            assert_eq!(position(ResourceKind::Cluster, &token).unwrap(), Some(text.to_owned()));
        }
        assert_eq!(position(ResourceKind::Cluster, "").unwrap(), None);
    }

    #[test]
    fn a_token_of_another_list_or_a_made_up_one_is_refused() {
        let good = token(ResourceKind::Cluster, "demo");
        let mut flipped = good.clone();
        flipped.replace_range(..1, if good.starts_with('0') { "1" } else { "0" });
        for (kind, token) in [
            (ResourceKind::Size, good.as_str()),
            (ResourceKind::Cluster, flipped.as_str()),
            (ResourceKind::Cluster, "demo"),
            (ResourceKind::Cluster, "abc"),
            (ResourceKind::Cluster, "aabbccdd"),
            (ResourceKind::Cluster, "é"),
        ] {
            let status = position(kind, token).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{token}");
        }
    }

    #[test]
    fn a_page_has_a_hundred_unless_asked_and_never_more_than_a_thousand() {
        assert_eq!([0, 1, 1_000, 1_001, u32::MAX].map(page_size), [100, 1, 1_000, 1_000, 1_000]);
    }
}
