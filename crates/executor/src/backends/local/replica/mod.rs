//! `loadline replica`: one replica of a `local` backend.
//!
//! It is two processes. The *keeper* holds the lock on the name, takes orders from the ledger, and starts a *server*, which answers
//! requests. A server that crashes is counted and started again, later each time; the replica and its incarnation stay.
//! A keeper that dies takes its server along, and the replica is gone.
//!
//! Not here: who asks for replicas (`super::carrying`).

mod keeper;
mod server;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use loadline_state_machine::{ClusterId, Epoch, LogIndex, Span};

/// What a replica is started with. The same words are written by a node and read by the command, so they are kept together.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ReplicaOptions {
    /// Folder of the `local` backend that it belongs to
    #[arg(long, value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Id of its cluster, such as c412.0
    #[arg(long, value_name = "ID")]
    pub cluster: ClusterId,
    /// Its name, which nobody else has in this cluster
    #[arg(long)]
    pub name: String,
    /// Name of its size
    #[arg(long)]
    pub size: String,
    #[command(flatten)]
    pub carried: Carried,
    /// How long it takes until it is ready
    #[arg(long, value_name = "DURATION", default_value = "500ms")]
    pub startup_delay: Span,
    /// How long it takes from there until all its objects are hydrated
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub hydration_time: Span,
    /// How many objects it has to hydrate
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub objects: u64,
    /// How many of them it has from the beginning
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide = true)]
    pub hydrated: u64,
    /// How long a drain waits for requests to finish
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub drain_deadline: Span,
    /// How long its server may take to finish when the replica ends
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    pub terminate_grace: Span,
    /// How long a server that crashed stays down the first time; twice as long each time after that
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub restart_after: Span,
    /// Port on 127.0.0.1 to answer at; any free one if not given, or if it is taken when a server starts again
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// This process is the server behind that keeper.
    #[arg(long, hide = true)]
    pub keeper: Option<i32>,
}

/// The order that a replica is made by. One that somebody starts by hand carries none.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Carried {
    /// Key of the order that it is made by; nodes give it
    #[arg(long, requires = "epoch", requires = "attempt")]
    pub key: Option<String>,
    /// Epoch of that order, such as 1/57
    #[arg(long, requires = "key", value_parser = parse_epoch)]
    pub epoch: Option<Epoch>,
    /// Attempt of that order
    #[arg(long, requires = "key")]
    pub attempt: Option<u32>,
}

fn parse_epoch(text: &str) -> Result<Epoch, String> {
    let parsed = text.split_once('/').and_then(|(incarnation, index)| {
        Some(Epoch { incarnation: incarnation.parse().ok()?, index: LogIndex(index.parse().ok()?) })
    });
    parsed.ok_or_else(|| "an epoch is INCARNATION/INDEX, as in 1/57".to_owned())
}

impl ReplicaOptions {
    /// The words after the name of the program.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["replica".into()];
        // One word each: a value may begin with a hyphen.
        let mut add = |flag: &str, value: OsString| {
            let mut word = OsString::from(format!("--{flag}="));
            word.push(value);
            words.push(word);
        };
        add("cluster", self.cluster.to_string().into());
        add("name", self.name.clone().into());
        add("size", self.size.clone().into());
        add("folder", self.folder.clone().into());
        if let Carried { key: Some(key), epoch: Some(epoch), attempt: Some(attempt) } = &self.carried {
            add("key", key.into());
            add("epoch", epoch.to_string().into());
            add("attempt", attempt.to_string().into());
        }
        let spans = [
            ("startup-delay", self.startup_delay),
            ("hydration-time", self.hydration_time),
            ("drain-deadline", self.drain_deadline),
            ("terminate-grace", self.terminate_grace),
            ("restart-after", self.restart_after),
        ];
        for (flag, span) in spans {
            add(flag, format!("{}ms", span.as_millis()).into());
        }
        add("objects", self.objects.to_string().into());
        add("hydrated", self.hydrated.to_string().into());
        add("port", self.port.to_string().into());
        if let Some(keeper) = self.keeper {
            add("keeper", keeper.to_string().into());
        }
        words
    }
}

/// Why a replica has ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    #[error("{problem}")]
    BadName { problem: String },
    #[error("the name {name} is taken: {holder}")]
    NameTaken { name: String, holder: String },
    /// The order was given by a former leader, or withdrawn, or carried out by another process.
    #[error("the order {key} does not hold any more")]
    OrderNotHeld { key: String },
    #[error("the replica cannot work with its folder: {problem}")]
    Folder { problem: String },
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Runs a replica until it is dropped, told to end by a signal, or its folder is removed.
pub fn run(options: &ReplicaOptions) -> Result<(), ReplicaError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        match options.keeper {
            Some(keeper) => server::serve(options, keeper).await.map_err(ReplicaError::from),
            None => keeper::keep(options).await,
        }
    });
    // A thread may still be waiting for words that nobody will say.
    runtime.shutdown_background();
    ended
}

fn duration(span: Span) -> Duration {
    Duration::from_millis(span.as_millis())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        options: ReplicaOptions,
    }

    #[test]
    fn what_a_node_writes_is_what_a_replica_reads() {
        let span = Span::from_millis;
        let by_order = ReplicaOptions {
            folder: "/var/lib/a b".into(),
            cluster: "c412.3".parse().unwrap(),
            name: "r1_auto".to_owned(),
            size: "-25cc".to_owned(),
            carried: Carried {
                key: Some("1/a57.0".to_owned()),
                epoch: Some(Epoch { incarnation: 1, index: LogIndex(57) }),
                attempt: Some(2),
            },
            startup_delay: span(1),
            hydration_time: span(2_500),
            objects: 7,
            hydrated: 3,
            drain_deadline: span(90_000),
            terminate_grace: span(5),
            restart_after: span(6),
            port: 4_711,
            keeper: Some(42),
        };
        let by_hand = ReplicaOptions { carried: Carried::default(), keeper: None, port: 0, ..by_order.clone() };
        for options in [by_order, by_hand] {
            // The first word is the verb, where a parser expects the name of the program.
            let parsed = Program::try_parse_from(options.words()).unwrap();
            assert_eq!(parsed.options, options);
        }
    }
}
