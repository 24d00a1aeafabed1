"""The events of Nexmark as columns: which row of a table is which event, and what is in it.

Events are numbered from 0. Of each 50, the first is a person, the next three are auctions, the
other 46 are bids. What an event holds depends on the seed and its number alone.

Persons and auctions are numbered by their place among their kind, from 1000. Bids go to a hot
auction (the last multiple of 100) or to one of the last 100 auctions, or of the next ten, which
are not open yet; bidders and sellers are the hot person, or one of the last 1000 or next ten.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_ray.components.inputs.counted_draws import Draws, Numbers
from arkflow_ray.components.inputs.nexmark_config import NexmarkConfig

Column = Any
"""A pyarrow array; the stubs do not know what every function returns."""

EVENTS_A_ROUND: Final = 50
FIRST_ID: Final = 1_000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
CHANNELS: Final = 10_000

_AUCTIONS: Final = 3
_HOT_EVERY: Final = 100
_IN_FLIGHT: Final = 100
_ACTIVE_PEOPLE: Final = 1_000
_LEAD: Final = 10
_TIME: Final = pa.timestamp("ms")
_US_A_MS: Final = 1_000

_FIRST_NAMES: Final = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Ida", "Kim", "Lea")
_LAST_NAMES: Final = ("Adams", "Baker", "Cole", "Dunn", "Ellis", "Frost", "Grant", "Hale", "Irwin")
_STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES: Final = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle",
    "Kent", "Cheyenne",
)  # fmt: skip
_HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of event: `first` of each round is its first, `count` follow one another.

    `columns` make one column each, of what is asked for, so that nobody pays for the others.
    """

    first: int
    count: int
    columns: "Mapping[str, Callable[[Events], Column]]"

    def rows_of(self, events: int) -> int:
        """How many of the first `events` events are of this table."""
        rounds, rest = divmod(events, EVENTS_A_ROUND)
        return rounds * self.count + min(max(rest - self.first, 0), self.count)

    def numbers(self, rows: Numbers) -> Numbers:
        """The numbers of the events that are these rows of the table."""
        return rows // self.count * EVENTS_A_ROUND + self.first + rows % self.count


class Events:
    """Some events of one kind, by their numbers."""

    def __init__(self, config: NexmarkConfig, numbers: Numbers) -> None:
        self._config = config
        self._numbers = numbers
        self._round = numbers // EVENTS_A_ROUND
        self._draws = Draws(config.seed, numbers)
        self._channel: Numbers | None = None

    def batch(self, table: Table, names: tuple[str, ...]) -> pa.RecordBatch:
        """The columns of these names."""
        columns = [table.columns[name](self) for name in names]
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    # --- of all kinds --------------------------------------------------------------------------

    def time(self) -> Column:
        """When it happened."""
        back = self._config.out_of_orderness_ms
        ms = self._place_ms()
        if back:
            ms = ms - self._draws.below(_Field.DELAY, back + 1)
        return _times(ms)

    def extra(self, shortest: int, longest: int) -> Column:
        """Letters that give the event its size."""
        return self._long_text(_Field.EXTRA, shortest, longest)

    def _place_ms(self) -> Numbers:
        """The time of its place, in order."""
        whole, rest = np.divmod(self._numbers, _US_A_MS)
        gap = self._config.inter_event_us
        ms: Numbers = self._config.first_event_ms + whole * gap + rest * gap // _US_A_MS
        return ms

    def _one_of(self, field: int, texts: "pa.Array[Any]") -> Column:
        return texts.take(self._draws.below(field, len(texts)))

    def _long_text(self, field: int, shortest: int, longest: int) -> Column:
        """Two texts out of thousands: letters one by one would cost more than all other columns."""
        half = shortest // 2
        head = self._one_of(field, _texts(field, half, half))
        tail = self._one_of(field + 1, _texts(field + 1, shortest - half, longest - half))
        return _joined(head, tail)

    def _person(self, field: int, hot_ratio: int, hot_place: int) -> Column:
        """A person who bids or sells, by hundreds the same one, or anybody active."""
        people = self._round + 1
        active = np.minimum(people, _ACTIVE_PEOPLE)
        anybody = people - active + self._draws.below(field, active + _LEAD)
        hot = self._round // _HOT_EVERY * _HOT_EVERY + hot_place
        is_hot = self._draws.below(field + 1, hot_ratio) > 0
        return pa.array(np.where(is_hot, hot, anybody) + FIRST_ID)

    def _prices(self, field: int) -> Numbers:
        """From 100 to 100,000,000, even on a logarithmic scale."""
        decade = _POWERS[self._draws.below(field, len(_POWERS))]
        step = self._draws.below(field + 1, (len(_MANTISSAS) - 1) * _FINE)
        at, rest = np.divmod(step, _FINE)
        low = _MANTISSAS[at]
        mantissa = low + (_MANTISSAS[at + 1] - low) * rest // _FINE
        prices: Numbers = mantissa * decade // _MANTISSA_DIVISOR
        return prices

    # --- persons -------------------------------------------------------------------------------

    def person_id(self) -> Column:
        """By place among persons."""
        return pa.array(self._round + FIRST_ID)

    def name(self) -> Column:
        """A first and a last name."""
        return self._one_of(_Field.NAME, _names())

    def email_address(self) -> Column:
        """Of letters."""
        user = self._draws.letters(_Field.USER, 4, 7)
        host = self._draws.letters(_Field.HOST, 3, 5)
        return _joined(user, "@", host, ".com")

    def credit_card(self) -> Column:
        """Four times four digits."""
        fields = range(_Field.CARD, _Field.CARD + 4)
        one, two, three, four = (self._one_of(field, _four_digits()) for field in fields)
        return _joined(one, " ", two, " ", three, " ", four)

    def city(self) -> Column:
        """Not always of the state."""
        return self._one_of(_Field.CITY, pa.array(_CITIES))

    def state(self) -> Column:
        """Two letters."""
        return self._one_of(_Field.STATE, pa.array(_STATES))

    # --- auctions ------------------------------------------------------------------------------

    def auction_id(self) -> Column:
        """By place among auctions."""
        place = self._numbers % EVENTS_A_ROUND - 1
        return pa.array(self._round * _AUCTIONS + place + FIRST_ID)

    def item_name(self) -> Column:
        """Letters."""
        return self._draws.letters(_Field.ITEM, 3, 20)

    def description(self) -> Column:
        """Letters."""
        return self._long_text(_Field.DESCRIPTION, 4, 100)

    def initial_bid(self) -> Column:
        """A price."""
        return pa.array(self._prices(_Field.INITIAL))

    def reserve(self) -> Column:
        """A price above the initial bid."""
        return pa.array(self._prices(_Field.INITIAL) + self._prices(_Field.RESERVE))

    def expires(self) -> Column:
        """Up to twice as long after its place as it takes for 100 auctions to begin."""
        events = _IN_FLIGHT * EVENTS_A_ROUND // _AUCTIONS
        longest = max(2 * events * self._config.inter_event_us // _US_A_MS, 1)
        after = 1 + self._draws.below(_Field.EXPIRES, longest)
        return _times(self._place_ms() + after)

    def seller(self) -> Column:
        """A person."""
        return self._person(_Field.SELLER, self._config.hot_seller_ratio, 0)

    def category(self) -> Column:
        """10 to 14."""
        return pa.array(FIRST_CATEGORY + self._draws.below(_Field.CATEGORY, CATEGORIES))

    # --- bids ----------------------------------------------------------------------------------

    def auction(self) -> Column:
        """An auction that is open, or will be soon."""
        last = self._round * _AUCTIONS + _AUCTIONS - 1
        first = np.maximum(last - _IN_FLIGHT, 0)
        any_open = first + self._draws.below(_Field.AUCTION, last - first + 1 + _LEAD)
        hot = last // _HOT_EVERY * _HOT_EVERY
        is_hot = self._draws.below(_Field.AUCTION + 1, self._config.hot_auction_ratio) > 0
        return pa.array(np.where(is_hot, hot, any_open) + FIRST_ID)

    def bidder(self) -> Column:
        """A person."""
        return self._person(_Field.BIDDER, self._config.hot_bidder_ratio, 1)

    def price(self) -> Column:
        """In cents."""
        return pa.array(self._prices(_Field.PRICE))

    def channel(self) -> Column:
        """Half of the bids come by one of four."""
        return _channels().take(self._channel_number())

    def url(self) -> Column:
        """Of the channel."""
        return _urls().take(self._channel_number())

    def _channel_number(self) -> Numbers:
        if self._channel is None:
            hot = CHANNELS + self._draws.below(_Field.CHANNEL, len(_HOT_CHANNELS))
            any_channel = self._draws.below(_Field.CHANNEL + 1, CHANNELS)
            is_hot = self._draws.below(_Field.CHANNEL + 2, 2) > 0
            self._channel = np.where(is_hot, hot, any_channel)
        return self._channel


class _Field:
    """What is drawn for an event; each leaves room for those that it needs."""

    DELAY = 0
    EXTRA = 10
    NAME, USER, HOST, CARD, CITY, STATE = 100, 110, 120, 130, 140, 150
    ITEM, DESCRIPTION, INITIAL, RESERVE = 200, 210, 220, 230
    EXPIRES, SELLER, CATEGORY = 240, 250, 260
    AUCTION, BIDDER, PRICE, CHANNEL = 300, 310, 320, 330
    PATH, TAGGED = 400, 410


_POOL: Final = 1_000
_TEXTS: Final = 4_096
"""Long texts are put together from so many, whose fields begin at `_POOL`."""

_FINE: Final = 1_000
_MANTISSA_DIVISOR: Final = 10_000
_POWERS: Final = 10 ** np.arange(6, dtype=np.int64)
_MANTISSAS: Final = np.array([round(10 ** (6 + k / 1_000)) for k in range(1_001)], np.int64)
"""A decade in a thousand steps, between which prices are on a line: no machine rounds otherwise."""


def _times(ms: Numbers) -> Column:
    values: Any = pa.array(ms)
    return values.cast(_TIME)


def _joined(*parts: Any) -> Column:
    """Texts put together, row by row."""
    return pc.binary_join_element_wise(*parts, "")


@cache
def _names() -> "pa.Array[Any]":
    return pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])


@cache
def _texts(field: int, shortest: int, longest: int) -> "pa.Array[Any]":
    return Draws(0, np.arange(_TEXTS)).letters(_POOL + field, shortest, longest)


@cache
def _four_digits() -> "pa.Array[Any]":
    return pa.array([f"{number:04}" for number in range(10_000)])


@cache
def _channels() -> "pa.Array[Any]":
    """The hot ones are behind the others."""
    return pa.array([*(f"channel-{number}" for number in range(CHANNELS)), *_HOT_CHANNELS])


@cache
def _urls() -> "pa.Array[Any]":
    """Of each channel. Nine of ten say its number, but none of the hot ones."""
    numbers = np.arange(CHANNELS + len(_HOT_CHANNELS))
    draws = Draws(0, numbers)
    one, two, three = (draws.letters(_Field.PATH + field, 5, 5) for field in (0, 2, 4))
    tagged = (draws.below(_Field.TAGGED, 10) > 0) & (numbers < CHANNELS)
    tags = _joined("&channel_id=", pa.array(numbers.astype(str)))
    tail = pc.if_else(pa.array(tagged), tags, "")
    base = "https://www.nexmark.com/"
    urls: pa.Array[Any] = _joined(base, one, "/", two, "/", three, "/item.htm?query=1", tail)
    return urls


TABLES: Final[Mapping[str, Table]] = {
    "person": Table(
        0,
        1,
        {
            "id": Events.person_id,
            "name": Events.name,
            "email_address": Events.email_address,
            "credit_card": Events.credit_card,
            "city": Events.city,
            "state": Events.state,
            "date_time": Events.time,
            "extra": lambda events: events.extra(104, 156),
        },
    ),
    "auction": Table(
        1,
        _AUCTIONS,
        {
            "id": Events.auction_id,
            "item_name": Events.item_name,
            "description": Events.description,
            "initial_bid": Events.initial_bid,
            "reserve": Events.reserve,
            "date_time": Events.time,
            "expires": Events.expires,
            "seller": Events.seller,
            "category": Events.category,
            "extra": lambda events: events.extra(306, 458),
        },
    ),
    "bid": Table(
        1 + _AUCTIONS,
        EVENTS_A_ROUND - 1 - _AUCTIONS,
        {
            "auction": Events.auction,
            "bidder": Events.bidder,
            "price": Events.price,
            "channel": Events.channel,
            "url": Events.url,
            "date_time": Events.time,
            "extra": lambda events: events.extra(54, 82),
        },
    ),
}
"""By kind."""


__all__ = ["EVENTS_A_ROUND", "FIRST_ID", "TABLES", "Events", "Table"]
