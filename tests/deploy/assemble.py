"""A small stand-in for `kustomize build`, so that the checks do not need it installed.

It knows what the kustomizations under deploy/ use, and refuses every other key rather than pass over it:

- `resources`: files and folders;
- `configMapGenerator`: `envs`, `literals`, `behavior: merge`, with the hash in the name and in `configMapRef`;
- `namespace`, `images` (`newName`, `newTag`);
- `patches`: JSON patches (`add`, `replace`, `remove`) on a target given by kind and name.

Where a real kustomize is at hand, `manifests.check_kustomize` compares the two object by object.
"""

import copy
import hashlib
import json
import pathlib

import yaml

# Kinds that live in no namespace; of these, deploy/ has only this one.
CLUSTER_WIDE = {"Namespace"}
KNOWN_KEYS = {"apiVersion", "kind", "resources", "configMapGenerator", "namespace", "images", "patches"}


class Unsupported(Exception):
    """The kustomization asks for something that this stand-in does not do."""


def build(folder: pathlib.Path) -> list[dict]:
    """Every object that `kustomize build FOLDER` would print."""
    objects = accumulate(folder)
    hash_config_maps(objects)
    return objects


def accumulate(folder: pathlib.Path) -> list[dict]:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    refuse_unknown(folder, "kustomization", kustomization, KNOWN_KEYS)
    objects: list[dict] = []
    for resource in kustomization.get("resources", []):
        path = folder / resource
        if path.is_dir():
            objects += accumulate(path)
        else:
            objects += [document for document in yaml.safe_load_all(path.read_text()) if document is not None]
    for generator in kustomization.get("configMapGenerator", []):
        generate_config_map(folder, generator, objects)
    for patch in kustomization.get("patches", []):
        apply_patch(folder, patch, objects)
    for image in kustomization.get("images", []):
        refuse_unknown(folder, "image", image, {"name", "newName", "newTag"})
        for pod in pods(objects):
            for container in pod["containers"]:
                name, _, tag = container["image"].partition(":")
                if name == image["name"]:
                    container["image"] = f"{image.get('newName', name)}:{image.get('newTag', tag)}"
    if "namespace" in kustomization:
        for item in objects:
            if item["kind"] not in CLUSTER_WIDE:
                item["metadata"]["namespace"] = kustomization["namespace"]
            else:
                item["metadata"]["name"] = kustomization["namespace"]
    return objects


def refuse_unknown(folder: pathlib.Path, what: str, mapping: dict, known: set[str]) -> None:
    unknown = set(mapping) - known
    if unknown:
        raise Unsupported(f"{folder}: {what} has {sorted(unknown)}, which assemble.py does not know: teach it")


def generate_config_map(folder: pathlib.Path, generator: dict, objects: list[dict]) -> None:
    refuse_unknown(folder, "configMapGenerator", generator, {"name", "behavior", "envs", "literals"})
    lines = list(generator.get("literals", []))
    for name in generator.get("envs", []):
        for line in (folder / name).read_text().splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                lines.append(line)
    data = dict(line.split("=", 1) for line in lines)
    existing = [item for item in objects if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", generator["name"])]
    behavior = generator.get("behavior", "create")
    if behavior == "merge" and existing:
        existing[0]["data"].update(data)
    elif behavior == "create" and not existing:
        objects.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data}
        )
    else:
        raise Unsupported(f"{folder}: configMapGenerator {generator['name']} with behavior {behavior}")


def hash_config_maps(objects: list[dict]) -> None:
    """Puts a hash of the content into each name, and into the pods that refer to it, as kustomize does."""
    for item in objects:
        if item["kind"] != "ConfigMap":
            continue
        name = item["metadata"]["name"]
        # An empty name is what kustomize hashes, whatever the name is.
        content = {"data": item["data"], "kind": "ConfigMap", "name": ""}
        for value in item["data"].values():
            # Go writes these otherwise into JSON, and the hash would differ.
            if not value.isascii() or set("<>&") & set(value):
                raise Unsupported(f"{name}: {value!r} has characters that assemble.py does not hash as kustomize does")
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        # kustomize leaves out the vowels and what looks like them, so that a hash never spells a word.
        item["metadata"]["name"] = f"{name}-{digest[:10].translate(str.maketrans('013ae', 'ghkmt'))}"
        for pod in pods(objects):
            for container in pod["containers"]:
                for source in container.get("envFrom", []):
                    if source.get("configMapRef", {}).get("name") == name:
                        source["configMapRef"]["name"] = item["metadata"]["name"]


def apply_patch(folder: pathlib.Path, patch: dict, objects: list[dict]) -> None:
    refuse_unknown(folder, "patch", patch, {"target", "patch"})
    refuse_unknown(folder, "target", patch["target"], {"kind", "name"})
    wanted = (patch["target"]["kind"], patch["target"]["name"])
    targets = [item for item in objects if (item["kind"], item["metadata"]["name"]) == wanted]
    if len(targets) != 1:
        raise Unsupported(f"{folder}: a patch of {wanted} finds {len(targets)} objects")
    operations = yaml.safe_load(patch["patch"])
    if not isinstance(operations, list):
        raise Unsupported(f"{folder}: only JSON patches (a list of operations)")
    for operation in operations:
        apply_operation(folder, operation, targets[0])


def apply_operation(folder: pathlib.Path, operation: dict, target: dict) -> None:
    *way, last = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
    place = target
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place[step]
    kind = operation["op"]
    if isinstance(place, list):
        if kind == "add":
            place.insert(len(place) if last == "-" else int(last), copy.deepcopy(operation["value"]))
            return
        last = int(last)
        place[last]  # A patch of what is not there is a mistake in the path.
    elif kind != "add" and last not in place:
        raise Unsupported(f"{folder}: {kind} of {operation['path']}, which is not there")
    if kind in ("add", "replace"):
        place[last] = copy.deepcopy(operation["value"])
    elif kind == "remove":
        del place[last]
    else:
        raise Unsupported(f"{folder}: JSON patch operation {kind}")


def pods(objects: list[dict]) -> list[dict]:
    """The pod specs inside the objects."""
    return [item["spec"]["template"]["spec"] for item in objects if item["kind"] in ("StatefulSet", "Deployment", "Job")]
