"""Makes `orders.jsonl`, the orders of a shop over a month: the same bytes on every machine.

Run it without arguments to write the file again beside itself. What makes the file interesting:
four of its lines cannot be read as orders, `total` is a whole number until the first one with
cents, and `coupon` appears for the first time in the middle.
"""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROWS = 20_000
SEED = 20_260_301
FIRST_CENTS = 40
FIRST_COUPON = 12_000

PRICES = {
    "tea": 6, "mug": 12, "kettle": 48, "honey": 9, "scale": 35, "grinder": 129, "beans": 15,
    "filter": 4, "press": 59, "machine": 749,
}  # fmt: skip
COUNTRIES = ("DE", "FR", "NL", "PL", "ES", "SE")
STATUSES = ("paid",) * 17 + ("refunded",) * 2 + ("failed",)

DAMAGED = {
    3_210: b'{"id":3210,"at":"2026-03-05T1',
    7_777: b'{"id":7777,"note":"\xff\xfe"}',
    11_003: b"#### connection lost, writer restarted ####",
    16_420: b'{"id":16420,"customer":"c0099","items":["mug"],"total":12,"status":"paid"}',
}
"""Lines that stand in the place of an order: cut off, not UTF-8, no JSON, text for an object."""


def order(number: int, at: datetime, draw: random.Random) -> bytes:
    """One line, without its line break."""
    if number in DAMAGED:
        return DAMAGED[number]
    items = draw.choices(tuple(PRICES), weights=range(len(PRICES) + 1, 1, -1), k=_size(draw))
    total: float = sum(PRICES[item] for item in items)
    row = {
        "id": number,
        "at": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "customer": {"id": f"c{draw.randrange(2_500):04}", "country": draw.choice(COUNTRIES)},
        "items": items,
        "total": total,
        "status": draw.choice(STATUSES),
    }
    if number >= FIRST_CENTS and draw.random() < 0.1:
        row["total"] = round(total * 0.95, 2)
    if number >= FIRST_COUPON and draw.random() < 0.05:
        row["coupon"] = "SPRING"
    return json.dumps(row, separators=(",", ":")).encode()


def orders() -> bytes:
    """The whole file."""
    draw = random.Random(SEED)
    at = datetime(2026, 3, 1, tzinfo=UTC)
    lines = []
    for number in range(1, ROWS + 1):
        at += timedelta(seconds=draw.randrange(1, 266))
        lines.append(order(number, at, draw))
    return b"\n".join(lines) + b"\n"


def _size(draw: random.Random) -> int:
    return draw.choices((1, 2, 3, 5), weights=(60, 25, 10, 5))[0]


__all__ = ["DAMAGED", "ROWS", "order", "orders"]

if __name__ == "__main__":
    Path(__file__).with_name("orders.jsonl").write_bytes(orders())
