"""The JavaScript module of a library for WebAssembly, and its TypeScript types."""

from __future__ import annotations

import json

from weft.interop.library.functions import Library
from weft.interop.library.program import Slot

__all__ = ["javascript", "typescript"]

#: The arrays of JavaScript by dtype; of those that it has no array for, the bits.
_ARRAYS = {
    "bool": "Uint8Array",
    **{"float32": "Float32Array", "float64": "Float64Array"},
    **{f"int{bits}": f"Int{bits}Array" for bits in (8, 16, 32)},
    **{f"uint{bits}": f"Uint{bits}Array" for bits in (8, 16, 32)},
    **{"int64": "BigInt64Array", "uint64": "BigUint64Array"},
    **{"float16": "Uint16Array", "bfloat16": "Uint16Array"},
    **{"complex64": "Float32Array", "complex128": "Float64Array"},
}  # fmt: skip


def array_of(slot: Slot) -> str:
    """The class of the arrays of a tensor."""
    return _ARRAYS.get(slot.type.dtype.name, f"Uint{slot.type.dtype.bits}Array")


_MODULE = """\
// {word}: made by Weft, for browsers and Node. Do not edit.

const ARGUMENTS = {arguments};
const RESULTS = {results};
export const STATE = {state};
const MEMORY_BYTES = {memory}, FILE_BYTES = {file};

/** A status of the library; `status` is its number. */
export class LibraryError extends Error {{
  constructor(status, text) {{
    super(text);
    this.name = "LibraryError";
    this.status = status;
  }}
}}

const up = (size) => Math.ceil(size / 64) * 64;
const size = ([, shape]) => shape.reduce((all, n) => all * n, 1);
const bytes = (slot) => size(slot) * slot[2].BYTES_PER_ELEMENT;

function filled(view, name, given) {{
  if (given === undefined || given === null) throw new TypeError(`${{name}} is missing`);
  const values = typeof given === "object" ? given : [given];
  if (values.length !== view.length)
    throw new RangeError(`${{name}} has ${{values.length}} elements, not ${{view.length}}`);
  const big = view instanceof BigInt64Array || view instanceof BigUint64Array;
  if (big && typeof values[0] === "number") view.set(Array.from(values, BigInt));
  else view.set(values);
}}

/** An instance, with its own memory and state. Made by `load`. */
export class Model {{
  constructor(module, instance) {{
    this.module = module;
    this._c = instance.exports;
    let at = up(this._c.__heap_base.value);
    const take = (count) => {{ const place = at; at = up(at + count); return place; }};
    const memory = take(MEMORY_BYTES), made = take(4);
    const places = [...ARGUMENTS, ...RESULTS].map((slot) => take(bytes(slot)));
    this._file = take(FILE_BYTES);
    this._name = take({longest});
    const missing = at - this._c.memory.buffer.byteLength;
    if (missing > 0) this._c.memory.grow(Math.ceil(missing / 65536));
    const buffer = this._c.memory.buffer;
    const views = [...ARGUMENTS, ...RESULTS].map(
      (slot, i) => new slot[2](buffer, places[i], size(slot)));
    this._given = views.slice(0, ARGUMENTS.length);
    this._made = views.slice(ARGUMENTS.length);
    this._pairs = views.flatMap((view, i) => [places[i], view.length]);
    this._check(this._c.{p}_init(memory, MEMORY_BYTES, made));
    this._self = new Uint32Array(buffer, made, 1)[0];
  }}

  _text(address) {{
    const data = new Uint8Array(this._c.memory.buffer, address);
    return new TextDecoder().decode(data.slice(0, data.indexOf(0)));
  }}

  _check(status) {{
    if (status) throw new LibraryError(status, this._text(this._c.{p}_error_text(status)));
  }}

  /** Runs the program. Results are copies. */
  {word}({words}) {{
    const given = [{words}];
    ARGUMENTS.forEach(([name], i) => filled(this._given[i], name, given[i]));
    this._check(this._c.{p}_{word}(this._self, ...this._pairs));{written}
    return {returned};
  }}

  _named(name) {{
    if (!Object.hasOwn(STATE, name)) throw new RangeError(`there is no state ${{name}}`);
    const data = new TextEncoder().encode(name + "\\0");
    new Uint8Array(this._c.memory.buffer).set(data, this._name);
    const [shape, kind] = STATE[name];
    return new kind(this._c.memory.buffer, this._file, size([name, shape]));
  }}

  getState(name) {{
    const view = this._named(name);
    this._check(this._c.{p}_get_state(this._self, this._name, this._file, view.byteLength));
    return view.slice();
  }}

  setState(name, values) {{
    const view = this._named(name);
    filled(view, name, values);
    this._check(this._c.{p}_set_state(this._self, this._name, this._file, view.byteLength));
  }}

  /** All state, as a safetensors file. */
  save() {{
    this._check(this._c.{p}_write_state(this._self, this._file, FILE_BYTES));
    return new Uint8Array(this._c.memory.buffer, this._file, FILE_BYTES).slice();
  }}

  /** Takes the state of what `save` gave. */
  load(data) {{
    const room = new Uint8Array(this._c.memory.buffer, this._file, FILE_BYTES);
    if (data.byteLength <= FILE_BYTES) room.set(data);
    this._check(this._c.{p}_read_state(this._self, this._file, data.byteLength));
  }}
}}

/** A new instance. `source`: the bytes of {p}.wasm, or the `module` of another instance; without
 * it, the file beside this one is read. */
export async function load(source) {{
  let module = source;
  if (source === undefined) {{
    const url = new URL("./{p}.wasm", import.meta.url);
    if (url.protocol === "file:") {{
      const {{ readFile }} = await import("node:fs/promises");
      module = await readFile(url);
    }} else {{
      const answer = await fetch(url);
      if (!answer.ok) throw new Error(`${{url}}: ${{answer.status}}`);
      module = await answer.arrayBuffer();
    }}
  }}
  if (!(module instanceof WebAssembly.Module)) module = await WebAssembly.compile(module);
  const env = {{ sin: Math.sin, cos: Math.cos, tan: Math.tan }};
  return new Model(module, await WebAssembly.instantiate(module, {{ env }}));
}}
"""


def _row(slot: Slot) -> str:
    return f"[{json.dumps(slot.name)}, {list(slot.type.shape)}, {array_of(slot)}]"


def javascript(library: Library) -> str:
    program, layout = library.program, library.layout
    rows = {
        kind: "[" + ", ".join(map(_row, slots)) + "]"
        for kind, slots in (("arguments", program.arguments), ("results", program.results))
    }
    state = ",\n".join(
        f"  {json.dumps(slot.name)}: [{list(slot.type.shape)}, {array_of(slot)}]"
        for slot in program.state
    )
    written = "".join(
        f"\n    this._given[{i}].forEach((value, i) => {{ {slot.word}[i] = value; }});"
        for i, slot in enumerate(program.arguments)
        if slot.written
    )
    count = len(program.results)
    returned = "this._made[0].slice()" if count == 1 else "this._made.map((view) => view.slice())"
    return _MODULE.format(
        p=library.prefix,
        word=library.word,
        **rows,
        state=f"{{\n{state}\n}}" if state else "{}",
        memory=layout.total,
        file=layout.file_bytes,
        longest=max([1, *(len(slot.name.encode()) + 1 for slot in program.state)]),
        words=", ".join(slot.word for slot in program.arguments),
        written=written,
        returned=returned if count else "undefined",
    )


def typescript(library: Library) -> str:
    program = library.program
    given = ", ".join(
        f"{slot.word}: {array_of(slot) if slot.written else _accepted(slot)}"
        for slot in program.arguments
    )
    arrays = [array_of(slot) for slot in program.results]
    result = {0: "void", 1: arrays[0] if arrays else ""}.get(len(arrays), f"[{', '.join(arrays)}]")
    names = " | ".join(json.dumps(slot.name) for slot in program.state) or "never"
    return f"""\
// {library.word}: made by Weft. Do not edit.

export type Data = ArrayLike<number> | ArrayLike<bigint>;
export type StateName = {names};
export const STATE: Record<StateName, [number[], unknown]>;

export class LibraryError extends Error {{
  status: number;
}}

export class Model {{
  module: WebAssembly.Module;
  {library.word}({given}): {result};
  getState(name: StateName): Exclude<ArrayBufferView, DataView>;
  setState(name: StateName, values: Data | number): void;
  save(): Uint8Array;
  load(data: Uint8Array): void;
}}

export function load(source?: BufferSource | WebAssembly.Module): Promise<Model>;
"""


def _accepted(slot: Slot) -> str:
    return "Data | number" if slot.type.size == 1 else "Data"
