"""Checks of deploy/, one by name: `python3 tests/deploy/check.py claims`.

Here: choosing a check, in the Python environment that the checks need. `tests/tests/deploy.rs` runs each as a
test of its own. Not here: the checks themselves, in the modules beside this one; and nothing below needs a cluster or a
container engine.

What is missing is an error that says how to get it, never a skipped check.
"""

import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

import python_environment

REPOSITORY = python_environment.REPOSITORY


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "check",
        choices=["kustomize", "schemas", "claims", "dockerfile", "pods"],
        help="kustomize: overlays build; schemas: Kubernetes accepts them; claims: they keep what the docs promise; "
        "dockerfile: it is sound; pods: prints what each pod would run, as JSON",
    )
    options = parser.parse_args()
    python_environment.enter(HERE / "check.py", HERE / "requirements.txt", "deploy")

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
