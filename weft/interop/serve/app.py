"""What is answered over HTTP, by aiohttp."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aiohttp import http_exceptions, web

from weft.base.errors import WeftError
from weft.interop.serve.datatypes import Array, BadRequest
from weft.interop.serve.metrics import CONTENT_TYPE, Metrics
from weft.interop.serve.models import Models
from weft.interop.serve.options import Options
from weft.interop.serve.protocol import HEADER_LENGTH, Response, read_request, write_response
from weft.interop.serve.queue import Job, JobQueue, Outcome, stopping
from weft.interop.serve.served import Served

__all__ = ["App", "http_exceptions", "web"]

log = logging.getLogger("weft.serve")
#: Bodies that are read at the same time may take this many times the largest body.
BODIES = 4
RETRY = {"Retry-After": "1"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class App:
    """The handlers, with what they share: models, the queue, limits, figures."""

    def __init__(self, models: Models, options: Options, jobs: JobQueue, metrics: Metrics) -> None:
        self.models = models
        self.options = options
        self.jobs = jobs
        self.metrics = metrics
        self.ready = True
        self._end: float | None = None  # of the server, in the time of the loop
        self._limits: set[asyncio.Timeout] = set()  # of requests in flight
        self._bytes = 0  # of bodies
        self.in_flight = 0

    def application(self) -> web.Application:
        async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._answered(request, handler)

        made = web.Application(middlewares=[web.middleware(answered)])
        model = "/v2/models/{model}"
        for path in (model, model + "/versions/{version}"):
            made.router.add_post(path + "/infer", self.infer)
            made.router.add_get(path, self.metadata)
            made.router.add_get(path + "/ready", self.model_ready)
        made.router.add_get("/v2", self.server)
        made.router.add_get("/v2/health/live", self.live)
        made.router.add_get("/v2/health/ready", self.is_ready)
        made.router.add_get("/metrics", self.figures)
        return made

    # --- every request ------------------------------------------------------------------------

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The answer of a handler; errors as JSON. Counts what is about a model."""
        start = time.monotonic()
        self.in_flight += 1
        limit = asyncio.timeout_at(self._end)
        self._limits.add(limit)
        try:
            async with limit:
                response = await self._or_error(request, handler)
        except TimeoutError:
            error = stopping()
            response = _error(error.status, str(error))
            response.force_close()
        finally:
            self._limits.discard(limit)
            self.in_flight -= 1
        if request.path.endswith("/infer"):
            found = self._found(request)
            model = ("", "") if found is None else (found.name, found.version)
            self.metrics.count(model, response.status, time.monotonic() - start)
        return response

    async def _or_error(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except BadRequest as error:
            return _error(error.status, str(error))
        except web.HTTPException as error:  # no such path or method
            return _error(error.status, f"{request.method} {request.path}: {error.reason}", error)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return _error(500, "the server failed; its log says more")

    def _found(self, request: web.Request) -> Served | None:
        of = request.match_info
        return self.models.get(of.get("model", ""), of.get("version"))

    def _model(self, request: web.Request) -> Served:
        found = self._found(request)
        if found is None:
            of = request.match_info
            version = f", version {of['version']!r:.40}" if "version" in of else ""
            raise BadRequest(f"there is no model {of['model']!r:.80}{version}", 404)
        return found

    def end_by(self, moment: float) -> None:
        """Answer what is in flight at a moment of the loop's time with status 503."""
        self._end = moment
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(moment)

    # --- what is there ------------------------------------------------------------------------

    async def server(self, _request: web.Request) -> web.Response:
        version = importlib.metadata.version("weft")
        extensions = ["binary_tensor_data"]
        return _json({"name": "weft", "version": version, "extensions": extensions})

    async def live(self, _request: web.Request) -> web.Response:
        return _json({"live": True})

    async def is_ready(self, _request: web.Request) -> web.Response:
        return _json({"ready": self.ready}, 200 if self.ready else 503)

    async def metadata(self, request: web.Request) -> web.Response:
        found = self._model(request)
        return _json(found.metadata(self.models.versions(found.name)))

    async def model_ready(self, request: web.Request) -> web.Response:
        found = self._model(request)
        return _json({"name": found.name, "ready": self.ready}, 200 if self.ready else 503)

    async def figures(self, _request: web.Request) -> web.Response:
        self.tell_gauges()
        text = self.metrics.text().encode()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    def tell_gauges(self) -> None:
        self.metrics.gauge("weft_queue_length", len(self.jobs))
        self.metrics.gauge("weft_requests_in_flight", self.in_flight)
        self.metrics.gauge("weft_body_bytes", self._bytes)

    # --- inference ----------------------------------------------------------------------------

    async def infer(self, request: web.Request) -> web.Response:
        served = self._model(request)
        deadline = time.monotonic() + self.options.timeout
        json_length = self._checked_headers(request)
        body = await self._body(request, deadline)
        held = len(body)
        try:
            self._check_json(json_length, len(body))
            read = read_request(
                body, json_length, served.inputs, served.results, self.options.max_body
            )
            if json_length is None:  # else the arrays are parts of the body
                decoded = sum(x.nbytes for x in read.arrays)
                held += decoded
                self._bytes += decoded
            arrays = await self._results(served, read.arrays, deadline)
        finally:
            self._bytes -= held
        head = {"model_name": served.name, "model_version": served.version}
        return _response(write_response(head, read, served.results, arrays))

    def _checked_headers(self, request: web.Request) -> int | None:
        """The length of the JSON, if the headers say it."""
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise BadRequest("compressed bodies are not read: send it without", 415)
        if (request.content_length or 0) > self.options.max_body:
            raise self._too_large()
        if len(self.jobs) >= self.options.max_queue:
            raise BadRequest(f"{len(self.jobs)} requests wait already: try again later", 503)
        said = request.headers.get(HEADER_LENGTH)
        if said is None:
            return None
        if not (said.isascii() and said.isdigit() and len(said) < 16):
            raise BadRequest(f"{HEADER_LENGTH} is {said!r:.40}, where a number is expected")
        return int(said)

    def _too_large(self) -> BadRequest:
        return BadRequest(f"the body is larger than {self.options.max_body} bytes", 413)

    def _check_json(self, json_length: int | None, size: int) -> None:
        length = size if json_length is None else min(json_length, size)
        if length > self.options.max_json:
            raise BadRequest(
                f"there are {length} bytes of JSON, more than {self.options.max_json}: send large "
                "tensors with the binary tensor extension",
                413,
            )

    async def _body(self, request: web.Request, deadline: float) -> bytes:
        """The body; its length is added to `_bytes`, and the caller subtracts it."""
        found = bytearray()
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                async for part in request.content.iter_any():
                    found += part
                    self._bytes += len(part)
                    if len(found) > self.options.max_body:
                        raise self._too_large()
                    if self._bytes > BODIES * self.options.max_body:
                        raise BadRequest("other requests take all memory: try again later", 503)
            return bytes(found)
        except BaseException as error:
            self._bytes -= len(found)
            if isinstance(error, TimeoutError):
                raise BadRequest("the body did not arrive in time", 408) from None
            raise

    async def _results(self, served: Served, arrays: list[Array], deadline: float) -> list[Array]:
        """The results of the program, when its turn has come."""
        try:
            key, inputs = served.checked(arrays)
        except WeftError as error:
            raise BadRequest(f"{served.name}: {error.message}") from None
        if len(self.jobs) >= self.options.max_queue:
            raise BadRequest(f"{len(self.jobs)} requests wait already: try again later", 503)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def done(outcomes: list[tuple[Job, Outcome]]) -> None:
            with suppress(RuntimeError):  # the server has ended: nobody waits any more
                loop.call_soon_threadsafe(_deliver, outcomes)

        job = Job(served, key, inputs, deadline, done, future)
        self.jobs.put(job)
        try:
            # A run is ended at the deadline, and its answer is on the way then.
            async with asyncio.timeout(deadline - time.monotonic() + 0.25):
                found = await future
        except TimeoutError:
            self.jobs.drop(job)
            raise BadRequest("the request could not be answered in time", 504) from None
        except asyncio.CancelledError:
            self.jobs.drop(job)
            raise
        if isinstance(found, Exception):
            raise found
        return found


def _deliver(outcomes: list[tuple[Job, Outcome]]) -> None:
    for job, outcome in outcomes:
        if not job.waiter.done():
            job.waiter.set_result(outcome)


# --- responses ------------------------------------------------------------------------------------


def _json(data: Any, status: int = 200) -> web.Response:
    body = json.dumps(data).encode()
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json"})


def _error(status: int, message: str, cause: Any = None) -> web.Response:
    response = _json({"error": message}, status)
    if cause is not None and "Allow" in cause.headers:
        response.headers["Allow"] = cause.headers["Allow"]
    if status == 503:
        response.headers.update(RETRY)
    if status in (408, 413):  # the rest of the body is not read
        response.force_close()
    return response


def _response(made: Response) -> web.Response:
    headers = {"Content-Type": "application/json"}
    if made.json is not None:
        headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(made.json)}
    return web.Response(body=b"".join(made.parts), headers=headers)
