"""Names of the objects that a chain puts into the checkpoint store: whose each is can be read."""

import hashlib
import re

from arkflow_kernel.ids import Generation

_PLAIN = re.compile(r"[A-Za-z0-9_.\-]{1,80}")
_OTHER = re.compile(r"[^A-Za-z0-9_.\-]")


def object_stem(generation: Generation, *names: str) -> str:
    """The beginning of an object's name: a generation, then names of a chain and its parts.

    What a store may not take in a name is replaced, and a digest keeps different names apart.
    """
    return "-".join([str(generation), *(_plain(name) for name in names)])


def _plain(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{_OTHER.sub('_', name)[:60]}-{digest}"


__all__ = ["object_stem"]
