"""The table of operations as the glass shows them: arrays by name, and the formula of every array that is computed.

`describe(node)` takes a recorded node and returns a `Described`: arrays without the axis of the batch, the formulas of
the forward and of the backward, and which arrays are shown in which order. An operation that is not in the table is
shown with its inputs, outputs and gradients, without formulas.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassbert.learn.glass.formulas import FACTOR, Formula, parse
from glassbert.learn.glass.recorder import Node
from glassbert.ops.attention import attention_weights, scale_of, whole
from glassbert.ops.registry import OPERATIONS, SUFFIX, backward_of

Arrays = Mapping[str, Any]


class LazyArrays(Mapping[str, Any]):
    """Arrays by name; a function is called when its array is first read, with this mapping as its argument."""

    def __init__(self, given: Mapping[str, Any]):
        self._given = {name: value for name, value in given.items() if value is not None}
        self._made: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._made:
            value = self._given[name]
            self._made[name] = np.asarray(value(self) if callable(value) else value)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


@dataclass(frozen=True)
class Described:
    """One operation with its arrays.

    formula, backward_formula   as a person writes them
    sums                        formulas whose terms can be opened, by the name of the array they make
    functions                   arrays that are a function of a few cells, by name: the expression as text
    forward, backward           the arrays that are shown, in this order
    operand                     names of arrays that are arguments of the operation, with their place
    gradient                    names of arrays that the backward returned, with their place
    """

    formula: str
    backward_formula: str
    arrays: LazyArrays
    sums: dict[str, Formula] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    forward: tuple[str, ...] = ()
    backward: tuple[str, ...] = ()
    operand: dict[str, int] = field(default_factory=dict)
    gradient: dict[str, int] = field(default_factory=dict)
    result: str = "y"

    def axes(self, name: str) -> tuple[str, ...]:
        """The letters of the axes of an array, as the formulas use them; "" for an axis that is looked up."""
        found: list[tuple[str, ...]] = []
        for formula in self.sums.values():
            for factor in (formula.left, *(f for product in formula.products for f in product.factors)):
                if factor.name == name:
                    found.append(tuple(axis if isinstance(axis, str) else "" for axis in factor.axes))
        for left, expression in self.functions.items():
            cells = [(cell[1], tuple(filter(None, cell[2].split(",")))) for cell in FACTOR.finditer(expression)]
            found += [axes for cell, axes in cells if cell == name]
            if left == name:
                found.append(max((axes for _, axes in cells), key=len))
        if found:
            return min(found, key=lambda axes: axes.count(""))
        return ("",) * self.arrays[name].ndim


Describe = Callable[[Node], Described]
TABLE: dict[str, Describe] = {}


def describes(*operations: str) -> Callable[[Describe], Describe]:
    def register(function: Describe) -> Describe:
        TABLE.update(dict.fromkeys(operations, function))
        return function

    return register


def describe(node: Node) -> Described:
    return TABLE.get(node.operation, _unknown)(node)


def formulas(*texts: str, arrays: LazyArrays) -> dict[str, Formula]:
    """Parsed formulas by the array that they make; what needs an array that is not there is left out."""
    found = {}
    for text in texts:
        formula = parse(text)
        names = {factor.name for product in formula.products for factor in product.factors}
        formula = formula.without({name for name in names if name not in arrays})
        if formula.left.name in arrays and formula.products:
            found[formula.left.name] = formula
    return found


def rows(x: Any) -> Any:
    """[..., H] -> [N, H]: one row for every token."""
    return None if x is None else np.asarray(x).reshape(-1, np.shape(x)[-1])


def heads(x: Any) -> Any:
    """[1, heads, T, d] -> [heads, T, d]"""
    return None if x is None else np.asarray(x)[0]


def back(node: Node, place: int, shape: Callable[[Any], Any] = rows) -> Any:
    """Gradient number `place` of the backward, or None."""
    if node.dy is None or place >= len(node.gradients) or node.gradients[place] is None:
        return None
    return shape(node.gradients[place])


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


# ---- attention -------------------------------------------------------------------------------------------------------


@describes("attention", "tiled_attention")
def _attention(node: Node) -> Described:
    q, k, v, pattern, bias, scale = (*node.arguments, None, None)[:6]
    allowed = pattern.allowed(np, whole(q.shape[0]), whole(q.shape[2]), whole(k.shape[2]))
    pairs, has_back = (q.shape[2], k.shape[2]), node.dy is not None

    def masked(a: Arrays, scores: np.ndarray) -> np.ndarray:
        return scores if allowed is None else np.where(np.broadcast_to(allowed, (1, *scores.shape))[0], scores, -np.inf)

    def maximum(a: Arrays) -> np.ndarray:
        found = masked(a, a["scores"]).max(-1)
        return np.where(np.isfinite(found), found, 0)

    arrays = LazyArrays(
        {
            "q": heads(q), "k": heads(k), "v": heads(v), "scale": np.array(scale_of(q, scale), q.dtype),
            "bias": None if bias is None else np.broadcast_to(bias, (1, q.shape[1], *pairs))[0],
            "allowed": None if allowed is None else np.broadcast_to(allowed * 1.0, (1, 1, *pairs))[0, 0],
            "scores": lambda a: (a["q"] * a["scale"]) @ a["k"].swapaxes(-1, -2) + a.get("bias", 0),
            "maximum": maximum,
            "exponentials": lambda a: np.exp(masked(a, a["scores"]) - a["maximum"][..., None]),
            "total": lambda a: a["exponentials"].sum(-1),
            "weights": lambda a: attention_weights(q, k, pattern, bias, scale)[0],
            "context": heads(node.output),
            "dcontext": heads(node.dy) if has_back else None,
            "dq": back(node, 0, heads), "dk": back(node, 1, heads), "dv": back(node, 2, heads),
            "dweights": (lambda a: a["dcontext"] @ a["v"].swapaxes(-1, -2)) if has_back else None,
            "inner": (lambda a: (a["dweights"] * a["weights"]).sum(-1)) if has_back else None,
            "dscores": (lambda a: a["weights"] * (a["dweights"] - a["inner"][..., None])) if has_back else None,
        }
    )  # fmt: skip
    sums = formulas(
        "scores[a,i,j] = scale[] q[a,i,d] k[a,j,d] + bias[a,i,j]",
        "total[a,i] = exponentials[a,i,j]",
        "context[a,i,d] = weights[a,i,j] v[a,j,d]",
        "dv[a,j,d] = weights[a,i,j] dcontext[a,i,d]",
        "dweights[a,i,j] = dcontext[a,i,d] v[a,j,d]",
        "inner[a,i] = dweights[a,i,j] weights[a,i,j]",
        "dscores[a,i,j] = weights[a,i,j] dweights[a,i,j] - weights[a,i,j] inner[a,i]",
        "dq[a,i,d] = scale[] dscores[a,i,j] k[a,j,d]",
        "dk[a,j,d] = scale[] dscores[a,i,j] q[a,i,d]",
        arrays=arrays,
    )
    expressions = {
        "exponentials": ("" if allowed is None else "allowed[i,j] * ") + "exp(scores[a,i,j] - maximum[a,i])",
        "weights": "exponentials[a,i,j] / total[a,i]",
    }
    return Described(
        "scores = q kᵀ / √d,   weights = softmax(scores),   context = weights v",
        "dv = weightsᵀ dcontext,   dweights = dcontext vᵀ,   dscores = weights · (dweights − Σ dweights · weights),   "
        "dq = dscores k / √d,   dk = dscoresᵀ q / √d",
        arrays, sums, expressions,
        forward=("q", "k", "scores", "allowed", "exponentials", "total", "weights", "v", "context"),
        backward=("dcontext", "v", "dweights", "weights", "inner", "dscores", "dq", "dk", "dv"),
        operand={"q": 0, "k": 1, "v": 2, "bias": 4}, gradient={"dq": 0, "dk": 1, "dv": 2}, result="context",
    )  # fmt: skip


@describes("rotary")
def _rotary(node: Node) -> Described:
    def halves(x: Any, second: bool) -> Any:
        """[1, T, heads, d] -> one half of the features, [heads, T, d/2]"""
        x = np.asarray(x)[0].transpose(1, 0, 2)
        half = x.shape[-1] // 2
        return x[..., half:] if second else x[..., :half]

    x, cos, sin = node.arguments
    dx = None if node.dy is None else node.gradients[0]
    arrays = LazyArrays(
        {
            "x1": halves(x, False), "x2": halves(x, True), "cos": cos[0, :, 0], "sin": sin[0, :, 0],
            "y1": halves(node.output, False), "y2": halves(node.output, True),
            "dy1": None if dx is None else halves(node.dy, False), "dy2": None if dx is None else halves(node.dy, True),
            "dx1": None if dx is None else halves(dx, False), "dx2": None if dx is None else halves(dx, True),
        }
    )  # fmt: skip
    sums = formulas(
        "y1[a,t,c] = x1[a,t,c] cos[t,c] - x2[a,t,c] sin[t,c]",
        "y2[a,t,c] = x2[a,t,c] cos[t,c] + x1[a,t,c] sin[t,c]",
        "dx1[a,t,c] = dy1[a,t,c] cos[t,c] + dy2[a,t,c] sin[t,c]",
        "dx2[a,t,c] = dy2[a,t,c] cos[t,c] - dy1[a,t,c] sin[t,c]",
        arrays=arrays,
    )
    return Described(
        "y₁ = x₁ cos θ − x₂ sin θ,   y₂ = x₂ cos θ + x₁ sin θ,   θ = position · frequency",
        "the gradient is rotated back, by −θ",
        arrays, sums,
        forward=("x1", "x2", "cos", "sin", "y1", "y2"), backward=("dy1", "dy2", "cos", "sin", "dx1", "dx2"),
        operand={"x1": 0, "x2": 0}, gradient={"dx1": 0, "dx2": 0}, result="y1",
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


def _without_batch(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x[0] if x.ndim > 2 and x.shape[0] == 1 else x


LETTERS = {0: "", 1: "h", 2: "t,h", 3: "a,t,h", 4: "b,a,t,h"}
WRITTEN = {"add": ("+", "a + b"), "subtract": ("-", "a − b"), "multiply": ("", "a · b")}


@describes("add", "subtract", "multiply")
def _elementwise(node: Node) -> Described:
    """a + b, a - b or a · b in a layer; one of them may be broadcast."""
    y = _without_batch(node.output)
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


# ---- losses ----------------------------------------------------------------------------------------------------------


@describes("cross_entropy")
def _cross_entropy(node: Node) -> Described:
    logits, targets = rows(node.arguments[0]), np.asarray(node.arguments[1])
    probabilities, aim, valid, count = node.state
    picked = np.where(valid, targets, 0)
    columns = np.arange(logits.shape[-1])
    arrays = LazyArrays(
        {
            "logits": logits, "targets": picked, "share": valid / count, "probabilities": probabilities,
            "maximum": lambda a: a["logits"].max(-1),
            "exponentials": lambda a: np.exp(a["logits"] - a["maximum"][:, None]),
            "total": lambda a: a["exponentials"].sum(-1),
            "log_total": lambda a: np.log(a["total"]) + a["maximum"],
            "aim": aim if aim.ndim == 2 else lambda a: (columns == aim[:, None]).astype(logits.dtype),
            "mass": aim.sum(-1) if aim.ndim == 2 else None, "loss": np.asarray(node.output),
            "dlogits": back(node, 0),
        }
    )  # fmt: skip
    whole_aim = aim.ndim == 2
    sums = formulas(
        "loss[] = share[m] aim[m,v] log_total[m] - share[m] aim[m,v] logits[m,v]"
        if whole_aim
        else "loss[] = share[m] log_total[m] - share[m] logits[m,targets(m)]",
        "total[m] = exponentials[m,v]",
        "dlogits[m,v] = share[m] mass[m] probabilities[m,v] - share[m] aim[m,v]"
        if whole_aim
        else "dlogits[m,v] = share[m] probabilities[m,v] - share[m] aim[m,v]",
        arrays=arrays,
    )
    expressions = {
        "exponentials": "exp(logits[m,v] - maximum[m])",
        "probabilities": "exponentials[m,v] / total[m]",
        "log_total": "log(total[m]) + maximum[m]",
    }
    return Described(
        "loss = mean over masked words of  log Σ exp(z) − z[target]",
        "dz = (softmax(z) − onehot(target)) / number of masked words",
        arrays, sums, expressions,
        forward=("logits", "exponentials", "total", "log_total", "probabilities", "loss"),
        backward=("probabilities", "aim", "dlogits"), operand={"logits": 0}, gradient={"dlogits": 0}, result="loss",
    )  # fmt: skip


@describes("binary_cross_entropy")
def _binary_cross_entropy(node: Node) -> Described:
    logits, positive, factor, valid, count = node.state
    if factor is not None:
        return _unknown(node)
    arrays = LazyArrays(
        {
            "z": rows(logits), "target": rows(positive), "share": rows(valid / count),
            "yes": lambda a: 0.5 * (1.0 + np.tanh(0.5 * a["z"])), "loss": np.asarray(node.output), "dz": back(node, 0),
            "each": lambda a: np.maximum(a["z"], 0) - a["z"] * a["target"] + np.log1p(np.exp(-np.abs(a["z"]))),
        }
    )  # fmt: skip
    sums = formulas(
        "loss[] = share[t,o] each[t,o]", "dz[t,o] = share[t,o] yes[t,o] - share[t,o] target[t,o]", arrays=arrays
    )
    expressions = {
        "yes": "sigmoid(z[t,o])",
        "each": "log(1 + exp(z[t,o])) - z[t,o] * target[t,o]",
    }
    return Described(
        "loss = mean of  log(1 + exp(z)) − z · target", "dz = (σ(z) − target) / number of labels",
        arrays, sums, expressions,
        forward=("z", "target", "each", "loss"), backward=("yes", "target", "dz"),
        operand={"z": 0}, gradient={"dz": 0}, result="loss",
    )  # fmt: skip


@describes("mean_squared_error")
def _mean_squared_error(node: Node) -> Described:
    difference, count = node.state
    arrays = LazyArrays(
        {
            "z": rows(node.arguments[0]), "target": rows(node.arguments[1]), "difference": rows(difference),
            "share": np.array(1.0 / count), "twice": np.array(2.0 / count), "loss": np.asarray(node.output),
            "dz": back(node, 0),
        }
    )  # fmt: skip
    sums = formulas(
        "difference[t,o] = z[t,o] - target[t,o]",
        "loss[] = share[] difference[t,o] difference[t,o]",
        "dz[t,o] = twice[] difference[t,o]",
        arrays=arrays,
    )
    return Described(
        "loss = mean of (z − target)²", "dz = 2 (z − target) / number of labels", arrays, sums,
        forward=("z", "target", "difference", "loss"), backward=("difference", "dz"),
        operand={"z": 0}, gradient={"dz": 0}, result="loss",
    )  # fmt: skip


# ---- everything else -------------------------------------------------------------------------------------------------


def _unknown(node: Node) -> Described:
    """Inputs, output and gradients of any operation; an operation of one array is an activation."""
    function = OPERATIONS.get(node.operation)
    arrays = [(i, x) for i, x in enumerate(node.arguments) if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    one = len(arrays) == 1 and len(node.arguments) == 1 and node.operation in OPERATIONS
    if one and np.shape(node.output) == arrays[0][1].shape and (node.dy is None or len(node.gradients) == 1):
        return _activation(node)
    names = list(inspect.signature(function).parameters) if function else []
    label = {i: names[i] if i < len(names) else f"x{i}" for i, _ in arrays}
    given = {label[i]: _without_batch(x) for i, x in arrays}
    given["y"] = _without_batch(node.output)
    gradients = {}
    if node.dy is not None:
        given["dy"] = _without_batch(node.dy)
        for place, value in enumerate(node.gradients):
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                gradients[f"gradient_{place}"] = place
                given[f"gradient_{place}"] = _without_batch(value)
    return Described(
        f"y = {node.operation}({', '.join(label.values())})", node.operation + SUFFIX if gradients else "",
        LazyArrays(given), forward=(*label.values(), "y"), backward=("dy", *gradients),
        operand={name: i for i, name in label.items()}, gradient=gradients,
    )  # fmt: skip
