"""Linear maps, norms, activations, lookups and sums as the glass shows them, and whatever is not in the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.learn.glass import attention_views, loss_views  # noqa: F401  (they fill the table)
from glassbert.learn.glass.described import (
    TABLE,
    Arrays,
    Described,
    LazyArrays,
    back,
    describes,
    formulas,
    rows,
    without_batch,
    without_formulas,
)
from glassbert.learn.glass.recorder import Node
from glassbert.ops.registry import OPERATIONS, backward_of


def describe(node: Node) -> Described:
    """The arrays and formulas of a recorded node.

    An operation that is not in the table is shown without formulas; where it takes a single array it is an activation,
    with dx = dy · f'(x).
    """
    if node.operation in TABLE:
        return TABLE[node.operation](node)
    arrays = [x for x in node.arguments if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    single = len(arrays) == len(node.arguments) == 1 and np.shape(node.output) == arrays[0].shape
    if single and node.operation in OPERATIONS and (node.dy is None or len(node.gradients) == 1):
        return _activation(node)
    return without_formulas(node)


# ---- linear maps, norms, activations --------------------------------------------------------------------------------


@describes("linear")
def _linear(node: Node) -> Described:
    x, weight, *bias = node.arguments
    arrays = LazyArrays(
        {
            "x": rows(x), "weight": weight, "bias": bias[0] if bias else None, "y": rows(node.output),
            "dy": None if node.dy is None else rows(node.dy), "dx": back(node, 0),
            "dweight": back(node, 1, np.asarray), "dbias": back(node, 2, np.asarray),
        }
    )  # fmt: skip
    sums = formulas(
        "y[t,o] = x[t,k] weight[o,k] + bias[o]",
        "dx[t,k] = dy[t,o] weight[o,k]",
        "dweight[o,k] = dy[t,o] x[t,k]",
        "dbias[o] = dy[t,o]",
        arrays=arrays,
    )
    return Described(
        "y = x Wᵀ + b" if "bias" in arrays else "y = x Wᵀ",
        "dx = dy W,   dW = dyᵀ x" + (",   db = Σ dy" if "bias" in arrays else ""),
        arrays,
        sums,
        forward=("x", "weight", "bias", "y"),
        backward=("dy", "weight", "dx", "x", "dweight", "dbias"),
        operand={"x": 0, "weight": 1, "bias": 2},
        gradient={"dx": 0, "dweight": 1, "dbias": 2},
    )


@describes("layer_norm")
def _layer_norm(node: Node) -> Described:
    x, gamma, beta, eps = node.arguments
    x_hat, rstd, *_ = node.state
    arrays = LazyArrays(
        {
            "x": rows(x), "gamma": gamma, "beta": beta, "x_hat": rows(x_hat), "rstd": np.reshape(rstd, -1),
            "mean": lambda a: a["x"].mean(-1), "centred": lambda a: a["x"] - a["mean"][:, None],
            "variance": lambda a: (a["centred"] * a["centred"]).mean(-1), "eps": np.array(eps), "y": rows(node.output),
            "dy": None if node.dy is None else rows(node.dy), "dx": back(node, 0),
            "dgamma": back(node, 1, np.asarray), "dbeta": back(node, 2, np.asarray),
            "mean_g": None if node.dy is None else lambda a: (a["dy"] * a["gamma"]).mean(-1),
            "mean_gx": None if node.dy is None else lambda a: (a["dy"] * a["gamma"] * a["x_hat"]).mean(-1),
            "share": np.array(1.0 / np.shape(x)[-1]),
        }
    )  # fmt: skip
    sums = formulas(
        "mean[t] = share[] x[t,h]",
        "y[t,h] = gamma[h] x_hat[t,h] + beta[h]",
        "centred[t,h] = x[t,h] - mean[t]",
        "variance[t] = share[] centred[t,h] centred[t,h]",
        "x_hat[t,h] = rstd[t] centred[t,h]",
        "dx[t,h] = rstd[t] gamma[h] dy[t,h] - rstd[t] mean_g[t] - rstd[t] x_hat[t,h] mean_gx[t]",
        "mean_g[t] = share[] dy[t,h] gamma[h]",
        "mean_gx[t] = share[] dy[t,h] gamma[h] x_hat[t,h]",
        "dgamma[h] = dy[t,h] x_hat[t,h]",
        "dbeta[h] = dy[t,h]",
        arrays=arrays,
    )
    return Described(
        "y = γ · x̂ + β,   x̂ = (x − mean) · rstd,   rstd = 1/√(var + ε)",
        "dx = rstd · (g − mean(g) − x̂ · mean(g · x̂)),   g = dy · γ",
        arrays,
        sums,
        {"rstd": "1 / sqrt(variance[t] + eps[])"},
        forward=("x", "mean", "centred", "variance", "rstd", "x_hat", "gamma", "beta", "y"),
        backward=("dy", "gamma", "x_hat", "rstd", "mean_g", "mean_gx", "dx", "dgamma", "dbeta"),
        operand={"x": 0, "gamma": 1, "beta": 2},
        gradient={"dx": 0, "dgamma": 1, "dbeta": 2},
    )


def _activation(node: Node) -> Described:
    """Any operation of one array, value by value: y = f(x), dx = dy · f'(x)."""
    name = node.operation
    x = rows(node.arguments[0])
    has_back = node.dy is not None
    arrays = LazyArrays(
        {
            "x": x, "y": rows(node.output), "dy": rows(node.dy) if has_back else None, "dx": back(node, 0),
            "slope": (lambda a: rows(backward_of(name)(np.ones_like(node.output), node.state))) if has_back else None,
        }
    )  # fmt: skip
    return Described(
        f"y = {name}(x)",
        f"dx = dy · {name}′(x)",
        arrays,
        formulas("dx[t,c] = dy[t,c] slope[t,c]", arrays=arrays),
        {"y": f"{name}(x[t,c])"},
        forward=("x", "y"),
        backward=("dy", "x", "slope", "dx"),
        operand={"x": 0},
        gradient={"dx": 0},
    )


@describes("gelu")
def _gelu(node: Node) -> Described:
    plain = _activation(node)
    cdf = rows(node.state[1])
    has_back = node.dy is not None

    def density(a: Arrays) -> np.ndarray:
        return np.exp(a["x"] * a["x"] * -0.5) / np.sqrt(2 * np.pi)

    arrays = LazyArrays({**plain.arrays._given, "cdf": cdf, "density": density if has_back else None})
    sums = formulas(
        "y[t,c] = x[t,c] cdf[t,c]",
        "slope[t,c] = cdf[t,c] + x[t,c] density[t,c]",
        "dx[t,c] = dy[t,c] slope[t,c]",
        arrays=arrays,
    )
    expressions = {"cdf": "Phi(x[t,c])", **({"density": "phi(x[t,c])"} if has_back else {})}
    return Described(
        "y = x · Φ(x)", "dx = dy · (Φ(x) + x φ(x))", arrays, sums, expressions,
        forward=("x", "cdf", "y"), backward=("dy", "x", "cdf", "density", "slope", "dx"),
        operand={"x": 0}, gradient={"dx": 0},
    )  # fmt: skip


@describes("geglu")
def _geglu(node: Node) -> Described:
    activated, gate, inner, activation = node.state
    half = activated.shape[-1]
    x = rows(node.arguments[0])
    has_back = node.dy is not None
    dx = back(node, 0)
    arrays = LazyArrays(
        {
            "a": x[:, :half], "gate": rows(gate), "activated": rows(activated), "y": rows(node.output),
            "dy": rows(node.dy) if has_back else None,
            "slope": (lambda a: rows(backward_of(activation)(np.ones_like(activated), inner))) if has_back else None,
            "da": None if dx is None else dx[:, :half], "dgate": None if dx is None else dx[:, half:],
        }
    )  # fmt: skip
    sums = formulas(
        "y[t,c] = activated[t,c] gate[t,c]",
        "da[t,c] = dy[t,c] gate[t,c] slope[t,c]",
        "dgate[t,c] = dy[t,c] activated[t,c]",
        arrays=arrays,
    )
    return Described(
        f"y = {activation}(a) · gate,   [a, gate] = x",
        f"da = dy · gate · {activation}′(a),   dgate = dy · {activation}(a)",
        arrays, sums, {"activated": f"{activation}(a[t,c])"},
        forward=("a", "activated", "gate", "y"), backward=("dy", "a", "gate", "slope", "da", "activated", "dgate"),
        operand={"a": 0, "gate": 0}, gradient={"da": 0, "dgate": 0},
    )  # fmt: skip


# ---- lookups, sums and other expressions -----------------------------------------------------------------------------


@describes("embedding")
def _embedding(node: Node) -> Described:
    table, ids, *padding = node.arguments
    flat = np.asarray(ids).reshape(-1)
    trained = flat if not padding or padding[0] is None else np.where(flat == padding[0], -1, flat)

    def scattered(a: Arrays) -> np.ndarray:
        found = np.zeros(table.shape, table.dtype)
        found[node.gradients[0]] = node.gradients[1]
        return found

    arrays = LazyArrays(
        {
            "table": table, "ids": flat, "trained": trained, "y": rows(node.output),
            "dy": None if node.dy is None else rows(node.dy), "dtable": None if node.dy is None else scattered,
        }
    )  # fmt: skip
    sums = formulas("y[t,h] = table[ids(t),h]", "dtable[trained(t),h] = dy[t,h]", arrays=arrays)
    return Described(
        "y[t] = table[ids[t]]", "dtable[id] = Σ dy[t] over all t with this id", arrays, sums,
        forward=("table", "y"), backward=("dy", "dtable"), operand={"table": 0}, gradient={"dtable": 1},
    )  # fmt: skip


@describes("take_rows")
def _take_rows(node: Node) -> Described:
    x, chosen = node.arguments
    arrays = LazyArrays(
        {
            "x": rows(x), "rows": np.asarray(chosen), "y": node.output,
            "dy": node.dy, "dx": back(node, 0),
        }
    )  # fmt: skip
    sums = formulas("y[m,h] = x[rows(m),h]", "dx[rows(m),h] = dy[m,h]", arrays=arrays)
    return Described(
        "y = the rows of x that are scored", "dx = dy in these rows, 0 elsewhere", arrays, sums,
        forward=("x", "y"), backward=("dy", "dx"), operand={"x": 0}, gradient={"dx": 0},
    )  # fmt: skip


LETTERS = {0: "", 1: "h", 2: "t,h", 3: "a,t,h", 4: "b,a,t,h"}
WRITTEN = {"add": ("+", "a + b"), "subtract": ("-", "a − b"), "multiply": ("", "a · b")}


@describes("add", "subtract", "multiply")
def _elementwise(node: Node) -> Described:
    """a + b, a - b or a · b in a layer; one of them may be broadcast."""
    y = without_batch(node.output)
    letters = LETTERS[y.ndim].split(",") if y.ndim else []
    sign, written = WRITTEN[node.operation]
    given: dict[str, Any] = {"y": y}
    sides = {}
    for name, value in zip(("a", "b"), node.arguments[:2], strict=True):
        value = np.asarray(value, y.dtype)
        while value.ndim > y.ndim:
            value = value[0]
        axes = letters[y.ndim - value.ndim :]
        kept = [n for n, size in enumerate(value.shape) if size != 1 or y.shape[y.ndim - value.ndim + n] == 1]
        given[name] = value.reshape([value.shape[n] for n in kept])
        sides[name] = f"{name}[{','.join(axes[n] for n in kept)}]"
    arrays = LazyArrays(given)
    sums = formulas(f"y[{','.join(letters)}] = {sides['a']} {sign} {sides['b']}", arrays=arrays)
    return Described(
        f"y = {written}", "the gradient of a sum goes to every term unchanged" if sign == "+" else "", arrays, sums,
        forward=("a", "b", "y"), backward=("a", "b", "y"), operand={"a": 0, "b": 1},
    )  # fmt: skip


@describes("cls_pool")
def _cls_pool(node: Node) -> Described:
    x = rows(node.arguments[0])
    dx = back(node, 0)
    arrays = LazyArrays({"x": x, "first": np.array([0]), "y": node.output, "dy": node.dy, "dx": dx})
    sums = formulas("y[p,h] = x[first(p),h]", "dx[first(p),h] = dy[p,h]", arrays=arrays)
    return Described(
        "y = the first row of x", "dx = dy in the first row, 0 elsewhere", arrays, sums,
        forward=("x", "y"), backward=("dy", "dx"), operand={"x": 0}, gradient={"dx": 0},
    )  # fmt: skip


@describes("mean_pool")
def _mean_pool(node: Node) -> Described:
    arrays = LazyArrays(
        {"x": rows(node.arguments[0]), "weights": node.state, "y": node.output, "dy": node.dy, "dx": back(node, 0)}
    )
    sums = formulas("y[p,h] = weights[p,t] x[t,h]", "dx[t,h] = weights[p,t] dy[p,h]", arrays=arrays)
    return Described(
        "y = Σ x / number of tokens", "dx = dy / number of tokens", arrays, sums,
        forward=("x", "weights", "y"), backward=("dy", "weights", "dx"), operand={"x": 0}, gradient={"dx": 0},
    )  # fmt: skip
