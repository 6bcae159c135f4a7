"""The Dockerfile, read rather than built: no container engine is needed, and none is started.

Here: hadolint's rules, what must hold between the Dockerfile and the rest of the repository (toolchain, ports, user,
copied folders), and a table of ways to break it that must be noticed. Not here, and so not proven: that the image builds.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

import check as entry
import manifests

DOCKERFILE = entry.REPOSITORY / "deploy" / "Dockerfile"
IGNORE = entry.REPOSITORY / "deploy" / "Dockerfile.dockerignore"

# What a build must not need: each would be one more thing that the host of a build has to have.
UNWANTED_TOOLS = ["protoc", "cmake", "libssl-dev", "rustup toolchain", "curl", "wget"]

# (what is there, what takes its place): each must be found out.
BREAKS = [
    ("FROM rust:1.95.0-slim-bookworm AS build", "FROM rust:latest AS build"),
    ("FROM rust:1.95.0-slim-bookworm AS build", "FROM rust:1.94.0-slim-bookworm AS build"),
    ("FROM rust:1.95.0-slim-bookworm AS build", "FROM rust AS build"),
    ("RUSTUP_TOOLCHAIN=1.95.0", "RUSTUP_TOOLCHAIN=stable"),
    ("FROM debian:bookworm-slim", "FROM debian"),
    ("USER 65532:65532", "USER root"),
    ("USER 65532:65532", "USER 65532:65532\nUSER 0"),
    ("USER 65532:65532\n", ""),
    ("cargo build --profile dist --locked", "cargo build --profile dist"),
    ("cargo build --profile dist --locked", "cargo build --locked"),
    ("cargo build --profile dist --locked", "cargo build --profile dev --locked"),
    ("target/dist/loadline", "target/release/loadline"),
    ("cargo build", "apt-get install --yes cmake && cargo build"),
    ("EXPOSE 7700 8700", "EXPOSE 7700"),
    ('ENTRYPOINT ["loadline"]', "ENTRYPOINT loadline"),
    ('ENTRYPOINT ["loadline"]', 'ENTRYPOINT ["loadline"]\nHEALTHCHECK CMD loadline status'),
    ("COPY proto ./proto\n", ""),
    ("COPY proto ./proto", "COPY protos ./proto"),
    ("COPY tests ./tests\n", ""),
    ("COPY proto ./proto", "COPY docs ./docs\nCOPY proto ./proto"),
    ("/out/loadline /usr/local/bin/loadline", "/out/loadline /opt/loadline"),
    ("COPY --from=build /out/loadline", "COPY --from=builder /out/loadline"),
]


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, the rest), with continuation lines joined and comments gone."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines()) if word]


def stages(text: str) -> list[dict]:
    found: list[dict] = []
    for word, rest in instructions(text):
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            found.append({"image": image, "name": name, "steps": []})
        else:
            assert found, f"{word} before the first FROM"
            found[-1]["steps"].append((word, rest))
    return found


def values(stage: dict, word: str) -> list[str]:
    return [rest for found, rest in stage["steps"] if found == word]


def copied(stage: dict) -> list[str]:
    """The sources that a stage copies from the repository."""
    sources = []
    for rest in values(stage, "COPY"):
        words = rest.split()
        if not any(word.startswith("--from=") for word in words):
            sources += [word for word in words if not word.startswith("--")][:-1]
    return sources


def not_ignored(source: str) -> bool:
    """Whether the ignore file lets a top-level name through. It shuts out everything first, so only `!name` lines can."""
    lines = [line.strip() for line in IGNORE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return lines[0] == "*" and f"!{source.split('/')[0]}" in lines


def problems_of(text: str) -> list[str]:
    problems = []
    found = stages(text)
    if [stage["name"] for stage in found] != ["build", ""]:
        return [f"stages are {[stage['name'] for stage in found]}, not one named build and the last without a name"]
    build, final = found
    toolchain = tomllib.loads((entry.REPOSITORY / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    pod = manifests.pod(manifests.build(manifests.KUSTOMIZE / "base"), 0, "default")

    for stage in found:
        tag = stage["image"].partition(":")[2]
        if not tag or tag.startswith("latest"):
            problems.append(f"{stage['image']} has no tag that stays")
    if not build["image"].startswith(f"rust:{toolchain}-"):
        problems.append(f"{build['image']} is not the toolchain {toolchain}")
    if f"RUSTUP_TOOLCHAIN={toolchain}" not in values(build, "ENV"):
        problems.append(f"the build does not use the image's own toolchain {toolchain}")

    runs = " ".join(values(build, "RUN"))
    built = re.search(r"cargo build --profile (\w+) --locked --package loadline-cli --bin loadline\b", runs)
    profiles = tomllib.loads((entry.REPOSITORY / "Cargo.toml").read_text())["profile"]
    if not built or profiles.get(built[1], {}).get("inherits") != "release":
        problems.append("the build is not a locked build of the binary with a profile that inherits release")
    elif f" target/{built[1]}/loadline " not in runs:
        problems.append(f"what the profile {built[1]} built is not what is installed")
    problems += [f"the build asks for {tool}" for tool in UNWANTED_TOOLS if tool in runs]
    if values(final, "RUN"):
        problems.append("the last stage runs something: it must only copy")

    for source in copied(build) + copied(final):
        if not (entry.REPOSITORY / source).exists():
            problems.append(f"COPY {source}: there is no such path")
        elif not not_ignored(source):
            problems.append(f"COPY {source}: shut out by {IGNORE.name}")
    for rest in values(final, "COPY"):
        if "--from=build" not in rest.split():
            problems.append(f"COPY {rest}: the last stage copies only from the build")
    if not any(rest.endswith("/out/loadline /usr/local/bin/loadline") for rest in values(final, "COPY")):
        problems.append("the binary is not where a shell-less exec finds it")
    problems += what_the_build_misses([source for source in copied(build)])

    user = manifests.find(manifests.build(manifests.KUSTOMIZE / "base"), "StatefulSet", "loadline")["spec"]["template"]["spec"]
    wanted = f"{user['securityContext']['runAsUser']}:{user['securityContext']['runAsGroup']}"
    if values(final, "USER") != [wanted]:
        problems.append(f"USER is {values(final, 'USER')}, the pods run as {wanted}")
    if values(final, "EXPOSE") != [" ".join(str(port) for port in pod["ports"].values())]:
        problems.append(f"EXPOSE is {values(final, 'EXPOSE')}, the pods have {pod['ports']}")
    if values(final, "ENTRYPOINT") != [json.dumps(["loadline"])]:
        problems.append(f"ENTRYPOINT is {values(final, 'ENTRYPOINT')}: without the brackets a shell would get the signals")
    if any(values(stage, "HEALTHCHECK") for stage in found):
        problems.append("HEALTHCHECK: probes belong to whoever runs the container")
    return problems


def what_the_build_misses(sources: list[str]) -> list[str]:
    """Loads the workspace from nothing but the copied paths, and follows what the sources include from elsewhere."""
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            place = entry.REPOSITORY / source
            if place.is_dir():
                # Links will do: cargo only reads, and a copy would take the build's time for nothing.
                os.symlink(place, pathlib.Path(folder) / source)
            elif place.exists():
                shutil.copy(place, folder)
        command = ["cargo", "metadata", "--no-deps", "--offline", "--format-version=1"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            problems.append(f"the workspace does not load from what is copied: {done.stderr.strip()}")
    roots = [entry.REPOSITORY / source for source in sources]
    for source in sorted((entry.REPOSITORY / "crates").glob("*/src/**/*.rs")):
        for name in re.findall(r'include(?:_str|_bytes)?!\(\s*"([^"]+)"', source.read_text()):
            target = (source.parent / name).resolve()
            if not any(target.is_relative_to(root) for root in roots):
                problems.append(f"{source.relative_to(entry.REPOSITORY)} includes {name}, which is not copied")
    for source in sorted((entry.REPOSITORY / "crates").glob("*/build.rs")):
        for name in re.findall(r'"(/?\.\./[^"]+)"', source.read_text()):
            target = (source.parent / name.lstrip("/")).resolve()
            if not any(target.is_relative_to(root) for root in roots):
                problems.append(f"{source.relative_to(entry.REPOSITORY)} reads {name}, which is not copied")
    return problems


def check() -> list[str]:
    text = DOCKERFILE.read_text()
    hadolint = pathlib.Path(sys.prefix) / "bin" / "hadolint"
    done = subprocess.run([str(hadolint), str(DOCKERFILE)], capture_output=True, text=True, check=False)
    problems = [f"hadolint: {line}" for line in (done.stdout + done.stderr).splitlines()]
    if done.returncode != 0 and not problems:
        problems.append(f"hadolint ended with {done.returncode}")
    problems += problems_of(text)
    for before, after in BREAKS:
        if text.count(before) < 1:
            problems.append(f"the table of breaks is out of date: {before!r} is not in the Dockerfile")
        elif not problems_of(text.replace(before, after, 1)):
            problems.append(f"nobody noticed {after!r} in place of {before!r}")
    print(f"{DOCKERFILE.relative_to(entry.REPOSITORY)}: read and linted, {len(BREAKS)} ways to break it; not built")
    return problems
