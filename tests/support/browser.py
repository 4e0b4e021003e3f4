"""A headless Chromium for tests of pages, over ChromeDriver's HTTP: it needs nothing else."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1"),
]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element, by the standard
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
#: What the WebDriver standard calls keys.
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015", "ArrowUp": "\ue013"}


def found() -> bool:
    """Whether there is a browser to drive."""
    return bool(_browser() and shutil.which("chromedriver"))


def _browser() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """One window of a browser."""

    def __init__(self, port: int, size: tuple[int, int], folder: str, dark: bool) -> None:
        self.root = f"http://127.0.0.1:{port}"
        flags = [*FLAGS, f"--window-size={size[0]},{size[1]}", f"--user-data-dir={folder}"]
        if dark:
            flags.append("--blink-settings=preferredColorScheme=0")
        asked = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": flags, "binary": _browser()},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": asked}})
        self.session = f"/session/{made['sessionId']}"

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        given = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.root}{path}", given, method=method)
        try:
            with _DIRECT.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, path: Path | str) -> None:
        """Open a file, or an address."""
        address = path.absolute().as_uri() if isinstance(path, Path) else path
        self._ask("POST", f"{self.session}/url", {"url": address})

    def run(self, script: str, *args: Any) -> Any:
        """The value of a script: `return …`."""
        return self._ask(
            "POST", f"{self.session}/execute/sync", {"script": script, "args": list(args)}
        )

    def find(self, selector: str) -> str:
        asked = {"using": "css selector", "value": selector}
        element: str = self._ask("POST", f"{self.session}/element", asked)[ELEMENT]
        return element

    def click(self, selector: str) -> None:
        self._ask("POST", f"{self.session}/element/{self.find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Type text, or one of KEYS."""
        asked = {"text": KEYS.get(text, text)}
        self._ask("POST", f"{self.session}/element/{self.find(selector)}/value", asked)

    def drag(self, selector: str, points: Sequence[tuple[float, float]]) -> None:
        """Press the mouse on an element at the first of some points, and let it go at the last.
        Points are from 0 to 1, from the top left."""
        script = """const box = document.querySelector(arguments[0]).getBoundingClientRect();
            return [box.left, box.top, box.width, box.height]"""
        self.run("document.querySelector(arguments[0]).scrollIntoView()", selector)
        left, top, width, height = self.run(script, selector)
        moves = [
            {"type": "pointerMove", "duration": 5, "x": int(left + x * width),
             "y": int(top + y * height)}
            for x, y in points
        ]  # fmt: skip
        down, up = ({"type": f"pointer{word}", "button": 0} for word in ("Down", "Up"))
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}
        actions = [{**mouse, "actions": [moves[0], down, *moves[1:], up]}]
        self._ask("POST", f"{self.session}/actions", {"actions": actions})

    def text(self, selector: str) -> str:
        text: str = self.run("return document.querySelector(arguments[0]).innerText", selector)
        return text

    def complaints(self) -> list[str]:
        """What the page wrote to the console that is no good news."""
        log = self._ask("POST", f"{self.session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in log if entry["level"] in ("SEVERE", "WARNING")]

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", f"{self.session}/screenshot")))

    def close(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self._ask("DELETE", self.session)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder's files on this machine."""

    class Files(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Files, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def browser(size: tuple[int, int] = (1400, 900), dark: bool = False) -> Iterator[Browser]:
    """A browser that is closed again."""
    driver = shutil.which("chromedriver")
    assert driver is not None
    # Port 0: the driver takes a free one, and says which.
    process = subprocess.Popen(
        [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            window = Browser(_port(process), size, folder, dark)
            try:
                yield window
            finally:
                window.close()
    finally:
        process.terminate()
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    end = time.monotonic() + 30
    for line in process.stdout:
        if "successfully on port " in line:
            return int(line.rsplit("on port ", 1)[1].strip(" .\n"))
        if time.monotonic() > end:
            break
    raise AssertionError("chromedriver did not start")
