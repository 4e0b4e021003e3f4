"""The page that learns (examples/browser), in a real browser."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from browser import Browser, browser, found, served

import weft

pytestmark = [
    pytest.mark.skipif(not found(), reason="there is no Chromium with ChromeDriver"),
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("ziglang", "sklearn"))),
        reason="the wheels ziglang and scikit-learn are needed",
    ),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "browser" / "build.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("browser_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("page")
    example.build(folder)
    with served(folder) as address, browser((1280, 1100)) as window:
        window.open(address)
        until(window, "document.body.dataset.ready")
        yield window


def until(window: Browser, condition: str) -> None:
    end = time.monotonic() + 60
    while not window.run(f"return Boolean({condition})"):
        assert time.monotonic() < end, (condition, window.complaints())
        time.sleep(0.05)


def choose(window: Browser, **values: str) -> None:
    for name, value in values.items():
        script = """const at = document.getElementById(arguments[0]);
            at.value = arguments[1]; at.dispatchEvent(new Event("input"));"""
        window.run(script, name, value)


def test_it_learns_and_reads_a_drawing(page: Browser) -> None:
    assert float(page.text("#accuracy").rstrip(" %")) < 50
    choose(page, speed="0", epochs="5")
    page.click("#run")
    until(page, "document.body.dataset.running === 'false'")
    assert page.text("#epoch") == "5.0"
    assert float(page.text("#accuracy").rstrip(" %")) >= 95
    assert float(page.text("#loss")) < 0.2
    turn = [t / 16 * 2 * math.pi for t in range(17)]
    page.drag("#pad", [(0.5 + 0.2 * math.sin(t), 0.5 - 0.33 * math.cos(t)) for t in turn])
    until(page, "document.getElementById('guess').textContent")
    assert page.text("#guess") == "0"
    parts = [int(x) for x in page.text("#bars").split("\n")[1::2] for x in [x.rstrip(" %")]]
    assert abs(sum(parts) - 100) <= 5
    assert parts[0] >= 50
    page.click("#clear")
    until(page, "document.getElementById('guess').textContent === ''")
    page.click("#reset")
    until(page, "document.getElementById('step').textContent === '0'")
    assert float(page.text("#accuracy").rstrip(" %")) < 50
    choose(page, rate="-2", speed="1", epochs="0")
    assert page.text("#rate-text") == "0.010"
    page.click("#run")
    until(page, "Number(document.getElementById('step').textContent) > 20")
    page.click("#run")
    assert page.text("#run") == "Continue"
    assert page.complaints() == []


def test_a_page_that_is_opened_as_a_file_says_what_to_do(page: Browser) -> None:
    assert page.run("return document.getElementById('server').hidden")
    with browser() as window:
        window.open(EXAMPLE.with_name("index.html"))
        assert "http.server" in window.text("#server")


STEPS = """\
return (async () => {
  const { Network } = await import("./network.js");
  const network = await Network.load(), losses = [], rows = [];
  for (let i = 0; i < 30; i++) {
    losses.push(network.step());
    if (i === 0) rows.push(...network.order);
  }
  const file = network.save(), weight = Array.from(network.training.getState("model.3.weight"));
  const held = network.test();
  const again = [network.step()];
  network.load(file.buffer);
  network.steps--;
  again.push(network.step());
  let error = "";
  try { network.load(file.slice(8)); } catch (found) { error = found.message; }
  const text = Array.from(file, (byte) => String.fromCharCode(byte)).join("");
  return { losses, rows, weight, held, again, error, file: text };
})()"""


def test_its_steps_are_those_of_native_code(
    page: Browser, example: ModuleType, tmp_path: Path
) -> None:
    made: dict[str, Any] = page.run(STEPS)
    step, read = example.programs()
    images, labels = example.data()
    x = (images / 16).astype("f4").reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    losses = []
    for number in range(30):
        rows = made["rows"][number * example.BATCH : (number + 1) * example.BATCH]
        losses.append(float(step(weft.tensor(x[rows]), weft.tensor(y[rows]))))
    np.testing.assert_allclose(made["losses"], losses, rtol=2e-4)
    weight = step.state["model.3.weight"].detach().numpy().ravel()
    np.testing.assert_allclose(made["weight"], weight, atol=2e-4)
    with weft.no_grad():
        for name, tensor in read.state.items():
            tensor.copy_(step.state[name])
    held = x[example.SEEN :].reshape(-1, example.ROWS, 1, 8, 8)
    guesses = np.concatenate([read(weft.tensor(part)).numpy().argmax(1) for part in held])
    assert np.mean(guesses == made["held"]["guesses"]) > 0.99
    assert made["again"][0] == made["again"][1]  # the state of a file, to the bit
    assert made["error"]
    # Its file is read here, and by the page.
    file = tmp_path / "digits.safetensors"
    file.write_bytes(made["file"].encode("latin-1"))
    kept = weft.load(file)["model.3.weight"].numpy().ravel()
    assert kept.tolist() == np.array(made["weight"], "f4").tolist()
    page.type("#file", str(file))
    until(page, "document.getElementById('said').textContent.includes('loaded')")
    shown = float(page.text("#accuracy").rstrip(" %")) / 100
    assert abs(shown - made["held"]["right"]) < 0.001
    file.write_bytes(file.read_bytes()[:-1])
    page.type("#file", str(file))
    until(page, "document.getElementById('said').textContent.includes('cut off')")
