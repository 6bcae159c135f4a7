//! From what a caller asks about configured signals to commands of the state machine.

use std::collections::BTreeMap;

use loadline_state_machine::{
    Command, Options, PushedValue, SignalKind, Span, TargetName, read_signal_option, signal_option,
};

use crate::fields::{self, Findings, Invalid};
use crate::scaling_writes;
use crate::v1::{self, change::Change};
use crate::writes::Write;

impl Write {
    pub fn create_signal(request: v1::CreateSignalRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::CreateSignal(request))
    }

    pub fn update_signal(request: v1::UpdateSignalRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::UpdateSignal(request))
    }

    pub fn push_signals(request: v1::PushSignalsRequest) -> Result<Write, Invalid> {
        let v1::PushSignalsRequest { options, values } = request;
        let mut findings = Findings::default();
        if values.is_empty() {
            findings.add("values".to_owned(), "is required: say which signal has which value");
        }
        let values = values.into_iter().map(|pushed| PushedValue {
            signal: pushed.signal,
            cluster: Some(pushed.cluster).filter(|cluster| !cluster.is_empty()),
            value_milli: pushed.value_milli,
            age: Span::from_millis(pushed.age_ms),
        });
        let command = Command::PushSignals { values: values.collect() };
        Write::one(options, Some(command), "", &[("name", "values")], findings)
    }
}

pub(crate) fn create(request: v1::CreateSignalRequest, step: &str, findings: &mut Findings) -> Option<Command> {
    let Some(signal) = request.signal else {
        findings.add(format!("{step}signal"), "is required: the signal to create");
        return None;
    };
    let kind = findings.take(scaling_writes::id::<SignalKind>(&format!("{step}signal.type"), &signal.r#type));
    let target = match signal.target {
        None => Some(TargetName::All),
        given => findings.take(scaling_writes::target(&format!("{step}signal.target"), given)),
    };
    let (kind, target) = kind.zip(target)?;
    Some(Command::CreateSignal {
        name: signal.name,
        kind,
        target,
        every: (signal.every_ms > 0).then(|| Span::from_millis(signal.every_ms)),
        options: signal.options.iter().map(|(name, text)| read_signal_option(kind, name, text)).collect(),
        if_not_exists: request.allow_existing,
    })
}

pub(crate) fn update(request: v1::UpdateSignalRequest, step: &str, findings: &mut Findings) -> Option<Command> {
    let etag = findings.take(fields::etag(&format!("{step}etag"), &request.etag));
    let target = match request.target {
        None => Some(None),
        given => findings.take(scaling_writes::target(&format!("{step}target"), given)).map(Some),
    };
    let (etag, target) = etag.zip(target)?;
    let unchanged = target.is_none() && request.every_ms == 0 && request.set.is_empty() && request.reset.is_empty();
    if unchanged {
        findings.add(format!("{step}set"), "or reset, target or every_ms is required: say what is to change");
        return None;
    }
    Some(Command::ChangeSignal {
        name: request.name,
        target,
        every: (request.every_ms > 0).then(|| Span::from_millis(request.every_ms)),
        options: read_all(&request.set),
        reset: request.reset,
        etag,
    })
}

/// Which kind of signal is changed is not known here. An option that several kinds have is written alike in all of them.
fn read_all(set: &BTreeMap<String, String>) -> Options {
    let read = |(name, text): (&String, &String)| {
        let kind = SignalKind::ALL.into_iter().find(|kind| signal_option(*kind, name).is_some_and(|it| it.key == name));
        read_signal_option(kind.unwrap_or(SignalKind::Push), name, text)
    };
    set.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "019a7f3e-0000-7000-8000-000000000001";

    fn options() -> Option<v1::WriteOptions> {
        Some(v1::WriteOptions { request_id: ID.to_owned(), validate_only: false })
    }

    #[test]
    fn a_signal_is_for_all_clusters_unless_it_says_otherwise_and_its_options_have_one_spelling() {
        let signal = v1::Signal {
            name: "lag".to_owned(),
            r#type: "nats".to_owned(),
            options: [("ACK_PENDING", "ON"), ("url", "nats://n:4222"), ("timeout", "2000ms")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..v1::Signal::default()
        };
        let request = v1::CreateSignalRequest { options: options(), signal: Some(signal), allow_existing: false };
        let write = Write::create_signal(request).unwrap();
        let expected = Command::CreateSignal {
            name: "lag".to_owned(),
            kind: SignalKind::Nats,
            target: TargetName::All,
            every: None,
            options: Options::from([("ack_pending", "true"), ("url", "nats://n:4222"), ("timeout", "2s")]),
            if_not_exists: false,
        };
        assert_eq!(write.commands, [expected]);
        assert_eq!(write.field(0, "every"), "signal.every_ms");
    }

    #[test]
    fn a_change_says_what_is_to_change_and_of_which_kind_a_signal_can_be() {
        let nothing = v1::UpdateSignalRequest { options: options(), name: "lag".to_owned(), ..Default::default() };
        assert!(Write::update_signal(nothing).unwrap_err().to_string().contains("say what is to change"));
        let signal = v1::Signal { r#type: "kafka".to_owned(), ..v1::Signal::default() };
        let request = v1::CreateSignalRequest { options: options(), signal: Some(signal), allow_existing: false };
        let invalid = Write::create_signal(request).unwrap_err();
        assert_eq!(invalid.violations[0].field, "signal.type");
        assert!(Write::push_signals(v1::PushSignalsRequest { options: options(), values: vec![] }).is_err());
    }
}
