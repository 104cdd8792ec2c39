"""Recipes that scale with the budget: `glassbert pretrain --recipe small-best --minutes 30`.

A recipe is versioned. It chooses shape, row lengths, batch and learning rate for the number of floating-point
operations that the budget allows on this machine, the precision by the products that it has, and records all of them
in the settings of the run. Flags override single choices. docs/recipes.md has the measurements behind each choice.

small-best trains encoders of at most 4.6 M parameters with a vocabulary of 8,192:

    tied embeddings, rotary positions, Muon, 30 % of the tokens masked at first and 15 % at the end
    small budgets   narrow post-norm blocks with ReLU, short rows, small batches: more steps
    large budgets   ModernBERT's layout, deep and narrow; short rows first, then long ones
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from glassbert.errors import TrainingError
from glassbert.layers.registry import unknown

EFFICIENCY = {"numpy": 0.6, "mlx": 0.08}  # the share of the matrix rate that a step of a small model reaches
NEWEST = {"small-best": "small-best-1"}


@dataclass(frozen=True)
class Rung:
    """What a recipe does with a budget of at least so many floating-point operations, or tokens."""

    operations: float
    tokens: float
    settings: Mapping[str, Any]
    model: Mapping[str, Any]
    parts: Mapping[str, str] = field(default_factory=dict)  # what this rung adds: name -> in words


class Choice(NamedTuple):
    """What a recipe chose: settings, and fields of the model config."""

    name: str
    settings: dict[str, Any]
    model: dict[str, Any]


def _shape(layers: int, width: int, heads: int, inner: int) -> dict[str, int]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": inner,
    }


_ROTARY = {"positions": "rotary", "tie_word_embeddings": True}
_SHORT = {"preset": "mini", "length": 64, "batch": 32, "learning_rate": 5e-3, "vocab_size": 8_192}
_LONG = {
    "preset": "modernbert-base",
    "packing": "tokens",
    "learning_rate": 3e-3,
    "weight_decay": 0.05,
    "vocab_size": 8_192,
    "short_length": 128,
    "short_share": 0.55,
}

SMALL_BEST_1 = (
    Rung(0, 0, _SHORT, {**_ROTARY, **_shape(3, 128, 4, 512)}),
    Rung(1e14, 1e7, {**_SHORT, "batch": 64}, {**_ROTARY, **_shape(3, 192, 4, 768)}, {"width": "3 layers of 192"}),
    Rung(
        1e15,
        1e8,
        {**_LONG, "length": 256, "batch": 64},
        {**_shape(6, 192, 3, 288), "max_position_embeddings": 1_024},
        {"depth": "6 layers of ModernBERT's layout", "rows": "rows of 256 at the end"},
    ),
    Rung(
        5e15,
        3e8,
        {**_LONG, "length": 512, "batch": 128},
        {**_shape(9, 192, 3, 288), "max_position_embeddings": 1_024},
        {"depth": "9 layers of ModernBERT's layout", "rows": "rows of 512 at the end"},
    ),
)
RECIPES: dict[str, tuple[Rung, ...]] = {"small-best-1": SMALL_BEST_1}


def choose(recipe: str, given: Mapping[str, Any], operations_in: Callable[[float], float]) -> Choice:
    """The choices of a recipe for the budget in `given`; `operations_in(seconds)` measures this machine."""
    name = NEWEST.get(recipe, recipe)
    if name not in RECIPES:
        raise TrainingError(unknown("recipe", recipe, (*NEWEST, *RECIPES)))
    for conflict in ("family", "preset", "size"):
        if given.get(conflict) is not None:
            raise TrainingError(f"--recipe chooses the model for the budget, so it does not go with --{conflict}")
    rungs = RECIPES[name]
    if given.get("steps") or given.get("tokens"):
        amount = _tokens(given, rungs)
        rung = [rung for rung in rungs if rung.tokens <= amount][-1]
    else:
        amount = operations_in(60.0 * float(given.get("minutes") or 5.0))
        rung = [rung for rung in rungs if rung.operations <= amount][-1]
    return Choice(name, dict(rung.settings), dict(rung.model))


def left_out(recipe: str, model: Mapping[str, Any]) -> list[str]:
    """What a recipe leaves out for a small budget, in sentences, for the model fields that it chose."""
    rungs = RECIPES[recipe]
    chosen = [i for i, rung in enumerate(rungs) if rung.model["num_hidden_layers"] == model.get("num_hidden_layers")
              and rung.model["hidden_size"] == model.get("hidden_size")]  # fmt: skip
    return [
        f"{recipe} leaves out {' and '.join(rung.parts.values())}: they pay from about {rung.operations:.0e} "
        f"floating-point operations ({rung.tokens:.0e} tokens) on."
        for rung in rungs[chosen[0] + 1 if chosen else len(rungs) :]
    ]


def _tokens(given: Mapping[str, Any], rungs: tuple[Rung, ...]) -> float:
    """The tokens of a budget in tokens, or in steps of the first rung's batch."""
    if given.get("tokens"):
        return float(given["tokens"])
    first = rungs[0].settings
    return float(given["steps"]) * given.get("batch", first["batch"]) * given.get("length", first["length"])


def fastest_precision(engine: str) -> str:
    """The precision in which a recipe trains here: bfloat16 where the NumPy engine has fast products of it.

    In the same minutes it reads 1.4 times the tokens of float32 and ends with a lower loss (docs/recipes.md).
    """
    from glassbert.engines import get_engine, onednn

    return "bfloat16" if get_engine(engine).name == "numpy" and not onednn.why_not() else "float32"


def measured_operations(engine: str, threads: int | None) -> Callable[[float], float]:
    """A function from seconds to the operations that training a small model does in them on this machine."""

    def operations_in(seconds: float) -> float:
        from glassbert.engines import get_engine
        from glassbert.engines.machine import measure_matmul_rate, measure_mlx_matmul_rate

        chosen = get_engine(engine, "float32", threads)
        if chosen.name == "mlx":
            rate = measure_mlx_matmul_rate("bfloat16", seconds=0.2)
        else:
            rate = measure_matmul_rate("float32", chosen.threads, seconds=0.2)
        return 1e9 * rate * EFFICIENCY.get(chosen.name, 0.3) * seconds

    return operations_in
