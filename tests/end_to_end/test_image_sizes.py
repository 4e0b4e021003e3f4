"""A network for images trains on images of any height and width: eager, and one native program."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
import weft.nn.functional as F
from weft import nn
from weft.runtime.native import NativeProgram
from weft.runtime.sized import SizedProgram


class _Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=2)
        self.wider = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2, padding=1)
        x = self.wider(F.relu(self.second(F.pad(x, (0, 1, 1, 0)))))
        x = F.avg_pool2d(F.interpolate(x, scale_factor=2), 3, stride=1, padding=1)
        return self.last(F.adaptive_avg_pool2d(x, 1)[:, :, 0, 0])


def _step(compiled: bool) -> Any:
    weft.manual_seed(0)
    network = _Network()
    optimizer = weft.optim.Adam(network.parameters(), lr=1e-2)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return weft.compile(step, backend="native") if compiled else step


def test_training_on_images_of_many_sizes() -> None:
    native, eager = _step(True), _step(False)
    rng = np.random.default_rng(0)
    for count, height, width in (
        *((2, 8, 8), (3, 12, 9), (1, 5, 7), (2, 16, 16)),
        *((4, 7, 30), (1, 1, 2), (2, 40, 3)),
    ):
        x = weft.asarray(rng.standard_normal((count, 3, height, width)).astype(np.float32))
        y = weft.asarray(rng.integers(0, 5, count))
        np.testing.assert_allclose(native(x, y).item(), eager(x, y).item(), rtol=2e-4)
    assert len(native.recordings) == 2
    assert [type(made.program) for made in native.programs] == [NativeProgram, SizedProgram]
