//! `deploy/` keeps its promises: the manifests are what Kubernetes takes and what the docs say, and three nodes that are given
//! the pods' own environment, probes and preStop hook come into being by themselves.
//!
//! The checks of files are Python, in `tests/deploy/`, because that is where the Kubernetes schemas are to be had; each is one
//! test here. Without Python they fail and say what is missing. Not here: a cluster, or a container engine.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use loadline_tests::alone;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

/// A slow machine may take this long for what takes a second.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn every_overlay_builds_as_kustomize_would_build_it() {
    check("kustomize");
}

#[test]
fn kubernetes_knows_every_field_of_the_manifests() {
    check("schemas");
}

#[test]
fn the_manifests_say_what_the_docs_promise() {
    check("claims");
}

#[test]
fn the_dockerfile_fits_the_repository() {
    check("dockerfile");
}

#[test]
fn the_environment_of_every_pod_is_a_valid_configuration() {
    for pod in pods() {
        let done = Command::new(BINARY).args(["config", "check"]).env_clear().envs(&pod.environment).output();
        let done = done.expect("starting the binary");
        assert!(done.status.success(), "{}: {}", pod.name(), said(&done));
    }
}

/// Why the manifests set `enableServiceLinks: false`.
#[test]
fn a_service_link_in_the_environment_is_refused_by_name() {
    let pod = pods().remove(0);
    let mut command = Command::new(BINARY);
    command.args(["config", "check"]).env_clear().envs(&pod.environment);
    command.env("LOADLINE_PORT", "tcp://10.0.0.1:7700");
    let done = command.output().expect("starting the binary");
    assert!(!done.status.success());
    assert!(said(&done).contains("LOADLINE_PORT"), "{}", said(&done));
}

#[test]
fn the_ports_of_the_pods_are_the_defaults_of_the_server() {
    let done = Command::new(BINARY).args(["serve", "--help"]).env_clear().output().expect("starting the binary");
    let help = said(&done);
    for (name, port) in &pods()[0].ports {
        let flag = format!("--{name}-listen");
        let (_, after) = help.split_once(&flag).unwrap_or_else(|| panic!("{flag} is not in the help:\n{help}"));
        let until_next_flag = after.split("\n      --").next().unwrap_or_default();
        assert!(until_next_flag.contains(&format!("127.0.0.1:{port}")), "{flag} {until_next_flag}");
    }
}

/// The last stage of the Dockerfile copies the binary onto a small Debian, and installs nothing.
#[test]
fn the_binary_needs_no_library_that_the_image_lacks() {
    const THERE: [&str; 5] = ["linux-vdso.so", "libc.so", "libgcc_s.so", "libm.so", "ld-linux"];
    let done = Command::new("ldd").arg(BINARY).output().expect("ldd, from the C library's own tools");
    let text = said(&done);
    assert!(text.contains("libc.so"), "{text}");
    for line in text.lines() {
        let library = line.trim().rsplit_once(" =>").map_or(line.trim(), |(name, _)| name);
        let name = library.rsplit('/').next().unwrap_or(library);
        assert!(THERE.iter().any(|there| name.starts_with(there)), "the binary needs {line}");
    }
}

#[test]
fn three_pods_form_one_group_in_whatever_order_they_start() {
    let _alone = alone();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut set = RunningSet::new();
        for (started, ordinal) in order.into_iter().enumerate() {
            set.start(ordinal);
            wait_until(&format!("{ordinal} is alive in order {order:?}"), || {
                set.probe(ordinal, "livenessProbe") == 200
            });
            if started < 2 {
                // Alive without a quorum, ready only with one; and nothing is founded while somebody is silent.
                assert_ne!(set.probe(ordinal, "readinessProbe"), 200, "{ordinal} is ready alone, in order {order:?}");
            }
        }
        for ordinal in order {
            wait_until(&format!("{ordinal} is ready in order {order:?}"), || {
                set.probe(ordinal, "readinessProbe") == 200
            });
        }
        let roles = set.roles();
        assert_eq!(roles.len(), 3, "{roles:?}");
        assert_eq!(roles.values().filter(|role| *role == "leader").count(), 1, "{roles:?}");
    }
}

#[test]
fn a_fourth_pod_joins_the_three_and_votes() {
    let _alone = alone();
    let mut set = RunningSet::new();
    for ordinal in 0..3 {
        set.start(ordinal);
    }
    set.wait_for_leader();
    set.start(3);
    wait_until("the fourth pod is ready", || set.probe(3, "readinessProbe") == 200);
    wait_until("the fourth pod votes", || set.roles().values().filter(|role| *role == "follower").count() == 3);
}

#[test]
fn a_pod_that_stops_hands_leadership_on_and_only_its_own() {
    let _alone = alone();
    let mut set = RunningSet::new();
    for ordinal in 0..3 {
        set.start(ordinal);
    }
    let leader = set.wait_for_leader();
    let follower = (leader + 1) % 3;

    // As often as it is tried: the hook of a follower must not move the leader even once.
    for _ in 0..5 {
        let done = set.pre_stop(follower);
        assert!(done.status.success(), "{}", said(&done));
        assert_eq!(set.wait_for_leader(), leader, "a follower's hook moved the leader");
    }

    let done = set.pre_stop(leader);
    assert!(done.status.success(), "{}", said(&done));
    let next = set.wait_for_leader();
    assert_ne!(next, leader, "the leader's hook left it in place: {}", said(&done));
    set.stop(leader);
    assert_eq!(set.wait_for_leader(), next, "nobody had to be elected when the pod went");

    // Alone, without a majority, nothing can be handed on. The hook must end all the same, or it eats the grace period.
    let left = (0..3).find(|ordinal| ![leader, next].contains(ordinal)).expect("three pods");
    set.stop(next);
    let began = Instant::now();
    set.pre_stop(left);
    assert!(began.elapsed() < Duration::from_secs(15), "the hook took {:?}", began.elapsed());
    set.stop(left);
}

/// Runs one check of `tests/deploy/check.py` and returns what it printed.
#[track_caller]
fn check(name: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/check.py");
    let done = Command::new("python3")
        .arg("-B")
        .arg(&script)
        .arg(name)
        .output()
        .unwrap_or_else(|error| panic!("python3 is needed for the checks of deploy/, and does not start: {error}"));
    assert!(done.status.success(), "{}", said(&done));
    String::from_utf8(done.stdout).expect("UTF-8")
}

fn said(done: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
}

/// What the kubelet would run, as the manifests say it.
struct Pod {
    args: Vec<String>,
    environment: BTreeMap<String, String>,
    ports: BTreeMap<String, u64>,
    probes: BTreeMap<String, String>,
    pre_stop: Vec<String>,
}

impl Pod {
    fn name(&self) -> &str {
        &self.environment["LOADLINE_NAME"]
    }
}

/// The pods of the set, and one that would come if somebody scaled it.
fn pods() -> Vec<Pod> {
    let pods: Vec<Value> = serde_json::from_str(&check("pods")).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let words = |value: &Value| value.as_array().expect("a list").iter().map(text).collect();
    let object = |value: &Value| value.as_object().expect("an object").clone();
    pods.iter()
        .map(|pod| Pod {
            args: words(&pod["args"]),
            environment: object(&pod["environment"]).iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            ports: object(&pod["ports"])
                .iter()
                .map(|(name, port)| (name.clone(), port.as_u64().expect("a number")))
                .collect(),
            probes: object(&pod["probes"]).iter().map(|(kind, probe)| (kind.clone(), text(&probe["path"]))).collect(),
            pre_stop: words(&pod["pre_stop"]),
        })
        .collect()
}

/// The pods as processes of this machine. Only what a machine has once is replaced: the pods' names by addresses of
/// loopback, the volume by a folder.
struct RunningSet {
    pods: Vec<Pod>,
    grpc: Vec<String>,
    http: Vec<String>,
    running: BTreeMap<usize, Child>,
    folder: tempfile::TempDir,
}

impl RunningSet {
    fn new() -> RunningSet {
        let mut pods = pods();
        // All of them are held until the last one is found: a port that is let go may be the next one that is free.
        let free = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let held: Vec<TcpListener> = pods.iter().flat_map(|_| [free(), free()]).collect();
        let mut addresses = held.iter().map(|listener| listener.local_addr().expect("an address").to_string());
        let grpc: Vec<String> = addresses.by_ref().take(pods.len()).collect();
        let http: Vec<String> = addresses.collect();
        drop(held);
        let folder = tempfile::tempdir().expect("a folder");
        let names: Vec<String> = pods.iter().map(|pod| pod.environment["LOADLINE_ADVERTISE"].clone()).collect();
        for (ordinal, pod) in pods.iter_mut().enumerate() {
            for value in pod.environment.values_mut() {
                for (name, address) in names.iter().zip(&grpc) {
                    *value = value.replace(name, address);
                }
            }
            let data = folder.path().join(format!("{ordinal}"));
            std::fs::create_dir(&data).expect("a folder for the volume");
            let data = data.join("node").display().to_string();
            for (key, value) in [
                ("LOADLINE_GRPC_LISTEN", grpc[ordinal].clone()),
                ("LOADLINE_HTTP_LISTEN", http[ordinal].clone()),
                ("LOADLINE_DATA_DIR", data),
            ] {
                let before = pod.environment.insert(key.to_owned(), value);
                assert!(before.is_some(), "{key} is not set by the manifests");
            }
        }
        RunningSet { pods, grpc, http, running: BTreeMap::new(), folder }
    }

    fn start(&mut self, ordinal: usize) {
        let pod = &self.pods[ordinal];
        let log = std::fs::File::create(self.log(ordinal)).expect("a file for what the node says");
        let mut command = Command::new(BINARY);
        command.args(&pod.args).env_clear().envs(&pod.environment);
        // The image is read-only: a node that wrote anywhere but to its volume would fail in a pod.
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        self.running.insert(ordinal, command.spawn().expect("starting a node"));
    }

    /// SIGTERM, as the kubelet sends it after the hook.
    fn stop(&mut self, ordinal: usize) {
        let mut child = self.running.remove(&ordinal).expect("it runs");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        kill(pid, Signal::SIGTERM).expect("sending SIGTERM");
        wait_until(&format!("{ordinal} stops after SIGTERM"), || child.try_wait().expect("waiting").is_some());
    }

    /// The status that the kubelet would get, or 0 without an answer.
    fn probe(&self, ordinal: usize, kind: &str) -> u16 {
        let path = &self.pods[ordinal].probes[kind];
        let address = &self.http[ordinal];
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().unwrap_or_default();
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// The hook of a pod, in the environment of its container.
    fn pre_stop(&self, ordinal: usize) -> Output {
        let pod = &self.pods[ordinal];
        let own = format!("127.0.0.1:{}", pod.ports["grpc"]);
        assert_eq!(pod.pre_stop[0], "loadline");
        let words = pod.pre_stop[1..].iter().map(|word| word.replace(&own, &self.grpc[ordinal]));
        Command::new(BINARY).args(words).env_clear().envs(&pod.environment).output().expect("starting the hook")
    }

    /// Role by name of node, as the nodes that run say it.
    fn roles(&self) -> BTreeMap<String, String> {
        let endpoints: Vec<String> =
            self.running.keys().map(|ordinal| format!("http://{}", self.grpc[*ordinal])).collect();
        let mut command = Command::new(BINARY);
        command.args(["status", "-o", "json", "--endpoint", &endpoints.join(",")]);
        let done =
            command.env_clear().env("XDG_CONFIG_HOME", self.folder.path()).output().expect("starting the binary");
        let Ok(answer) = serde_json::from_slice::<Value>(&done.stdout) else { return BTreeMap::new() };
        let nodes = answer["nodes"].as_array().cloned().unwrap_or_default();
        let role = |node: &Value| node["role"].as_str().unwrap_or_default().to_owned();
        nodes.iter().map(|node| (node["endpoint"].as_str().unwrap_or_default().to_owned(), role(node))).collect()
    }

    /// The pod that leads, once there is exactly one.
    #[track_caller]
    fn wait_for_leader(&self) -> usize {
        let mut leader = None;
        wait_until("one node leads", || {
            let roles = self.roles();
            let mut leaders = roles.iter().filter(|(_, role)| *role == "leader");
            let first = leaders.next().map(|(endpoint, _)| endpoint.clone());
            leader = first.and_then(|endpoint| self.grpc.iter().position(|own| endpoint.contains(own.as_str())));
            leader.is_some() && leaders.next().is_none()
        });
        leader.expect("found above")
    }

    fn log(&self, ordinal: usize) -> std::path::PathBuf {
        self.folder.path().join(format!("{ordinal}.log"))
    }
}

impl Drop for RunningSet {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for ordinal in 0..self.pods.len() {
                let log = std::fs::read_to_string(self.log(ordinal)).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(25)..].join("\n");
                #[expect(clippy::print_stderr, reason = "a failed test shows what its nodes said")]
                {
                    eprintln!("--- {ordinal} said last:\n{last}");
                }
            }
        }
    }
}

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
