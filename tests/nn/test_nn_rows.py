"""Each layer, loss and activation beside PyTorch's, from the tables in `support/nn_samples`."""

from __future__ import annotations

import pytest
from nn_samples import ROWS
from nn_samples.table import Row, compare

from weft import nn


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row) -> None:
    compare(row)


def test_names_are_unique() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_every_module_has_a_row() -> None:
    modules = {
        name
        for name, kind in vars(nn).items()
        if isinstance(kind, type) and issubclass(kind, nn.Module)
    }
    missing = modules - {row.module for row in ROWS} - TESTED_ELSEWHERE
    assert not missing, f"no row for {sorted(missing)}"


TESTED_ELSEWHERE = {
    *("Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"),
    *("TransformerEncoder", "TransformerDecoder"),  # in Transformer
    "CTCLoss",  # test_nn_ctc.py
    *(name for name in vars(nn) if name.startswith("Lazy")),  # test_nn_lazy.py
    *("Dropout3d", "FeatureAlphaDropout"),  # test_nn_dropout.py
}
