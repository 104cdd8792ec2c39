"""oneDNN through its C interface: products of float32, bfloat16 and 8-bit matrices.

    matmul         C [..., m, n] = A [..., m, k] B [..., k, n] (+ bias [n])    float32, or bfloat16 (in NumPy uint16,
                                                                               the upper half of a float32), to float32
    product_f32    C [m, n] = A [m, k] B [k, n]                                float32, as BLAS
    product_u8s8   C [m, n] = A [m, k] Bᵀ [k, n]                               uint8 and int8 into int32

`Packed` is a second factor in the order in which `matmul` reads it fastest, for a weight that is used many times.

`pip install onednn-cpu-gomp` installs the library. It is loaded at the first use; `why_not` says in a sentence what is
missing. A call runs in the calling thread, like the BLAS of the other kernels: GNU OpenMP would keep a team of threads
for every thread that calls it. OpenMP is limited during the call only, so that others find it as they left it. oneDNN
compiles a product for its shape and strides, in about half a millisecond; every thread keeps what it has compiled.

Computations release the interpreter's lock. Functions that return at once keep it (`_quick`): a thread that gives it
up may wait for it longer than they take.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
import platform
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassbert.errors import EngineError, needs

PACKAGE, LIBRARY = "onednn-cpu-gomp", "libdnnl.so.3"
BFLOAT16_ISA = 0x80  # the bit of AVX512-BF16 in oneDNN's set of instructions; AMX includes it
AVX512_ISA = 0x20
VNNI_ISA = 0x48  # those of AVX512-VNNI and AVX-VNNI
NO_OFFSET = np.zeros(1, np.int32)
TYPES = {"H": 2, "f": 3}  # NumPy's uint16, float32 -> dnnl_data_type_t
PRODUCTS = {("H", "H"): "f", ("f", "f"): "f"}
SOURCE, TARGET, WEIGHTS, BIAS = 1, 17, 33, 41  # the places of arguments
KEPT = 256  # compiled products of a thread, up to 0.4 MB each
ANY_LAYOUT, ROW_MAJOR = 1, 3  # dnnl_format_tag_t
WEIGHTS_LAYOUT = 131  # dnnl_query_t
LINE = 64  # bytes of a cache line, where packed numbers begin
NUMBERS = LINE // 4  # float32 in it
TYPICAL_ROWS = 64  # of the product whose choice of a layout is taken for any number of rows


class _Argument(ctypes.Structure):
    _fields_ = (("place", ctypes.c_int), ("memory", ctypes.c_void_p))


@functools.cache
def library() -> Any:
    """The loaded library, or the reason in a sentence why there is none."""
    if os.environ.get("GLASSBERT_ONEDNN") == "0":
        return "GLASSBERT_ONEDNN=0 turns oneDNN off"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "oneDNN is used on Linux with an x86-64 processor"
    try:
        files = importlib.metadata.files(PACKAGE) or ()
        path = next(file.locate() for file in files if file.name == LIBRARY)
        found = ctypes.CDLL(str(path))
        found.omp_set_num_threads  # noqa: B018  a library without OpenMP has threads of its own
    except (importlib.metadata.PackageNotFoundError, StopIteration):
        return needs("bfloat16 on a CPU", PACKAGE)
    except (OSError, AttributeError) as problem:
        return f"oneDNN cannot be loaded ({problem})"
    return found


@functools.cache
def _quick() -> Any:
    """The library's functions that return at once, called without giving up the interpreter's lock."""
    found = ctypes.PyDLL(library()._name)
    found.dnnl_memory_set_data_handle.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return found


@functools.cache
def why_not() -> str:
    """Why there are no fast bfloat16 products on this machine, in a sentence; "" if there are."""
    found = library()
    if isinstance(found, str):
        return found
    if not found.dnnl_get_effective_cpu_isa() & BFLOAT16_ISA:
        return "this processor has no instructions for bfloat16 (AVX512-BF16 or AMX)"
    return ""


class _Thread(threading.local):
    """What a thread keeps: a stream, and the products that were compiled in it."""

    def __init__(self) -> None:
        self.library: Any = library()
        if isinstance(self.library, str):
            raise EngineError(self.library)
        self.engine, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        cpu, index, in_order = 1, ctypes.c_size_t(0), 1
        self.call("dnnl_engine_create", ctypes.byref(self.engine), cpu, index)
        self.call("dnnl_stream_create", ctypes.byref(self.stream), self.engine, in_order)
        self.kept: dict[Any, _Primitive] = {}

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise EngineError(f"oneDNN refuses a computation: {name} returned {status}")

    def run(self, key: Any, create: str, places: Sequence[int], arrays: Sequence[np.ndarray | Packed | None]) -> None:
        """Run what is kept under `key`, or compile it first, on one thread."""
        with _one_thread():
            found = self.kept.get(key)
            if found is None:
                if len(self.kept) >= KEPT:
                    self.kept.clear()
                found = self.kept[key] = _Primitive(self, create, places, arrays)
            found.run(arrays)


@functools.cache
def _threads() -> _Thread:
    return _Thread()


class _Primitive:
    """A compiled computation, and memory objects whose addresses are set before it runs."""

    def __init__(
        self, thread: _Thread, create: str, places: Sequence[int], arrays: Sequence[np.ndarray | Packed | None]
    ):
        self.library, self.stream = thread.library, thread.stream
        layouts = [None if x is None else _layout(thread, x) for x in arrays]
        description, primitive = ctypes.c_void_p(), ctypes.c_void_p()
        if create == "dnnl_reorder_primitive_desc_create":
            source, target = layouts
            thread.call(create, ctypes.byref(description), source, thread.engine, target, thread.engine, None)
        else:
            thread.call(create, ctypes.byref(description), thread.engine, *layouts, None)
        thread.call("dnnl_primitive_create", ctypes.byref(primitive), description)
        thread.call("dnnl_primitive_desc_destroy", description)
        self.primitive = primitive
        self.memories = []
        for layout in layouts:
            if layout is not None:
                memory = ctypes.c_void_p()
                thread.call("dnnl_memory_create", ctypes.byref(memory), layout, thread.engine, None)
                thread.call("dnnl_memory_desc_destroy", layout)
                self.memories.append(memory)
        used = [place for place, layout in zip(places, layouts, strict=True) if layout is not None]
        self.arguments = (_Argument * len(used))(*(_Argument(*pair) for pair in zip(used, self.memories, strict=True)))

    def run(self, arrays: Sequence[np.ndarray | Packed | None]) -> None:
        given, set_address = (x for x in arrays if x is not None), _quick().dnnl_memory_set_data_handle
        for memory, x in zip(self.memories, given, strict=True):
            set_address(memory, x.__array_interface__["data"][0])
        status = self.library.dnnl_primitive_execute(self.primitive, self.stream, len(self.arguments), self.arguments)
        if status:
            raise EngineError(f"oneDNN could not finish a computation: it returned {status}")

    def __del__(self) -> None:
        for memory in getattr(self, "memories", ()):
            self.library.dnnl_memory_destroy(memory)
        if hasattr(self, "primitive"):
            self.library.dnnl_primitive_destroy(self.primitive)


class Packed:
    """A matrix [k, n] in the layout that oneDNN prefers for the second factor of a product, as float32 or bfloat16."""

    strides = "packed"

    def __init__(self, matrix: np.ndarray, bfloat16: bool = False):
        thread = _threads()
        self.shape, self.dtype = matrix.shape, np.dtype(np.uint16 if bfloat16 else np.float32)
        self.layout = _preferred(thread, matrix.shape, TYPES[self.dtype.char])
        size = thread.library.dnnl_memory_desc_get_size
        size.restype = ctypes.c_size_t
        whole = np.zeros(size(self.layout) + LINE, np.uint8)
        self.bytes = whole[-whole.ctypes.data % LINE :]
        key = (*matrix.shape, *matrix.strides, self.dtype.char, "packed")
        thread.run(key, "dnnl_reorder_primitive_desc_create", (SOURCE, TARGET), (matrix, self))

    @property
    def nbytes(self) -> int:
        return len(self.bytes)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.bytes.__array_interface__

    def __del__(self) -> None:
        if hasattr(self, "layout"):
            library().dnnl_memory_desc_destroy(self.layout)


def _preferred(thread: _Thread, shape: Sequence[int], kind: int) -> ctypes.c_void_p:
    """The layout that oneDNN chooses for a second factor of this shape [k, n]."""
    (k, n), pair, layouts = shape, ctypes.c_int64 * 2, []
    for sizes, element, tag in (
        ((TYPICAL_ROWS, k), kind, ROW_MAJOR),
        ((k, n), kind, ANY_LAYOUT),
        ((TYPICAL_ROWS, n), TYPES["f"], ROW_MAJOR),
    ):
        layout = ctypes.c_void_p()
        thread.call("dnnl_memory_desc_create_with_tag", ctypes.byref(layout), 2, pair(*sizes), element, tag)
        layouts.append(layout)
    first, second, product = layouts
    description, chosen = ctypes.c_void_p(), ctypes.c_void_p()
    create = "dnnl_matmul_primitive_desc_create"
    thread.call(create, ctypes.byref(description), thread.engine, first, second, None, product, None)
    query = thread.library.dnnl_primitive_desc_query_md
    query.restype = ctypes.c_void_p
    found = ctypes.c_void_p(query(description, WEIGHTS_LAYOUT, 0))
    thread.call("dnnl_memory_desc_clone", ctypes.byref(chosen), found)
    thread.call("dnnl_primitive_desc_destroy", description)
    for layout in layouts:
        thread.call("dnnl_memory_desc_destroy", layout)
    return chosen


def _layout(thread: _Thread, x: np.ndarray | Packed) -> ctypes.c_void_p:
    if isinstance(x, Packed):
        layout = ctypes.c_void_p()
        thread.call("dnnl_memory_desc_clone", ctypes.byref(layout), x.layout)
        return layout
    numbers = ctypes.c_int64 * x.ndim
    strides = numbers(*(step // x.itemsize for step in x.strides))
    layout = ctypes.c_void_p()
    thread.call(
        "dnnl_memory_desc_create_with_strides", ctypes.byref(layout), x.ndim, numbers(*x.shape), TYPES[x.dtype.char],
        strides,
    )  # fmt: skip
    return layout


def matmul(a: np.ndarray, b: np.ndarray | Packed, out: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """out = a b + bias, in this thread; returns `out`. The arrays may be views, transposed ones too.

    a, b, out   [..., m, k], [..., k, n], [..., m, n]; 2 to 4 axes, the same number in each. Where b is packed, there
                are 2 axes and `out` is contiguous: elsewhere oneDNN is slow
    bias        [n], added to every row in float32
    """
    kinds = a.dtype.char, b.dtype.char  # the name of a type takes longer than a small product
    if PRODUCTS.get(kinds) != out.dtype.char:
        raise EngineError(f"oneDNN has no product of {a.dtype} and {b.dtype} into {out.dtype}")
    if a.shape[:-1] != out.shape[:-1] or (*a.shape[:-2], a.shape[-1], out.shape[-1]) != b.shape:
        raise EngineError(f"the product of {list(a.shape)} and {list(b.shape)} does not fit into {list(out.shape)}")
    if bias is not None and bias.shape != out.shape[-1:]:
        raise EngineError(f"a bias of the shape {list(bias.shape)} does not fit a product {list(out.shape)}")
    if isinstance(b, Packed) and not out.flags.c_contiguous:
        raise EngineError("a product with a packed matrix needs a contiguous array to write into")
    if not out.flags.writeable:
        raise EngineError("the product cannot be written into a read-only array")
    if 0 in out.shape or a.shape[-1] == 0:
        out[...] = 0 if bias is None else bias
        return out
    row = None if bias is None else np.ascontiguousarray(bias, np.float32).reshape(*[1] * (out.ndim - 1), -1)
    key = (*kinds, a.shape, a.strides, b.strides, out.shape, out.strides, row is None)
    places = (SOURCE, WEIGHTS, BIAS, TARGET)
    _threads().run(key, "dnnl_matmul_primitive_desc_create", places, (a, b, row, out))
    return out


def to_bfloat16(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """float32 rounded to the nearest bfloat16 (ties to even), as uint16; x may be a view."""
    out = np.empty(x.shape, np.uint16) if out is None else out
    if x.size == 0:
        return out
    if out.dtype.char != "H" or out.shape != x.shape or not out.flags.writeable or min(out.strides, default=1) <= 0:
        raise EngineError(f"bfloat16 of {list(x.shape)} cannot be written into {out.dtype} {list(out.shape)}")
    if x.dtype.char != "f" or min(x.strides, default=1) <= 0:  # oneDNN reads forwards
        x = np.ascontiguousarray(x, np.float32)
    if x.flags.c_contiguous and out.flags.c_contiguous:
        x, narrow = x.reshape(-1), out.reshape(-1)
    else:
        narrow = out
    key = (x.shape, x.strides, narrow.strides)
    _threads().run(key, "dnnl_reorder_primitive_desc_create", (SOURCE, TARGET), (x, narrow))
    return out


def from_bfloat16(x: np.ndarray) -> np.ndarray:
    """bfloat16, as uint16, to float32."""
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)


def has_integer_products() -> bool:
    """Whether oneDNN is there and the processor adds products of 8 bits in 32: in 16 bits they may overflow."""
    return is_installed() and bool(library().dnnl_get_effective_cpu_isa() & VNNI_ISA)


def product_u8s8(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    """out [m, n] = a [m, k] bᵀ, exactly, in this thread: a uint8, b int8 [n, k], out int32; rows are contiguous.

    Up to 65,000 terms cannot overflow. Zero points and scales are the caller's. This is a single function of oneDNN,
    which compiles nothing for a new shape.
    """
    (m, k), n = a.shape, len(b)
    with _one_thread():
        status = _gemm_u8s8()(
            b"N", b"T", b"F", m, n, k, 1.0, a.ctypes.data, a.strides[0], 0, b.ctypes.data, b.strides[0], 0, 0.0,
            out.ctypes.data, out.strides[0] // 4, NO_OFFSET.ctypes.data,
        )  # fmt: skip
    if status:
        raise EngineError(f"oneDNN could not finish an integer product: it returned {status}")
    return out


class _one_thread:
    """OpenMP with one thread inside, of the calling thread alone."""

    def __enter__(self) -> None:
        self.before = _quick().omp_get_max_threads()
        if self.before != 1:
            _quick().omp_set_num_threads(1)

    def __exit__(self, *_: Any) -> None:
        if self.before != 1:
            _quick().omp_set_num_threads(self.before)


def is_installed() -> bool:
    return not isinstance(library(), str)


def packs_weights() -> bool:
    """Whether oneDNN is there and multiplies with packed weights fast: on other processors it may take seconds."""
    return is_installed() and bool(library().dnnl_get_effective_cpu_isa() & AVX512_ISA)


def takes_f32(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> bool:
    """Whether `product_f32` can multiply these matrices: float32, with rows or columns that are contiguous."""
    return (
        a.dtype.char == b.dtype.char == out.dtype.char == "f"
        and a.ndim == b.ndim == 2
        and out.size > 0 < a.size
        and (_order(a) is not None and _order(b) is not None)
        and out.strides[1] == 4
        and out.strides[0] >= 4 * out.shape[1]
    )


def _order(x: np.ndarray) -> tuple[bytes, int] | None:
    """How BLAS names the order of a matrix, and the distance of its rows or columns; None where it has no name."""
    (rows, columns), (down, right) = x.shape, x.strides
    if right == 4 and down >= 4 * columns:
        return b"N", down // 4
    return (b"T", right // 4) if down == 4 and right >= 4 * rows else None


def product_f32(a: np.ndarray, b: np.ndarray, out: np.ndarray, terms: int | None = None) -> np.ndarray:
    """out [m, n] = a [m, k] b [k, n] in this thread, where `takes_f32`. Nothing is compiled for a new shape.

    terms   about how many terms are added one after another: out = Σ a[:, run] b[run], in even runs. oneDNN itself
            adds 384, and rounding grows with the square root of their number
    """
    (left, lda), (right, ldb) = _order(a), _order(b)  # type: ignore[misc]
    (m, k), n = a.shape, b.shape[1]
    first, second, target = a.ctypes.data, b.ctypes.data, out.ctypes.data
    runs = 1 if terms is None else max(1, round(k / terms))
    size = -(-k // (runs * NUMBERS)) * NUMBERS
    status = 0
    with _one_thread():
        for start in range(0, k, size):
            status |= _sgemm()(
                left, right, m, n, min(size, k - start), 1.0, first + start * a.strides[1], lda,
                second + start * b.strides[0], ldb, 0.0 if start == 0 else 1.0, target, out.strides[0] // 4,
            )  # fmt: skip
    if status:
        raise EngineError(f"oneDNN could not finish a product: it returned {status}")
    return out


@functools.cache
def _sgemm() -> Any:
    gemm, size, pointer, number = library().dnnl_sgemm, ctypes.c_int64, ctypes.c_void_p, ctypes.c_float
    gemm.argtypes = [
        *(ctypes.c_char, ctypes.c_char, size, size, size, number, pointer, size, pointer, size, number, pointer, size)
    ]
    return gemm


@functools.cache
def _gemm_u8s8() -> Any:
    gemm, size, pointer = library().dnnl_gemm_u8s8s32, ctypes.c_int64, ctypes.c_void_p
    gemm.argtypes = [
        *(ctypes.c_char, ctypes.c_char, ctypes.c_char, size, size, size, ctypes.c_float),
        *(pointer, size, ctypes.c_uint8, pointer, size, ctypes.c_int8, ctypes.c_float, pointer, size, pointer),
    ]
    return gemm
