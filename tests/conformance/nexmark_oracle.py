"""What the queries of Nexmark must give, by DuckDB over the same events at rest."""

import pathlib
from collections.abc import Mapping
from typing import Any, Final

import duckdb
import pyarrow as pa
import yaml

from arkflow_kernel.ids import MonotonicMs
from arkflow_kernel.ports import SourceBatch
from arkflow_ray.components.inputs.nexmark import NexmarkReader
from arkflow_ray.components.inputs.nexmark_config import NexmarkConfig
from arkflow_ray.config.tree import plain, read_tree

EXAMPLES: Final = pathlib.Path(__file__).parents[2] / "examples" / "nexmark"
QUERIES: Final = sorted((path.stem for path in EXAMPLES.glob("*.yaml")), key=lambda q: int(q[1:]))

EVENTS: Final[Mapping[str, int]] = {"events": 10_000, "inter_event_us": 8_000}
"""80 seconds, over a midnight where a query is of days."""

JOINS: Final[Mapping[str, int]] = {"events": 10_000, "inter_event_us": 1_000}
"""For queries with a join, which depend on how long an auction is open."""

_RANKS: Final = {"1": "price < 10000", "2": "price BETWEEN 10000 AND 999999", "3": "price > 999999"}
_DAY: Final = "strftime(date_time, '%Y-%m-%d')"


def _ranked(what: str, name: str) -> str:
    parts = [f"{what} AS total_{name}"]
    parts += [f"{what} FILTER ({rank}) AS rank{n}_{name}" for n, rank in _RANKS.items()]
    return ", ".join(parts)


_STATISTICS: Final = ", ".join(
    [
        _ranked("count(*)", "bids"),
        _ranked("count(DISTINCT bidder)", "bidders"),
        _ranked("count(DISTINCT auction)", "auctions"),
    ]
)

ORACLE: Final[Mapping[str, str]] = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(908 * price AS DECIMAL(24, 0)) * 0.001 AS price, "
    "date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT name, city, state, auction.id AS id
        FROM auction JOIN person ON seller = person.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": """
        SELECT category, avg(final) AS avg_price FROM (
            SELECT id, category, max(price) AS final FROM auction JOIN bid
                ON id = auction AND bid.date_time BETWEEN auction.date_time AND expires
            GROUP BY id, category)
        GROUP BY category""",
    "q5": """
        WITH counts AS (
            SELECT auction, time_bucket(INTERVAL 2 SECOND, date_time)
                - INTERVAL 2 SECOND * step AS starttime, count(*) AS num
            FROM bid, range(5) AS steps(step) GROUP BY ALL
        )
        SELECT auction, num, starttime, starttime + INTERVAL 10 SECOND AS endtime
        FROM counts QUALIFY num = max(num) OVER (PARTITION BY starttime)""",
    "q6": """
        WITH sold AS (
            SELECT seller, id, expires, max(price) AS final FROM auction JOIN bid
                ON id = auction AND bid.date_time BETWEEN auction.date_time AND expires
            GROUP BY seller, id, expires
            QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10)
        SELECT seller, avg(final) AS avg_price FROM sold GROUP BY seller""",
    "q7": """
        SELECT auction, bidder, price, date_time, extra FROM bid
        QUALIFY price = max(price) OVER (
            PARTITION BY time_bucket(INTERVAL 10 SECOND, date_time))""",
    "q8": """
        WITH p AS (SELECT id, name, time_bucket(INTERVAL 10 SECOND, date_time) AS s FROM person),
             a AS (SELECT seller, time_bucket(INTERVAL 10 SECOND, date_time) AS s FROM auction)
        SELECT DISTINCT p.id, p.name, p.s AS starttime
        FROM p JOIN a ON p.id = a.seller AND p.s = a.s""",
    "q9": """
        SELECT auction.*, auction, bidder, price, bid.date_time AS bid_time, bid.extra AS bid_extra
        FROM auction JOIN bid ON id = auction
            AND bid.date_time BETWEEN auction.date_time AND expires
        QUALIFY row_number() OVER (PARTITION BY id ORDER BY price DESC, bid.date_time) = 1""",
    "q10": f"""
        SELECT auction, bidder, price, date_time, extra, {_DAY} AS dt,
            strftime(date_time, '%H:%M') AS hm
        FROM bid""",
    "q11": """
        WITH begun AS (
            SELECT bidder, date_time, coalesce(date_time - lag(date_time) OVER of_bidder
                > INTERVAL 10 SECOND, true) AS first
            FROM bid WINDOW of_bidder AS (PARTITION BY bidder ORDER BY date_time)
        ), numbered AS (
            SELECT *, sum(first::INT) OVER (
                PARTITION BY bidder ORDER BY date_time RANGE UNBOUNDED PRECEDING) AS number
            FROM begun
        )
        SELECT bidder, count(*) AS bid_count, min(date_time) AS starttime,
            max(date_time) + INTERVAL 10 SECOND AS endtime
        FROM numbered GROUP BY bidder, number""",
    "q12": "SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
    "q13": f"""
        SELECT auction, bidder, price, date_time, value
        FROM bid JOIN read_csv('{EXAMPLES}/data/side_input.csv') ON auction % 1000 = key""",
    "q14": """
        SELECT auction, bidder, CAST(908 * price AS DECIMAL(24, 0)) * 0.001 AS price,
            CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                 WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
                 ELSE 'otherTime' END AS bid_time_type,
            date_time, extra, len(regexp_extract_all(extra, 'c')) AS c_counts
        FROM bid WHERE 908 * price > 1000000000 AND 908 * price < 50000000000""",
    "q15": f"SELECT {_DAY} AS day, {_STATISTICS} FROM bid GROUP BY day",
    "q16": f"""
        SELECT channel, {_DAY} AS day, max(strftime(date_time, '%H:%M')) AS minute, {_STATISTICS}
        FROM bid GROUP BY channel, day""",
    "q17": f"""
        SELECT auction, {_DAY} AS day, {_ranked("count(*)", "bids")}, min(price) AS min_price,
            max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
        FROM bid GROUP BY auction, day""",
    "q18": "SELECT bidder, auction, max(date_time) AS date_time FROM bid GROUP BY bidder, auction",
    "q19": """
        SELECT auction, price, row_number() OVER (PARTITION BY auction ORDER BY price DESC)
            AS rank_number
        FROM bid QUALIFY rank_number <= 10""",
    "q20": """
        SELECT auction, bidder, price, channel, url, bid.date_time AS bid_time,
            bid.extra AS bid_extra, item_name, description, initial_bid, reserve,
            auction.date_time AS auction_time, expires, seller, category,
            auction.extra AS auction_extra
        FROM bid JOIN auction ON auction = id WHERE category = 10""",
    "q21": r"""
        SELECT auction, bidder, price, channel, coalesce(
            map {'apple': '0', 'google': '1', 'facebook': '2', 'baidu': '3'}[lower(channel)],
            nullif(regexp_extract(url, '[&]channel_id=([^&]*)', 1), '')) AS channel_id
        FROM bid WHERE channel_id IS NOT NULL""",
    "q22": """
        SELECT auction, bidder, price, channel, string_split(url, '/')[4] AS dir1,
            string_split(url, '/')[5] AS dir2, string_split(url, '/')[6] AS dir3
        FROM bid""",
}
"""By query: what its rows are, all of them."""

LATEST: Final[Mapping[str, str]] = {
    "q4": "category",
    "q6": "seller",
    "q9": "id",
    "q15": "day",
    "q16": "channel, day",
    "q17": "auction, day",
    "q18": "bidder, auction",
    "q19": "auction, rank_number",
}
"""By query that corrects its rows: the columns of which the last row counts."""

KEYED: Final = (
    "q3",
    "q4",
    "q6",
    "q9",
    "q20",
    "q5",
    "q7",
    "q8",
    "q11",
    "q12",
    "q16",
    "q17",
    "q18",
    "q19",
)
"""Queries whose rows go to subtasks by key."""

COMPARED: Final[Mapping[str, str]] = {
    "q12": "SELECT bidder, sum(bid_count) AS bid_count FROM written GROUP BY bidder",
    "q18": "SELECT bidder, auction, date_time FROM written SEMI JOIN bid "
    "USING (auction, bidder, price, channel, url, date_time, extra)",
    "q19": "SELECT auction, price, rank_number FROM written SEMI JOIN bid "
    "USING (auction, bidder, price, channel, url, date_time, extra)",
}
"""What is compared of what a query wrote, if that is not its rows: not which of equal ones wins."""


def edited(query: str, folder: pathlib.Path, parallelism: int = 1, **source: Any) -> str:
    """An example's text, with few events; it writes below `folder`."""
    config = plain(read_tree(EXAMPLES / f"{query}.yaml")[0])
    (job,) = config["jobs"]
    job["parallelism"] = parallelism
    job["restart"] = {"strategy": "none"}
    job["checkpoint"]["object_store_uri"] = str(folder / "checkpoints")
    for read in job["sources"]:
        joins = any(operator["kind"] == "join" for operator in job["operators"])
        read["config"] |= {**(JOINS if joins else EVENTS), **source}
    (write,) = job["sinks"]
    write["config"] = {"path": str(folder / "out"), "format": "parquet"}
    return yaml.safe_dump(config)


def assert_right(query: str, folder: pathlib.Path, text: str) -> None:
    """Fail with the first rows that are too many or missing in what the job `text` wrote."""
    with duckdb.connect() as database:
        for kind, table in _tables(text).items():
            database.register(kind, table)
        parts = str(folder / "out" / "part-*")
        database.execute(
            f"CREATE VIEW rows AS FROM read_parquet('{parts}', filename=true, file_row_number=true)"
        )
        database.execute(f"CREATE TABLE written AS {_written(query)}")
        database.execute(f"CREATE TABLE found AS {COMPARED.get(query, 'FROM written')}")
        database.execute(f"CREATE TABLE expected AS {ORACLE[query]}")
        names = [row[0] for row in database.execute("DESCRIBE expected").fetchall()]
        assert sorted(names) == sorted(r[0] for r in database.execute("DESCRIBE found").fetchall())
        columns = ", ".join(names)
        sides = {"expected": "found", "found": "expected"}
        for one, other in sides.items():
            difference = f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}"
            rows = database.execute(f"{difference} LIMIT 3").fetchall()
            assert rows == [], f"{query}: only {one}: {rows}"
        assert database.execute("SELECT count(*) > 0 FROM expected").fetchone() == (True,)


def _written(query: str) -> str:
    """The rows that count: all, or the last one of each key, in the order of publication."""
    rows = "SELECT * EXCLUDE (filename, file_row_number) FROM rows"
    if query not in LATEST:
        return rows
    newest = "ORDER BY filename DESC, file_row_number DESC"
    return f"{rows} QUALIFY row_number() OVER (PARTITION BY {LATEST[query]} {newest}) = 1"


def _tables(text: str) -> dict[str, pa.Table]:
    """The events that a job's sources read, by kind; other kinds with the first one's settings."""
    sources = [read["config"] for read in yaml.safe_load(text)["jobs"][0]["sources"]]
    configs = {kind: {**sources[0], "kind": kind} for kind in ("person", "auction", "bid")}
    configs |= {config["kind"]: config for config in sources}
    return {kind: _events(config) for kind, config in configs.items()}


def _events(config: dict[str, Any]) -> pa.Table:
    model = NexmarkConfig(**{k: v for k, v in config.items() if k in NexmarkConfig.model_fields})
    reader = NexmarkReader("oracle", model)
    reader.open([])
    batches = []
    while isinstance(result := reader.read(MonotonicMs(0)), SourceBatch):
        batches.append(result.batch)
    return pa.Table.from_batches(batches)


__all__ = [
    "COMPARED",
    "EVENTS",
    "EXAMPLES",
    "KEYED",
    "LATEST",
    "ORACLE",
    "QUERIES",
    "assert_right",
    "edited",
]
