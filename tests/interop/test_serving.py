"""`weft serve`: a server in a process of its own, and clients that behave well or badly."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from serving import HEADER, Server, as_json, binary, results, serving

import weft
from weft import nn
from weft.cli import main

pytest.importorskip("aiohttp", reason="the extra weft[serve] is not installed")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and forks are of POSIX")

MOST, SECONDS, WAITING = 200_000, 1.5, 6
NAMES = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 bfloat16"


def model() -> Any:
    _ = weft.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()


def until_large(x: Any) -> Any:
    """Never ends for 0."""
    while x.sum() < 100:
        x = x * 2
    return x


def all_kinds(given: Any) -> Any:
    return {name: x[::-1] for name, x in given.items()}


def picked(table: Any, at: Any) -> Any:
    return table[at] / 0.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    weft.export(model(), weft.spec(("B", 16))).save(made / "mlp.weft")
    weft.export(until_large, weft.spec(("T",))).save(made / "until_large.weft")
    given = {name: weft.spec(("B",), name) for name in NAMES.split()}
    weft.export(all_kinds, given).save(made / "all_kinds.weft")
    weft.export(picked, weft.spec(("N",)), weft.spec((), "int64")).save(made / "picked.weft")
    for version in ("1", "3"):
        (made / "versions" / version).mkdir(parents=True)
        weft.export(model(), weft.spec((int(version), 16))).save(
            made / "versions" / version / "model.weft"
        )
    return made


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = {"max-body": MOST, "max-json": MOST // 2, "timeout": SECONDS, "idle": SECONDS}
    options = [f"--{name}={value}" for name, value in limits.items()]
    with serving(
        tmp_path_factory.mktemp("logs"), [folder], *options, f"--max-queue={WAITING}"
    ) as made:
        yield made
        assert made.infer("mlp", mlp_request())[0] == 200  # whatever was done to it
        assert "Traceback" not in made.log.read_text()


X = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)


def mlp_request(x: np.ndarray[Any, Any] = X, **more: Any) -> dict[str, Any]:
    return {"inputs": [as_json("x", x)], **more}


@pytest.fixture(autouse=True)
def machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_BACKEND", "native")


def alone(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    program = weft.export(model(), weft.spec(("B", 16)))
    with weft.no_grad():
        found: np.ndarray[Any, Any] = program(weft.asarray(x)).numpy()
    return found


# --- the protocol ---------------------------------------------------------------------------------


def test_what_is_there(server: Server) -> None:
    def got(path: str) -> Any:
        status, _, body = server.ask(path)
        return status, json.loads(body)

    assert got("/v2") == (
        200,
        {"name": "weft", "version": weft.__version__, "extensions": ["binary_tensor_data"]},
    )
    assert got("/v2/health/live") == (200, {"live": True})
    assert got("/v2/health/ready") == (200, {"ready": True})
    metadata = {
        "name": "mlp",
        "versions": ["1"],
        "platform": "weft",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 16]}],
        "outputs": [{"name": "result", "datatype": "FP32", "shape": [-1, 4]}],
    }
    assert got("/v2/models/mlp") == got("/v2/models/mlp/versions/1") == (200, metadata)
    latest = got("/v2/models/versions")[1]
    assert latest["versions"] == ["1", "3"]
    assert latest["inputs"][0]["shape"] == [3, 16]
    assert got("/v2/models/versions/versions/1")[1]["inputs"][0]["shape"] == [1, 16]
    assert got("/v2/models/mlp/ready") == (200, {"name": "mlp", "ready": True})
    for path in (
        *("/", "/v2/", "/v2/models/none", "/v2/models/mlp/versions/2", "/v2/models/"),
        *("/v2/models/..%2Fmlp", "/v2/models/%2e%2e/ready", "/v2/models/mlp.weft/ready"),
        *("/v2/models/mlp%00/ready", "/v2/models//etc/passwd", "/v2/../metrics/x"),
    ):
        status, data = got(path)
        assert status == 404, path
        assert list(data) == ["error"]
    assert server.ask("/v2/models/mlp/infer")[0] == 405
    assert server.ask("/v2", b"")[0] == 405


def test_all_datatypes_in_json_and_bytes(server: Server) -> None:
    arrays = {}
    for name in NAMES.split():
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        arrays[f'given["{name}"]'] = np.array([0, 1, 1], dtype)
    wanted = {n.replace("given", "result"): x[::-1] for n, x in arrays.items()}
    text = {"inputs": [as_json(name, x) for name, x in arrays.items()]}
    metadata = json.loads(server.ask("/v2/models/all_kinds")[2])
    assert [one["name"] for one in metadata["inputs"]] == list(arrays)
    bodies: list[tuple[Any, dict[str, str]]] = [(json.dumps(text), {}), binary(arrays)]
    for body, headers in bodies:
        status, said, answer = server.ask("/v2/models/all_kinds/infer", body, headers)
        assert status == 200, answer
        assert (HEADER in said) is bool(headers)
        found = results(said, answer)
        assert list(found) == list(wanted)
        for name, array in wanted.items():
            assert found[name].dtype == array.dtype
            assert found[name].tobytes() == array.tobytes(), name


def test_what_a_request_can_ask_for(server: Server) -> None:
    status, data = server.infer("mlp", mlp_request(id="a-1", parameters={"unknown": 1}))
    assert (status, data["model_name"], data["model_version"]) == (200, "mlp", "1")
    assert data["id"] == "a-1"
    (output,) = data["outputs"]
    assert (output["datatype"], output["shape"]) == ("FP32", [3, 4])
    assert np.float32(output["data"]).tobytes() == alone(X).tobytes()
    assert "id" not in server.infer("mlp", mlp_request())[1]
    asked = [{"name": "result", "parameters": {"binary_data": True}}]
    said, body = server.ask("/v2/models/mlp/infer", json.dumps(mlp_request(outputs=asked)))[1:]
    assert results(said, body)["result"].tobytes() == alone(X).tobytes()
    for name in ('result["int8"]', 'result["bool"]'):
        inputs = {f'given["{n}"]': np.ones(2, n) for n in NAMES.split() if n != "bfloat16"}
        inputs['given["bfloat16"]'] = np.ones(2, ml_dtypes.bfloat16)
        body, headers = binary(inputs, outputs=[{"name": name}])
        said, answer = server.ask("/v2/models/all_kinds/infer", body, headers)[1:]
        assert list(results(said, answer)) == [name]
    empty, headers = binary({"x": X[:0]})
    said, answer = server.ask("/v2/models/mlp/infer", empty, headers)[1:]
    assert results(said, answer)["result"].shape == (0, 4)


def test_errors_name_what_is_wrong(server: Server) -> None:
    for path, request, status, said in (
        ("mlp", mlp_request(X[:, :5]), 400, r"input x has shape \[3, 5\]; \[-1, 16\]"),
        ("mlp", mlp_request(X.astype(np.float64)), 400, "datatype 'FP64'; FP32 is expected"),
        ("none", mlp_request(), 404, "no model 'none'"),
        ("versions/versions/2", mlp_request(), 404, "no model 'versions', version '2'"),
        ("versions", mlp_request(X[:2]), 400, r"\[3, 16\] is expected"),
        (
            "picked",
            {"inputs": [as_json("table", np.ones(3)), as_json("at", np.array(7))]},
            400,
            "datatype 'FP64'",
        ),
        (
            "picked",
            {"inputs": [as_json("table", X[0]), as_json("at", np.array(16))]},
            400,
            "index 16 is out of bounds",
        ),
        (
            "picked",
            {"inputs": [as_json("table", X[0]), as_json("at", np.array(-16))]},
            406,
            "result has NaN or infinite elements",
        ),
    ):
        found = server.infer(path, request)
        assert found[0] == status, found
        assert re.search(said, found[1]["error"]), found
    # Sizes that must be equal.
    given = [as_json(f'given["{n}"]', np.ones(2 + (n == "int8"), n)) for n in NAMES.split()[:-1]]
    given.append(as_json('given["bfloat16"]', np.ones(2, ml_dtypes.bfloat16)))
    status, data = server.infer("all_kinds", {"inputs": given})
    assert status == 400
    assert re.search(r"int8.*has size 3, but B is 2", data["error"]), data


def test_requests_at_once_get_their_own_answers(server: Server) -> None:
    rows = np.random.default_rng(1).standard_normal((40, 1, 16)).astype(np.float32)
    wanted = alone(rows.reshape(40, 16))
    before = server.figure("weft_batch_size_count"), server.figure("weft_batch_size_sum")

    def client(first: int) -> bool:
        connection = server.connection()
        good = True
        for i in range(first, 40, 5):
            body, headers = binary({"x": rows[i]}, id=str(i))
            connection.request("POST", "/v2/models/mlp/infer", body, headers)
            answer = connection.getresponse()
            content = answer.read()
            found = results(dict(answer.headers), content)["result"]
            good &= found.tobytes() == wanted[i : i + 1].tobytes() and b'"id": "%d"' % i in content
        connection.close()
        return good

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        assert all(pool.map(client, range(5)))
    assert server.figure("weft_batch_size_sum") == before[1] + 40
    assert server.figure("weft_batch_size_count") <= before[0] + 40
    assert server.figure("weft_requests_total") >= 40
    assert server.figure("weft_body_bytes") == 0


def test_the_client_of_the_page(folder: Path, server: Server) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
    (code,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    found: dict[str, Any] = {}
    code = code.replace(":8000", f":{server.port}").replace("models/digits", "models/mlp")
    exec(code.replace("(1, 64)", "(1, 16)"), found)
    assert found["result"].tobytes() == alone(np.zeros((1, 16), np.float32)).tobytes()


# --- limits ---------------------------------------------------------------------------------------


def chunks(count: int, size: int) -> Iterator[bytes]:
    for _ in range(count):
        yield b" " * size


def test_bodies_that_are_too_large(server: Server) -> None:
    path = "/v2/models/mlp/infer"
    status, _, body = server.ask(path, b" " * (MOST // 2 + 1))
    assert status == 413
    assert b"binary tensor extension" in body
    x = np.zeros((MOST // 64 + 1, 16), np.float32)
    bodies: list[Any] = [b" " * (MOST + 1), chunks(50, 10_000)]
    for large in bodies:
        try:
            status, _, body = server.ask(path, large)
        except (ConnectionError, http.client.RemoteDisconnected):
            continue  # it was closed while the rest was on its way
        assert status == 413
        assert b"larger than 200000 bytes" in body
    status, data = server.infer("mlp", {"inputs": [as_json("x", x[:0]) | {"shape": [10**12, 16]}]})
    assert status == 413, data
    assert server.ask(path, b"x", {"Content-Encoding": "gzip"})[0] == 415
    for said in ("-1", "x", "1e3", "99999999999999999999", "²"):
        status, _, body = server.ask(path, b"{}", {HEADER: said.encode().decode("latin-1")})
        assert status == 400, said
    assert server.figure("weft_body_bytes") == 0


def closed_after(server: Server, parts: list[bytes], pause: float) -> tuple[float, bytes]:
    """Seconds until the server closes a connection to which parts are written slowly, and what it
    has said."""
    start, said = time.monotonic(), b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.settimeout(pause)
        for part in [*parts, *[b""] * 100]:
            try:
                if part:
                    client.sendall(part)
                got = client.recv(65536)
            except TimeoutError:
                continue
            except ConnectionError:
                break
            if not got:
                break
            said += got
    return time.monotonic() - start, said


def test_slow_and_broken_clients(server: Server) -> None:
    post = b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: a\r\n"
    cases: list[tuple[list[bytes], float, bytes]] = [
        ([b""], 0.1, b""),  # says nothing
        ([post] + [b"X-A: b\r\n"] * 100, 0.1, b""),  # headers, one by one
        ([post + b"Content-Length: 100\r\n\r\n"] + [b" "] * 99, 0.1, b"408"),  # a body by bytes
        ([post + b"X-Large: " + b"a" * 100_000 + b"\r\n\r\n"], 0.1, b"400"),
        ([post + b"X: a\r\n" * 1000 + b"\r\n"], 0.1, b"400"),
        ([b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"], 0.1, b"400"),
        ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10], 0.1, b"400"),
        ([post + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"], 0.1, b"400"),
        ([post + b"Content-Length: -5\r\n\r\n"], 0.1, b"400"),
        ([post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"], 0.1, b"400"),
        (
            [post + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n" + b"a" * 99],
            0.1,
            b"408",
        ),
    ]
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        found = list(pool.map(lambda case: closed_after(server, case[0], case[1]), cases))
    for (parts, _, wanted), (seconds, said) in zip(cases, found, strict=True):
        assert seconds < SECONDS + 5, parts[0][:60]
        if wanted:
            assert said.split(b" ")[1] == wanted, (parts[0][:60], said[:200])
        else:
            assert not said, said[:200]
    # Clients that leave before they are answered.
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall(post + b"Content-Length: 100\r\n\r\n{")
    assert server.ask("/v2/health/live")[0] == 200


def test_runs_that_do_not_end_and_a_queue_that_is_full(server: Server) -> None:
    def waits(value: float) -> dict[str, Any]:
        return {"inputs": [as_json("x", np.full(2, value, np.float32))]}

    def ask(value: float) -> tuple[int, Any, float]:
        start = time.monotonic()
        status, data = server.infer("until_large", waits(value))
        return status, data, time.monotonic() - start

    with concurrent.futures.ThreadPoolExecutor(WAITING + 4) as pool:
        endless = pool.submit(ask, 0.0)
        time.sleep(0.3)
        gone = server.connection()  # a client that leaves while its request waits
        gone.request("POST", "/v2/models/until_large/infer", json.dumps(waits(10.0)))
        deadline = time.monotonic() + 1
        while server.figure("weft_queue_length") != 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        gone.close()
        while server.figure("weft_queue_length") != 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert time.monotonic() < deadline
        others = [pool.submit(ask, 10.0) for _ in range(WAITING + 3)]
        assert server.ask("/v2/health/live")[0] == 200  # while the model runs
        statuses = [other.result()[0] for other in others]
        status, data, seconds = endless.result()
    assert status == 504, data
    assert seconds < SECONDS + 2
    assert statuses.count(503) == 3, statuses
    # In time, as they came later than the endless one; on a busy machine perhaps not.
    assert statuses.count(200) + statuses.count(504) == WAITING, statuses
    status, data, _ = ask(30.0)
    assert (status, data["outputs"][0]["data"]) == (200, [60.0, 60.0])
    assert server.figure("weft_requests_total", 'code="503"') == 3


# --- processes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_is_stopped_finishes_what_it_has_begun(
    workers: int, folder: Path, tmp_path: Path
) -> None:
    models, options = (
        [f"m={folder / 'until_large.weft'}"],
        ("--timeout=1.6", f"--workers={workers}"),
    )
    with serving(tmp_path, models, *options) as server:
        found: list[Any] = []
        idle = server.connection()
        idle.request("GET", "/v2/health/ready")
        idle.getresponse().read()
        endless = {"inputs": [as_json("x", np.zeros(1, np.float32))]}
        good = {"inputs": [as_json("x", np.full(1, 60, np.float32))]}
        requests = [endless, good]
        threads = []
        for request in requests:
            threads.append(
                threading.Thread(target=lambda r=request: found.append(server.infer("m", r)))
            )
            threads[-1].start()
            time.sleep(0.6)
        if workers == 1:
            server.process.terminate()
        else:
            os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(20) == 0
        idle.close()
        for thread in threads:
            thread.join(10)
        assert sorted(status for status, _ in found) == [200, 504]
        with pytest.raises(OSError, match="refused"):
            server.ask("/v2/health/live")
    begun = re.findall(r"stopping: (\d) requests in flight", server.log.read_text())
    # The second waits for the first, unless another worker has taken it.
    assert sum(map(int, begun)) in {1: (2,), 2: (1, 2)}[workers]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_outlasts_the_grace_is_cut_and_answered(
    workers: int, folder: Path, tmp_path: Path
) -> None:
    models = [f"m={folder / 'until_large.weft'}"]
    with serving(tmp_path, models, "--timeout=30", "--grace=1", f"--workers={workers}") as server:
        endless = {"inputs": [as_json("x", np.zeros(1, np.float32))]}
        slow = server.connection()  # its body never comes
        slow.putrequest("POST", "/v2/models/m/infer")
        slow.putheader("Content-Length", "100")
        slow.endheaders()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found = [pool.submit(server.infer, "m", endless) for _ in range(2)]
            time.sleep(0.8)
            start = time.monotonic()
            server.process.terminate()
            assert [one.result()[0] for one in found] == [503, 503]
        assert slow.getresponse().status == 503
        assert server.process.wait(20) == 0
        assert time.monotonic() - start < 10  # not for as long as --timeout
    assert "Traceback" not in server.log.read_text()


def test_workers_that_die_are_started_anew(folder: Path, tmp_path: Path) -> None:
    with serving(tmp_path, [folder / "mlp.weft"], "--workers=2") as server:
        deadline = time.monotonic() + 20
        while server.log.read_text().count("listening") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.infer("mlp", mlp_request())[0] == 200
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        if children.exists():
            before = children.read_text().split()
            assert len(before) == 2
            os.kill(int(before[0]), signal.SIGKILL)
            while server.log.read_text().count("listening") < 3 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert "ended with status -9" in server.log.read_text()
            assert len(children.read_text().split()) == 2
        for _ in range(5):
            assert server.infer("mlp", mlp_request())[0] == 200
        assert server.figure("weft_requests_total") == 6  # of both workers, and of the dead one
        assert server.stop() == 0


def test_what_cannot_be_served_is_an_error(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "damaged.weft").write_bytes((folder / "mlp.weft").read_bytes()[:-100])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, said in (
            ([str(tmp_path / "none.weft")], "No such file"),
            ([str(tmp_path / "damaged.weft")], "damaged.weft"),
            ([str(folder), "--workers=0"], "workers is 0"),
            ([str(folder), "--port=99999"], "port is 99999, not from 0 to 65535"),
            ([str(folder / "mlp.weft"), "--port", port], "in use"),
        ):
            assert main(["serve", *arguments]) == 1
            shown = capsys.readouterr().err
            assert said in shown
            assert "Traceback" not in shown
