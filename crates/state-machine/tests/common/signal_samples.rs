//! One of everything about configured signals that has a place in the log, in a receipt or in a state.

use loadline_state_machine::{
    ClusterId, Collected, CollectedOutcome, Command, Epoch, Event, LogIndex, Options, PushedValue, Signal, SignalKind,
    SignalOptionProblem, SignalRejection, Span, Target, TargetName,
};

use super::{NOON, revision};

pub fn options() -> Options {
    Options::from([
        ("url", "http://127.0.0.1:9090"),
        ("query", "sum(queue_depth)"),
        ("username", "loadline"),
        ("password", "env:PROMETHEUS_PASSWORD"),
    ])
}

pub fn signal() -> Signal {
    Signal {
        name: "queue_depth".into(),
        kind: SignalKind::Prometheus,
        target: Target::Pattern("prod%".into()),
        every: Some(Span::from_secs(5)),
        options: options(),
        created: revision("17.0"),
        updated: revision("412.3"),
        created_at: NOON,
        updated_at: NOON + Span::from_secs(9),
    }
}

pub fn commands() -> Vec<Command> {
    let name = || "queue_depth".to_owned();
    let cluster = ClusterId { index: LogIndex(300), ordinal: 1 };
    vec![
        Command::CreateSignal {
            name: name(),
            kind: SignalKind::Prometheus,
            target: TargetName::Pattern("prod%".to_owned()),
            every: Some(Span::from_secs(5)),
            options: options(),
            if_not_exists: true,
        },
        Command::ChangeSignal {
            name: name(),
            target: Some(TargetName::All),
            every: None,
            options: Options::from([("timeout", "2s")]),
            reset: vec!["username".to_owned(), "password".to_owned()],
            etag: Some(revision("412.3")),
        },
        Command::DropSignal { name: name(), etag: None, allow_missing: true },
        Command::RecordSignals {
            epoch: Epoch { incarnation: NOON.as_millis(), index: LogIndex(40) },
            collected: vec![
                Collected {
                    signal: name(),
                    updated: revision("412.3"),
                    outcome: CollectedOutcome::Values { age: Span::from_millis(40), values: vec![(cluster, -1_500)] },
                },
                Collected {
                    signal: "lag".to_owned(),
                    updated: revision("9.0"),
                    outcome: CollectedOutcome::Nothing { error: "no answer within 5s".to_owned() },
                },
            ],
        },
        Command::PushSignals {
            values: vec![PushedValue {
                signal: "pushed".to_owned(),
                cluster: Some("demo".to_owned()),
                value_milli: 12_000,
                age: Span::from_secs(1),
            }],
        },
    ]
}

pub fn events() -> Vec<Event> {
    vec![
        Event::SignalCreated { signal: Box::new(signal()) },
        Event::SignalChanged {
            before: Box::new(signal()),
            signal: Box::new(Signal { target: Target::All, ..signal() }),
        },
        Event::SignalDropped { signal: Box::new(signal()) },
        Event::SignalRestored { signal: Box::new(Signal { kind: SignalKind::Push, every: None, ..signal() }) },
        Event::SignalFailed { signal: "queue_depth".to_owned(), error: "no answer within 5s".to_owned() },
    ]
}

pub fn rejections() -> Vec<SignalRejection> {
    let text = |text: &str| text.to_owned();
    let option = |option: &str, problem| SignalRejection::Option {
        option: text(option),
        problem,
        expected: text("something else"),
    };
    vec![
        option("urll", SignalOptionProblem::Unknown),
        option("url", SignalOptionProblem::Missing),
        option("timeout", SignalOptionProblem::Invalid),
        option("password", SignalOptionProblem::SecretInPlain),
        SignalRejection::NotBoth { option: text("bearer_token"), other: text("password") },
        SignalRejection::TooManySignals { count: 1_000, count_max: 1_000 },
        SignalRejection::TooSeldom {
            every: Span::from_mins(5),
            stale_after: Span::from_mins(2),
            longest: Span::from_mins(1),
        },
        SignalRejection::PushedNotAsked,
        SignalRejection::NotPushed { signal: text("queue_depth"), kind: text("prometheus") },
        SignalRejection::NotForCluster {
            signal: text("queue_depth"),
            cluster: text("demo"),
            target: text("all clusters like 'prod%'"),
        },
    ]
}
