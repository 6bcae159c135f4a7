"""What the manifests must say, one claim a row, and beside each claim ways to break it.

A claim is checked on what every kustomization builds, then once more on a copy with each break in it, where it must
fail: a claim that nothing can break proves nothing. Not here: whether Kubernetes knows the fields (`manifests`), and
whether a real node starts with this environment (`tests/tests/deploy.rs`).
"""

import copy
import pathlib
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass

import check as entry
import manifests

GONE = object()
STATEFUL_SET = "StatefulSet/loadline"
PEERS = "Service/loadline-peers"
CLIENTS = "Service/loadline"
BUDGET = "PodDisruptionBudget/loadline"
POLICY = "NetworkPolicy/loadline"
ACCOUNT = "ServiceAccount/loadline"
CONFIG = "ConfigMap/loadline-config-.*"

POD = "spec/template/spec"
NODE = f"{POD}/containers/0"


@dataclass
class Claim:
    says: str
    # Returns what is wrong, or None.
    holds: Callable[[list[dict]], str | None]
    # Each is (object, path, value): put the value there, or take away what is there.
    breaks: list[tuple[str, str, object]]


def locate(objects: list[dict], name: str) -> dict:
    return manifests.find(objects, *name.split("/", 1))


def at(objects: list[dict], name: str, path: str):
    """The value at a path, or GONE."""
    place = locate(objects, name)
    for step in path.split("/"):
        step = step.replace("~1", "/")
        try:
            place = place[int(step)] if isinstance(place, list) else place[step]
        except (KeyError, IndexError):
            return GONE
    return place


def put(objects: list[dict], name: str, path: str, value) -> None:
    *way, last = [step.replace("~1", "/") for step in path.split("/")]
    place = locate(objects, name)
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    key = int(last) if isinstance(place, list) else last
    if value is GONE:
        del place[key]
    elif isinstance(place, list) and key == len(place):
        place.append(value)
    else:
        place[key] = value


def equals(says: str, name: str, path: str, wanted, *wrong) -> Claim:
    """A claim about one value; missing is always wrong."""

    def holds(objects: list[dict]) -> str | None:
        found = at(objects, name, path)
        return None if found == wanted else f"{name} {path} is {'missing' if found is GONE else found!r}, not {wanted!r}"

    return Claim(says, holds, [(name, path, value) for value in (GONE, *wrong)])


def node_labels(objects: list[dict]) -> dict:
    return at(objects, STATEFUL_SET, "spec/template/metadata/labels")


def selects_exactly_the_nodes(name: str, path: str) -> Claim:
    def holds(objects: list[dict]) -> str | None:
        selector = at(objects, name, path)
        wanted = {key: node_labels(objects)[key] for key in ("app.kubernetes.io/name", "app.kubernetes.io/component")}
        return None if selector == wanted else f"{name} {path} is {selector!r}, the pods carry {wanted!r}"

    return Claim(
        f"{name} selects the nodes and nothing else ({path})",
        holds,
        [(name, f"{path}/app.kubernetes.io~1component", GONE), (name, f"{path}/app.kubernetes.io~1name", "other")],
    )


def every_pod(objects: list[dict]) -> list[dict]:
    count = at(objects, STATEFUL_SET, "spec/replicas")
    return [manifests.pod(objects, ordinal, "somewhere") for ordinal in range(count)]


def peers_find_each_other(objects: list[dict]) -> str | None:
    service = at(objects, STATEFUL_SET, "spec/serviceName")
    locate(objects, f"Service/{service}")
    pods = every_pod(objects)
    reachable = [f"loadline-{ordinal}.{service}.somewhere.svc:{pod['ports']['grpc']}" for ordinal, pod in enumerate(pods)]
    for ordinal, pod in enumerate(pods):
        environment = pod["environment"]
        if environment.get("LOADLINE_NAME") != f"loadline-{ordinal}":
            return f"pod {ordinal} is called {environment.get('LOADLINE_NAME')!r}"
        if environment.get("LOADLINE_ADVERTISE") != reachable[ordinal]:
            return f"pod {ordinal} advertises {environment.get('LOADLINE_ADVERTISE')!r}, and is at {reachable[ordinal]}"
        if environment.get("LOADLINE_PEERS", "").split(",") != reachable:
            return f"pod {ordinal} has peers {environment.get('LOADLINE_PEERS')!r}, not {reachable}"
        if environment.get("LOADLINE_JOIN") != environment["LOADLINE_PEERS"]:
            return f"pod {ordinal} would join {environment.get('LOADLINE_JOIN')!r}, not its peers"
    return None


def listens_where_the_ports_are(objects: list[dict]) -> str | None:
    for pod in every_pod(objects):
        for name in ("grpc", "http"):
            wanted = f"0.0.0.0:{pod['ports'][name]}"
            found = pod["environment"].get(f"LOADLINE_{name.upper()}_LISTEN")
            if found != wanted:
                return f"{name} listens on {found}, the container's port is {wanted}"
    return None


def services_lead_to_grpc(objects: list[dict]) -> str | None:
    ports = every_pod(objects)[0]["ports"]
    for name in (PEERS, CLIENTS):
        found = [(port["port"], port["targetPort"]) for port in at(objects, name, "spec/ports")]
        if found != [(ports["grpc"], "grpc")]:
            return f"{name} has ports {found}"
    return None


def annotations_lead_to_the_metrics(objects: list[dict]) -> str | None:
    annotations = at(objects, STATEFUL_SET, "spec/template/metadata/annotations")
    wanted = ("true", str(every_pod(objects)[0]["ports"]["http"]), "/metrics")
    found = tuple(annotations.get(f"prometheus.io/{key}") for key in ("scrape", "port", "path"))
    return None if found == wanted else f"{found}, not {wanted}"


def data_is_below_the_mount(objects: list[dict]) -> str | None:
    mounts = {mount["name"]: pathlib.PurePath(mount["mountPath"]) for mount in at(objects, STATEFUL_SET, f"{NODE}/volumeMounts")}
    claims = [claim["metadata"]["name"] for claim in at(objects, STATEFUL_SET, "spec/volumeClaimTemplates")]
    folder = pathlib.PurePath(at(objects, CONFIG, "data/LOADLINE_DATA_DIR"))
    if len(claims) != 1 or claims[0] not in mounts:
        return f"the claims {claims} are not mounted"
    return None if mounts[claims[0]] in folder.parents else f"{folder} is not below the mount {mounts[claims[0]]}"


def budget_is_a_majority(objects: list[dict]) -> str | None:
    replicas, available = at(objects, STATEFUL_SET, "spec/replicas"), at(objects, BUDGET, "spec/minAvailable")
    return None if available == replicas // 2 + 1 else f"{available} of {replicas} is no majority"


def is_restricted(objects: list[dict]) -> str | None:
    """The restricted profile of the Pod Security Standards, as far as a pod on Linux can break it."""
    pod = at(objects, STATEFUL_SET, POD)
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            return f"{field} is set"
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    for volume in pod.get("volumes", []):
        if not set(volume) - {"name"} <= allowed:
            return f"volume {volume}"
    for container in pod["containers"] + pod.get("initContainers", []):
        context = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
        if context.get("privileged"):
            return "privileged"
        if context.get("allowPrivilegeEscalation") is not False:
            return "allowPrivilegeEscalation is not false"
        if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
            return "may run as root"
        if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            return "no seccomp profile"
        capabilities = context.get("capabilities", {})
        if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            return f"capabilities {capabilities}"
        if any(port.get("hostPort") for port in container.get("ports", [])):
            return "a host port"
    return None


def probes_ask_the_right_question(objects: list[dict]) -> str | None:
    wanted = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    found = every_pod(objects)[0]["probes"]
    if found != {kind: {"port": "http", "path": path} for kind, path in wanted.items()}:
        return f"probes are {found}"
    return None


def patience(objects: list[dict], kind: str) -> int:
    probe = at(objects, STATEFUL_SET, f"{NODE}/{kind}")
    return probe["periodSeconds"] * probe["failureThreshold"]


def probes_are_patient(objects: list[dict]) -> str | None:
    for kind, seconds in (("startupProbe", 120), ("livenessProbe", 30)):
        if patience(objects, kind) < seconds:
            return f"{kind} gives up after {patience(objects, kind)} s, less than {seconds}"
    return None


def leadership_is_handed_on(objects: list[dict]) -> str | None:
    command = at(objects, STATEFUL_SET, f"{NODE}/lifecycle/preStop/exec/command")
    port = every_pod(objects)[0]["ports"]["grpc"]
    if command is GONE or command[:4] != ["loadline", "operator", "raft", "transfer-leadership"]:
        return f"preStop is {command}"
    if "--if-leader" not in command:
        return "a follower's preStop would move the leader"
    # The kubelet replaces no $(NAME) in a hook, so what a hook needs must be written out or be in the environment.
    if any("$(" in word for word in command):
        return f"preStop has a reference that nobody resolves: {command}"
    if f"--endpoint=http://127.0.0.1:{port}" not in command:
        return f"preStop does not ask its own node: {command}"
    seconds = [int(found[1]) for word in command if (found := re.fullmatch(r"--timeout=(\d+)s", word))]
    grace = at(objects, STATEFUL_SET, f"{POD}/terminationGracePeriodSeconds")
    if len(seconds) != 1 or grace is GONE or seconds[0] + 30 > grace:
        return f"preStop may take {seconds} of {grace} s, and leaves less than 30 s for the node itself"
    return None


def ports_of(rule: dict) -> list[tuple]:
    return [(port["port"], port["protocol"]) for port in rule.get("ports", [])]


def only_the_named_get_in(objects: list[dict]) -> str | None:
    ports = every_pod(objects)[0]["ports"]
    nodes = {"podSelector": {"matchLabels": at(objects, STATEFUL_SET, "spec/selector/matchLabels")}}
    clients = {"podSelector": {"matchLabels": {"loadline-client": "true"}}}
    prometheus = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}
    wanted = [
        {"from": [nodes, clients], "ports": [{"port": ports["grpc"], "protocol": "TCP"}]},
        {"from": [prometheus], "ports": [{"port": ports["http"], "protocol": "TCP"}]},
    ]
    found = at(objects, POLICY, "spec/ingress")
    return None if found == wanted else f"ingress is {found}, not {wanted}"


def only_peers_and_names_get_out(objects: list[dict]) -> str | None:
    ports = every_pod(objects)[0]["ports"]
    nodes = {"podSelector": {"matchLabels": at(objects, STATEFUL_SET, "spec/selector/matchLabels")}}
    rules = at(objects, POLICY, "spec/egress")
    if len(rules) != 2 or rules[0].get("to") != [nodes] or ports_of(rules[0]) != [(ports["grpc"], "TCP")]:
        return f"egress to the peers is {rules}"
    if sorted(ports_of(rules[1])) != [(53, "TCP"), (53, "UDP")]:
        return f"egress for names is {rules[1]}"
    return None


def resources_are_bounded(objects: list[dict]) -> str | None:
    resources = at(objects, STATEFUL_SET, f"{NODE}/resources")
    missing = {"cpu", "memory"} - set(resources.get("requests", {})) or {"memory"} - set(resources.get("limits", {}))
    if missing:
        return f"no bound on {missing}"
    return "a CPU limit throttles heartbeats" if "cpu" in resources["limits"] else None


def image_is_this_version(objects: list[dict]) -> str | None:
    workspace = tomllib.loads((entry.REPOSITORY / "Cargo.toml").read_text())
    version = workspace["workspace"]["package"]["version"]
    image = at(objects, STATEFUL_SET, f"{NODE}/image")
    return None if image.endswith(f":{version}") else f"{image} is not version {version}"


def namespace_is_the_overlays_choice(objects: list[dict]) -> str | None:
    namespaces = {item["metadata"]["name"]: item for item in objects if item["kind"] == "Namespace"}
    found = {item["metadata"].get("namespace") for item in objects if item["kind"] != "Namespace"}
    if not namespaces:
        return None if found == {None} else f"the base is tied to {found}"
    if found != set(namespaces):
        return f"objects are in {found}, the namespaces are {set(namespaces)}"
    for name, namespace in namespaces.items():
        if namespace["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce") != "restricted":
            return f"namespace {name} does not enforce restricted pods"
    return None


CLAIMS = [
    equals("there are three nodes", STATEFUL_SET, "spec/replicas", 3, 2),
    equals("the nodes start at once", STATEFUL_SET, "spec/podManagementPolicy", "Parallel", "OrderedReady"),
    equals("updates go one pod at a time", STATEFUL_SET, "spec/updateStrategy", {"type": "RollingUpdate"}, {"type": "OnDelete"}),
    equals("the pods' names belong to the headless service", STATEFUL_SET, "spec/serviceName", "loadline-peers", "loadline"),
    equals("the peers' service is headless", PEERS, "spec/clusterIP", "None", "10.0.0.1"),
    equals("peers find each other before they are ready", PEERS, "spec/publishNotReadyAddresses", True, False),
    Claim(
        "clients see only nodes that are ready",
        lambda objects: None if not at(objects, CLIENTS, "spec").get("publishNotReadyAddresses") else "it publishes all",
        [(CLIENTS, "spec/publishNotReadyAddresses", True)],
    ),
    selects_exactly_the_nodes(STATEFUL_SET, "spec/selector/matchLabels"),
    selects_exactly_the_nodes(PEERS, "spec/selector"),
    selects_exactly_the_nodes(CLIENTS, "spec/selector"),
    selects_exactly_the_nodes(BUDGET, "spec/selector/matchLabels"),
    selects_exactly_the_nodes(POLICY, "spec/podSelector/matchLabels"),
    selects_exactly_the_nodes(
        STATEFUL_SET,
        f"{POD}/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm"
        "/labelSelector/matchLabels",
    ),
    selects_exactly_the_nodes(STATEFUL_SET, f"{POD}/topologySpreadConstraints/0/labelSelector/matchLabels"),
    equals("a drain leaves a majority", BUDGET, "spec/minAvailable", 2, 1),
    Claim("the budget is a majority of the nodes", budget_is_a_majority, [(BUDGET, "spec/minAvailable", 1), (STATEFUL_SET, "spec/replicas", 5)]),
    Claim(
        "the pod is restricted",
        is_restricted,
        [
            (STATEFUL_SET, f"{POD}/hostNetwork", True),
            (STATEFUL_SET, f"{POD}/volumes", [{"name": "host", "hostPath": {"path": "/"}}]),
            (STATEFUL_SET, f"{NODE}/securityContext/privileged", True),
            (STATEFUL_SET, f"{NODE}/securityContext/allowPrivilegeEscalation", GONE),
            (STATEFUL_SET, f"{NODE}/securityContext/runAsNonRoot", False),
            (STATEFUL_SET, f"{POD}/securityContext/runAsUser", 0),
            (STATEFUL_SET, f"{NODE}/securityContext/seccompProfile/type", "Unconfined"),
            (STATEFUL_SET, f"{NODE}/securityContext/capabilities/drop", ["NET_RAW"]),
            (STATEFUL_SET, f"{NODE}/securityContext/capabilities/add", ["SYS_ADMIN"]),
            (STATEFUL_SET, f"{NODE}/ports/0/hostPort", 7700),
        ],
    ),
    equals("the image is read-only", STATEFUL_SET, f"{NODE}/securityContext/readOnlyRootFilesystem", True, False),
    equals("the volume belongs to the user that the node runs as", STATEFUL_SET, f"{POD}/securityContext/fsGroup", 65532, 0),
    equals("the nodes have an account of their own", STATEFUL_SET, f"{POD}/serviceAccountName", "loadline", "default"),
    equals("the pod gets no token", STATEFUL_SET, f"{POD}/automountServiceAccountToken", False, True),
    equals("the account gives no token", ACCOUNT, "automountServiceAccountToken", False, True),
    equals("no service link looks like a configuration key", STATEFUL_SET, f"{POD}/enableServiceLinks", False, True),
    equals("a deleted set leaves its disks", STATEFUL_SET, "spec/persistentVolumeClaimRetentionPolicy/whenDeleted", "Retain", "Delete"),
    equals("a smaller set leaves its disks", STATEFUL_SET, "spec/persistentVolumeClaimRetentionPolicy/whenScaled", "Retain", "Delete"),
    equals("a disk has one machine", STATEFUL_SET, "spec/volumeClaimTemplates/0/spec/accessModes", ["ReadWriteOnce"], ["ReadWriteMany"]),
    Claim(
        "the data is on the volume, in a folder of its own",
        data_is_below_the_mount,
        [
            (CONFIG, "data/LOADLINE_DATA_DIR", "/var/lib/loadline"),
            (CONFIG, "data/LOADLINE_DATA_DIR", "/tmp/node"),
            (STATEFUL_SET, f"{NODE}/volumeMounts/0/name", "other"),
        ],
    ),
    Claim("probes ask whether the process lives, and whether it is ready", probes_ask_the_right_question, [
        (STATEFUL_SET, f"{NODE}/livenessProbe/httpGet/path", "/readyz"),
        (STATEFUL_SET, f"{NODE}/readinessProbe/httpGet/path", "/livez"),
        (STATEFUL_SET, f"{NODE}/startupProbe/httpGet/port", "grpc"),
    ]),
    Claim("probes are patient", probes_are_patient, [
        (STATEFUL_SET, f"{NODE}/livenessProbe/failureThreshold", 1),
        (STATEFUL_SET, f"{NODE}/startupProbe/failureThreshold", 3),
    ]),
    Claim("a pod that stops hands leadership on, and only its own", leadership_is_handed_on, [
        (STATEFUL_SET, f"{NODE}/lifecycle/preStop", {"exec": {"command": ["sleep", "5"]}}),
        (STATEFUL_SET, f"{NODE}/lifecycle/preStop/exec/command/4", "--quiet"),
        (STATEFUL_SET, f"{NODE}/lifecycle/preStop/exec/command/5", "--endpoint=http://loadline:7700"),
        (STATEFUL_SET, f"{NODE}/lifecycle/preStop/exec/command/5", "--endpoint=http://$(POD_NAME):7700"),
        (STATEFUL_SET, f"{NODE}/lifecycle/preStop/exec/command/6", "--timeout=50s"),
        (STATEFUL_SET, f"{POD}/terminationGracePeriodSeconds", GONE),
    ]),
    Claim("every pod names itself and all its peers, by names that resolve", peers_find_each_other, [
        (STATEFUL_SET, "spec/replicas", 4),
        (STATEFUL_SET, f"{NODE}/env/2/value", "loadline-0"),
        (STATEFUL_SET, f"{NODE}/env/3/value", "$(POD_NAME).loadline.$(POD_NAMESPACE).svc:7700"),
        (STATEFUL_SET, f"{NODE}/env/4/value", "loadline-0.loadline-peers.somewhere.svc:7700"),
        (STATEFUL_SET, f"{NODE}/env/5", GONE),
        (STATEFUL_SET, f"{NODE}/ports/0/containerPort", 7701),
    ]),
    Claim("a node listens where its ports are, and not only for itself", listens_where_the_ports_are, [
        (CONFIG, "data/LOADLINE_GRPC_LISTEN", "127.0.0.1:7700"),
        (CONFIG, "data/LOADLINE_HTTP_LISTEN", "0.0.0.0:8701"),
    ]),
    Claim("services lead to the gRPC port", services_lead_to_grpc, [
        (PEERS, "spec/ports/0/targetPort", "http"),
        (CLIENTS, "spec/ports/0/port", 8700),
    ]),
    Claim("Prometheus is told where the metrics are", annotations_lead_to_the_metrics, [
        (STATEFUL_SET, "spec/template/metadata/annotations/prometheus.io~1port", "7700"),
    ]),
    equals("what no rule names is refused, both ways", POLICY, "spec/policyTypes", ["Ingress", "Egress"], ["Ingress"]),
    Claim("only peers, clients and Prometheus get in, each to its port", only_the_named_get_in, [
        (POLICY, "spec/ingress/0/from", GONE),
        (POLICY, "spec/ingress/1/from/0/podSelector", GONE),
        (POLICY, "spec/ingress/1/ports/0/port", 7700),
        (POLICY, "spec/ingress/2", {}),
    ]),
    Claim("a node reaches its peers and the name server, nothing else", only_peers_and_names_get_out, [
        (POLICY, "spec/egress/0/to", GONE),
        (POLICY, "spec/egress/0/ports/0/port", 8700),
        (POLICY, "spec/egress/1/ports", GONE),
        (POLICY, "spec/egress/2", {}),
    ]),
    Claim("memory is bounded, CPU is not", resources_are_bounded, [
        (STATEFUL_SET, f"{NODE}/resources/limits/cpu", "1"),
        (STATEFUL_SET, f"{NODE}/resources/limits/memory", GONE),
        (STATEFUL_SET, f"{NODE}/resources/requests/cpu", GONE),
    ]),
    Claim("the image is the version of this tree", image_is_this_version, [(STATEFUL_SET, f"{NODE}/image", "loadline:latest")]),
    Claim("the namespace is the overlay's choice", namespace_is_the_overlays_choice, [(BUDGET, "metadata/namespace", "other")]),
]


def check() -> list[str]:
    problems = []
    for folder in manifests.BUILDS:
        shown = folder.relative_to(entry.REPOSITORY)
        objects = manifests.build(folder)
        for claim in CLAIMS:
            wrong = claim.holds(objects)
            if wrong:
                problems.append(f"{shown}: {claim.says}: {wrong}")
            for name, path, value in claim.breaks:
                broken = copy.deepcopy(objects)
                put(broken, name, path, value)
                if claim.holds(broken) is None:
                    shown_value = "nothing" if value is GONE else repr(value)
                    problems.append(f"{shown}: {claim.says}: still holds with {shown_value} at {name} {path}")
        print(f"{shown}: {len(CLAIMS)} claims, {sum(len(claim.breaks) for claim in CLAIMS)} ways to break them")
    return problems
