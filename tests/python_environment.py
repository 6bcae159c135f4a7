"""A Python environment for a script of the tests, made on first use from its requirements.

What is missing is an error that says how to get it, never a skipped check.
"""

import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def enter(script: pathlib.Path, requirements: pathlib.Path, name: str) -> None:
    """Runs `script` again inside its environment, unless that is where it runs already."""
    if sys.version_info < (3, 11):
        sys.exit(f"Python 3.11 or later is needed for {script.relative_to(REPOSITORY)}; this is {sys.version}")
    folder = cache_folder(requirements, name)
    python = make(folder, requirements)
    if pathlib.Path(sys.executable).resolve() != python.resolve() or sys.prefix != str(folder):
        # -B: no byte code beside the sources.
        os.execv(python, [str(python), "-B", str(script), *sys.argv[1:]])


def cache_folder(requirements: pathlib.Path, name: str) -> pathlib.Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # By content and interpreter: a changed requirement or a new Python is a new environment, not a half-updated one.
    key = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:16]
    return pathlib.Path(cache) / "loadline-tests" / f"{name}-{key}"


def make(folder: pathlib.Path, requirements: pathlib.Path) -> pathlib.Path:
    """The interpreter of an environment with the requirements."""
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
            [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(requirements)],
            f"the packages in {requirements.relative_to(REPOSITORY)} are needed, and pip could not install them",
        )
        complete.touch()
    return python


def run_or_explain(command: list[str], explanation: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{explanation}\n{' '.join(command)} said:\n{done.stdout}")
