"""Configuration of input `nexmark`. Light: nothing here makes a row."""

import json
from hashlib import blake2b
from typing import Annotated, Final, Literal

from pydantic import Field

from arkflow_kernel.ids import SplitId
from arkflow_kernel.limits import BATCH_ROWS_DEFAULT
from arkflow_ray.components.api import ComponentConfig
from arkflow_ray.components.inputs.dealt_splits import SplitCount, split_names
from arkflow_ray.components.inputs.file_config import BatchRows

EVENTS_MAX: Final = 10**12
"""Above this the numbers of events would leave what times are computed in."""

SEED_MAX: Final = 2**63 - 1
INTER_EVENT_US_MAX: Final = 60_000_000
OUT_OF_ORDERNESS_MS_MAX: Final = 86_400_000
FIRST_EVENT_MS: Final = 1_436_918_400_000
"""2015-07-15T00:00:00Z, as in the public definition."""

_FIRST_EVENT_MS_MAX: Final = 253_402_300_799_999

_Ratio = Annotated[int, Field(ge=1, le=1_000)]


class NexmarkConfig(ComponentConfig):
    """Input `nexmark`."""

    kind: Annotated[
        Literal["person", "auction", "bid"], Field(description="Which of the three tables.")
    ]
    events: Annotated[
        int | None,
        Field(
            ge=0,
            le=EVENTS_MAX,
            description="Events of all three kinds, of which this source yields those of its own; "
            "without it there is no end.",
        ),
    ] = None
    seed: Annotated[
        int, Field(ge=0, le=SEED_MAX, description="Sources of the same seed belong together.")
    ] = 0
    first_event_ms: Annotated[
        int,
        Field(ge=0, le=_FIRST_EVENT_MS_MAX, description="Time of event 0, in ms since 1970."),
    ] = FIRST_EVENT_MS
    inter_event_us: Annotated[
        int,
        Field(ge=1, le=INTER_EVENT_US_MAX, description="Event time between two events, in µs."),
    ] = 100
    out_of_orderness_ms: Annotated[
        int,
        Field(
            ge=0,
            le=OUT_OF_ORDERNESS_MS_MAX,
            description="Events may be so much older than their place says.",
        ),
    ] = 0
    hot_auction_ratio: Annotated[
        _Ratio, Field(description="All but one of so many bids are for the hot auction.")
    ] = 2
    hot_bidder_ratio: Annotated[
        _Ratio, Field(description="All but one of so many bids are by the hot bidder.")
    ] = 4
    hot_seller_ratio: Annotated[
        _Ratio, Field(description="All but one of so many auctions are by the hot seller.")
    ] = 4
    splits: SplitCount = 1
    batch_rows: BatchRows = BATCH_ROWS_DEFAULT

    @property
    def names(self) -> tuple[SplitId, ...]:
        """Its splits, by number. They are other ones with another number of them."""
        return split_names(f"nexmark-{self.kind}", self.splits)

    @property
    def fingerprint(self) -> str:
        """Of everything that rows depend on."""
        free = {"events", "batch_rows", "splits"}
        text = json.dumps(self.model_dump(exclude=free), sort_keys=True)
        return blake2b(text.encode(), digest_size=8).hexdigest()


__all__ = [
    "EVENTS_MAX",
    "FIRST_EVENT_MS",
    "INTER_EVENT_US_MAX",
    "OUT_OF_ORDERNESS_MS_MAX",
    "SEED_MAX",
    "NexmarkConfig",
]
