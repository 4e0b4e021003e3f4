"""The JavaScript module of a library for WebAssembly, and its TypeScript types."""

from __future__ import annotations

import json
from urllib.parse import quote

from weft.interop.library.functions import Library
from weft.interop.library.program import LibraryProgram, Slot

__all__ = ["javascript", "typescript"]

#: The arrays of JavaScript by dtype. For other dtypes, arrays hold the bits.
_ARRAYS = {
    "bool": "Uint8Array",
    **{"float32": "Float32Array", "float64": "Float64Array"},
    **{f"int{bits}": f"Int{bits}Array" for bits in (8, 16, 32)},
    **{f"uint{bits}": f"Uint{bits}Array" for bits in (8, 16, 32)},
    **{"int64": "BigInt64Array", "uint64": "BigUint64Array"},
    **{"complex64": "Float32Array", "complex128": "Float64Array"},
}  # fmt: skip


def array_of(slot: Slot) -> str:
    """The class of the arrays of a tensor."""
    return _ARRAYS.get(slot.type.dtype.name, f"Uint{slot.type.dtype.bits}Array")


_MODULE = """\
// {word}: made by Weft, for browsers, workers and Node. Do not edit.

export const ARGUMENTS = {arguments};
export const RESULTS = {results};
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
const size = (shape) => shape.reduce((all, n) => all * n, 1);
const length = ({{ shape, dtype }}) => size(shape) * (dtype.startsWith("complex") ? 2 : 1);
/** dtypes without an array of their own: arrays hold their bits. */
const BITS = {bits};
const kindOf = (value) => (value === null ? "null" : value?.constructor?.name ?? typeof value);

/** Copies what a caller gave to memory of the library: the same kind of array, or plain numbers. */
function fill(view, name, dtype, given) {{
  if (given === undefined) throw new TypeError(`${{name}} is missing`);
  const kind = view.constructor, plain = !BITS.includes(dtype);
  const typed = ArrayBuffer.isView(given);
  const values = typed || Array.isArray(given) ? given : [given];
  if (typed ? given[Symbol.toStringTag] !== kind.name : !plain)
    throw new TypeError(`${{name}} is of ${{kindOf(given)}}: it takes a ${{kind.name}}`
      + (plain ? ", or an array of numbers" : ` with the bits of ${{dtype}}`));
  if (values.length !== view.length)
    throw new RangeError(`${{name}} has ${{values.length}} elements, not ${{view.length}}`);
  if (typed && dtype !== "bool") return view.set(values);
  const real = kind === Float32Array || kind === Float64Array;
  const big = kind === BigInt64Array || kind === BigUint64Array;
  for (let i = 0; i < view.length; i++) {{
    const value = dtype === "bool" && values[i] === !!values[i] ? Number(values[i]) : values[i];
    if (typeof value !== "number" && !(big && typeof value === "bigint"))
      throw new TypeError(`${{name}}[${{i}}] is of ${{kindOf(value)}}, not a number`);
    const whole = real || typeof value === "bigint" || Number.isInteger(value);
    if (whole) view[i] = big ? BigInt(value) : value;
    if (!whole || (!real && view[i] != value) || (dtype === "bool" && value !== 0 && value !== 1))
      throw new RangeError(`${{name}}[${{i}}] is ${{value}}, which is no ${{dtype}}`);
  }}
}}

/** An instance, with its own memory and state. Made by `load`. */
export class Model {{
  constructor(module, instance) {{
    this.module = module;
    this._c = instance.exports;
    let at = up(this._c.__heap_base.value);
    const take = (count) => {{ const place = at; at = up(at + count); return place; }};
    const memory = take(MEMORY_BYTES), made = take(4);
    this._slots = [...ARGUMENTS, ...RESULTS];
    this._places = this._slots.map((slot) => take(length(slot) * slot.array.BYTES_PER_ELEMENT));
    this._pairs = this._slots.flatMap(({{ shape }}, i) => [this._places[i], size(shape)]);
    this._file = take(FILE_BYTES);
    this._name = take({longest});
    const missing = Math.ceil((at - this._c.memory.buffer.byteLength) / 65536);
    try {{
      if (missing > 0) this._c.memory.grow(missing);
    }} catch {{
      throw new RangeError(`an instance of {p} takes ${{at}} bytes, which there are not`);
    }}
    this._check(this._c.{p}_init(memory, MEMORY_BYTES, made));
    this._self = new Uint32Array(this._c.memory.buffer, made, 1)[0];
  }}

  /** Arguments and results in memory: looked up anew, as memory that grows is another buffer. */
  _view(number) {{
    const slot = this._slots[number];
    return new slot.array(this._c.memory.buffer, this._places[number], length(slot));
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
    ARGUMENTS.forEach(({{ name, dtype }}, i) => fill(this._view(i), name, dtype, given[i]));
    this._check(this._c.{p}_{word}(this._self, ...this._pairs));{written}
    return {returned};
  }}

  _named(name) {{
    if (!Object.hasOwn(STATE, name)) throw new RangeError(`there is no state ${{name}}`);
    const data = new TextEncoder().encode(name + "\\0");
    new Uint8Array(this._c.memory.buffer).set(data, this._name);
    return new STATE[name].array(this._c.memory.buffer, this._file, length(STATE[name]));
  }}

  /** A tensor of the state, as a copy. */
  getState(name) {{
    const view = this._named(name);
    this._check(this._c.{p}_get_state(this._self, this._name, this._file, view.byteLength));
    return view.slice();
  }}

  setState(name, values) {{
    const view = this._named(name);
    fill(view, name, STATE[name].dtype, values);
    this._check(this._c.{p}_set_state(this._self, this._name, this._file, view.byteLength));
  }}

  /** All state, as a safetensors file. */
  save() {{
    this._check(this._c.{p}_write_state(this._self, this._file, FILE_BYTES));
    return new Uint8Array(this._c.memory.buffer, this._file, FILE_BYTES).slice();
  }}

  /** Takes the state of what `save` gave: its bytes. */
  load(data) {{
    const view = ArrayBuffer.isView(data);
    if (!view && !data?.[Symbol.toStringTag]?.endsWith("ArrayBuffer"))
      throw new TypeError(`load takes the bytes of a file, not ${{kindOf(data)}}`);
    const given = view
      ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data);
    const room = new Uint8Array(this._c.memory.buffer, this._file, FILE_BYTES);
    if (given.length <= FILE_BYTES) room.set(given);
    this._check(this._c.{p}_read_state(this._self, this._file, given.length));
  }}
}}

/** A new instance. `source`: the `module` of another instance, the bytes of {file_name}, or their
 * URL; without it, the file beside this one is read. */
export async function load(source = new URL({url}, import.meta.url)) {{
  let module = source;
  if (typeof source === "string" || source instanceof URL) {{
    const url = new URL(source, import.meta.url);
    if (url.protocol === "file:" && globalThis.process?.versions?.node) {{
      const {{ readFile }} = await import("node:fs/promises");
      module = await readFile(url);
    }} else {{
      const answer = await fetch(url);
      if (!answer.ok) throw new Error(`${{url}}: ${{answer.status}} ${{answer.statusText}}`);
      module = await answer.arrayBuffer();
    }}
  }}
  if (!(module instanceof WebAssembly.Module)) module = await WebAssembly.compile(module);
  const env = {{ sin: Math.sin, cos: Math.cos, tan: Math.tan }};
  return new Model(module, await WebAssembly.instantiate(module, {{ env }}));
}}
"""


def _row(slot: Slot, *, named: bool = True) -> str:
    name = f"name: {json.dumps(slot.name)}, " if named else ""
    shape, dtype = list(slot.type.shape), json.dumps(slot.type.dtype.name)
    return f"{{ {name}shape: {shape}, dtype: {dtype}, array: {array_of(slot)} }}"


def javascript(library: Library, file: str) -> str:
    """`file`: the name of the library."""
    program, layout = library.program, library.layout
    rows = {
        kind: "[" + "".join(f"\n  {_row(slot)}," for slot in slots) + "\n]"
        for kind, slots in (("arguments", program.arguments), ("results", program.results))
    }
    state = ",\n".join(
        f"  {json.dumps(slot.name)}: {_row(slot, named=False)}" for slot in program.state
    )
    written = "".join(
        f"\n    this._view({i}).forEach((value, i) => {{ {slot.word}[i] = value; }});"
        for i, slot in enumerate(program.arguments)
        if slot.written
    )
    count = len(program.results)
    first = len(program.arguments)
    returned = f"this._view({first}).slice()"
    if count > 1:
        returned = f"RESULTS.map((_, i) => this._view({first} + i).slice())"
    return _MODULE.format(
        p=library.prefix,
        word=library.word,
        **rows,
        state=f"{{\n{state}\n}}" if state else "{}",
        bits=json.dumps(_bits(program)),
        memory=layout.total,
        file=layout.file_bytes,
        file_name=file,
        url=json.dumps("./" + quote(file)),
        longest=max([1, *(len(slot.name.encode()) + 1 for slot in program.state)]),
        words=", ".join(slot.word for slot in program.arguments),
        written=written,
        returned=returned if count else "undefined",
    )


def _bits(program: LibraryProgram) -> list[str]:
    """The dtypes whose arrays hold their bits."""
    slots = (*program.arguments, *program.results, *program.state)
    kinds = {slot.type.dtype for slot in slots}
    return sorted({kind.name for kind in kinds} - set(_ARRAYS))


def typescript(library: Library) -> str:
    program = library.program
    given = ", ".join(
        f"{slot.word}: {array_of(slot) if slot.written else _accepted(slot)}"
        for slot in program.arguments
    )
    arrays = [array_of(slot) for slot in program.results]
    result = {0: "void", 1: arrays[0] if arrays else ""}.get(len(arrays), f"[{', '.join(arrays)}]")
    state = "".join(f"\n  {json.dumps(slot.name)}: {array_of(slot)};" for slot in program.state)
    accepted = "".join(f"\n  {json.dumps(slot.name)}: {_accepted(slot)};" for slot in program.state)
    return f"""\
// {library.word}: made by Weft. Do not edit.

/** What is known of a tensor. */
export interface Slot {{ shape: readonly number[]; dtype: string; array: unknown }}
export const ARGUMENTS: readonly (Slot & {{ name: string }})[];
export const RESULTS: readonly (Slot & {{ name: string }})[];
/** The state: what `getState` gives, and what `setState` takes. */
export interface State {{{state}
}}
export interface Accepted {{{accepted}
}}
export type StateName = keyof State;
export const STATE: Readonly<Record<StateName, Slot>>;

export class LibraryError extends Error {{
  readonly status: number;
}}

export class Model {{
  private constructor();
  readonly module: WebAssembly.Module;
  {library.word}({given}): {result};
  getState<Name extends StateName>(name: Name): State[Name];
  setState<Name extends StateName>(name: Name, values: Accepted[Name]): void;
  save(): Uint8Array;
  load(data: ArrayBufferView | ArrayBuffer): void;
}}

export function load(source?: BufferSource | WebAssembly.Module | URL | string): Promise<Model>;
"""


def _accepted(slot: Slot) -> str:
    """What JavaScript may give for a tensor."""
    array, name = array_of(slot), slot.type.dtype.name
    if name not in _ARRAYS:
        return array
    numbers = {"bool": "boolean | number", "int64": "bigint | number", "uint64": "bigint | number"}
    one = numbers.get(name, "number")
    many = f"readonly ({one})[]" if "|" in one else f"readonly {one}[]"
    return f"{array} | {many}" + (f" | {one}" if slot.type.size == 1 else "")
