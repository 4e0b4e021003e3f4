"""Structures that never come again are not recorded; those that come again are."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn

WAYS = {"compile": weft.compile, "trace": weft.trace}


@dataclass(eq=False)
class Tree:
    word: Any = None
    left: Tree | None = None
    right: Tree | None = None


def random_tree(rng: random.Random, leaves: int) -> Tree:
    if leaves == 1:
        return Tree(word=weft.tensor(rng.randrange(10)))
    left = rng.randrange(1, leaves)
    return Tree(left=random_tree(rng, left), right=random_tree(rng, leaves - left))


class TreeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.join = nn.Linear(8, 4)

    def forward(self, tree: Tree) -> Any:
        if tree.left is None or tree.right is None:
            return self.words(tree.word)
        return weft.tanh(self.join(weft.concat([self(tree.left), self(tree.right)])))


@pytest.mark.parametrize("way", WAYS)
def test_new_trees_run_as_plain_python(way: str) -> None:
    net, rng = TreeNet(), random.Random(0)
    captured = WAYS[way](lambda tree: net(tree))
    for _ in range(40):
        tree = random_tree(rng, 12)
        np.testing.assert_allclose(captured(tree).numpy(), net(tree).numpy(), rtol=1e-5)
    assert len(captured.recordings) == 0
    report = str(captured.explain(tree))  # which records it
    assert "40 calls ran as plain Python: their arguments had a structure" in report
    assert len(captured.recordings) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_tree_that_comes_again_is_recorded(way: str) -> None:
    net, rng = TreeNet(), random.Random(1)
    captured = WAYS[way](lambda tree: net(tree).sum())
    for _ in range(12):
        tree = random_tree(rng, 3)  # of two shapes, with other words
        loss = captured(tree)
        expected = net(tree).sum()
        net.zero_grad()
        loss.backward()
        grad = net.join.weight.grad
        net.zero_grad()
        expected.backward()
        np.testing.assert_allclose(loss.numpy(), expected.numpy(), rtol=1e-5)
        np.testing.assert_allclose(grad.numpy(), net.join.weight.grad.numpy(), rtol=1e-4)
    same = random_tree(rng, 9)
    for _ in range(10):
        np.testing.assert_allclose(captured(same).numpy(), net(same).sum().numpy(), rtol=1e-5)
    recorded = len(captured.recordings)
    assert recorded > 0
    hits = captured.cache_info().hits
    captured(same)
    assert len(captured.recordings) == recorded
    assert captured.cache_info().hits == hits + 1


@pytest.mark.parametrize("way", WAYS)
def test_lists_of_ever_new_lengths(way: str) -> None:
    """No tree of objects: the first recordings are made, and then no more that nobody uses."""
    captured = WAYS[way](lambda parts: weft.concat(parts).sum() * len(parts))
    for n in range(1, 30):
        parts = [weft.ones(2)] * n
        assert captured(parts).item() == 2 * n * n
    assert len(captured.recordings) <= 6
    for _ in range(12):
        captured(parts)
    assert captured.cache_info().hits > 0


def test_a_stable_function_records_at_first_sight() -> None:
    @weft.compile
    def f(x: Any, pair: Any, flag: Any) -> Any:
        return x * pair[0] if flag is None else x + pair[1]

    for flag in (None, 1, None, 1):
        f(weft.ones(2), (1.0, 2.0), flag)
    assert len(f.recordings) == 2
    assert f.cache_info().hits == 2


def test_linked_objects_and_cycles() -> None:
    class Link:
        def __init__(self, value: float, after: Any = None) -> None:
            self.value, self.after = value, after

    @weft.compile
    def total(link: Any) -> Any:
        found = weft.zeros(())
        while link is not None:
            found = found + link.value
            link = link.after
        return found

    for n in range(1, 20):
        chain = None
        for i in range(n):
            chain = Link(float(i), chain)
        assert total(chain).item() == sum(range(n))
    a, b = Link(1.0), Link(2.0)
    a.after, b.after = b, a

    @weft.compile
    def two(link: Any) -> Any:
        return weft.ones(2) * (link.value + link.after.value + link.after.after.value)

    for _ in range(12):
        assert two(a).tolist() == [4.0, 4.0]
