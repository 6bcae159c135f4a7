"""Uses the SQL port of a node as Python programs do: `python3 tests/drivers/check.py psycopg HOST PORT`.

The role is `root`, its password in `PGPASSWORD`. `tests/tests/sql_drivers.rs` starts the nodes and runs this once for each
driver. Every check prints its name when it holds; the first that does not ends the run.
"""

import argparse
import asyncio
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

import python_environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver", choices=["psycopg", "asyncpg"])
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    options = parser.parse_args()
    python_environment.enter(HERE / "check.py", HERE / "requirements.txt", "drivers")
    # Only the environment has what these import.
    if options.driver == "psycopg":
        import with_psycopg

        with_psycopg.run(options.host, options.port)
    else:
        import with_asyncpg

        asyncio.run(with_asyncpg.run(options.host, options.port))


if __name__ == "__main__":
    main()
