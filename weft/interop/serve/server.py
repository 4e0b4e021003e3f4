"""`weft.serve` and `weft serve`: processes, sockets, signals.

Each worker process has two threads: a thread of its own for HTTP, the main thread for the model. Of
several workers, all are forked from one process that has read the programs, so they share the
memory of the weights, and accept from one socket. That process starts a worker anew that has died.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.base.errors import DeviceError, RangeError
from weft.interop.serve.metrics import Metrics
from weft.interop.serve.models import Given, Models, find_models
from weft.interop.serve.options import Options
from weft.interop.serve.queue import JobQueue
from weft.runtime.threads import get_num_threads, set_num_threads

__all__ = ["serve"]

log = logging.getLogger("weft.serve")
BACKLOG = 1024
STOPS = (signal.SIGTERM, signal.SIGINT)
#: Seconds for the answers to requests that were ended with the server.
ANSWERING = 1.0
#: A worker that dies within so many seconds of its start was never well.
LEAST_LIFE, MOST_DEATHS = 5.0, 5


def serve(
    models: Given | Sequence[Given] | Mapping[str, Given],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    threads: int | None = None,
    max_batch: int = 32,
    max_delay: float = 0.0,
    max_body: int = 64 << 20,
    max_json: int = 16 << 20,
    max_queue: int = 256,
    timeout: float = 30.0,
    idle: float = 60.0,
    grace: float = 30.0,
    stateful: bool = False,
    access_log: bool = False,
    backend: str | None = None,
) -> None:
    """Serve programs over HTTP, by the Open Inference Protocol, until SIGTERM or Ctrl-C. See
    docs/serving.md. Call it in the main thread.

    models      programs (`weft.export`), their files, folders of files, folders with versions; or a
                dict of these, by the names of the models
    host, port  where it listens; port 0 is a free one
    workers     processes; they share the memory of the weights
    threads     for kernels, in each worker; by default the cores of the machine divided by workers
    max_batch   the largest number of requests that run together; 1: each alone
    max_delay   seconds that a request waits for others, even if nothing runs
    max_body    bytes of a request; max_json: of its JSON
    max_queue   requests that may wait in a worker; others get status 503
    timeout     seconds from the headers of a request to its response
    idle        seconds for the headers of a request, and between the requests of a connection
    grace       seconds for the requests in flight when the server ends
    stateful    also serve a program that writes to its state: one worker, each request alone
    access_log  log each request
    """
    options = Options(
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        max_batch=max_batch,
        max_delay=max_delay,
        max_body=max_body,
        max_json=max_json,
        max_queue=max_queue,
        timeout=timeout,
        idle=idle,
        grace=grace,
        stateful=stateful,
        access_log=access_log,
    )
    _need_aiohttp()
    if threading.current_thread() is not threading.main_thread():
        raise DeviceError("serve must be called in the main thread, which gets signals", op="serve")
    found = find_models(models, options, backend)
    with socket.create_server(
        (options.host, options.port),
        family=socket.AF_INET6 if ":" in options.host else socket.AF_INET,
        backlog=BACKLOG,
    ) as listening:
        metrics = Metrics([(one.name, one.version) for one in found], options.workers)
        if options.workers == 1:
            _Worker(found, options, metrics, listening).run()
        else:
            _Parent(found, options, metrics, listening).run()


def _need_aiohttp() -> types.ModuleType:
    try:
        return importlib.import_module("weft.interop.serve.app")
    except ModuleNotFoundError as error:
        raise DeviceError(
            f"serving needs aiohttp: {error}", op="serve", hint='pip install "weft[serve]"'
        ) from None


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _http_log(module: types.ModuleType) -> logging.Logger:
    """For failures of aiohttp; what is no HTTP is answered with 400, and is none."""
    made = logging.getLogger("weft.serve.http")
    malformed = module.http_exceptions.HttpProcessingError

    def is_failure(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], malformed))

    made.filters[:] = [is_failure]
    return made


class _Worker:
    """One process that serves."""

    def __init__(
        self,
        models: Models,
        options: Options,
        metrics: Metrics,
        listening: socket.socket,
        parent: int | None = None,
    ) -> None:
        """parent: a pipe that ends when the process that started this one does"""
        self.models = models
        self.options = options
        self.metrics = metrics
        self.listening = listening
        self.parent = parent
        self.jobs = JobQueue(options.max_batch, options.max_delay, self._ran)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._failed: BaseException | None = None

    def _ran(self, served: Any, requests: int, seconds: float) -> None:
        self.metrics.ran((served.name, served.version), requests, seconds)

    def run(self) -> None:
        """Serve until a signal says to stop."""
        if self.options.threads is not None:
            set_num_threads(self.options.threads)
        before = {number: signal.signal(number, self._asked_to_stop) for number in STOPS}
        if self.parent is not None:  # Ctrl-C goes to all processes: the parent hands it on, once
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        switching = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)  # two threads take turns: the default is 5 ms
        try:
            for one in self.models:
                one.prepare()
                together = "" if one.batches else f" (one request at a time: {one.why_alone})"
                log.info("%s, version %s: %r%s", one.name, one.version, one.program, together)
            thread = threading.Thread(target=self._serve_http, name="http", daemon=True)
            thread.start()
            self.jobs.run()
            thread.join()
        finally:
            sys.setswitchinterval(switching)
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._failed is not None:
            raise self._failed

    def _asked_to_stop(self, _number: int, _frame: Any) -> None:
        if self._stop.is_set() or not self._loop.is_running():
            raise KeyboardInterrupt  # asked again, or not yet begun: at once
        self._loop.call_soon_threadsafe(self._stop.set)

    def _serve_http(self) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._http())
        except BaseException as error:
            self._failed = error
        finally:
            self.jobs.close()
            self._loop.close()

    async def _http(self) -> None:
        module = _need_aiohttp()
        app = module.App(self.models, self.options, self.jobs, self.metrics)
        runner = module.web.AppRunner(
            app.application(),
            handle_signals=False,
            handler_cancellation=True,  # a request whose client has gone is not run
            auto_decompress=False,
            access_log=log if self.options.access_log else None,
            access_log_format='%a "%r" %s %b %Tf',
            logger=_http_log(module),
            keepalive_timeout=self.options.idle,
            lingering_time=1.0,  # for a client that still sends, and is answered already
            shutdown_timeout=self.options.grace + ANSWERING,
        )
        await runner.setup()
        await module.web.SockSite(runner, self.listening, backlog=BACKLOG).start()
        if self.parent is not None:
            self._loop.add_reader(self.parent, self._stop.set)
        names = ", ".join(self.models.names())
        log.info("listening on %s: %s", _address(self.listening), names)
        while not self._stop.is_set():
            app.tell_gauges()
            try:
                await asyncio.wait_for(self._stop.wait(), 1.0)
            except TimeoutError:
                continue
        log.info("stopping: %d requests in flight", app.in_flight)
        app.ready = False
        app.end_by(self._loop.time() + self.options.grace)
        self.jobs.end_by(time.monotonic() + self.options.grace)
        if self.parent is not None:
            self._loop.remove_reader(self.parent)
        await runner.cleanup()
        log.info("stopped")


class _Parent:
    """Starts workers, hands signals on, and starts workers anew that have died."""

    def __init__(
        self, models: Models, options: Options, metrics: Metrics, listening: socket.socket
    ) -> None:
        if not hasattr(os, "fork"):
            raise RangeError(
                "several workers need fork, which this system does not have", op="serve"
            )
        self.options = options
        self.stopping = False
        self.workers: dict[int, tuple[int, float]] = {}  # by process: its number, its start
        self._deaths = 0
        self._life, self._hold = os.pipe()
        threads = options.threads or max(1, get_num_threads() // options.workers)

        def work(number: int) -> None:
            os.close(self._hold)
            set_num_threads(threads)
            metrics.use_row(number)
            _Worker(models, options, metrics, listening, self._life).run()

        self._work: Callable[[int], None] = work

    def run(self) -> None:
        before = {number: signal.signal(number, self._asked_to_stop) for number in STOPS}
        try:
            for number in range(self.options.workers):
                self._start(number)
            while self.workers:
                self._wait()
        finally:
            for process in self.workers:  # none, unless this process fails
                os.kill(process, signal.SIGKILL)
            os.close(self._hold)
            os.close(self._life)
            for signal_number, handler in before.items():
                signal.signal(signal_number, handler)
        if self._deaths > MOST_DEATHS:
            raise DeviceError("the workers die as they start; the log says why", op="serve")

    def _start(self, number: int) -> None:
        # Signals wait meanwhile, so that each worker that there is gets them, and none is started
        # when they have come.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        process = -1 if self.stopping else os.fork()
        if process:
            if process > 0:
                self.workers[process] = number, time.monotonic()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
            return
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
            self.workers = {}
            self._work(number)
            status = 0
        except KeyboardInterrupt:
            pass
        except BaseException:
            log.exception("worker %d failed", number)
        finally:
            logging.shutdown()
            os._exit(status)  # what the parent does at its exit is not done twice

    def _asked_to_stop(self, number: int, _frame: Any) -> None:
        self.stopping = True
        for process in self.workers:
            os.kill(process, signal.SIGTERM)

    def _wait(self) -> None:
        process, status = os.wait()
        found = self.workers.pop(process, None)
        if found is None or self.stopping:
            return
        number, start = found
        log.error("worker %d ended with status %d", number, os.waitstatus_to_exitcode(status))
        self._deaths = self._deaths + 1 if time.monotonic() - start < LEAST_LIFE else 0
        if self._deaths > MOST_DEATHS:
            self._asked_to_stop(signal.SIGTERM, None)
        else:
            self._start(number)
