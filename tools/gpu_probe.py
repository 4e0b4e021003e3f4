"""Questions about a GPU and its libraries, each in a process of its own.

python3 tools/gpu_probe.py [NAME ...]
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

KERNELS = """
declare void @cudaGraphSetConditional(i64, i32)
define ptx_kernel void @less(ptr %x) {
  %v = load i32, ptr %x
  %w = sub i32 %v, 1
  store i32 %w, ptr %x
  ret void
}
define ptx_kernel void @odd(ptr %x, ptr %y) {
  %v = load i32, ptr %y
  %w = add i32 %v, 1
  store i32 %w, ptr %y
  ret void
}
define ptx_kernel void @more(ptr %x, i64 %handle) {
  %v = load i32, ptr %x
  %c = icmp sgt i32 %v, 0
  %n = zext i1 %c to i32
  call void @cudaGraphSetConditional(i64 %handle, i32 %n)
  ret void
}
define ptx_kernel void @isodd(ptr %x, i64 %handle) {
  %v = load i32, ptr %x
  %n = and i32 %v, 1
  call void @cudaGraphSetConditional(i64 %handle, i32 %n)
  ret void
}
"""


def conditional() -> None:
    """A while with an if in it, captured through the driver's own functions."""
    import cupy

    from weft.codegen.cuda.machine import GpuMachine
    from weft.codegen.cuda.ptx import ptx
    from weft.runtime.cuda.modules import _machine_code

    x, y = cupy.array([7], "i4"), cupy.zeros(1, "i4")
    text = ptx(KERNELS, GpuMachine("sm_90")).encode()
    image = _machine_code(text)
    print("linked to machine code:", image and len(image))
    module = cupy.cuda.function.Module()
    module.load(image or text)
    f = {name: module.get_function(name) for name in ("less", "odd", "more", "isodd")}
    cuda = ctypes.CDLL("libcuda.so.1")

    def check(status: int, what: str) -> None:
        if status:
            raise RuntimeError(f"{what}: {status}")

    context = ctypes.c_void_p()
    check(cuda.cuCtxGetCurrent(ctypes.byref(context)), "context")

    class Params(ctypes.Structure):
        _fields_ = [
            *(("type", ctypes.c_int), ("none", ctypes.c_int * 3), ("handle", ctypes.c_uint64)),
            *(("kind", ctypes.c_int), ("size", ctypes.c_uint), ("graphs", ctypes.c_void_p)),
            *(("context", ctypes.c_void_p), ("rest", ctypes.c_int64 * 25)),
            ("last", ctypes.c_int64),
        ]

    print("bytes of parameters", ctypes.sizeof(Params))

    def info(stream: Any) -> tuple[Any, Any, int]:
        status, number = ctypes.c_int(), ctypes.c_uint64()
        graph, nodes, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        outs = [ctypes.byref(one) for one in (status, number, graph, nodes, count)]
        check(cuda.cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream.ptr), *outs), "info")
        return graph, nodes, count.value

    def handle_of(stream: Any) -> int:
        graph, _, _ = info(stream)
        handle = ctypes.c_uint64()
        made = cuda.cuGraphConditionalHandleCreate(ctypes.byref(handle), graph, context, 0, 0)
        check(made, "handle")
        return handle.value

    def node(stream: Any, handle: int, kind: int) -> int:
        graph, nodes, count = info(stream)
        params = Params(type=13, handle=handle, kind=kind, size=1, context=context)
        made = ctypes.c_void_p()
        given = ctypes.byref(made), graph, nodes, ctypes.c_size_t(count), ctypes.byref(params)
        check(cuda.cuGraphAddNode(*given), "node")
        one = (ctypes.c_void_p * 1)(made.value)
        at = ctypes.c_void_p(stream.ptr)
        check(
            cuda.cuStreamUpdateCaptureDependencies(at, one, ctypes.c_size_t(1), ctypes.c_uint(1)),
            "dependencies",
        )
        return ctypes.cast(params.graphs, ctypes.POINTER(ctypes.c_void_p))[0] or 0

    def inside(stream: Any, graph: int) -> None:
        at = ctypes.c_void_p(stream.ptr), ctypes.c_void_p(graph)
        check(cuda.cuStreamBeginCaptureToGraph(*at, None, None, ctypes.c_size_t(0), 2), "begin")

    def end(stream: Any) -> None:
        graph = ctypes.c_void_p()
        check(cuda.cuStreamEndCapture(ctypes.c_void_p(stream.ptr), ctypes.byref(graph)), "end")

    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    outer, body, inner = streams
    cupy.cuda.Device().synchronize()
    with outer:
        outer.begin_capture()
        while_ = handle_of(outer)
        f["more"]((1,), (1,), (x, cupy.uint64(while_)))
        work = node(outer, while_, 1)
        inside(body, work)
        with body:
            if_ = handle_of(body)
            f["isodd"]((1,), (1,), (x, cupy.uint64(if_)))
            branch = node(body, if_, 0)
            inside(inner, branch)
            with inner:
                f["odd"]((1,), (1,), (x, y))
            end(inner)
            f["less"]((1,), (1,), (x,))
            f["more"]((1,), (1,), (x, cupy.uint64(while_)))
        end(body)
        f["odd"]((1,), (1,), (x, y))
        graph = outer.end_capture()
    for k in range(3):
        x[:], y[:] = 7 + 30 * k, 0
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        graph.launch(outer)
        outer.synchronize()
        spent = (time.perf_counter() - start) * 1e6
        print(f"x {int(x[0])} (0), y {int(y[0])} ({(7 + 30 * k + 1) // 2 + 1}), {spent:.0f} us")


def shrinking(x: Any, w: Any) -> Any:
    while x.abs().max() > 1e-2:
        x = 0.99 * (x @ w).tanh()
    return x.sum()


def recurrent(xs: Any, h: Any, w: Any) -> Any:
    import weft

    def step(h: Any, x: Any) -> Any:
        new = weft.tanh(h @ w + x)
        return new, new

    return (weft.scan(step, h, xs)[1] ** 2).mean()


def around() -> None:
    """Loops of several sizes, forward and backward: by one block, around launches, in PyTorch."""
    import dataclasses

    import numpy as np
    import torch

    import weft
    from weft.codegen.cuda import emitter
    from weft.runtime.cuda import opening

    rng = np.random.default_rng(0)
    driver = opening.driver()
    machine, threads = driver.machine, emitter.block_threads

    def made(library: Any, arrays: Any, device: str) -> Any:
        found = [library.asarray(x).to(device) for x in arrays]
        for x in found:
            x.requires_grad = True
        return found

    def timed(library: Any, work: Any, given: Any) -> tuple[float, list[float]]:
        def run() -> Any:
            for x in given:
                x.grad = None
            return work(*given)

        for _ in range(4):
            total = run()
        found = [float(total), *(float((x.grad * x.grad).sum()) for x in given)]
        library.cuda.synchronize()
        best = 1e9
        for _ in range(4):
            start = time.perf_counter()
            for _ in range(5):
                run()
            library.cuda.synchronize()
            best = min(best, (time.perf_counter() - start) / 5)
        return best * 1e6, found

    def stepped(function: Any) -> Any:
        def both(*given: Any) -> Any:
            total = function(*given)
            total.backward()
            return total

        return both

    def loop(rows: int, size: int) -> Any:
        w = rng.standard_normal((size, size), np.float32) * np.float32(0.75 / size**0.5)
        return shrinking, (np.ones((rows, size), np.float32), w)

    def scan(steps: int, rows: int, size: int) -> Any:
        w = rng.standard_normal((size, size), np.float32) * np.float32(0.5 / size**0.5)
        xs = rng.standard_normal((steps, rows, size), np.float32)
        return recurrent, (xs, np.zeros((rows, size), np.float32), w)

    works = {
        "while 4×32": loop(4, 32),
        "while 64×64": loop(64, 64),
        "while 64×256": loop(64, 256),
        "while 1024×1024": loop(1024, 1024),
        "scan 64 of 8×64": scan(64, 8, 64),
        "scan 64 of 64×512": scan(64, 64, 512),
    }
    for name, (function, arrays) in works.items():
        line = f"{name}:"
        _, want = 0, None
        for way in ("whole", "block", "around", "torch"):
            try:
                driver.machine = dataclasses.replace(machine, whole=way == "whole")
                emitter.block_threads = threads if way != "around" else (lambda *_: 0)
                if way == "torch":
                    if "scan" in name:
                        continue
                    spent, found = timed(torch, stepped(function), made(torch, arrays, "cuda"))
                else:
                    compiled = weft.compile(stepped(function))
                    spent, found = timed(weft, compiled, made(weft, arrays, "cuda"))
                    reason = {made_.program.reason[:60] for made_ in compiled.programs}
                    line += f" [{max(reason, key=len)}]"
                want = want or found
                far = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(found, want, strict=True))
                line += f" {way} {spent:.0f} us (off {far:.0e});"
            except Exception as error:
                line += f" {way} {type(error).__name__} {str(error)[:120]};"
        print(line, flush=True)


def attention() -> None:
    """PyTorch's attention, as a goal, and libraries."""
    import torch

    q, k, v = (
        torch.randn(8, 16, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    g = torch.randn_like(q)
    F = torch.nn.functional

    def both() -> None:
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(g)

    def forward() -> None:
        with torch.no_grad():
            F.scaled_dot_product_attention(q, k, v, is_causal=True)

    for name, run in (("forward", forward), ("both", both)):
        for _ in range(5):
            run()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(50):
            run()
        torch.cuda.synchronize()
        print(f"attention {name} {(time.perf_counter() - start) / 50 * 1e6:.0f} us", end="; ")
    print("cuDNN", torch.backends.cudnn.version())


def epilogues() -> None:
    """cuBLASLt in bfloat16 with a bias and gelu in its epilogue, beside the product alone."""
    import cupy
    import torch

    from weft.runtime.cuda.products import library

    lt = library("libcublasLt.so", ("13", "12"))
    handle = ctypes.c_void_p()
    assert lt.cublasLtCreate(ctypes.byref(handle)) == 0
    m, n, k = 8192, 4096, 1024
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    aux = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    room = cupy.empty(64 << 20, "u1")
    size = ctypes.c_size_t

    def layout(rows: int, columns: int) -> Any:
        made = ctypes.c_void_p()
        given = ctypes.byref(made), 14, ctypes.c_uint64(rows), ctypes.c_uint64(columns)
        assert lt.cublasLtMatrixLayoutCreate(*given, ctypes.c_int64(rows)) == 0
        return made

    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    for name, number in (("alone", 1), ("bias", 4), ("relu bias", 6), ("gelu aux bias", 164)):
        what = ctypes.c_void_p()
        assert lt.cublasLtMatmulDescCreate(ctypes.byref(what), 68, 0) == 0

        def put(word: int, value: Any, what: Any = what) -> int:
            at = ctypes.byref(value), size(ctypes.sizeof(value))
            return int(lt.cublasLtMatmulDescSetAttribute(what, word, *at))

        states = [put(7, ctypes.c_uint32(number))]
        states.append(put(8, ctypes.c_void_p(bias.data_ptr())) if number != 1 else 0)
        if number >= 128:
            states.append(put(11, ctypes.c_void_p(aux.data_ptr())))
            states.append(put(12, ctypes.c_int64(n)))
        wish = ctypes.c_void_p()
        assert lt.cublasLtMatmulPreferenceCreate(ctypes.byref(wish)) == 0
        most = ctypes.c_uint64(room.nbytes)
        lt.cublasLtMatmulPreferenceSetAttribute(wish, 1, ctypes.byref(most), size(8))
        la, lb, lc = layout(n, k), layout(k, m), layout(n, m)
        found = (ctypes.c_byte * (96 * 4))()
        count = ctypes.c_int()
        given = handle, what, la, lb, lc, lc, wish, 4, found, ctypes.byref(count)
        status = lt.cublasLtMatmulAlgoGetHeuristic(*given)
        if status or not count.value:
            print(f"{name}: {states} heuristic {status}, {count.value} found", end="; ")
            continue

        def run(what: Any = what, la: Any = la, lb: Any = lb, lc: Any = lc, al: Any = found) -> int:
            at = [ctypes.c_void_p(x.data_ptr()) for x in (b, a, out, out)]
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            return int(
                lt.cublasLtMatmul(
                    *(handle, what, ctypes.byref(one), at[0], la, at[1], lb, ctypes.byref(zero)),
                    *(at[2], lc, at[3], lc, ctypes.byref(al), ctypes.c_void_p(room.data.ptr)),
                    *(size(room.nbytes), stream),
                )
            )

        for _ in range(3):
            status = run()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(50):
            run()
        torch.cuda.synchronize()
        spent = (time.perf_counter() - start) / 50 * 1e6
        want = a.float() @ b.float()
        if number != 1:
            want = want + bias.float()
        if number == 6:
            want = want.relu()
        if number == 164:
            want = torch.nn.functional.gelu(want, approximate="tanh")
        far = ((out.float() - want).norm() / want.norm()).item()
        print(f"{name}: {states} status {status} {spent:.1f} us, off by {far:.1e}", end="; ")
    print()


def exits() -> None:
    """How a process ends that used the GPU."""
    code = "import weft; x = weft.ones((3,), device='cuda'); f = weft.compile(lambda x: x * 2)\n"
    code += "for _ in range(3): y = f(x)\nprint(y.sum().item()); "
    for last in ("", "raise ValueError('mine')", "weft.ones((2,)) @ weft.ones((3,))"):
        command = [sys.executable, "-c", code + last]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
        print(repr(last), done.returncode, done.stdout, done.stderr[-1500:])


def mistakes() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "tests/project/test_mistakes.py"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=ROOT, capture_output=True, text=True, timeout=150
    )
    print((done.stdout + done.stderr)[-3000:])


def main() -> None:
    questions = (conditional, exits, epilogues, attention, around, mistakes)
    if sys.argv[1:2] == ["--one"]:
        next(q for q in questions if q.__name__ == sys.argv[2])()
        return
    for question in questions:
        if sys.argv[1:] and question.__name__ not in sys.argv[1:]:
            continue
        print("---", question.__name__, flush=True)
        command = [sys.executable, __file__, "--one", question.__name__]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=160, cwd=ROOT)
            print(done.stdout[-3500:], done.stderr[-1200:], flush=True)
        except subprocess.TimeoutExpired as late:
            print("late", late.stdout and late.stdout[-500:], flush=True)


if __name__ == "__main__":
    main()
