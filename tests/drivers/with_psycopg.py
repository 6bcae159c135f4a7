"""What psycopg 3 does with a node, with text and with binary parameters and results."""

import datetime
import os
import threading
import time

import psycopg
from psycopg.types.json import Jsonb

ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"


def run(host: str, port: int) -> None:
    def connect(**more):
        options = {"user": "root", "password": os.environ["PGPASSWORD"], "dbname": "loadline", "autocommit": True, **more}
        return psycopg.connect(host=host, port=port, connect_timeout=20, **options)

    for check in [logging_in, parameters, results, prepared, transactions, errors, cancelling, timing_out, many_rows]:
        check(connect)
        print(f"psycopg: {check.__name__} holds", flush=True)


def refused(code, work):
    try:
        work()
    except psycopg.Error as error:
        assert error.sqlstate == code, f"{error.sqlstate} and not {code}: {error}"
        return error
    raise AssertionError(f"it should have been refused with {code}")


def logging_in(connect):
    with connect() as connection:
        assert connection.info.user == "root"
        assert connection.info.parameter_status("server_encoding") == "UTF8"
        assert connection.info.server_version >= 150000
    for wrong in [{"password": "wrong"}, {"user": "nobody"}]:
        try:
            connect(**wrong)
        except psycopg.OperationalError as error:
            assert "password authentication failed" in str(error), error
        else:
            raise AssertionError("a wrong login was let in")


def parameters(connect):
    moment = datetime.datetime(2026, 11, 16, 10, 0, 0, 500000, tzinfo=datetime.timezone.utc)
    with connect() as connection:
        for binary in [False, True]:
            sent = "%b" if binary else "%s"
            with connection.cursor(binary=binary) as cursor:
                for kind, value in [
                    ("int8", 2**40),
                    ("int8", -7),
                    ("text", "Käse 'quoted' \"twice\" \\ ; --"),
                    ("text", ""),
                    ("bool", True),
                    ("bool", False),
                    ("float8", 1.5),
                    ("timestamptz", moment),
                    ("text", None),
                    ("text[]", ["a", "b c", None]),
                ]:
                    cursor.execute(f"SELECT {sent}::{kind} AS it", [value])
                    found = cursor.fetchone()[0]
                    assert found == value, f"{kind}: {found!r} and not {value!r}, binary: {binary}"
                cursor.execute(f"SELECT {sent}::jsonb ->> 'a'", [Jsonb({"a": "x", "b": [1, None]})])
                assert cursor.fetchone()[0] == "x"
                # In the place of a value, of a type that follows from the column.
                cursor.execute(f"SELECT name FROM clusters WHERE name = {sent} AND created_at < {sent}", ["shop", moment.replace(year=2100)])
                assert cursor.fetchall() == [("shop",)]


def results(connect):
    with connect() as connection:
        for binary in [False, True]:
            with connection.cursor(binary=binary) as cursor:
                cursor.execute(
                    "SELECT c.created_at, s.config, s.enabled, c.replicas, c.name, NULL::text AS nothing"
                    " FROM mz_internal.mz_scaling_strategies s CROSS JOIN loadline.clusters c WHERE c.name = 'shop'"
                )
                created, config, enabled, replicas, name, nothing = cursor.fetchone()
                assert isinstance(created, datetime.datetime) and created.tzinfo is not None, created
                age = datetime.datetime.now(datetime.timezone.utc) - created
                assert abs(age) < datetime.timedelta(hours=1), age
                assert config["size"] == "100cc", config
                assert enabled is True and replicas == 0 and name == "shop" and nothing is None
                names = [column.name for column in cursor.description]
                assert names == ["created_at", "config", "enabled", "replicas", "name", "nothing"], names
                # timestamptz, jsonb, bool, int8, text, text
                kinds = [column.type_code for column in cursor.description]
                assert kinds == [1184, 3802, 16, 20, 25, 25], kinds


def prepared(connect):
    with connect() as connection:
        for number in range(8):
            cursor = connection.execute("SELECT %s::int8 + 1, %s", [number, f"n{number}"], prepare=True)
            assert cursor.fetchone() == (number + 1, f"n{number}")
        # What a prepared statement names may change between two uses.
        ask = "SELECT count(*) FROM clusters WHERE name LIKE %s"
        before = connection.execute(ask, ["prepared%"], prepare=True).fetchone()[0]
        connection.execute("CREATE CLUSTER prepared_one")
        assert connection.execute(ask, ["prepared%"], prepare=True).fetchone()[0] == before + 1
        connection.execute("DROP CLUSTER prepared_one")
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int8", [number]) for number in range(5)]
        assert [cursor.fetchone()[0] for cursor in cursors] == list(range(5))


def transactions(connect):
    with connect() as connection, connect() as other:
        count = "SELECT count(*) FROM clusters WHERE name LIKE 'tx%'"
        try:
            with connection.transaction():
                connection.execute("CREATE CLUSTER tx1")
                assert connection.execute(count).fetchone()[0] == 1
                assert other.execute(count).fetchone()[0] == 0
                raise RuntimeError("changed my mind")
        except RuntimeError:
            pass
        assert connection.execute(count).fetchone()[0] == 0
        with connection.transaction():
            connection.execute("CREATE CLUSTER tx1")
            connection.execute("CREATE CLUSTER tx2")
        assert other.execute(count).fetchone()[0] == 2
        # After a mistake nothing but the end is accepted, and nothing of it has happened.
        connection.autocommit = False
        connection.execute("DROP CLUSTER tx1")
        refused("42710", lambda: connection.execute("CREATE CLUSTER tx2"))
        refused("25P02", lambda: connection.execute("SELECT 1"))
        connection.rollback()
        connection.autocommit = True
        assert connection.execute(count).fetchone()[0] == 2
        connection.execute("DROP CLUSTER tx1; DROP CLUSTER tx2")


def errors(connect):
    with connect() as connection:
        error = refused("42601", lambda: connection.execute("SELEC 1"))
        assert error.diag.statement_position == "1", error.diag.statement_position
        refused("42P01", lambda: connection.execute("SELECT * FROM nowhere"))
        error = refused("42703", lambda: connection.execute("SELECT nmae FROM clusters"))
        assert error.diag.message_hint == 'Perhaps you meant "name".', error.diag.message_hint
        assert error.diag.severity_nonlocalized == "ERROR"
        refused("42704", lambda: connection.execute("DROP CLUSTER nowhere"))
        refused("42710", lambda: connection.execute("CREATE CLUSTER shop"))
        refused("22023", lambda: connection.execute("SET loadline.consistency = 'maybe'"))
        # The connection has outlived all of them.
        assert connection.execute("SELECT 1").fetchone() == (1,)


def cancelling(connect):
    with connect() as connection:
        ended = threading.Event()

        def cancel():
            while not ended.wait(0.1):
                connection.cancel_safe(timeout=10)

        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            refused("57014", lambda: connection.execute(ENDLESS))
        finally:
            ended.set()
            canceller.join()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def timing_out(connect):
    with connect(options="-c statement_timeout=100") as connection:
        connection.execute("SET statement_timeout = '100ms'")
        began = time.monotonic()
        error = refused("57014", lambda: connection.execute(ENDLESS))
        assert "statement timeout" in str(error), error
        assert time.monotonic() - began < 10
        connection.execute("RESET statement_timeout")
        assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)


def many_rows(connect):
    with connect() as connection, connection.cursor() as cursor:
        seen = sum(1 for _ in cursor.stream("SELECT n FROM generate_series(1, 2000) AS n"))
        assert seen == 2000, seen
        cursor.executemany("SELECT %s::int8", [(1,), (2,)], returning=True)
        assert cursor.fetchone() == (1,)
