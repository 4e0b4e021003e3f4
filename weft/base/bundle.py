"""Small entries that are used together, kept once more in one: a file is read, and not dozens.

    with bundled(store.name_of(b"what this is for")):
        ...  # all that is read inside comes from the bundle, where it was used the last time, too

The names of entries say all that they depend on. So what is found under a name is right, wherever
it was found, and a bundle can hold too much or too little, but nothing that is out of date.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from weft.base import store
from weft.base.store import Entry

__all__ = ["bundled"]

#: Entries with more bytes, such as machine code, are worth a file of their own.
SMALL = 1 << 16
#: A bundle that would hold more begins anew with what is used now.
MOST = 256


@contextmanager
def bundled(name: str | None) -> Iterator[None]:
    """Inside, this thread reads what was used here before from one entry. None: there is none."""
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
