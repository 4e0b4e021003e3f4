"""The timeline of a simulated pipeline: what each stage does when, as a picture or a trace file."""

from __future__ import annotations

import json
from pathlib import Path

from weft.base.errors import FileError
from weft.distributed.planning.prediction import Prediction
from weft.distributed.planning.timetable import Task
from weft.inspect.explain.style import shown_seconds
from weft.inspect.profile.events import Event
from weft.inspect.profile.timeline import Drawn, lanes_svg
from weft.inspect.profile.trace_file import trace_of

__all__ = ["pipeline_svg", "save_pipeline"]

#: Hues of forwards and backwards; later chunks of a stage are darker.
FORWARD, BACKWARD = 212, 150


def pipeline_svg(prediction: Prediction) -> str:
    """A row for each stage; a box with its number for each micro-batch, blue in the forward, green
    in the backward. What is empty is the bubble."""
    run = prediction.run
    tasks = run.tasks if run is not None else []
    boxes = [
        Drawn(
            task.device,
            task.start,
            task.stop,
            str(task.micro_batch),
            f"{_name(task)} on stage {task.device}: {shown_seconds(task.stop - task.start)}",
            FORWARD if task.forward else BACKWARD,
            task.start,
            light=84 - 12 * min(task.chunk, 3),
        )
        for task in tasks
    ]
    names = [f"stage {device}" for device in range(prediction.plan.pipeline)]
    return lanes_svg(names, boxes, 0.0, run.seconds if run is not None else 1.0)


def save_pipeline(prediction: Prediction, path: str | Path) -> None:
    """Write the timeline of a simulated step: a picture (.svg), or a trace for ui.perfetto.dev
    (.json).

    `prediction` is what `weft.distributed.simulate` returned.
    """
    to = Path(path)
    if to.suffix == ".svg":
        svg = pipeline_svg(prediction)
        to.write_text(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))
        return
    if to.suffix != ".json":
        raise FileError(f"{to.name!r} is neither .svg nor .json", op="save_pipeline")
    tasks = prediction.run.tasks if prediction.run is not None else []
    events = [
        Event(
            _name(task),
            "op" if task.forward else "backward",
            round(task.start * 1e9),
            round(task.stop * 1e9),
            task.device,
        )
        for task in tasks
    ]
    names = {device: f"stage {device}" for device in range(prediction.plan.pipeline)}
    to.write_text(json.dumps(trace_of(events, [], 0, names)))


def _name(task: Task) -> str:
    chunk = f" of chunk {task.chunk}" if task.chunk else ""
    return f"{'forward' if task.forward else 'backward'} {task.micro_batch}{chunk}"
