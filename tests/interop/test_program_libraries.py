"""Libraries of exported programs, by `program.build` and on the command line."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libraries
import numpy as np
import pytest
from library_programs import cnn, floats, leaves, mlp, training

import weft
import weft.nn.functional as F
from weft import cli, nn


@libraries.needs_cc
def test_a_training_step_becomes_a_library(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(20, 33), nn.Tanh(), nn.Linear(33, 7))
    optimizer = weft.optim.Adam(net.parameters(), lr=1e-2)

    def train_step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = floats(16, 20), np.arange(16) % 7
    program = weft.export(train_step, weft.spec(("B", 20)), weft.spec(("B",), "int64"))
    first = [program(weft.tensor(x), weft.tensor(y)).item() for _ in range(2)]
    program.save(tmp_path / "model.weft")
    library = str(tmp_path / "libmodel.so")
    words = ["build", str(tmp_path / "model.weft"), "-o", library, "--target", "native"]
    assert cli.main(words) == 1  # B is not known
    assert cli.main([*words, "-s", "B=16"]) == 0
    module = libraries.loaded(tmp_path / "model.py")
    model = module.Model()
    assert set(module.STATE) == set(program.state)
    for _ in range(3):
        wanted = program(weft.tensor(x), weft.tensor(y)).item()
        np.testing.assert_allclose(model.train_step(x, y), wanted, rtol=1e-5)
    assert wanted < min(first)
    for name, tensor in program.state.items():
        np.testing.assert_allclose(
            model.get_state(name), tensor.detach().numpy(), rtol=1e-4, atol=1e-6
        )


@libraries.needs_cc
def test_results_that_are_state_and_gradients_that_are_kept(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    held = weft.tensor([1.0, 2.0])

    def accumulate(x: Any) -> Any:
        model(x).sum().backward()
        held.add_(1)
        return held, x * 2, model.weight.grad

    x = floats(5, 4)
    model(weft.tensor(x)).sum().backward()
    program = weft.export(accumulate, weft.spec((5, 4)))
    built = program.build(tmp_path / "liba.so", target="native")
    made = libraries.loaded(tmp_path / "a.py").Model()
    assert built.function == "a_accumulate"
    for _ in range(3):
        wanted = program(weft.tensor(x))
        found = made.accumulate(x)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-5)


def test_wrong_sizes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def halves(x: Any) -> Any:
        return x[:2] if x.shape[0] > 10 else x

    program = weft.export(lambda x: halves(x) * 2, weft.spec(("B", 2)))
    place = tmp_path / "libm.so"
    with pytest.raises(weft.errors.GraphError, match="not known: B"):
        program.build(place)
    with pytest.raises(weft.errors.ShapeError, match="at least 1"):
        program.build(place, sizes={"B": 0})
    with pytest.raises(weft.errors.ShapeError, match="for the names B"):
        program.build(place, sizes={"B": 3, "C": 4})
    with pytest.raises(weft.errors.ShapeError, match="right only for sizes"):
        program.build(place, sizes={"B": 30})
    for wrong in (2.5, True, "3", None):
        for word in ("sizes", "max_sizes"):
            said = rf"{word}\['B'\] is .*whole number"
            with pytest.raises(weft.errors.ShapeError, match=said):
                program.build(place, **{word: {"B": wrong}})
    program.save(tmp_path / "m.weft")
    words = ["build", str(tmp_path / "m.weft"), "-o", str(place)]
    with pytest.raises(SystemExit):
        cli.main([*words, "-s", "B"])
    assert cli.main([*words, "-s", "B=3", "--target", "z80"]) == 1
    assert "there is no target" in capsys.readouterr().err
    assert cli.main(["build", str(tmp_path / "none.weft"), "-o", str(place)]) == 1
    assert not place.exists()


def _positive(x: Any) -> Any:
    kept = []
    for row in x:
        if row > 0:
            kept.append(row)  # noqa: PERF401
    return weft.stack(kept)


OF_DATA: dict[str, tuple[Any, str]] = {
    "mask": (lambda x: x[x > 0], "nonzero"),
    "sum of a mask": (lambda x: x[x > 0].sum(), "nonzero"),
    "nonzero": (lambda x: weft.nonzero(x), "nonzero"),
    "slice": (lambda x: x[: int((x > 1).sum())].sum(), "nonzero"),
    "unique": (lambda x: weft.unique(x), "unique"),
    "list": (_positive, "list_all"),
    "in a loop": (lambda x: sum(x[x > row].sum() for row in x), "nonzero"),
}


@pytest.mark.parametrize("name", OF_DATA)
def test_sizes_that_data_tell_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    function, op = OF_DATA[name]
    program = weft.export(function, weft.spec((4,)))
    compiled = weft.compile(function)
    compiled(weft.tensor([1.0, 2.0, 3.0, 4.0]))
    said = rf"(?s)n\d of .* depends on data: .*{op}.*test_program_libraries.*weft.where"
    for options in ({}, {"sizes": {"n0": 2}}, {"max_sizes": {"n0": 4}}):
        for built in (program, compiled):
            with pytest.raises(weft.errors.GraphError, match=said) as caught:
                weft.build_library(built, tmp_path / "m.a", target="native", **options)
            assert "sizes={" not in str(caught.value)
    program.save(tmp_path / "m.weft")
    for size in ("-s", "--max-size"):
        words = ["build", str(tmp_path / "m.weft"), "-o", str(tmp_path / "m.a"), size, "n0=4"]
        assert cli.main(words) == 1
        assert "depends on data" in capsys.readouterr().err
    assert not (tmp_path / "m.a").exists()


def test_sizes_for_which_a_compiled_function_was_not_recorded(tmp_path: Path) -> None:
    compiled = weft.compile(lambda x: x * 2 if x.shape[0] > 4 else x, dynamic=True)
    compiled(weft.ones(9))
    for wrong in ({"sizes": {"x_0": 3}}, {"max_sizes": {"x_0": 5}}):
        with pytest.raises(weft.errors.ShapeError, match="right only for sizes with x_0 > 4"):
            weft.build_library(compiled, tmp_path / "m.a", target="native", **wrong)
    weft.build_library(compiled, tmp_path / "m.a", target="native", sizes={"x_0": 5})


def _kinds(x: Any, y: Any, o: Any, s: Any, n: Any) -> Any:
    return x.sum() * s + y.sum() + o.sum() + n


LOSES: dict[str, tuple[int, Any]] = {
    "float64 for float32": (0, np.ones(2)),
    "complex for float32": (0, np.array([1 + 1j, 2], "c8")),
    "a list for float32": (0, [1.0, 2.0]),
    "float labels": (1, np.array([0.5, 1.5], "f4")),
    "int32 labels": (1, np.array([0, 1], "i4")),
    "bool labels": (1, np.array([True, False])),
    "float bools": (2, np.array([0.5, 0.0], "f4")),
    "int bools": (2, np.array([2, 0])),
    "complex number": (3, 1j),
    "float64 scalar": (3, np.float64(2)),
    "float for int": (4, 1.5),
    "no number": (4, None),
    "a huge int": (4, 2**70),
}


@libraries.needs_cc
def test_the_loader_refuses_what_the_program_refuses(tmp_path: Path) -> None:
    whole = weft.spec((2,), "int64"), weft.spec((2,), "bool"), weft.spec(()), weft.spec((), "int64")
    program = weft.export(_kinds, weft.spec((2,)), *whole)
    program.build(tmp_path / "libkinds.so", target="native")
    model = libraries.loaded(tmp_path / "kinds.py").Model()
    right = [np.ones(2, "f4"), np.array([3, 4]), np.array([True, False]), 2.0, 5]
    for given in (right, [*right[:3], 2, True], [*right[:3], np.float32(2), np.int64(5)]):
        assert model(*given) == program(*given).item()
    swapped = [right[0].astype(">f4"), *right[1:]]  # the same numbers
    assert model(*swapped) == model(*right)
    for number, wrong in LOSES.values():
        given = [*right[:number], wrong, *right[number + 1 :]]
        with pytest.raises((TypeError, OverflowError)):
            program(*given)
        with pytest.raises(TypeError, match=f"^{'xyosn'[number]} is .*expected"):
            model(*given)


# --- sizes that calls choose ----------------------------------------------------------------------


def rows_mixed(x: Any, B: Any) -> Any:
    """Results whose sizes are expressions; an argument that has the name of the size."""
    pairs = weft.concat([x, x[::-1]], axis=0)
    return {"pairs": pairs.T, "sorted": weft.sort(x, axis=0), "mean": x.mean(axis=0) + B}


def chosen_programs() -> dict[str, tuple[Any, Callable[[int], list[Any]]]]:
    labels = weft.spec(("B",), "int64")
    return {
        "mlp": (weft.export(mlp()[0], weft.spec(("B", 20))), lambda n: [floats(n, 20)]),
        "cnn": (
            weft.export(cnn()[0], weft.spec(("B", 1, 12, 12))),
            lambda n: [floats(n, 1, 12, 12)],
        ),
        "training": (
            weft.export(training()[0], weft.spec((weft.dim("B", min=2), 20)), labels),
            lambda n: [floats(n, 20), np.arange(n) % 7],
        ),
        "rows_mixed": (
            weft.export(rows_mixed, weft.spec(("B", 3)), weft.spec((3,))),
            lambda n: [floats(n, 3), floats(3)],
        ),
    }


@libraries.needs_cc
@pytest.mark.parametrize("name", ["mlp", "cnn", "training", "rows_mixed"])
def test_each_call_chooses_a_size(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_BACKEND", "native")
    program, inputs = chosen_programs()[name]
    program.build(tmp_path / "libm.so", target="native", max_sizes={"B": 33})
    model, here = libraries.loaded(tmp_path / "m.py").Model(), program.copy()
    for n in (2, 33, 5, 16, 2, 17):
        given = inputs(n)
        found = model(*given)
        wanted = leaves(here(*[weft.asarray(x) for x in given]))
        for one, two in zip(found if isinstance(found, tuple) else [found], wanted, strict=True):
            assert one.shape == two.shape
            assert one.tobytes() == two.tobytes(), n
    least = 2 if name == "training" else 1
    for n in (least - 1, 34):
        with pytest.raises(ValueError, match=f"B is {n}, not {least} to 33"):
            model(*inputs(n))
    if name == "training":
        with pytest.raises(ValueError, match=r"y has the shape \(5,\), not \(4,\)"):
            model(floats(4, 20), np.arange(5) % 7)


CHOICES = """
#include "m.h"
#include <stdio.h>
#include <stdlib.h>

#define IS(call, wanted) do { int got = (call); if (got != M_##wanted) { \\
  printf("line %d: %s\\n", __LINE__, m_error_text(got)); return 1; } } while (0)

int main(void) {
  m *made;
  static float x[M_X_COUNT], y[M_RESULT_COUNT + 7];
  if (M_B_MAX != 12 || M_X_COUNT != 12 * 20) return 2;
  for (int i = 0; i < M_X_COUNT; i++) x[i] = 0.01f * i;
  IS(m_create(&made), OK);
  IS(m_infer(made, 0, x, 0, y, 0), SIZE);
  IS(m_infer(made, 13, x, 13 * 20, y, 13 * 7), SIZE);
  IS(m_infer(made, (size_t)-1, x, M_X_COUNT, y, M_RESULT_COUNT), SIZE);
  IS(m_infer(made, 3, x, M_X_COUNT, y, 3 * 7), SIZE);
  IS(m_infer(made, 3, x, 3 * 20, y, 3 * 7 + 1), SIZE);
  IS(m_infer(made, 3, NULL, 3 * 20, y, 3 * 7), NULL);
  IS(m_infer(made, 3, x, 3 * 20, NULL, 3 * 7), NULL);
  IS(m_infer(NULL, 3, x, 3 * 20, y, 3 * 7), NULL);
  for (size_t n = 1; n <= 12; n++) {
    for (int i = 0; i < M_RESULT_COUNT + 7; i++) y[i] = -1234.5f;
    IS(m_infer(made, n, x, n * 20, y, n * 7), OK);
    for (size_t i = n * 7; i < M_RESULT_COUNT + 7; i++) if (y[i] != -1234.5f) return 3;
    fwrite(y, sizeof *y, n * 7, stdout);
  }
  return m_destroy(made);
}
"""


@libraries.needs_cc
def test_sizes_that_calls_choose_in_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_BACKEND", "native")
    program, _ = chosen_programs()["mlp"]
    built = program.build(tmp_path / "libm.so", target="native", max_sizes={"B": 12})
    main = libraries.compiled(CHOICES, tmp_path, built.path)
    done = subprocess.run([main], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    x = np.float32(0.01) * np.arange(240, dtype=np.float32)
    rows = [x[: n * 20].reshape(n, 20) for n in range(1, 13)]
    with weft.no_grad():
        wanted = [program(weft.asarray(row)).numpy().tobytes() for row in rows]
    assert done.stdout == b"".join(wanted)


def test_sizes_that_calls_cannot_choose(tmp_path: Path) -> None:
    program, _ = chosen_programs()["mlp"]
    place = tmp_path / "m.a"

    for options, said in (
        ({"max_sizes": {"B": 0}}, "at least 1"),
        ({"max_sizes": {"B": 2, "C": 3}}, "one name"),
        ({"max_sizes": {"C": 3}}, "not known: B"),
        ({"max_sizes": {"B": 3}, "sizes": {"B": 3}}, "sizes and max_sizes have B"),
        ({"max_sizes": {"B": 10**7}}, "a smaller largest size"),
    ):
        with pytest.raises(ValueError, match=said):
            program.build(place, **options)
    with pytest.raises(weft.errors.RangeError, match="libraries in C"):
        program.build(tmp_path / "m.wasm", max_sizes={"B": 3})
    small = weft.export(lambda x: x * 2, weft.spec((weft.dim("B", min=4, max=8),)))
    for wrong in ({"sizes": {"B": 3}}, {"sizes": {"B": 9}}, {"max_sizes": {"B": 9}}):
        with pytest.raises(weft.errors.ShapeError, match="at least 4 and at most 8"):
            small.build(place, **wrong)
    halves = weft.export(lambda x: x[:2] if x.shape[0] > 10 else x, weft.spec(("B", 2)))
    with pytest.raises(weft.errors.ShapeError, match="right only for sizes with B <= 10"):
        halves.build(place, max_sizes={"B": 11})
    assert not place.exists()
    program.save(tmp_path / "m.weft")
    words = ["build", str(tmp_path / "m.weft"), "-o", str(place), "--target", "native"]
    assert cli.main([*words, "--max-size", "B=4"]) == 0
    assert "size_t B," in (tmp_path / "m.h").read_text()
