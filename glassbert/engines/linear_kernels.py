"""NumPy kernels of the linear map: products by oneDNN where it is installed, else by BLAS.

Weights that cannot change (`Model.read_only`) are kept packed, in the order in which oneDNN reads them. BLAS copies the
whole weight into such an order in every product, which takes half of the time where there are few rows, as with a
single text. A packed weight takes its memory once more.
"""

from __future__ import annotations

import threading
import weakref

import numpy as np

from glassbert.engines import onednn
from glassbert.engines.kernels import register_in
from glassbert.engines.numpy_kernels import KERNELS, _parts_of_product, shares
from glassbert.engines.threads import run_together

kernel = register_in(KERNELS)
FEW_MULTIPLICATIONS = 100_000  # below, calling oneDNN takes longer than it saves
BLOCK = 256  # rows of a packed product
TERMS = 192  # that a forward adds one after another: it then rounds as much as PyTorch on a CPU
MANY_ROWS = 256  # for fewer, reading the weight in runs of so many terms costs 2 to 6 % of a forward
_packed: dict[int, dict[tuple, PackedWeight]] = {}  # by the id of the array that owns the memory
_packing = threading.Lock()


def product(a: np.ndarray, b: np.ndarray, out: np.ndarray, terms: int | None = None) -> np.ndarray:
    """out [m, n] = a [m, k] b [k, n]; `terms` as in `onednn.product_f32`"""
    if a.size * b.shape[1] > FEW_MULTIPLICATIONS and onednn.is_installed() and onednn.takes_f32(a, b, out):
        return onednn.product_f32(a, b, out, terms)
    return np.matmul(a, b, out=out)


@kernel
def linear(x, weight, bias=None):
    rows = x.reshape(-1, x.shape[-1])
    kept = packed(weight)
    if kept is not None and rows.dtype == np.float32:
        y = kept.product(rows, bias)
    else:
        y = np.empty((len(rows), len(weight)), x.dtype)
        by_rows = len(rows) >= len(weight)
        terms = TERMS if len(rows) >= MANY_ROWS else None

        def work(share):
            which = (share, slice(None)) if by_rows else (slice(None), share)
            part = product(rows[which[0]], weight[which[1]].T, y[which], terms)
            if bias is not None:
                part += bias[which[1]]

        split = shares(len(rows) if by_rows else len(weight), _parts_of_product(len(rows), *weight.shape))
        run_together(work, split)
    return y.reshape(*x.shape[:-1], len(weight)), (x, weight, bias is not None)


@kernel
def linear_backward(dy, state, out=(None, None)):
    x, weight, has_bias = state
    dy_rows, x_rows = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
    dweight = np.empty(weight.shape, dy.dtype) if out[0] is None else out[0]
    dbias = None
    if has_bias:
        dbias = np.empty(len(weight), dy.dtype) if out[1] is None else out[1]
    ones = np.ones(len(dy_rows), dy.dtype)

    def work(share):
        d = dy_rows[:, share]
        product(d.T, x_rows, dweight[share])
        if dbias is not None:
            np.matmul(ones, d, out=dbias[share])
        return product(d, weight[share], np.empty(x_rows.shape, dy.dtype))

    split = shares(len(weight), _parts_of_product(len(x_rows), *weight.shape))
    dx, *others = run_together(work, split)
    for other in others:
        dx += other
    return dx.reshape(x.shape), dweight, dbias


# ---- weights that do not change ------------------------------------------------------------------------------------


class PackedWeight:
    """A weight W [O, I], packed as the second factor of x Wᵀ."""

    def __init__(self, weight: np.ndarray, bfloat16: bool = False):
        self.bfloat16 = bfloat16
        self.factor = onednn.Packed(weight.T, bfloat16)

    def product(self, rows: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """x Wᵀ + b. oneDNN compiles a product for its number of rows; blocks and filled rows keep these numbers few."""
        count, (inputs, outputs) = len(rows), self.factor.shape
        parts = _parts_of_product(count, inputs, outputs)
        size = max(1, min(BLOCK, filled(-(-count // parts))))
        starts = range(0, count, size)
        y = np.empty((count - count % size + filled(count % size), outputs), np.float32)

        def work(some: slice) -> None:
            for start in starts[some]:
                x = rows[start : start + size]
                length = filled(len(x))
                if length > len(x) or not x.flags.c_contiguous:
                    given, x = x, np.zeros((length, inputs), np.float32)
                    x[: len(given)] = given
                x = onednn.to_bfloat16(x) if self.bfloat16 else x
                onednn.matmul(x, self.factor, y[start : start + length], bias)

        run_together(work, shares(len(starts), parts))
        return y[:count]


def filled(count: int) -> int:
    """The number of rows that a block of `count` rows is filled up to."""
    step = 4 if count <= 64 else 16
    return -(-count // step) * step


def packed(weight: np.ndarray, bfloat16: bool = False) -> PackedWeight | None:
    """The packed form of a weight, made when it is first asked for; None for one that may change.

    An array cannot change when it and the array that owns its memory are read-only.
    """
    if weight.flags.writeable or not onednn.packs_weights():
        return None
    owner = weight if weight.base is None else weight.base
    if not isinstance(owner, np.ndarray) or owner.flags.writeable or owner.base is not None or weight.dtype.char != "f":
        return None
    key = weight.__array_interface__["data"][0], weight.shape, weight.strides, bfloat16
    found = _packed.get(id(owner), {}).get(key)
    if found is None:
        with _packing:
            if id(owner) not in _packed:
                _packed[id(owner)] = {}
                weakref.finalize(owner, _packed.pop, id(owner), None)
            kept = _packed[id(owner)]
            found = kept[key] = kept.get(key) or PackedWeight(weight, bfloat16)
    return found
