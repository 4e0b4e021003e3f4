"""`weft …` on the command line."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Sequence

from weft.codegen import store
from weft.inspect import digits, doctor, tour


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    status: int = options.run(options)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="weft", description="A deep-learning framework: see `weft demo` for a tour."
    )
    version = importlib.metadata.version("weft")
    parser.add_argument("--version", action="version", version=f"weft {version}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="a tour: short programs and what they print")
    demo.set_defaults(run=_demo)

    examined = commands.add_parser("doctor", help="what a bug report needs to know")
    examined.add_argument("--json", action="store_true", help="as JSON")
    examined.set_defaults(run=_doctor)

    kept = commands.add_parser("cache", help="native code that is kept on disk")
    actions = kept.add_subparsers(title="actions", required=True, metavar="ACTION")
    known = actions.add_parser("info", help="where it is, and how much")
    known.add_argument("--json", action="store_true", help="as JSON")
    known.set_defaults(run=_cache_info)
    actions.add_parser("clear", help="remove all of it").set_defaults(run=_cache_clear)
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


def _cache_info(options: argparse.Namespace) -> int:
    found = store.info()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    where = found["folder"] or "none: WEFT_CACHE turns it off, or there is no home folder"
    print(f"folder   {where}")
    print(f"entries  {found['entries']}")
    print(f"size     {doctor.amount(found['bytes'])} of {doctor.amount(found['most bytes'])}")
    return 0


def _cache_clear(_options: argparse.Namespace) -> int:
    size, count = store.info()["bytes"], store.clear()
    print(f"removed {count} {'entry' if count == 1 else 'entries'}, {doctor.amount(size)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
