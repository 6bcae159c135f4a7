"""The manifests as a whole: do they build, does Kubernetes know every field, what would each pod run.

Not here: what the fields must say (`claims`).
"""

import json
import pathlib
import re
import shutil
import subprocess

import assemble
import check
import kubernetes_validate
import yaml

KUSTOMIZE = check.REPOSITORY / "deploy" / "kustomize"
BUILDS = [KUSTOMIZE / "base", KUSTOMIZE / "overlays" / "small"]

# The oldest version that has every field we set (unhealthyPodEvictionPolicy), and all after it for which there is a schema.
KUBERNETES_MIN = (1, 27)


def build(folder: pathlib.Path) -> list[dict]:
    return assemble.build(folder)


def find(objects: list[dict], kind: str, name: str) -> dict:
    found = [item for item in objects if item["kind"] == kind and re.fullmatch(name, item["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects {kind}/{name}, expected one"
    return found[0]


def real_kustomize() -> list[str] | None:
    """A kustomize that knows `resources` with folders: its own binary, or the one inside a recent kubectl."""
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    if shutil.which("kubectl"):
        done = subprocess.run(
            ["kubectl", "version", "--client", "--output=json"], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            version = json.loads(done.stdout)["clientVersion"]
            if int(re.match(r"\d+", version["minor"])[0]) >= 22:
                return ["kubectl", "kustomize"]
    return None


def check_kustomize() -> list[str]:
    """Every folder under overlays/ is checked, and the stand-in agrees with a real kustomize where there is one."""
    problems = []
    overlays = {path.parent for path in KUSTOMIZE.glob("**/kustomization.yaml")}
    if overlays != set(BUILDS):
        problems.append(f"BUILDS does not list {sorted(map(str, overlays ^ set(BUILDS)))}")
    real = real_kustomize()
    for folder in BUILDS:
        ours = build(folder)
        shown = folder.relative_to(check.REPOSITORY)
        if real is None:
            print(f"{shown}: {len(ours)} objects, built by assemble.py; no kustomize here to compare with")
            continue
        done = subprocess.run([*real, str(folder)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            problems.append(f"{' '.join(real)} {shown}: {done.stderr}")
            continue
        theirs = list(yaml.safe_load_all(done.stdout))
        print(f"{shown}: {len(ours)} objects, compared with those of `{' '.join(real)}`")
        problems += [f"{shown}: {line}" for line in differences(by_name(ours), by_name(theirs))]
    return problems


def by_name(objects: list[dict]) -> dict:
    named = {f"{item['kind']}/{item['metadata']['name']}": item for item in objects}
    assert len(named) == len(objects), "two objects of one kind and name"
    return named


def differences(ours, theirs, where: str = "") -> list[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        lines = []
        for key in sorted({*ours, *theirs}):
            if key not in ours or key not in theirs:
                lines.append(f"{where}/{key} is only in {'ours' if key in ours else 'theirs'}")
            else:
                lines += differences(ours[key], theirs[key], f"{where}/{key}")
        return lines
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [line for at, pair in enumerate(zip(ours, theirs)) for line in differences(*pair, f"{where}/{at}")]
    return [] if ours == theirs else [f"{where} is {ours!r} in ours, {theirs!r} in theirs"]


def schema_versions() -> list[str]:
    folder = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    versions = [path.name[1:].removesuffix("-local-strict") for path in folder.glob("v*-local-strict")]
    numbers = sorted(tuple(map(int, version.split(".")[:2])) for version in versions)
    return [f"{major}.{minor}" for major, minor in numbers if (major, minor) >= KUBERNETES_MIN]


def validate(item: dict, version: str) -> str | None:
    """Strict: a field that Kubernetes does not know would be dropped without a word."""
    try:
        used = kubernetes_validate.validate(item, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'/'.join(str(step) for step in error.path)}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return str(error)
    return None if used.split(".")[:2] == version.split(".") else f"checked against {used}, not {version}"


def check_schemas() -> list[str]:
    problems = []
    versions = schema_versions()
    for folder in BUILDS:
        objects = build(folder)
        for version in versions:
            for item in objects:
                problem = validate(item, version)
                if problem:
                    shown = folder.relative_to(check.REPOSITORY)
                    problems.append(f"{shown}: Kubernetes {version}: {item['kind']}/{item['metadata']['name']}: {problem}")
        print(f"{folder.relative_to(check.REPOSITORY)}: {len(objects)} objects against Kubernetes {', '.join(versions)}")
    if len(versions) < 5:
        problems.append(f"only {versions} have schemas")
    # The check must be able to fail, for the reasons it is there for.
    pod = build(BUILDS[0])
    find(pod, "StatefulSet", "loadline")["spec"]["podManagmentPolicy"] = "Parallel"
    find(pod, "PodDisruptionBudget", "loadline")["spec"]["minAvailable"] = [2]
    for name in ["StatefulSet", "PodDisruptionBudget"]:
        if validate(find(pod, name, "loadline"), versions[-1]) is None:
            problems.append(f"a {name} with a wrong field passed")
    return problems


def pod(objects: list[dict], ordinal: int, namespace: str) -> dict:
    """What the kubelet would run for one pod: its environment with every reference resolved, its probes, its preStop."""
    stateful_set = find(objects, "StatefulSet", "loadline")
    container = stateful_set["spec"]["template"]["spec"]["containers"][0]
    fields = {"metadata.name": f"{stateful_set['metadata']['name']}-{ordinal}", "metadata.namespace": namespace}
    environment: dict[str, str] = {}
    for source in container.get("envFrom", []):
        environment |= find(objects, "ConfigMap", source["configMapRef"]["name"])["data"]
    for variable in container["env"]:
        if "valueFrom" in variable:
            environment[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            # As the kubelet does: names that came before; an unknown one stays as it is written.
            environment[variable["name"]] = re.sub(
                r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), variable["value"]
            )
    return {
        "args": container["args"],
        "environment": environment,
        "ports": {port["name"]: port["containerPort"] for port in container["ports"]},
        "probes": {
            kind: {"port": container[kind]["httpGet"]["port"], "path": container[kind]["httpGet"]["path"]}
            for kind in ["startupProbe", "livenessProbe", "readinessProbe"]
        },
        "pre_stop": container["lifecycle"]["preStop"]["exec"]["command"],
    }


def print_pods() -> list[str]:
    objects = build(KUSTOMIZE / "base")
    count = find(objects, "StatefulSet", "loadline")["spec"]["replicas"]
    # And one more than there are: somebody will scale the set.
    print(json.dumps([pod(objects, ordinal, "default") for ordinal in range(count + 1)], indent=2))
    return []
