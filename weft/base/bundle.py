"""Bundles: copies of small cache entries that are used together, in one entry of the store.

A process that needs them reads one file instead of dozens.

    with bundled(store.name_of(b"what this is for")):
        ...  # entries that were read here the last time come from the bundle

The name of an entry is a digest of everything it depends on. So an entry is valid wherever it is
found: a bundle may hold too many entries or too few, but never an outdated one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from weft.base import store
from weft.base.store import Entry

__all__ = ["bundled"]

#: Larger entries, such as machine code, are not bundled.
SMALL = 1 << 16
#: A bundle that would become larger is replaced by the entries in use now.
MOST = 256


@contextmanager
def bundled(name: str | None) -> Iterator[None]:
    """Inside, this thread reads entries that were used here before from one bundle of this name.

    With None, there is no bundle.
    """
    if name is None or store.folder() is None:
        yield
        return
    use, held = store.use, _unpacked(store.read(name))
    before = use.ahead, use.used
    used: dict[str, Entry] = {}
    use.ahead, use.used = {**use.ahead, **held}, used
    try:
        yield
    finally:
        use.ahead, use.used = before
        small = {at: entry for at, entry in used.items() if sum(map(len, entry[1])) <= SMALL}
        if not small.keys() <= held.keys():
            both = {**held, **small}  # other calls may use other entries
            store.write(name, *_packed(both if len(both) <= MOST else small))


def _packed(entries: dict[str, Entry]) -> Entry:
    said = [[name, about, len(blocks)] for name, (about, blocks) in entries.items()]
    return said, [block for _, blocks in entries.values() for block in blocks]


def _unpacked(bundle: Entry | None) -> dict[str, Entry]:
    if bundle is None:
        return {}
    blocks = iter(bundle[1])
    return {name: (about, list(islice(blocks, count))) for name, about, count in bundle[0]}
