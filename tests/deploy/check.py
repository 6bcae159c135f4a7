"""Checks of deploy/, one by name: `python3 tests/deploy/check.py claims`.

Here: making the Python environment that the checks need, and choosing a check. `tests/tests/deploy.rs` runs each as a
test of its own. Not here: the checks themselves, in the modules beside this one; and nothing below needs a cluster or a
container engine.

What is missing is an error that says how to get it, never a skipped check.
"""

import argparse
import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
REQUIREMENTS = HERE / "requirements.txt"


def cache_folder() -> pathlib.Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # By content and interpreter: a changed requirement or a new Python is a new environment, not a half-updated one.
    key = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    return pathlib.Path(cache) / "loadline-tests" / f"deploy-{key}"


def environment() -> pathlib.Path:
    """The interpreter of an environment with the requirements, made on first use."""
    folder = cache_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    complete = folder / "complete"
    # Tests run side by side, and two of them must not install into one folder.
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Written last, so that an installation cut short is done again rather than trusted.
        if complete.exists():
            return python
        run_or_explain(
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            "Python's venv module is needed: on Debian, `apt-get install python3-venv`",
        )
        run_or_explain(
            [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(REQUIREMENTS)],
            f"the packages in {REQUIREMENTS.relative_to(REPOSITORY)} are needed, and pip could not install them",
        )
        complete.touch()
    return python


def run_or_explain(command: list[str], explanation: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{explanation}\n{' '.join(command)} said:\n{done.stdout}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "check",
        choices=["kustomize", "schemas", "claims", "dockerfile", "pods"],
        help="kustomize: overlays build; schemas: Kubernetes accepts them; claims: they keep what the docs promise; "
        "dockerfile: it is sound; pods: prints what each pod would run, as JSON",
    )
    options = parser.parse_args()
    if sys.version_info < (3, 11):
        sys.exit(f"Python 3.11 or later is needed for the checks of deploy/; this is {sys.version}")
    python = environment()
    if pathlib.Path(sys.executable).resolve() != python.resolve() or sys.prefix != str(cache_folder()):
        # -B: no byte code beside the sources.
        os.execv(python, [str(python), "-B", str(HERE / "check.py"), options.check])

    # Only the environment has what these import.
    import claims
    import dockerfile
    import manifests

    problems = {
        "kustomize": manifests.check_kustomize,
        "schemas": manifests.check_schemas,
        "claims": claims.check,
        "dockerfile": dockerfile.check,
        "pods": manifests.print_pods,
    }[options.check]()
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
