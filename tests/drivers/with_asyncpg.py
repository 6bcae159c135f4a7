"""What asyncpg does with a node. It prepares everything, and speaks binary only."""

import asyncio
import datetime
import json
import os
import time

import asyncpg

ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"


async def run(host: str, port: int) -> None:
    async def connect(**more):
        options = {"user": "root", "password": os.environ["PGPASSWORD"], "database": "loadline", **more}
        return await asyncpg.connect(host=host, port=port, timeout=20, ssl=False, **options)

    for check in [logging_in, parameters, results, prepared, transactions, errors, cancelling, timing_out, pool]:
        await check(connect)
        print(f"asyncpg: {check.__name__} holds", flush=True)


async def refused(code, work):
    try:
        await work
    except asyncpg.PostgresError as error:
        assert error.sqlstate == code, f"{error.sqlstate} and not {code}: {error}"
        return error
    raise AssertionError(f"it should have been refused with {code}")


async def logging_in(connect):
    connection = await connect()
    assert connection.get_server_version().major >= 15
    assert await connection.fetchval("SELECT current_user") == "root"
    await connection.close()
    await refused("28P01", connect(password="wrong"))
    await refused("28P01", connect(user="nobody"))


async def parameters(connect):
    moment = datetime.datetime(2026, 11, 16, 10, 0, 0, 500000, tzinfo=datetime.timezone.utc)
    connection = await connect()
    for kind, value in [
        ("int8", 2**40),
        ("int4", -7),
        ("int2", 7),
        ("text", "Käse 'quoted' \"twice\" \\ ; --"),
        ("text", ""),
        ("bool", True),
        ("bool", False),
        ("float8", 1.5),
        ("timestamptz", moment),
        ("text", None),
        ("text[]", ["a", "b c", None]),
        ("interval", datetime.timedelta(minutes=5)),
    ]:
        found = await connection.fetchval(f"SELECT $1::{kind}", value)
        assert found == value, f"{kind}: {found!r} and not {value!r}"
    assert await connection.fetchval("SELECT $1::jsonb ->> 'a'", json.dumps({"a": "x"})) == "x"
    ask = "SELECT name FROM clusters WHERE name = $1 AND created_at < $2 AND replicas >= $3"
    found = await connection.fetch(ask, "shop", moment.replace(year=2100), 0)
    assert [row["name"] for row in found] == ["shop"]
    await connection.close()


async def results(connect):
    connection = await connect()
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    row = await connection.fetchrow(
        "SELECT c.created_at, s.config, s.enabled, c.replicas, c.name, NULL::text AS nothing"
        " FROM mz_internal.mz_scaling_strategies s CROSS JOIN loadline.clusters c WHERE c.name = $1",
        "shop",
    )
    assert isinstance(row["created_at"], datetime.datetime) and row["created_at"].tzinfo is not None
    age = datetime.datetime.now(datetime.timezone.utc) - row["created_at"]
    assert abs(age) < datetime.timedelta(hours=1), age
    assert row["config"]["size"] == "100cc", row["config"]
    assert row["enabled"] is True and row["replicas"] == 0 and row["name"] == "shop" and row["nothing"] is None
    await connection.close()


async def prepared(connect):
    connection = await connect()
    statement = await connection.prepare("SELECT name, slots FROM sizes WHERE slots >= $1 ORDER BY name")
    assert [parameter.name for parameter in statement.get_parameters()] == ["int8"]
    described = [(column.name, column.type.name) for column in statement.get_attributes()]
    assert described == [("name", "text"), ("slots", "int8")], described
    for _ in range(3):
        assert [tuple(row) for row in await statement.fetch(0)] == [("100cc", 1)]
    async with connection.transaction():
        seen = [row["n"] async for row in connection.cursor("SELECT n FROM generate_series(1, 120) AS n", prefetch=50)]
    assert seen == list(range(1, 121))
    await connection.close()


async def transactions(connect):
    connection, other = await connect(), await connect()
    count = "SELECT count(*) FROM clusters WHERE name LIKE 'atx%'"
    try:
        async with connection.transaction():
            await connection.execute("CREATE CLUSTER atx1")
            assert await connection.fetchval(count) == 1
            assert await other.fetchval(count) == 0
            raise RuntimeError("changed my mind")
    except RuntimeError:
        pass
    assert await other.fetchval(count) == 0
    async with connection.transaction(isolation="serializable"):
        await connection.execute("CREATE CLUSTER atx1")
    assert await other.fetchval(count) == 1
    async with connection.transaction(readonly=True):
        try:
            await connection.execute("DROP CLUSTER atx1")
        except asyncpg.PostgresError as error:
            assert error.sqlstate == "25006", error
        else:
            raise AssertionError("a read-only transaction wrote")
    await connection.execute("DROP CLUSTER atx1")
    await connection.close()
    await other.close()


async def errors(connect):
    connection = await connect()
    error = await refused("42601", connection.fetch("SELEC 1"))
    assert error.position == "1", error.position
    assert isinstance(error, asyncpg.PostgresSyntaxError)
    await refused("42P01", connection.fetch("SELECT * FROM nowhere"))
    error = await refused("42703", connection.fetch("SELECT nmae FROM clusters"))
    assert error.hint == 'Perhaps you meant "name".', error.hint
    await refused("42710", connection.execute("CREATE CLUSTER shop"))
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


async def cancelling(connect):
    connection = await connect()
    # A time-out of asyncpg's own is a cancel request on a second connection.
    began = time.monotonic()
    try:
        await connection.fetchval(ENDLESS, timeout=0.3)
    except asyncio.TimeoutError:
        pass
    else:
        raise AssertionError("it never ends by itself")
    assert time.monotonic() - began < 15
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


async def timing_out(connect):
    connection = await connect(server_settings={"statement_timeout": "100"})
    assert await connection.fetchval("SHOW statement_timeout") == "100"
    error = await refused("57014", connection.fetchval(ENDLESS))
    assert "statement timeout" in str(error), error
    await connection.close()


async def pool(connect):
    connection = await connect()
    # What a pool does before it hands a connection to somebody else.
    await connection.execute("SET application_name = 'mine'")
    await connection.reset()
    assert await connection.fetchval("SHOW application_name") == ""
    await connection.close()
