//! Reading single fields of a request, and saying exactly which one is wrong.

use std::fmt;

use loadline_state_machine::{RequestId, ResourceKind, ResourceName, Revision};

use crate::v1;

/// A request whose shape is wrong, whatever the state: every wrong field, with what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    pub violations: Vec<Violation>,
}

/// One wrong field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// As a path in the request message: `options.request_id`, `changes[2].create_size.size.slots`.
    pub field: String,
    /// What would be right; reads on from the name of the field.
    pub message: String,
}

impl Invalid {
    pub fn one(field: impl Into<String>, message: impl Into<String>) -> Invalid {
        Invalid { violations: vec![Violation { field: field.into(), message: message.into() }] }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, violation) in self.violations.iter().enumerate() {
            if number > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{} {}", violation.field, violation.message)?;
        }
        Ok(())
    }
}

/// Collects what is wrong, so that a caller learns of all of it at once.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Violation>);

impl Findings {
    pub(crate) fn add(&mut self, field: String, message: impl Into<String>) {
        self.0.push(Violation { field, message: message.into() });
    }

    /// The value, or a finding and nothing.
    pub(crate) fn take<T>(&mut self, read: Result<T, Invalid>) -> Option<T> {
        read.map_err(|invalid| self.0.extend(invalid.violations)).ok()
    }

    pub(crate) fn into_result<T>(self, value: Option<T>) -> Result<T, Invalid> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(Invalid { violations: self.0 }),
        }
    }
}

/// A request id must be a UUID version 7: its time bounds how long a repeat is recognised.
pub fn request_id(field: &str, text: &str) -> Result<RequestId, Invalid> {
    const WANTED: &str = "a UUID version 7, made once for what you intend and sent again with every retry";
    if text.is_empty() {
        return Err(Invalid::one(field, format!("is required: {WANTED}")));
    }
    match text.to_ascii_lowercase().parse::<RequestId>() {
        Ok(id) if id.is_v7() => Ok(id),
        Ok(_) => Err(Invalid::one(field, format!("{text:?} is a UUID of another version; it must be {WANTED}"))),
        Err(_) => Err(Invalid::one(field, format!("{text:?} is not a UUID; it must be {WANTED}"))),
    }
}

/// An etag that was given; empty means that any will do.
pub fn etag(field: &str, text: &str) -> Result<Option<Revision>, Invalid> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong =
        || Invalid::one(field, format!("{text:?} is not an etag; pass it back as you read it, such as \"412.3\""));
    text.parse().map(Some).map_err(|_| wrong())
}

/// Whether a read may be behind; linearizable unless the caller says otherwise.
pub fn stale_allowed(field: &str, consistency: i32) -> Result<bool, Invalid> {
    match v1::Consistency::try_from(consistency) {
        Ok(v1::Consistency::Unspecified | v1::Consistency::Linearizable) => Ok(false),
        Ok(v1::Consistency::Stale) => Ok(true),
        Err(_) => Err(Invalid::one(
            field,
            format!("{consistency} is unknown; it must be CONSISTENCY_LINEARIZABLE or CONSISTENCY_STALE"),
        )),
    }
}

fn all_kinds() -> String {
    ResourceKind::ALL.iter().map(|kind| kind.plural()).collect::<Vec<_>>().join(", ")
}

/// `sizes`, `clusters`, `settings`, `strategies` and so on; none means all.
pub fn kinds(field: &str, names: &[String]) -> Result<Vec<ResourceKind>, Invalid> {
    let mut findings = Findings::default();
    let mut kinds = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let wrong = || Invalid::one(format!("{field}[{number}]"), format!("{name:?} must be one of {}", all_kinds()));
        kinds.extend(findings.take(name.parse::<ResourceKind>().map_err(|_| wrong())));
    }
    findings.into_result(Some(kinds))
}

/// `clusters/demo`; empty means all.
pub fn resource_name(field: &str, text: &str) -> Result<Option<ResourceName>, Invalid> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || Invalid::one(field, format!("{text:?} must be KIND/NAME, such as clusters/demo"));
    text.parse().map(Some).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: fmt::Debug>(read: Result<T, Invalid>, message: &str) {
        assert_eq!(read.unwrap_err().to_string(), message);
    }

    #[test]
    fn a_request_id_is_a_uuid_version_7() {
        let wanted = "a UUID version 7, made once for what you intend and sent again with every retry";
        let text = "019A7F3E-0000-7000-8000-000000000001";
        assert_eq!(request_id("id", text).unwrap().to_string(), text.to_lowercase());
        check(request_id("id", ""), &format!("id is required: {wanted}"));
        check(request_id("id", "nonsense"), &format!("id \"nonsense\" is not a UUID; it must be {wanted}"));
        let v4 = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        check(request_id("id", v4), &format!("id \"{v4}\" is a UUID of another version; it must be {wanted}"));
    }

    #[test]
    fn an_etag_is_optional_but_never_guessed() {
        assert_eq!(etag("etag", ""), Ok(None));
        assert_eq!(etag("etag", "412.3").unwrap().unwrap().to_string(), "412.3");
        check(
            etag("cluster.etag", "412"),
            "cluster.etag \"412\" is not an etag; pass it back as you read it, such as \"412.3\"",
        );
    }

    #[test]
    fn reads_are_linearizable_unless_asked_otherwise() {
        assert_eq!(stale_allowed("consistency", 0), Ok(false));
        assert_eq!(stale_allowed("consistency", 1), Ok(false));
        assert_eq!(stale_allowed("consistency", 2), Ok(true));
        check(
            stale_allowed("consistency", 9),
            "consistency 9 is unknown; it must be CONSISTENCY_LINEARIZABLE or CONSISTENCY_STALE",
        );
    }

    #[test]
    fn filters_name_kinds_and_resources_that_exist() {
        assert_eq!(kinds("kinds", &["clusters".to_owned()]), Ok(vec![ResourceKind::Cluster]));
        check(
            kinds("kinds", &["clusters".to_owned(), "pods".to_owned(), String::new()]),
            "kinds[1] \"pods\" must be one of sizes, clusters, settings, strategies, decisions, operations, actions, roles, \
             signals; kinds[2] \"\" must be one of sizes, clusters, settings, strategies, decisions, operations, actions, \
             roles, signals",
        );
        assert_eq!(resource_name("name", ""), Ok(None));
        assert_eq!(resource_name("name", "sizes/s"), Ok(Some(ResourceName::size("s"))));
        check(resource_name("name", "demo"), "name \"demo\" must be KIND/NAME, such as clusters/demo");
    }
}
