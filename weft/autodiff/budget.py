"""Chooses what to save to keep the peak of memory below a budget, with little recomputation.

Nothing is estimated: each choice is judged by the peak of the whole sequence
(`JointParts.outcome`). The search begins with checkpoints: the forward part is cut into segments,
values that cross a cut are saved, and everything inside a segment is recomputed when the backward
part reaches it. Since saved values add up, later segments are shorter. On a chain of n equal layers
that takes a multiple of √n of the memory of one layer. Then, as far as the budget allows, more
results are saved, first those with the most work per byte.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.autodiff.recompute_schedule import JointParts, Outcome, flops

#: Maximum evaluations of the whole sequence, and maximum steps of all of them.
MOST_TRIES = 100
MOST_STEPS = 150_000


def within(pair: JointParts, start: Outcome, limit: float) -> Outcome:
    """What to save for a peak of at most `limit`; if that is impossible, for the lowest peak."""
    if start.peak <= limit:
        return start
    search = _Search(pair, limit)
    found = search.best(start)
    if found.peak > limit:
        found = min(search.dropped(found), search.dropped(start), key=lambda each: each.peak)
    return search.saved_after_all(found) if found.peak <= limit else found


class _Search:
    def __init__(self, pair: JointParts, limit: float) -> None:
        self.pair = pair
        self.limit = limit
        steps = len(pair.forward) + len(pair.backward)
        self.tries = min(MOST_TRIES, max(30, MOST_STEPS // max(steps, 1)))
        self.work = {id(step): flops(step.node) for step in pair.forward}

    def outcome(self, saved: Iterable[int]) -> Outcome:
        self.tries -= 1
        return self.pair.outcome(set(saved))

    # --- checkpoints --------------------------------------------------------------------------

    def best(self, start: Outcome) -> Outcome:
        """Checkpoints for the largest bound that keeps the limit, or for the lowest peak.

        Bounds are tried in steps of a tenth (a fifth in large graphs), then in finer steps around
        the best one.
        """
        stretches = _Stretches(self.pair)
        best, at = start, 1.0
        top = float(max(start.peak, stretches.reference.peak))
        tried: set[frozenset[int]] = set()

        def attempt(share: float) -> bool:
            nonlocal best, at
            chosen = frozenset(stretches.checkpoints(top * share))
            if chosen not in tried:
                tried.add(chosen)
                found = self.outcome(chosen)
                if found.peak < best.peak:
                    best, at = found, share
            return best.peak <= self.limit

        finer = 0.9 if self.tries == MOST_TRIES else 0.8
        share = finer
        while share > 0.005 and self.tries > 8 and not attempt(share):
            share *= finer
        if best.peak <= self.limit:  # a larger bound, with less to recompute, may also do
            for finer in (1.17, 1.08, 1.04):
                found = self.outcome(stretches.checkpoints(top * at * finer))
                if found.peak <= self.limit:
                    return found
            return best
        around = at
        for finer in (1.16, 1.12, 1.08, 1.04, 0.96, 0.92, 0.88, 0.84):
            if self.tries < 1 or attempt(around * finer):
                break
        return best

    # --- refinement ---------------------------------------------------------------------------

    def saved_after_all(self, found: Outcome) -> Outcome:
        """Save results with the most work per byte, as long as the peak allows it."""
        size = self.pair.size
        spared = self._spared(found)
        offers = [
            (spared[id(step)] / size[value], value)
            for step in found.again
            for value in step.outputs
            if size[value]
        ]
        waiting = [value for _, value in sorted(offers, reverse=True)]
        while waiting and self.tries > 0:
            # As many as possible at once: halve until they fit, then go on behind them.
            count = len(waiting)
            while count and self.tries > 0:
                more = self.outcome([*found.saved, *waiting[:count]])
                if more.peak <= self.limit:
                    found = more
                    break
                count //= 2
            waiting = waiting[max(count, 1) :]
        return found

    def _spared(self, found: Outcome) -> dict[int, int]:
        """The work saved by keeping the results of a step: its own, and of steps only it uses.

        Users are counted among recomputed steps; the backward part counts as one.
        """
        users: dict[int, int] = dict.fromkeys(self.pair.needed, 1)
        for step in found.again:
            for value in step.inputs:
                users[value] = users.get(value, 0) + 1
        again = {id(step) for step in found.again}
        spared: dict[int, int] = {}
        for step in found.again:  # in topological order
            total = self.work[id(step)]
            for value in step.inputs:
                made = self.pair.maker[value] if value >= self.pair.held else None
                if made is not None and id(made) in again and users[value] == 1:
                    total += spared[id(made)]
            spared[id(step)] = total
        return spared

    def dropped(self, found: Outcome) -> Outcome:
        """Recompute values that are alive at the peak, if that lowers it."""
        pair = self.pair
        while self.tries > 0:
            alive = [v for v in found.saved if found.last[pair.root[v]] >= found.place]
            makers = {v: pair.maker[v] for v in alive}
            offers = [
                (pair.size[pair.root[v]] / (1 + self.work[id(step)]), v)
                for v, step in makers.items()
                if step is not None and step.repeats
            ]
            for _, value in sorted(offers, reverse=True)[:8]:
                less = self.outcome(v for v in found.saved if v != value)
                if less.peak < found.peak:
                    break
            else:
                return found
            found = less
            if found.peak <= self.limit:
                return found
        return found


class _Stretches:
    """Where the forward part can be cut, and what that costs."""

    def __init__(self, pair: JointParts) -> None:
        self.pair = pair
        self.reference = pair.outcome(pair.needed)
        needed = set(pair.needed)
        wanted = set(needed)
        useful = []
        for step in reversed(pair.forward):
            if not wanted.isdisjoint(step.outputs):
                useful.append(step)
                wanted.update(step.inputs)
        self.useful = useful[::-1]
        root, size = pair.root, pair.size
        self.made: list[list[int]] = []  # the values that each step makes
        self.last_use: dict[int, int] = {}
        storage_made: dict[int, int] = {}
        storage_last: dict[int, int] = {}
        self.weight: list[int] = []  # bytes made by a step that the backward part uses
        counted: set[int] = set()
        for place, step in enumerate(self.useful):
            for value in step.inputs:
                self.last_use[value] = place
                storage_last[root[value]] = place
            for value in step.outputs:
                storage_made.setdefault(root[value], place)
            new = {root[v] for v in step.outputs if v in needed} - counted
            counted |= new
            self.weight.append(sum(size[storage] for storage in new))
            self.made.append([v for v in step.outputs if size[root[v]]])
        change = [0] * (len(self.useful) + 1)
        for storage, place in storage_made.items():
            end = storage_last.get(storage, place)
            change[place] += size[storage]
            change[end] -= size[storage]
        self.open: list[int] = []  # bytes that cross a cut after each step
        now = 0
        for place in range(len(self.useful)):
            now += change[place]
            self.open.append(now)
        self.beside = self._beside()

    def _beside(self) -> list[int]:
        """For each step, the bytes that the backward part itself holds when it reaches it."""
        pair, reference = self.pair, self.reference
        begin = len(reference.runs)
        steps = begin + len(reference.order)
        change = [0] * (steps + 1)
        first: dict[int, int] = {}
        for i, (step, _) in enumerate(reference.order, begin):
            for value in step.inputs:
                first.setdefault(value, i)
            for value in step.outputs:
                end = reference.last[pair.root[value]]
                if pair.size[value]:
                    change[i] += pair.size[value]
                    change[min(end + 1, steps)] -= pair.size[value]
        level = [0] * (steps + 1)
        for i in range(begin, steps):
            level[i] = level[i - 1] + change[i]
        held = pair.bytes_of(pair.lasting)
        beside: list[int] = []
        for step in self.useful:
            seen = [first[value] for value in step.outputs if value in first]
            before = beside[-1] if beside else 0
            beside.append(held + max(level[i] for i in seen) if seen else before)
        return beside

    def checkpoints(self, bound: float) -> set[int]:
        """What to save so that no segment, with values saved before it, exceeds the bound."""
        pair = self.pair
        saved: set[int] = set()
        storages: set[int] = set()
        leads_on: list[int] = []  # values that cross the last cut
        total = 0  # bytes saved so far
        start = place = inside = 0
        while place < len(self.useful):
            inside += self.weight[place]
            if total + inside + self.beside[place] <= bound or place == start:
                place += 1
                continue
            cut = self._best_cut(start, place)
            made = [value for each in self.made[start : cut + 1] for value in each]
            leads_on = [v for v in (*leads_on, *made) if self.last_use.get(v, -1) > cut]
            saved.update(leads_on)
            for storage in {pair.root[value] for value in leads_on} - storages:
                storages.add(storage)
                total += pair.size[storage]
            start = place = cut + 1
            inside = 0
        return saved

    def _best_cut(self, start: int, stop: int) -> int:
        """The cut in a segment that saves the fewest bytes for the segment that it closes."""
        best, least = start, float("inf")
        covered = 0
        for place in range(start, stop):
            covered += self.weight[place]
            price = (self.open[place] + 1) / (covered + 1)
            if price <= least:
                best, least = place, price
        return best
