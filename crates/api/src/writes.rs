//! From the requests of a caller to commands of the state machine.
//!
//! Checked here is only what has no meaning at all: a missing part, an id or an etag that cannot be one. Whether a name is
//! good or a number in bounds is decided by the state machine alone; [`Write::field`] translates its answer back into the
//! caller's words.

use loadline_state_machine::{Command, Done, RequestId, ResourceKind, State};

use crate::fields::{self, Findings, Invalid};
use crate::resources::write_result;
use crate::scaling_writes;
use crate::signal_writes;
use crate::v1::{self, change::Change};

/// What one call asks to be written: all of it at one revision, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Absent only with `validate_only`, which leaves nothing behind that a retry could repeat.
    pub request_id: Option<RequestId>,
    pub validate_only: bool,
    pub commands: Vec<Command>,
    /// How the caller calls the fields of each command.
    paths: Vec<Path>,
    /// How many commands each change takes, in order.
    commands_per_change: Vec<usize>,
}

/// Where the fields of one command stand in the request message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Path {
    /// `changes[2].create_size.` in a transaction, otherwise nothing.
    step: String,
    /// `size.` where the command's fields are those of a resource.
    resource: &'static str,
    /// Fields that the caller knows under another name than the state machine.
    renamed: &'static [(&'static str, &'static str)],
}

impl Path {
    fn of(&self, field: &str) -> String {
        let field = self.renamed.iter().find(|(known, _)| *known == field).map_or(field, |(_, renamed)| renamed);
        format!("{}{}{field}", self.step, self.resource)
    }
}

impl Write {
    pub fn create_size(request: v1::CreateSizeRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::CreateSize(request))
    }

    pub fn update_size(request: v1::UpdateSizeRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::UpdateSize(request))
    }

    pub fn create_cluster(request: v1::CreateClusterRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::CreateCluster(request))
    }

    pub fn rename_cluster(request: v1::RenameClusterRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::RenameCluster(request))
    }

    pub fn update_cluster(request: v1::UpdateClusterRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::UpdateCluster(request))
    }

    pub fn set_setting(request: v1::SetSettingRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::SetSetting(request))
    }

    pub fn delete(kind: ResourceKind, request: v1::DeleteRequest) -> Result<Write, Invalid> {
        let options = request.options.clone();
        let change = match kind {
            ResourceKind::Size => Change::DeleteSize(request),
            ResourceKind::Cluster => Change::DeleteCluster(request),
            ResourceKind::Setting => Change::DeleteSetting(request),
            ResourceKind::Signal => Change::DeleteSignal(request),
            ResourceKind::Strategy
            | ResourceKind::Decision
            | ResourceKind::Operation
            | ResourceKind::Action
            | ResourceKind::Role => {
                return Err(Invalid::one("name", format!("{} are not deleted by name", kind.plural())));
            }
        };
        Write::single(options, change)
    }

    pub fn transact(request: v1::TransactRequest) -> Result<Write, Invalid> {
        let mut findings = Findings::default();
        let mut steps = Vec::new();
        for (number, change) in request.changes.into_iter().enumerate() {
            match change.change {
                None => findings.add(format!("changes[{number}]"), "is empty: say what is to change"),
                Some(change) => {
                    let step = format!("changes[{number}].{}.", name_of(&change));
                    steps.push((change, step));
                }
            }
        }
        Write::of(request.options, steps, findings)
    }

    pub(crate) fn single(options: Option<v1::WriteOptions>, change: Change) -> Result<Write, Invalid> {
        Write::of(options, vec![(change, String::new())], Findings::default())
    }

    fn of(
        options: Option<v1::WriteOptions>,
        steps: Vec<(Change, String)>,
        mut findings: Findings,
    ) -> Result<Write, Invalid> {
        let (request_id, validate_only) = Write::intent(options, &mut findings);
        let (mut commands, mut paths, mut commands_per_change) = (Vec::new(), Vec::new(), Vec::new());
        for (change, step) in steps {
            let path = Path { step, resource: resource_of(&change), renamed: renamed_in(&change) };
            let own = commands_of(change, &path, &mut findings);
            paths.extend(own.iter().map(|_| path.clone()));
            commands_per_change.push(own.len());
            commands.extend(own);
        }
        findings.into_result(Some(Write { request_id, validate_only, commands, paths, commands_per_change }))
    }

    /// One command that was read from a request of its own; nothing if it could not be.
    pub(crate) fn one(
        options: Option<v1::WriteOptions>,
        command: Option<Command>,
        resource: &'static str,
        renamed: &'static [(&'static str, &'static str)],
        mut findings: Findings,
    ) -> Result<Write, Invalid> {
        let (request_id, validate_only) = Write::intent(options, &mut findings);
        let paths = vec![Path { step: String::new(), resource, renamed }];
        let commands_per_change = vec![1];
        let write = command.map(|command| Write {
            request_id,
            validate_only,
            commands: vec![command],
            paths,
            commands_per_change,
        });
        findings.into_result(write)
    }

    /// The request id, and whether it is only to be said what would happen.
    fn intent(options: Option<v1::WriteOptions>, findings: &mut Findings) -> (Option<RequestId>, bool) {
        let options = options.unwrap_or_default();
        let optional = options.validate_only && options.request_id.is_empty();
        let id =
            (!optional).then(|| findings.take(fields::request_id("options.request_id", &options.request_id))).flatten();
        (id, options.validate_only)
    }

    /// The commands, for whoever has them recorded. What is said about them afterwards does without.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Whether it takes more than one command.
    pub fn has_steps(&self) -> bool {
        self.paths.len() > 1
    }

    /// What each change left behind, in order: what the last of its commands did.
    pub fn results(&self, done: &[Done], state: &State) -> Vec<v1::WriteResult> {
        let mut rest = done;
        let mut results = Vec::with_capacity(self.commands_per_change.len());
        for count in &self.commands_per_change {
            let (own, others) = rest.split_at(rest.len().min(*count));
            rest = others;
            let changed = own.iter().any(|done| done.changed);
            results.extend(own.last().map(|last| v1::WriteResult { changed, ..write_result(last, state) }));
        }
        results
    }

    /// How the caller calls a field that the state machine found fault with, in the command with this number.
    pub fn field(&self, ordinal: u32, field: &str) -> String {
        match field {
            // About the request as a whole.
            "request_id" => return "options.request_id".to_owned(),
            "commands" => return "changes".to_owned(),
            _ => {}
        }
        let number = usize::try_from(ordinal).unwrap_or(usize::MAX);
        self.paths.get(number).map_or_else(|| field.to_owned(), |path| path.of(field))
    }
}

fn name_of(change: &Change) -> &'static str {
    match change {
        Change::CreateSize(_) => "create_size",
        Change::UpdateSize(_) => "update_size",
        Change::DeleteSize(_) => "delete_size",
        Change::CreateCluster(_) => "create_cluster",
        Change::RenameCluster(_) => "rename_cluster",
        Change::UpdateCluster(_) => "update_cluster",
        Change::DeleteCluster(_) => "delete_cluster",
        Change::SetSetting(_) => "set_setting",
        Change::DeleteSetting(_) => "delete_setting",
        Change::CreateStrategy(_) => "create_strategy",
        Change::UpdateStrategy(_) => "update_strategy",
        Change::DeleteStrategy(_) => "delete_strategy",
        Change::DeleteStrategies(_) => "delete_strategies",
        Change::ExpectUnchanged(_) => "expect_unchanged",
        Change::CreateSignal(_) => "create_signal",
        Change::UpdateSignal(_) => "update_signal",
        Change::DeleteSignal(_) => "delete_signal",
    }
}

fn resource_of(change: &Change) -> &'static str {
    match change {
        Change::CreateSize(_) => "size.",
        Change::CreateCluster(_) => "cluster.",
        Change::CreateStrategy(_) => "strategy.",
        Change::CreateSignal(_) => "signal.",
        _ => "",
    }
}

/// Fields of a change that the caller knows under another name than the state machine.
fn renamed_in(change: &Change) -> &'static [(&'static str, &'static str)] {
    match change {
        Change::CreateStrategy(_) | Change::DeleteStrategy(_) | Change::DeleteStrategies(_) => {
            &[("name", "target.cluster")]
        }
        Change::UpdateStrategy(_) => &[("options", "set"), ("name", "target.cluster")],
        Change::CreateSignal(_) => &[("every", "every_ms")],
        Change::UpdateSignal(_) => &[("options", "set"), ("every", "every_ms")],
        _ => &[("to", "new_name")],
    }
}

/// Most changes are one command.
fn commands_of(change: Change, path: &Path, findings: &mut Findings) -> Vec<Command> {
    match change {
        Change::CreateCluster(request) => create_cluster(request, path, findings),
        Change::UpdateCluster(request) => update_cluster(request, path, findings),
        change => command(change, path, findings).into_iter().collect(),
    }
}

fn create_cluster(request: v1::CreateClusterRequest, path: &Path, findings: &mut Findings) -> Vec<Command> {
    let Some(v1::Cluster { name, backend, .. }) = request.cluster else {
        findings.add(format!("{}cluster", path.step), "is required: the cluster to create");
        return vec![];
    };
    let mut commands = vec![Command::CreateCluster { name: name.clone() }];
    if !backend.is_empty() {
        commands.push(Command::PlaceCluster { name, backend: Some(backend), etag: None });
    }
    commands
}

fn update_cluster(request: v1::UpdateClusterRequest, path: &Path, findings: &mut Findings) -> Vec<Command> {
    let v1::UpdateClusterRequest { name, new_name, backend, etag, .. } = request;
    let Some(mut etag) = findings.take(fields::etag(&path.of("etag"), &etag)) else { return vec![] };
    let mut commands = Vec::new();
    let mut called = name;
    if let Some(to) = new_name {
        commands.push(Command::RenameCluster { name: called, to: to.clone(), etag: etag.take() });
        called = to;
    }
    if let Some(backend) = backend {
        // The wire says "by default" with an empty name, which no backend has.
        let backend = Some(backend).filter(|backend| !backend.is_empty());
        commands.push(Command::PlaceCluster { name: called, backend, etag: etag.take() });
    }
    if commands.is_empty() {
        findings.add(path.of("new_name"), "or backend is required: say what is to change");
    }
    commands
}

fn command(change: Change, path: &Path, findings: &mut Findings) -> Option<Command> {
    let mut etag = |text: &str| findings.take(fields::etag(&path.of("etag"), text));
    Some(match change {
        Change::CreateSize(request) => {
            let Some(size) = request.size else {
                findings.add(format!("{}size", path.step), "is required: the size to create");
                return None;
            };
            Command::CreateSize {
                name: size.name,
                // The wire cannot tell 0 from nothing, and no size has rank 0.
                rank: (size.rank != 0).then_some(size.rank),
                slots: size.slots,
                price_micros_per_hour: size.price_micros_per_hour,
            }
        }
        Change::UpdateSize(request) => Command::ChangeSize {
            etag: etag(&request.etag)?,
            name: request.name,
            rank: request.rank,
            slots: request.slots,
            price_micros_per_hour: request.price_micros_per_hour,
        },
        Change::DeleteSize(request) => {
            Command::DropSize { etag: etag(&request.etag)?, name: request.name, allow_missing: request.allow_missing }
        }
        Change::RenameCluster(request) => {
            Command::RenameCluster { etag: etag(&request.etag)?, name: request.name, to: request.new_name }
        }
        // More than one command.
        Change::CreateCluster(_) | Change::UpdateCluster(_) => return None,
        Change::DeleteCluster(request) if request.cascade => Command::DropClusterCascade {
            etag: etag(&request.etag)?,
            name: request.name,
            allow_missing: request.allow_missing,
        },
        Change::DeleteCluster(request) => Command::DropCluster {
            etag: etag(&request.etag)?,
            name: request.name,
            allow_missing: request.allow_missing,
        },
        Change::SetSetting(request) => {
            Command::SetSetting { etag: etag(&request.etag)?, name: request.name, value: request.value }
        }
        // A setting that exists is never missing, and one that does not exist is a typo: `allow_missing` has no say.
        Change::DeleteSetting(request) => Command::ResetSetting { etag: etag(&request.etag)?, name: request.name },
        Change::CreateStrategy(request) => return scaling_writes::create_strategy(request, &path.step, findings),
        Change::UpdateStrategy(request) => return scaling_writes::update_strategy(request, &path.step, findings),
        Change::DeleteStrategy(request) => return scaling_writes::delete_strategy(request, &path.step, findings),
        Change::CreateSignal(request) => return signal_writes::create(request, &path.step, findings),
        Change::UpdateSignal(request) => return signal_writes::update(request, &path.step, findings),
        Change::DeleteSignal(request) => {
            Command::DropSignal { etag: etag(&request.etag)?, name: request.name, allow_missing: request.allow_missing }
        }
        Change::DeleteStrategies(request) => return scaling_writes::delete_strategies(request, &path.step, findings),
        Change::ExpectUnchanged(request) => return scaling_writes::expect_unchanged(request, &path.step, findings),
    })
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::{Answer, LogIndex, NodeNumber, Revision};

    use super::*;

    const ID: &str = "019a7f3e-0000-7000-8000-000000000001";

    fn options() -> Option<v1::WriteOptions> {
        Some(v1::WriteOptions { request_id: ID.to_owned(), validate_only: false })
    }

    fn size() -> v1::Size {
        v1::Size { name: "100cc".to_owned(), rank: 10, slots: 4, price_micros_per_hour: 250_000, ..v1::Size::default() }
    }

    fn delete(etag: &str) -> v1::DeleteRequest {
        v1::DeleteRequest {
            options: options(),
            name: "x".to_owned(),
            etag: etag.to_owned(),
            allow_missing: true,
            cascade: false,
        }
    }

    fn etag() -> Option<Revision> {
        Some(Revision { index: LogIndex(412), ordinal: 3 })
    }

    /// One change becomes exactly this command, alone and as a step of a transaction.
    #[track_caller]
    fn check(alone: Result<Write, Invalid>, change: Change, command: Command) {
        let alone = alone.unwrap();
        assert_eq!(alone.request_id.unwrap().to_string(), ID);
        assert!(!alone.validate_only);
        assert_eq!(alone.commands, [command]);
        let request = v1::TransactRequest { options: options(), changes: vec![v1::Change { change: Some(change) }] };
        assert_eq!(Write::transact(request).unwrap().commands, alone.commands);
    }

    #[test]
    fn every_change_becomes_its_command() {
        let create = v1::CreateSizeRequest { options: options(), size: Some(size()) };
        check(
            Write::create_size(create.clone()),
            Change::CreateSize(create),
            Command::CreateSize { name: "100cc".to_owned(), rank: Some(10), slots: 4, price_micros_per_hour: 250_000 },
        );
        let update = v1::UpdateSizeRequest {
            options: options(),
            name: "100cc".to_owned(),
            slots: Some(0),
            etag: "412.3".to_owned(),
            ..v1::UpdateSizeRequest::default()
        };
        check(
            Write::update_size(update.clone()),
            Change::UpdateSize(update),
            Command::ChangeSize {
                name: "100cc".to_owned(),
                rank: None,
                slots: Some(0),
                price_micros_per_hour: None,
                etag: etag(),
            },
        );
        let create = v1::CreateClusterRequest {
            options: options(),
            cluster: Some(v1::Cluster { name: "demo".to_owned(), ..v1::Cluster::default() }),
        };
        check(
            Write::create_cluster(create.clone()),
            Change::CreateCluster(create),
            Command::CreateCluster { name: "demo".to_owned() },
        );
        let rename = v1::RenameClusterRequest {
            options: options(),
            name: "a".to_owned(),
            new_name: "b".to_owned(),
            etag: String::new(),
        };
        check(
            Write::rename_cluster(rename.clone()),
            Change::RenameCluster(rename),
            Command::RenameCluster { name: "a".to_owned(), to: "b".to_owned(), etag: None },
        );
        let set = v1::SetSettingRequest {
            options: options(),
            name: "s".to_owned(),
            value: "1".to_owned(),
            etag: "412.3".to_owned(),
        };
        check(
            Write::set_setting(set.clone()),
            Change::SetSetting(set),
            Command::SetSetting { name: "s".to_owned(), value: "1".to_owned(), etag: etag() },
        );
        check(
            Write::delete(ResourceKind::Size, delete("412.3")),
            Change::DeleteSize(delete("412.3")),
            Command::DropSize { name: "x".to_owned(), etag: etag(), allow_missing: true },
        );
        check(
            Write::delete(ResourceKind::Cluster, delete("")),
            Change::DeleteCluster(delete("")),
            Command::DropCluster { name: "x".to_owned(), etag: None, allow_missing: true },
        );
        check(
            Write::delete(ResourceKind::Setting, delete("412.3")),
            Change::DeleteSetting(delete("412.3")),
            Command::ResetSetting { name: "x".to_owned(), etag: etag() },
        );
    }

    #[test]
    fn a_cluster_is_created_where_it_is_to_live_and_renamed_and_moved_at_once() {
        let (demo, other) = (|| "demo".to_owned(), || "other".to_owned());
        let place = |name: String, backend: Option<&str>, etag| Command::PlaceCluster {
            name,
            backend: backend.map(str::to_owned),
            etag,
        };
        let create = |backend: &str| {
            let cluster = v1::Cluster { name: demo(), backend: backend.to_owned(), ..v1::Cluster::default() };
            v1::CreateClusterRequest { options: options(), cluster: Some(cluster) }
        };
        let write = Write::create_cluster(create("local")).unwrap();
        assert_eq!(write.commands, [Command::CreateCluster { name: demo() }, place(demo(), Some("local"), None)]);
        assert_eq!(write.field(1, "backend"), "cluster.backend");

        let update = |new_name: Option<&str>, backend: Option<&str>| v1::UpdateClusterRequest {
            options: options(),
            name: demo(),
            new_name: new_name.map(str::to_owned),
            backend: backend.map(str::to_owned),
            etag: "412.3".to_owned(),
        };
        let rename = Command::RenameCluster { name: demo(), to: other(), etag: etag() };
        let both = Write::update_cluster(update(Some("other"), Some("local"))).unwrap();
        assert_eq!(both.commands, [rename, place(other(), Some("local"), None)], "an etag is of before both");
        assert_eq!((both.field(0, "to"), both.field(1, "backend")), ("new_name".to_owned(), "backend".to_owned()));
        let back = Write::update_cluster(update(None, Some(""))).unwrap();
        assert_eq!(back.commands, [place(demo(), None, etag())]);
        assert_eq!(Write::update_cluster(update(None, None)).unwrap_err().violations[0].field, "new_name");

        // What came of it is told by change, not by command.
        let changes = [Change::CreateCluster(create("local")), Change::DeleteCluster(delete(""))];
        let changes = changes.map(|change| v1::Change { change: Some(change) }).to_vec();
        let write = Write::transact(v1::TransactRequest { options: options(), changes }).unwrap();
        assert_eq!(write.field(2, "name"), "changes[1].delete_cluster.name");
        let done = [(true, Answer::Nothing), (false, Answer::Node(NodeNumber(1))), (false, Answer::Nothing)];
        let done = done.map(|(changed, answer)| Done { changed, answer });
        let results: Vec<bool> = write.results(&done, &State::new()).iter().map(|result| result.changed).collect();
        assert_eq!(results, [true, false]);
    }

    #[test]
    fn rank_zero_on_create_means_none_given() {
        let request = v1::CreateSizeRequest { options: options(), size: Some(v1::Size { rank: 0, ..size() }) };
        let write = Write::create_size(request).unwrap();
        assert!(matches!(write.commands[0], Command::CreateSize { rank: None, .. }));
    }

    #[test]
    fn only_validation_goes_without_a_request_id() {
        let with = |validate_only, request_id: &str| {
            let options = Some(v1::WriteOptions { request_id: request_id.to_owned(), validate_only });
            Write::delete(ResourceKind::Size, v1::DeleteRequest { options, ..delete("") })
        };
        assert_eq!(with(true, "").unwrap().request_id, None);
        assert!(with(true, ID).unwrap().request_id.is_some());
        assert!(with(true, "x").is_err());
        assert_eq!(with(false, "").unwrap_err().violations[0].field, "options.request_id");
        let none = v1::DeleteRequest { options: None, ..delete("") };
        assert!(Write::delete(ResourceKind::Size, none).is_err());
    }

    #[test]
    fn everything_wrong_with_a_transaction_is_said_at_once_and_precisely() {
        let request = v1::TransactRequest {
            options: None,
            changes: vec![
                v1::Change { change: Some(Change::CreateSize(v1::CreateSizeRequest::default())) },
                v1::Change { change: None },
                v1::Change { change: Some(Change::DeleteCluster(delete("yesterday"))) },
                v1::Change { change: Some(Change::CreateCluster(v1::CreateClusterRequest::default())) },
            ],
        };
        let invalid = Write::transact(request).unwrap_err();
        let fields: Vec<&str> = invalid.violations.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "changes[1]",
                "options.request_id",
                "changes[0].create_size.size",
                "changes[2].delete_cluster.etag",
                "changes[3].create_cluster.cluster",
            ]
        );
    }

    #[test]
    fn faults_found_later_are_told_in_the_words_of_the_caller() {
        let create = v1::CreateSizeRequest { options: options(), size: Some(size()) };
        let rename = v1::RenameClusterRequest { options: options(), ..v1::RenameClusterRequest::default() };
        let alone = Write::create_size(create.clone()).unwrap();
        assert_eq!(alone.field(0, "slots"), "size.slots");
        assert_eq!(alone.field(0, "request_id"), "options.request_id");
        let both = Write::transact(v1::TransactRequest {
            options: options(),
            changes: vec![
                v1::Change { change: Some(Change::CreateSize(create)) },
                v1::Change { change: Some(Change::RenameCluster(rename)) },
            ],
        })
        .unwrap();
        assert_eq!(both.field(0, "slots"), "changes[0].create_size.size.slots");
        assert_eq!(both.field(1, "to"), "changes[1].rename_cluster.new_name");
        assert_eq!(both.field(0, "commands"), "changes");
        assert_eq!(both.field(7, "slots"), "slots");
    }
}
