"""`weft …` on the command line."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import logging
import os
import sys
from collections.abc import Sequence

from weft.base import store
from weft.base.errors import WeftError
from weft.distributed.launch import launch
from weft.inspect import digits, doctor, tour
from weft.inspect.explain.explain import explain
from weft.inspect.step.debug import debug
from weft.inspect.view.script import compiled_in
from weft.inspect.view.serve import serve
from weft.inspect.view.view import view
from weft.interop.programs.program import load_program

#: Arguments of weft.serve, which has their defaults.
SERVE_OPTIONS: dict[str, tuple[type, str]] = {
    "host": (str, "where to listen (127.0.0.1)"),
    "port": (int, "the port; 0: a free one (8000)"),
    "workers": (int, "processes, which share the memory of the weights (1)"),
    "threads": (int, "threads of kernels in each worker (the cores divided by workers)"),
    "max-batch": (int, "requests that run together at most; 1: each alone (32)"),
    "max-delay": (float, "seconds that a request waits for others (0)"),
    "max-body": (int, "bytes of a request (64 MiB)"),
    "max-json": (int, "bytes of the JSON in a request (16 MiB)"),
    "max-queue": (int, "requests that may wait in a worker (256)"),
    "timeout": (float, "seconds from the headers of a request to its response (30)"),
    "idle": (float, "seconds for the headers of a request, and between requests (60)"),
    "grace": (float, "seconds for the requests in flight when the server ends (30)"),
}
SERVE_FLAGS = {
    "stateful": "also serve a program that writes to its state: each request alone",
    "access-log": "log each request",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # as in `weft demo | head`: who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="weft", description="A deep-learning framework: see `weft demo` for a tour."
    )
    version = importlib.metadata.version("weft")
    parser.add_argument("--version", action="version", version=f"weft {version}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="a tour of short programs and their output")
    demo.set_defaults(run=_demo)

    examined = commands.add_parser("doctor", help="facts about this machine for a bug report")
    examined.add_argument("--json", action="store_true", help="as JSON")
    examined.set_defaults(run=_doctor)

    stepped = commands.add_parser(
        "debug", help="run a script and step through its compiled functions"
    )
    stepped.add_argument("--stage", choices=("captured", "optimized"), default="captured")
    stepped.add_argument(
        *("-b", "--break"),
        dest="breaks",
        action="append",
        default=[],
        help="stop first at FILE:LINE, op:NAME, nan, inf or norm>NUMBER",
    )
    stepped.add_argument("script", nargs="?", help="the script to run, and its arguments")
    stepped.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    stepped.set_defaults(run=_debug, error=stepped.error)

    looked = commands.add_parser(
        "view", help="show a graph, or the compiled functions of a script, as a page on localhost"
    )
    looked.add_argument(
        "file",
        help="a script (.py), which is run; a program (.weft); or the text of a graph, from "
        "graph.text()",
    )
    looked.add_argument("-f", "--function", help="which compiled function of the script to show")
    looked.add_argument("-o", "--output", help="also write the page (.html) or its picture (.svg)")
    looked.add_argument("--no-serve", action="store_true", help="only write the page")
    looked.add_argument(
        "--port", type=int, default=0, help="the port on localhost; by default a free one"
    )
    looked.add_argument("--browse", action="store_true", help="open it in the browser")
    looked.set_defaults(run=_view)

    explained = commands.add_parser("explain", help="a report about a program (.weft)")
    explained.add_argument("file", help="a file that program.save() wrote; it is not run")
    explained.add_argument("--json", action="store_true", help="as JSON")
    explained.add_argument("-o", "--output", help="write a page (.html) instead")
    explained.set_defaults(run=_explain)

    built = commands.add_parser("build", help="a library without Python, of a program (.weft)")
    built.add_argument("file", help="a file that program.save() wrote; it is not run")
    built.add_argument(
        *("-o", "--output"), required=True, help="libNAME.so, NAME.a, NAME.o or NAME.wasm"
    )
    built.add_argument("--target", help="x86_64-linux, native, wasm32, …; see docs/libraries.md")
    built.add_argument("--name", help="what the names of its functions begin with")
    built.add_argument(
        *("-s", "--size"), action="append", default=[], metavar="NAME=NUMBER", help="a named size"
    )
    built.add_argument(
        "--max-size",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="a named size that each call chooses, up to this number",
    )
    built.add_argument("--weights", choices=("inside", "file"), default="inside")
    built.add_argument("--stack-bytes", type=int, default=0, help="memory for loops' backward")
    built.set_defaults(run=_build, error=built.error)

    served = commands.add_parser(
        "serve", help="programs (.weft) as a service over HTTP; see docs/serving.md"
    )
    served.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a file that program.save() wrote, or a folder of them (NAME.weft or "
        "NAME/VERSION/*.weft); NAME=PATH names the model",
    )
    for name, (kind, said) in SERVE_OPTIONS.items():
        served.add_argument(f"--{name}", type=kind, default=argparse.SUPPRESS, help=said)
    for name, said in SERVE_FLAGS.items():
        served.add_argument(f"--{name}", action="store_true", default=argparse.SUPPRESS, help=said)
    served.set_defaults(run=_serve)

    started = commands.add_parser("run", help="run a script on several ranks, with MPI")
    started.add_argument(*("-n", "--ranks"), type=int, required=True, help="how many processes")
    started.add_argument("script", help="the script to run, and its arguments")
    started.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    started.set_defaults(run=_run, error=started.error)

    kept = commands.add_parser(
        "cache", help="the cache on disk: machine code and converted functions"
    )
    actions = kept.add_subparsers(title="actions", required=True, metavar="ACTION")
    known = actions.add_parser("info", help="its folder and size")
    known.add_argument("--json", action="store_true", help="as JSON")
    known.set_defaults(run=_cache_info)
    cleared = actions.add_parser("clear", help="remove all entries")
    cleared.add_argument("-y", "--yes", action="store_true", help="do not ask on a terminal")
    cleared.set_defaults(run=_cache_clear)
    return parser


def _demo(_options: argparse.Namespace) -> int:
    for text in tour.shown():
        print(text, flush=True)
    digits.show(len(tour.STEPS) + 1)
    print("That was the tour. What to read next: README.md and the folder docs/.")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    found = doctor.report()
    print(json.dumps(found, indent=2) if options.json else doctor.as_text(found))
    return 0


def _debug(options: argparse.Namespace) -> int:
    if options.script is None:
        options.error("which script? For example: weft debug train.py")
    if not os.path.exists(options.script):
        options.error(f"there is no file {options.script}")
    return debug(options.script, options.arguments, options.stage, options.breaks)


def _run(options: argparse.Namespace) -> int:
    if options.ranks < 1:
        options.error(f"-n is {options.ranks}: at least one rank is needed")
    if not os.path.exists(options.script):
        options.error(f"there is no file {options.script}")
    try:
        return launch(options.ranks, options.script, options.arguments)
    except WeftError as error:
        return _failed("run", error)


def _view(options: argparse.Namespace) -> int:
    try:
        shown = options.file
        if shown.endswith(".py"):
            shown = compiled_in(shown, options.function)
        page = view(shown)
    except (WeftError, OSError) as error:
        return _failed("view", error)
    output = options.output or ("graph.html" if options.no_serve else None)
    if output is not None:
        print(f"wrote {page.save(output)}")
    if not options.no_serve:
        serve(page, options.port, browse=options.browse)
    return 0


def _failed(command: str, error: WeftError | OSError) -> int:
    said = error.message if isinstance(error, WeftError) else str(error)
    fix = f"\n  to fix: {error.hint}" if isinstance(error, WeftError) and error.hint else ""
    print(f"weft {command}: {said}{fix}", file=sys.stderr)
    return 1


def _explain(options: argparse.Namespace) -> int:
    try:
        report = explain(load_program(options.file))
    except (WeftError, OSError) as error:
        return _failed("explain", error)
    if options.output is not None:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(report.html())
        print(f"wrote {options.output}")
    else:
        print(json.dumps(report.as_dict(), indent=2) if options.json else report.text())
    return 0


def _build(options: argparse.Namespace) -> int:
    sizes: dict[str, int] = {}
    max_sizes: dict[str, int] = {}
    for found, texts in ((sizes, options.size), (max_sizes, options.max_size)):
        for text in texts:
            name, _, number = text.partition("=")
            if not (name and number.isdigit()):
                options.error(f"{text} is no size: NAME=NUMBER")
            found[name] = int(number)
    try:
        made = load_program(options.file).build(
            options.output,
            target=options.target,
            name=options.name,
            sizes=sizes,
            max_sizes=max_sizes,
            weights=options.weights,
            stack_bytes=options.stack_bytes,
        )
    except (WeftError, OSError) as error:
        return _failed("build", error)
    print(made)
    print(f"wrote {', '.join(str(file) for file in made.files)}")
    return 0


def _serve(options: argparse.Namespace) -> int:
    given = {**vars(options)}
    models = given.pop("models")
    del given["run"]
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    try:
        importlib.import_module("weft.interop.serve.server").serve(models, **given)
    except KeyboardInterrupt:
        return 130
    except (WeftError, OSError) as error:
        return _failed("serve", error)
    return 0


def _cache_info(options: argparse.Namespace) -> int:
    found = store.info()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    where = (
        found["folder"]
        or "none: WEFT_CACHE turns it off, others can write there, or there is no home"
    )
    print(f"folder   {where}")
    print(f"entries  {found['entries']}")
    print(f"size     {doctor.amount(found['bytes'])} of {doctor.amount(found['most bytes'])}")
    return 0


def _cache_clear(options: argparse.Namespace) -> int:
    found = store.info()
    size = doctor.amount(found["bytes"])
    if found["entries"] and not options.yes and sys.stdin.isatty():
        answer = input(f"remove {found['entries']} entries, {size}? (y/n) ")
        if answer.strip().lower() not in ("y", "yes"):
            return 1
    count = store.clear()
    print(f"removed {count} {'entry' if count == 1 else 'entries'}, {size}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
