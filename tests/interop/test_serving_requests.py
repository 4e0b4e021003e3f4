"""Requests of the Open Inference Protocol, and runs of several at once: without HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from serving import as_json, binary, results

import weft
import weft.nn.functional as F
from weft import nn
from weft.errors import DTypeError, FileError, RangeError
from weft.interop.programs.program import Port
from weft.interop.serve.datatypes import BadRequest
from weft.interop.serve.metrics import Metrics
from weft.interop.serve.models import find_models
from weft.interop.serve.options import Options
from weft.interop.serve.protocol import Tensors, read_request, write_response
from weft.interop.serve.queue import Job, JobQueue
from weft.interop.serve.served import Served


@pytest.fixture(autouse=True)
def machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_BACKEND", "native")


B = weft.dim("B")
X = Tensors((Port("x", weft.spec((B, 2))), Port("n", weft.spec((), "int8"))))
Y = Tensors((Port("y", weft.spec((B,))),))
GOOD: dict[str, Any] = {
    "inputs": [
        {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2.5, -3, 4e-3]},
        {"name": "n", "shape": [], "datatype": "INT8", "data": [7]},
    ]
}


def read(text: str | bytes, length: int | None = None, most: int = 1000) -> Any:
    body = text.encode() if isinstance(text, str) else text
    return read_request(body, length, X, Y, most)


def changed(number: int, **changes: Any) -> str:
    inputs = [dict(one) for one in GOOD["inputs"]]
    inputs[number] |= changes
    return json.dumps({"inputs": inputs})


def x_with(**parts: Any) -> str:
    return changed(0, **parts)


def nan_at(text: str) -> str:
    return x_with().replace("2.5", text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        ("[]", "object is expected"),
        ("{}", "inputs is None"),
        ('{"inputs": {}}', "list of tensors"),
        ('{"inputs": [1]}', "input 0 is 1"),
        ('{"inputs": []}', "input x is missing; the model takes: x, n"),
        ("[" * 100_000, "nested too deeply"),
        ('{"inputs":' * 50_000, "nested too deeply"),
        ('{"inputs": ' + "1" * 5000 + "}", "not JSON"),
        (x_with(name="z"), "the name 'z', and the model takes: x, n"),
        (x_with(name=["x"]), "the name"),
        (x_with(name="n"), "n has datatype 'FP32'; INT8 is expected"),
        (json.dumps({"inputs": [GOOD["inputs"][0]] * 2}), "given twice"),
        (x_with(datatype="FP64"), "datatype 'FP64'; FP32 is expected"),
        (x_with(datatype="BYTES"), "datatype 'BYTES'; FP32 is expected"),
        (x_with(datatype="f32"), "'f32', which there is not; FP32"),
        (x_with(datatype=None), "FP32 is expected"),
        (x_with(shape=[2, 3]), r"shape \[2, 3\]; \[-1, 2\] \(-1: any size\) is expected"),
        (x_with(shape=[4]), r"shape \[4\]; \[-1, 2\]"),
        (x_with(shape=[2, True]), "is expected"),
        (x_with(shape=[-1, 2]), r"shape \[-1, 2\], and sizes are integers, 0 or more; \[-1, 2\] "),
        (x_with(shape=[2.0, 2]), "is expected"),
        (x_with(shape="22"), "is expected"),
        (x_with(shape=[3, 2]), r"4 elements, where its shape \[3, 2\] has 6"),
        (x_with(shape=[10**30, 2], data=[]), "more than 1000 bytes"),
        (x_with(data=None), "its data is None"),
        (x_with(data={"0": 1}), "a list is expected"),
        (x_with(data=[[1, 2], [3]]), "not nested as its shape"),
        (x_with(data=[[1, 2], 3]), "not nested as its shape"),
        (x_with(data=[[[1, 2], [3, 4]]]), "not nested as its shape"),
        (x_with(data=[1, [2], 3, 4]), r"element 1 is \[2\], where FP32 is a number"),
        (x_with(data=[1, 2, "3", 4]), "element 2 is '3', where FP32 is a number"),
        (x_with(data=[1, 2, None, 4]), "element 2 is None"),
        (x_with(data=[1, 2, True, 4]), "element 2 is True"),
        (nan_at("NaN"), "NaN is not JSON"),
        (nan_at("-Infinity"), "-Infinity is not JSON"),
        (nan_at("1e999"), "out of range of FP32"),
        (nan_at("3.5e38"), "out of range of FP32"),
        (nan_at("1" + "0" * 400), "out of range of FP32"),
        (changed(1, data=[128]), "128, out of range of INT8"),
        (changed(1, data=[-(10**90)]), "300 bits long, out of range|out of range of INT8"),
        (changed(1, data=[1.0]), "element 0 is 1.0, where INT8 is an integer"),
        (changed(1, data=[True]), "element 0 is True, where INT8 is an integer"),
        (changed(1, data=7), "a list is expected"),
        (x_with(parameters=[]), "parameters of input x"),
        (x_with(parameters={"binary_data_size": 16}), "has data, and binary_data_size"),
        (x_with(parameters={"shared_memory_region": "a"}), "shared_memory_region"),
        (json.dumps({**GOOD, "id": 3}), "id is 3"),
        (json.dumps({**GOOD, "parameters": {"sequence_id": 3}}), "sequence_id"),
        (json.dumps({**GOOD, "parameters": {"binary_data_output": 1}}), "true or false"),
        (json.dumps({**GOOD, "outputs": {}}), "outputs is {}"),
        (json.dumps({**GOOD, "outputs": [{"name": "z"}]}), "the name 'z', and the model gives: y"),
        (json.dumps({**GOOD, "outputs": [{"name": "y"}] * 2}), "asked for twice"),
        (
            json.dumps({**GOOD, "outputs": [{"name": "y", "parameters": {"classification": 2}}]}),
            "classification",
        ),
        (json.dumps(GOOD) + "1234", "not JSON: Extra data"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(text: str | bytes, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        read(text)


def test_requests_in_json() -> None:
    found = read(json.dumps({**GOOD, "id": "é", "outputs": []}))
    assert found.id == "é"
    assert found.outputs == [(0, False)]
    np.testing.assert_array_equal(found.arrays[0], np.array([[1, 2.5], [-3, 4e-3]], np.float32))
    assert found.arrays[1].tolist() == 7
    nested = read(x_with(data=[[1, 2.5], [-3, 4e-3]]))
    assert nested.arrays[0].tobytes() == found.arrays[0].tobytes()
    for data in ([], [[]] * 0):
        assert read(x_with(shape=[0, 2], data=data)).arrays[0].shape == (0, 2)
    tiny = read(nan_at("1e-60")).arrays[0]
    assert tiny[0, 1] == 0


def of_bytes(sizes: tuple[Any, Any] = (16, 1), rest: bytes = bytes(17)) -> tuple[bytes, int]:
    inputs = [
        {"name": "x", "shape": [2, 2], "datatype": "FP32"},
        {"name": "n", "shape": [], "datatype": "INT8"},
    ]
    for one, size in zip(inputs, sizes, strict=True):
        one["parameters"] = {"binary_data_size": size}
    text = json.dumps({"inputs": inputs}).encode()
    return text + rest, len(text)


@pytest.mark.parametrize(
    ("body", "more", "said"),
    [
        (of_bytes((15, 1)), 0, "binary_data_size of input x is 15; 16 bytes are expected for FP32"),
        (of_bytes((16, 10**30)), 0, "1 bytes are expected for INT8"),
        (of_bytes((-16, 1)), 0, "is -16; 16 bytes"),
        (of_bytes(("16", 1)), 0, "is '16'; 16 bytes"),
        (of_bytes((16.0, 1)), 0, "is 16.0; 16 bytes"),
        (of_bytes(rest=bytes(16)), 0, "16 bytes follow the JSON, and input n ends at 17"),
        (of_bytes(rest=bytes(18)), 0, "18 bytes follow the JSON, where the inputs say 17"),
        (of_bytes(), -1, "not JSON"),
        (of_bytes(), 1, "not JSON"),
        (of_bytes(), 17, "not JSON"),
        (of_bytes(), 10**9, "and the body has"),
    ],
)
def test_binary_sizes_that_do_not_add_up(body: tuple[bytes, int], more: int, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        read(body[0], body[1] + more)


def test_binary_requests() -> None:
    values = np.array([[1, np.nan], [np.inf, -0.0]], np.float32)  # bytes say these, too
    body, length = of_bytes(rest=values.tobytes() + b"\xff")
    found = read(body, length)
    assert found.arrays[0].tobytes() == values.tobytes()
    assert found.arrays[0].flags.aligned
    assert found.arrays[1] == -1
    flag = Tensors((Port("b", weft.spec((2,), "bool")),))
    head, headers = binary({"b": np.array([True, False])})
    length = int(headers["Inference-Header-Content-Length"])
    assert read_request(head, length, flag, Y, 9).arrays[0].tolist() == [True, False]
    with pytest.raises(BadRequest, match="neither 0 nor 1"):
        read_request(head[:-1] + b"\x02", length, flag, Y, 9)


def test_damaged_requests_are_answered() -> None:
    """Whatever the bytes: they are read, or said to be wrong."""
    random, bad = np.random.default_rng(0), b'[]{}",:019eE.-tn\xff'
    body, length = of_bytes()
    for start, end in ((json.dumps(GOOD).encode(), None), (body, length)):
        for _ in range(500):
            damaged = bytearray(start)
            for _ in range(random.integers(1, 4)):
                at, byte = random.integers(len(damaged)), random.integers(len(bad))
                damaged[at : at + random.integers(2)] = bad[byte : byte + 1]
            try:
                found = read(bytes(damaged), end)
            except BadRequest:
                continue
            assert [x.dtype.name for x in found.arrays] == ["float32", "int8"]
            assert found.arrays[0].shape[1:] == (2,)


EDGES = {
    **{f"uint{n}": [0, 2**n - 1] for n in (8, 16, 32, 64)},
    **{f"int{n}": [-(2 ** (n - 1)), 2 ** (n - 1) - 1] for n in (8, 16, 32, 64)},
    "bool": [True, False],
    "float16": [65504.0, 2.0**-24],
    "float32": [3.4028234663852886e38, 1e-45],
    "float64": [1.7976931348623157e308, 5e-324],
    "bfloat16": [3.3895313892515355e38, 1.1754943508222875e-38],
}


@pytest.mark.parametrize("name", EDGES)
def test_elements_at_the_limits_of_each_datatype(name: str) -> None:
    dtype = ml_dtypes.bfloat16 if name == "bfloat16" else name
    array = np.array(EDGES[name], dtype)
    ports = Tensors((Port("x", weft.spec((2,), name)),))
    text = json.dumps({"inputs": [as_json("x", array)]}).encode()
    found = read_request(text, None, ports, ports, 99)
    assert found.arrays[0].tobytes() == array.tobytes()
    made = write_response({}, found, ports, found.arrays)
    assert made.json is None
    assert results({}, made.parts[0])["x"].tobytes() == array.tobytes()
    beyond = {"bool": 2, "float64": "1e309"}.get(name)
    if beyond is None:
        top = EDGES[name][0] if "float" in name else EDGES[name][1]
        beyond = top * 1.01 if "float" in name else top + 1
    text = text.replace(json.dumps(as_json("x", array)["data"]).encode(), b"[0, %a]" % beyond)
    with pytest.raises(BadRequest, match=r"out of range|true or false"):
        read_request(text.replace(b"'", b""), None, ports, ports, 99)


def test_results_that_json_cannot_say() -> None:
    request = read(json.dumps(GOOD))
    with pytest.raises(BadRequest, match="binary_data") as raised:
        write_response({}, request, Y, [np.array([1, np.nan], np.float32)])
    assert raised.value.status == 406
    request = read(json.dumps({**GOOD, "parameters": {"binary_data_output": True}}))
    made = write_response({}, request, Y, [np.array([1, np.nan], np.float32)])
    headers = {"Inference-Header-Content-Length": str(made.json)}
    assert np.isnan(results(headers, b"".join(made.parts))["y"][1])


# --- runs of several ------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.qkv = nn.Embedding(50, 32), nn.Linear(32, 96)

    def forward(self, words: Any) -> Any:
        x = self.qkv(self.table(words))
        b, t = words.shape
        q, k, v = x.reshape(b, t, 3, 4, 8).permute_dims((2, 0, 3, 1, 4))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def over_rows(x: Any, scale: Any) -> Any:
    """Rows that depend on each other: they must not be mixed with those of other requests."""
    return {"p": F.softmax(x, 0) * scale, "largest": x.amax(axis=0)}


def until_large(x: Any) -> Any:
    while x.sum() < 100:
        x = x * 2 + 1
    return x


def random(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).random(shape).astype(dtype)


def cnn() -> Any:
    layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(144, 10)).eval()


PROGRAMS: dict[str, tuple[Callable[[], Any], list[Any], Callable[[int], list[Any]]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 10)),
        [weft.spec(("B", 64))],
        lambda i: [random(1, 64) + i],
    ),
    "cnn": (cnn, [weft.spec(("B", 1, 14, 14))], lambda i: [random(1, 1, 14, 14) * i]),
    "bfloat16": (
        lambda: nn.Linear(64, 9).to(weft.bfloat16),
        [weft.spec(("B", 64), "bfloat16")],
        lambda i: [(random(3, 64) + i).astype(ml_dtypes.bfloat16)],
    ),
    "attention": (
        Attention,
        [weft.spec(("B", "T"), "int64")],
        lambda i: [(random(2, 7) * 50).astype(np.int64) // (i + 1)],
    ),
    "over_rows": (
        lambda: over_rows,
        [weft.spec(("T", 3)), weft.spec(())],
        lambda i: [random(5, 3) * i, np.array(i, np.float32)],
    ),
    "until_large": (
        lambda: until_large,
        [weft.spec(("T",))],
        lambda i: [random(4) * 3.0**i],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_requests_that_run_together_get_the_bits_that_they_get_alone(name: str) -> None:
    make, specs, inputs = PROGRAMS[name]
    _ = weft.manual_seed(0)
    program = weft.export(make(), *specs)
    served = Served(name, 1, program, 8)
    served.prepare()
    assert served.batches, served.why_alone
    for count in (5, 2, 8):
        requests = [served.checked(inputs(i))[1] for i in range(count)]
        together = served.run(requests)
        for inputs_of, found in zip(requests, together, strict=True):
            (alone,) = served.run([inputs_of])
            with weft.no_grad():
                wanted = weft.tree_leaves(program(*inputs_of))
            for one, two, three in zip(found, alone, wanted, strict=True):
                assert one.tobytes() == two.tobytes() == three.detach().numpy().tobytes()
                assert one.shape == three.shape


class Waiting:
    """Jobs whose outcomes are kept, for a queue."""

    def __init__(self, *served: Served, most: int = 4, delay: float = 0.0) -> None:
        self.sizes: list[int] = []
        self.outcomes: dict[int, Any] = {}
        self.queue = JobQueue(most, delay, lambda _, size, __: self.sizes.append(size))

    def put(self, served: Served, number: int, *arrays: Any, seconds: float = 10.0) -> Job:
        key, inputs = served.checked(arrays)
        job = Job(served, key, inputs, time.monotonic() + seconds, self.done, number)
        self.queue.put(job)
        return job

    def done(self, outcomes: list[tuple[Job, Any]]) -> None:
        self.outcomes |= {job.waiter: outcome for job, outcome in outcomes}

    def run(self) -> None:
        self.queue.close()
        self.queue.run()


def picked(table: Any, at: Any) -> Any:
    return table[at]


def test_what_fits_together_runs_together() -> None:
    program = weft.export(picked, weft.spec(("N",)), weft.spec((), "int64"))
    one, other = Served("one", 1, program, 4), Served("other", 1, program, 4)
    waiting = Waiting(one, other)
    at = np.array(1)
    for i in range(5):
        waiting.put(one, i, np.array([0, i], np.float32), at)
    waiting.put(one, 5, np.array([0, 5, 6], np.float32), at)  # another size
    waiting.put(other, 6, np.array([0, 6], np.float32), at)  # another model
    left = waiting.put(one, 7, np.array([0, 7], np.float32), at)
    assert len(waiting.queue) == 8
    waiting.queue.drop(left)
    waiting.queue.drop(left)
    assert len(waiting.queue) == 7
    waiting.put(one, 8, np.array([0, 8], np.float32), at, seconds=-1)
    waiting.run()
    assert waiting.sizes == [4, 1, 1, 1]
    assert len(waiting.queue) == 0
    assert {i: float(x[0]) for i, x in waiting.outcomes.items()} == {i: i for i in range(7)}


def test_a_request_that_fails_fails_alone() -> None:
    program = weft.export(picked, weft.spec((3,)), weft.spec((), "int64"))
    served = Served("m", 1, program, 4)
    waiting = Waiting(served)
    for i in range(4):
        waiting.put(served, i, np.arange(3, dtype=np.float32), np.array(i))
    waiting.run()
    assert [float(waiting.outcomes[i][0]) for i in range(3)] == [0, 1, 2]
    failed = waiting.outcomes[3]
    assert isinstance(failed, BadRequest)
    assert failed.status == 400
    assert "index 3" in str(failed)


def test_a_request_waits_for_others_if_that_is_asked_for() -> None:
    program = weft.export(over_rows, weft.spec((2, 3)), weft.spec(()))
    served = Served("m", 1, program, 2)
    waiting = Waiting(served, most=2, delay=30.0)
    thread = threading.Thread(target=waiting.queue.run)
    thread.start()
    for i in range(2):
        waiting.put(served, i, random(2, 3), np.ones((), np.float32))
        time.sleep(0.05)
    waiting.queue.close()
    thread.join(20)
    assert waiting.sizes == [2]


def test_a_run_ends_when_its_time_is_over() -> None:
    served = Served("m", 1, weft.export(until_large, weft.spec((2,))), 4)
    served.prepare()
    waiting = Waiting(served)
    start = time.monotonic()
    waiting.put(served, 0, np.full(2, -np.inf, np.float32), seconds=0.5)
    waiting.put(served, 1, np.full(3 - 1, 50, np.float32), seconds=0.01)
    waiting.run()
    assert time.monotonic() - start < 10
    assert waiting.outcomes[0].status == 504
    waiting = Waiting(served)
    waiting.put(served, 2, np.full(2, 60, np.float32))
    waiting.run()
    assert waiting.outcomes[2][0].tolist() == [60, 60]


# --- models ---------------------------------------------------------------------------------------


def double(x: Any) -> Any:
    return x * 2


def test_what_is_served(tmp_path: Path) -> None:
    program = weft.export(double, weft.spec(("B",)))
    for path in ("a.weft", "b/1/any.weft", "b/12/any.weft", "b/notes/x.weft"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        program.save(tmp_path / path)
    options = Options()
    found = find_models(tmp_path, options, None)
    assert [(one.name, one.version) for one in found] == [("a", "1"), ("b", "1"), ("b", "12")]
    latest = found.get("b", None)
    assert latest is not None
    assert latest.version == "12"
    assert found.get("b", "2") is None
    assert found.get("../a", None) is None
    for given, names in (
        (tmp_path / "a.weft", ["a"]),
        (f"m={tmp_path / 'a.weft'}", ["m"]),
        ({"n": program, "o": tmp_path / "b"}, ["n", "o"]),
        (program, ["double"]),
        ([tmp_path / "a.weft", f"c={tmp_path / 'b'}"], ["a", "c"]),
    ):
        assert find_models(given, options, None).names() == names  # type: ignore[arg-type]
    (tmp_path / "empty").mkdir()
    program.save(tmp_path / "a b.weft")
    program.save(tmp_path / "b/12/second.weft")
    for given, error, said in (
        (tmp_path / "none.weft", FileNotFoundError, "none.weft"),
        (tmp_path / "empty", FileError, "holds no models"),
        (tmp_path / "a b.weft", RangeError, "cannot be the name of a model"),
        (tmp_path / "b", FileError, "2 programs"),
        ([tmp_path / "a.weft"] * 2, RangeError, "two models a, version 1"),
        ([], RangeError, "no model"),
        ({"../x": program}, RangeError, "cannot be the name"),
    ):
        with pytest.raises(error, match=said):
            find_models(given, options, None)  # type: ignore[arg-type]


def test_programs_that_are_not_served() -> None:
    model = nn.Linear(2, 1)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    program = weft.export(step, weft.spec(("B", 2)))
    with pytest.raises(RangeError, match="step writes to its state") as raised:
        find_models(program, Options(), None)
    assert "--stateful" in str(raised.value)
    (served,) = find_models(program, Options(stateful=True), None)
    served.prepare()
    assert not served.batches
    x = np.ones((3, 2), np.float32)
    losses = [float(served.run([served.checked([x])[1]])[0][0]) for _ in range(3)]
    twin = program.copy()
    assert losses == [twin(x).item() for _ in range(3)]
    assert losses[2] < losses[0]
    with pytest.raises(RangeError, match="one worker"):
        Options(stateful=True, workers=2)
    with pytest.raises(DTypeError, match="no datatype for complex64"):
        find_models(weft.export(double, weft.spec((2,), "complex64")), Options(), None)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"workers": 0}, {"timeout": 0}, {"max_body": -1}, {"threads": 0}, {"grace": -1.0}),
        *({"port": 70000}, {"idle": float("nan")}, {"timeout": float("inf")}),
    ],
)
def test_options_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(RangeError, match=next(iter(wrong))):
        Options(**wrong)


def test_figures_of_all_workers_are_one() -> None:
    metrics = Metrics([("m", "1")], 2)
    for worker in (0, 1):
        metrics.use_row(worker)
        metrics.count(("m", "1"), 200, 0.003)
        metrics.count(("m", "1"), 418, 100.0)
        metrics.ran(("m", "1"), 3, 0.001)
        metrics.gauge("weft_queue_length", 5)
    text = metrics.text()
    for line in (
        'weft_requests_total{model="m",version="1",code="200"} 2',
        'weft_requests_total{model="m",version="1",code="other"} 2',
        'weft_request_seconds_bucket{model="m",version="1",le="0.0025"} 0',
        'weft_request_seconds_bucket{model="m",version="1",le="0.005"} 2',
        'weft_request_seconds_bucket{model="m",version="1",le="30.0"} 2',
        'weft_request_seconds_bucket{model="m",version="1",le="+Inf"} 4',
        'weft_request_seconds_sum{model="m",version="1"} 200.006',
        'weft_request_seconds_count{model="m",version="1"} 4',
        'weft_run_seconds_bucket{model="m",version="1",le="0.001"} 2',
        'weft_batch_size_sum{model="m",version="1"} 6',
        "weft_queue_length 10",
    ):
        assert line in text.splitlines(), line
