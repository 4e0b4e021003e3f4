"""The headers of a library, for C and C++."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from weft.interop.library.functions import Library
from weft.interop.library.program import Slot
from weft.interop.library.status import LibraryStatus
from weft.ir.types import TensorType

__all__ = ["c_header", "c_type", "cpp_header"]

#: Types of elements; of those that C has no type for, the bits.
_TYPES = {
    "bool": "uint8_t",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{"float16": "uint16_t", "bfloat16": "uint16_t"},
    **{"complex64": "float", "complex128": "double"},
}


def c_type(kind: TensorType) -> str:
    return _TYPES.get(kind.dtype.name, f"uint{kind.dtype.bits}_t")


def _comment(lines: Iterable[str]) -> str:
    return "\n".join(["/*", *[f" * {line}".rstrip() for line in lines], " */"])


def c_header(library: Library) -> str:
    p, big, layout = library.prefix, library.prefix.upper(), library.layout
    program = library.program
    codes = ",\n".join(f"  {big}_{code.name} = {code.value}" for code in LibraryStatus)
    meanings = [f"{big}_{code.name:<10} {text}" for code, text in library.texts.items()]
    memory = [f"#define {big}_STATE_FILE_BYTES {layout.file_bytes}"]
    if library.inside:
        memory.insert(0, f"#define {big}_MEMORY_BYTES {layout.total}")
    counts = [
        f"#define {big}_{slot.word.upper()}_COUNT {program.largest(slot.type.size)} "
        f"/* {slot.name}: {slot.type} */"
        for slot in (*program.arguments, *program.results)
    ]
    chosen = program.run_size
    if chosen is not None:
        counts.insert(0, f"#define {big}_{chosen.word}_MAX {chosen.most}")
    state = [
        f"  {slot.name}: {slot.type}{', changed by a call' if slot.written else ''}"
        for slot in program.state
    ]
    stack = (
        [f"Loops may keep {layout.stack_bytes} bytes; a call that needs more fails with STACK."]
        if layout.stack_bytes
        else []
    )
    about = [
        f"{library.word}: made by Weft for {library.target.name}. Do not edit.",
        "",
        *textwrap.wrap(
            "All functions that return int return a status, 0 for success; "
            f"{p}_error_text says what it means. Tensors are dense, in C order. Buffers of one "
            "call may not overlap. Several instances may be used at the same time, each by one "
            "thread at a time. Nothing is allocated once an instance is made.",
            92,
        ),
        *stack,
        *_about_size(library),
        "",
        "State:",
        *state,
        "",
        *meanings,
    ]
    parts = [
        _comment(about),
        f"#ifndef {big}_H\n#define {big}_H",
        "#include <stddef.h>\n#include <stdint.h>",
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        f"typedef struct {p} {p};",
        f"enum {p}_status {{\n{codes}\n}};",
        "/* Bytes of an instance, and of these for values of a run; elements of arrays. */\n"
        + "\n".join(
            [
                *memory,
                f"#define {big}_ARENA_BYTES {layout.arena_bytes}",
                f"#define {big}_STATE_COUNT {len(program.state)}",
                *counts,
            ]
        ),
        *_declarations(library),
        "#ifdef __cplusplus\n}\n#endif",
        "#endif",
    ]
    return "\n\n".join(parts) + "\n"


def _about_size(library: Library) -> list[str]:
    chosen = library.program.run_size
    if chosen is None:
        return []
    most = f"{library.prefix.upper()}_{chosen.word}_MAX"
    return textwrap.wrap(
        f"Each call chooses {chosen.word}, from {chosen.least} to {most}. The counts below are "
        "those for the largest; a call gives those for its own.",
        92,
    )


def parameters(library: Library) -> list[str]:
    """The parameters of the function that runs the program."""
    program = library.program
    found = [] if program.run_size is None else [f"size_t {program.run_size.word}"]
    for slot in (*program.arguments, *program.results):
        const = "" if slot.written else "const "
        found.append(f"{const}{c_type(slot.type)} *{slot.word}, size_t {slot.word}_count")
    return found


def _declarations(library: Library) -> list[str]:
    p = library.prefix
    found = []
    if library.target.files:
        found.append(f"/* Frees an instance; NULL is ignored. */\nint {p}_destroy({p} *self);")
        found.insert(
            0,
            "/* An instance whose state is a mapped file, as *_save writes it: the file is not\n"
            f" * changed. */\nint {p}_create_from(const char *file, {p} **made);",
        )
        if library.inside:
            found.insert(0, f"/* An instance in memory of its own. */\nint {p}_create({p} **made);")
    if library.inside:
        found.append(
            f"/* An instance in memory of the caller: {p.upper()}_MEMORY_BYTES, aligned to 64. */\n"
            f"int {p}_init(void *memory, size_t bytes, {p} **made);"
        )
    given = ",\n    ".join([f"{p} *self", *parameters(library)])
    found += [
        f"/* Runs the program. */\nint {p}_{library.word}({given});",
        f"/* A tensor of the state, by its name; `bytes` is its size. */\n"
        f"int {p}_get_state({p} *self, const char *name, void *data, size_t bytes);\n"
        f"int {p}_set_state({p} *self, const char *name, const void *data, size_t bytes);\n"
        "/* The names of the state, NULL after the last; the size of one, 0 if there is none. */\n"
        f"const char *{p}_state_name(size_t number);\n"
        f"size_t {p}_state_bytes(const char *name);",
    ]
    if library.target.files:
        found.append(
            "/* All state as a safetensors file: written beside, flushed, and renamed. */\n"
            f"int {p}_save({p} *self, const char *file);\n"
            f"int {p}_load({p} *self, const char *file);"
        )
    found.append(
        f"/* The same in memory of the caller: {p.upper()}_STATE_FILE_BYTES. */\n"
        f"int {p}_write_state({p} *self, void *data, size_t bytes);\n"
        f"int {p}_read_state({p} *self, const void *data, size_t bytes);"
    )
    found.append(
        "/* Which version of the code an instance runs. */\n"
        f"const char *{p}_code(const {p} *self);\n"
        f"const char *{p}_error_text(int status);"
    )
    return found


# --- C++ ------------------------------------------------------------------------------------------


def _span(slot: Slot) -> str:
    const = "" if slot.written else "const "
    return f"{const}{c_type(slot.type)} *{slot.word}"


def cpp_header(library: Library) -> str:
    """A class that owns an instance, and throws instead of returning a status."""
    p, big = library.prefix, library.prefix.upper()
    program = library.program
    slots = (*program.arguments, *program.results)
    given = ", ".join(
        [
            f"{_span(slot)}, std::size_t {slot.word}_count = {big}_{slot.word.upper()}_COUNT"
            for slot in slots
        ]
        if len(slots) == 1
        else [_span(slot) for slot in slots]
    )
    passed = ", ".join(
        ["held_", *[f"{slot.word}, {big}_{slot.word.upper()}_COUNT" for slot in slots]]
        if len(slots) != 1
        else ["held_", *[f"{slot.word}, {slot.word}_count" for slot in slots]]
    )
    if program.run_size is not None:  # counts depend on it
        size = program.run_size.word
        counted = [f"{_span(slot)}, std::size_t {slot.word}_count" for slot in slots]
        given = ", ".join([f"std::size_t {size}", *counted])
        words = [f"{slot.word}, {slot.word}_count" for slot in slots]
        passed = ", ".join(["held_", size, *words])
    makes = []
    if library.target.files:
        if library.inside:
            makes.append(f"  Model() {{ check({p}_create(&held_)); }}")
        makes.append(
            "  explicit Model(const std::string &file) "
            f"{{ check({p}_create_from(file.c_str(), &held_)); }}\n"
            f"  ~Model() {{ {p}_destroy(held_); }}\n"
            f"  void save(const std::string &file) {{ check({p}_save(held_, file.c_str())); }}\n"
            f"  void load(const std::string &file) {{ check({p}_load(held_, file.c_str())); }}"
        )
    else:
        makes.append(
            "  Model(void *memory, std::size_t bytes) "
            f"{{ check({p}_init(memory, bytes, &held_)); }}"
        )
    lines = "\n".join(makes)
    return f"""\
/* {library.word}, for C++11 and later: made by Weft. Do not edit. */
#ifndef {big}_HPP
#define {big}_HPP

#include "{p}.h"
#include <cstddef>
#include <stdexcept>
#include <string>

namespace {p}_library {{

struct Error : std::runtime_error {{
  explicit Error(int status) : std::runtime_error({p}_error_text(status)), status(status) {{}}
  int status;
}};

/* An instance; it cannot be copied. */
class Model {{
 public:
{lines}
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  void {library.word}({given}) {{
    check({p}_{library.word}({passed}));
  }}
  void get_state(const char *name, void *data, std::size_t bytes) {{
    check({p}_get_state(held_, name, data, bytes));
  }}
  void set_state(const char *name, const void *data, std::size_t bytes) {{
    check({p}_set_state(held_, name, data, bytes));
  }}
  const char *code() const {{ return {p}_code(held_); }}
  {p} *get() {{ return held_; }}

 private:
  static void check(int status) {{
    if (status != 0) throw Error(status);
  }}
  {p} *held_ = nullptr;
}};

}}  // namespace {p}_library

#endif
"""
