"""Queries of Nexmark in Flink's SQL, over the files of `nexmark_tables`.

They are those of the public definition, with the semantics that `examples/nexmark` has where that
differs: q7 takes `[begin, end)`, q12 is on event time, q20 joins within a minute.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from arkflow_ray.bench.nexmark_tables import WATERMARK_MS

_COLUMNS: Final = {
    "person": "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, "
    "state STRING, date_time BIGINT, extra STRING",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, "
    "reserve BIGINT, date_time BIGINT, expires BIGINT, seller BIGINT, category BIGINT, "
    "extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "date_time BIGINT, extra STRING",
}


@dataclass(frozen=True, slots=True)
class FlinkQuery:
    """`columns` of the sink, the `select` that fills it, and settings that suit it.

    `corrects`: its rows replace earlier ones, so that a file cannot take them.
    """

    columns: str
    select: str
    corrects: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


_HOP: Final = """
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(seen), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end"""
_WINDOW: Final = "starttime TIMESTAMP(3), endtime TIMESTAMP(3)"

FLINK_QUERIES: Final[Mapping[str, FlinkQuery]] = {
    "q0": FlinkQuery(
        "auction BIGINT, bidder BIGINT, price BIGINT, date_time BIGINT, extra STRING",
        "SELECT auction, bidder, price, date_time, extra FROM bid",
    ),
    "q1": FlinkQuery(
        "auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), date_time BIGINT, extra STRING",
        "SELECT auction, bidder, 0.908 * price, date_time, extra FROM bid",
    ),
    "q2": FlinkQuery(
        "auction BIGINT, price BIGINT",
        "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    ),
    "q5": FlinkQuery(
        f"auction BIGINT, num BIGINT, {_WINDOW}",
        f"""
        SELECT counted.auction, counted.num, counted.window_start, counted.window_end
        FROM ({_HOP}) AS counted
        JOIN (
            SELECT MAX(num) AS most, window_start, window_end FROM ({_HOP})
            GROUP BY window_start, window_end
        ) AS top
        ON counted.window_start = top.window_start AND counted.window_end = top.window_end
            AND counted.num >= top.most""",
    ),
    "q7": FlinkQuery(
        "auction BIGINT, bidder BIGINT, price BIGINT, date_time BIGINT, extra STRING",
        """
        SELECT b.auction, b.bidder, b.price, b.date_time, b.extra
        FROM bid AS b
        JOIN (
            SELECT MAX(price) AS most, window_time AS until
            FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(seen), INTERVAL '10' SECOND))
            GROUP BY window_start, window_end, window_time
        ) AS top
        ON b.price = top.most
            AND b.seen BETWEEN top.until - INTERVAL '9.999' SECOND AND top.until""",
    ),
    "q8": FlinkQuery(
        "id BIGINT, name STRING, starttime TIMESTAMP(3)",
        """
        SELECT p.id, p.name, p.window_start
        FROM (
            SELECT id, name, window_start, window_end
            FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(seen), INTERVAL '10' SECOND))
            GROUP BY id, name, window_start, window_end
        ) AS p
        JOIN (
            SELECT seller, window_start, window_end
            FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(seen), INTERVAL '10' SECOND))
            GROUP BY seller, window_start, window_end
        ) AS a
        ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    ),
    "q11": FlinkQuery(
        f"bidder BIGINT, bid_count BIGINT, {_WINDOW}",
        """
        SELECT bidder, COUNT(*), window_start, window_end
        FROM TABLE(
            SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(seen), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
    ),
    "q12": FlinkQuery(
        f"bidder BIGINT, bid_count BIGINT, {_WINDOW}",
        """
        SELECT bidder, COUNT(*), window_start, window_end
        FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(seen), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
    ),
    "q17": FlinkQuery(
        "auction BIGINT, `day` STRING, total_bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT, "
        "rank3_bids BIGINT, min_price BIGINT, max_price BIGINT, avg_price BIGINT, "
        "sum_price BIGINT",
        """
        SELECT auction, DATE_FORMAT(seen, 'yyyy-MM-dd'), COUNT(*),
            COUNT(*) FILTER (WHERE price < 10000),
            COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
            COUNT(*) FILTER (WHERE price >= 1000000),
            MIN(price), MAX(price), AVG(price), SUM(price)
        FROM bid GROUP BY auction, DATE_FORMAT(seen, 'yyyy-MM-dd')""",
        corrects=True,
        settings={
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "1 s",
            "table.exec.mini-batch.size": "8192",
        },
    ),
    "q18": FlinkQuery(
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
        "date_time BIGINT, extra STRING",
        """
        SELECT auction, bidder, price, channel, url, date_time, extra
        FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY seen DESC) AS place
            FROM bid
        ) WHERE place <= 1""",
        corrects=True,
    ),
    "q20": FlinkQuery(
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
        "bid_time BIGINT, bid_extra STRING, item_name STRING, description STRING, "
        "initial_bid BIGINT, reserve BIGINT, auction_time BIGINT, expires BIGINT, seller BIGINT, "
        "category BIGINT, auction_extra STRING",
        """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra,
            a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires,
            a.seller, a.category, a.extra
        FROM bid AS b JOIN auction AS a ON b.auction = a.id
            AND b.seen BETWEEN a.seen - INTERVAL '1' MINUTE AND a.seen + INTERVAL '1' MINUTE
        WHERE a.category = 10""",
    ),
}


def flink_statements(query: FlinkQuery, tables: Mapping[str, Path], out: Path) -> list[str]:
    """Statements that read `tables` and write `out`, or throw away what corrects other rows."""
    files = f"'connector' = 'filesystem', 'path' = '{out.as_uri()}', 'format' = 'json'"
    sink = "'connector' = 'blackhole'" if query.corrects else files
    return [
        *(_source(kind, path) for kind, path in tables.items()),
        f"CREATE TABLE written ({query.columns}) WITH ({sink})",
        f"INSERT INTO written {query.select}",
    ]


def _source(kind: str, path: Path) -> str:
    return (
        f"CREATE TABLE {kind} ({_COLUMNS[kind]}, seen AS TO_TIMESTAMP_LTZ(date_time, 3), "
        f"WATERMARK FOR seen AS seen - INTERVAL '{WATERMARK_MS / 1000:g}' SECOND) WITH ("
        f"'connector' = 'filesystem', 'path' = '{path.as_uri()}', 'format' = 'json')"
    )


__all__ = ["FLINK_QUERIES", "FlinkQuery", "flink_statements"]
