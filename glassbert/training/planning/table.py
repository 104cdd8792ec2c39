"""The table of reference runs: what real runs have reached, with their size, tokens and recipe.

The package ships one (`reference_runs.jsonl`); every row names where its figures come from. A user's own rows are in
`reference_runs.jsonl` in the user's data folder (GLASSBERT_DATA, or the usual place of the system): `glassbert scale`
adds the runs of a study, `glassbert plan --add RUN` those that are named.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassbert.errors import TrainingError
from glassbert.families.bert import BertWithHead
from glassbert.files import atomic_write
from glassbert.models.config import EncoderConfig
from glassbert.training.objectives import Objectives
from glassbert.training.recipes import config_for
from glassbert.training.settings import TrainingSettings

if TYPE_CHECKING:
    from glassbert.training.history import History

FILE = "reference_runs.jsonl"
BUILT_IN = "built-in texts"


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What the loss of a run is expected from: its size, tokens, text and recipe."""

    parameters: int
    blocks: int  # parameters without embeddings and head
    tokens: int
    vocabulary: int
    length: int
    batch_tokens: int
    positions: str
    tied: bool
    mask_rate: float  # at the start
    distilled: bool = False
    optimizer: str = "muon"
    corpus: str = ""  # a name, or the fingerprint of a corpus
    corpus_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class ReferenceRun(Traits):
    """A finished run. `source` says where its figures are written down."""

    loss: float
    accuracy: float | None = None
    source: str


_FIELDS = {field.name for field in dataclasses.fields(ReferenceRun)}


def traits_of(settings: TrainingSettings, config: EncoderConfig, tokens: int, data: dict[str, Any] | None) -> Traits:
    """The traits of a run. `data` is the description of its corpus in settings.json, where there is one."""
    blocks, parameters = count_parameters(config, settings.objective)
    return Traits(
        parameters=parameters,
        blocks=blocks,
        tokens=tokens,
        vocabulary=config.vocab_size,
        length=settings.length,
        batch_tokens=settings.batch * settings.length,
        positions=config.positions,
        tied=config.tie_word_embeddings,
        mask_rate=settings.mask_rate,
        distilled=bool(settings.teacher),
        optimizer=settings.optimizer,
        corpus=corpus_name(data) if data else BUILT_IN if not settings.corpus else "",
        corpus_tokens=data["splits"]["train"]["tokens"] if data and "splits" in data else None,
    )


def count_parameters(config: EncoderConfig, objective: str = "mlm") -> tuple[int, int]:
    """The parameters of the blocks and of the whole model with its head, without making the model."""
    model = BertWithHead(config, Objectives.parse(objective).head_type, engine="numpy", initialize=False)
    counts = {name: math.prod(shape) for name, shape in model.layout.shapes.items()}
    return sum(count for name, count in counts.items() if name.startswith("layers.")), sum(counts.values())


def corpus_name(data: dict[str, Any]) -> str:
    """A name that is equal for the same sources: the texts count here, not their tokenizer."""
    sources = data.get("sources", [])
    if sources and all(source.get("kind") == "python" for source in sources):
        return BUILT_IN
    return "+".join(sorted(Path(str(source["name"])).name.split(".")[0] for source in sources)) or "documents"


def read_table(extra: Iterable[ReferenceRun] = ()) -> list[ReferenceRun]:
    """The rows that ship with the package, those of the user, and `extra` ones."""
    found = read_rows(Path(__file__).with_name(FILE))
    if user_table().exists():
        found += read_rows(user_table())
    return [*found, *extra]


def read_rows(path: Path) -> list[ReferenceRun]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            row = ReferenceRun(**{name: value for name, value in content.items() if name in _FIELDS})
            if not (row.loss > 0 and min(row.blocks, row.tokens, row.vocabulary, row.length, row.batch_tokens) > 0):
                raise ValueError("a count or the loss is not above 0")
        except (ValueError, TypeError, AttributeError) as error:
            raise TrainingError(
                f"line {number} of {path} is no reference run: {error}; correct or remove it"
            ) from error
        rows.append(row)
    return rows


def user_table() -> Path:
    """The user's own table; it need not exist."""
    if folder := os.environ.get("GLASSBERT_DATA"):
        return Path(folder) / FILE
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "glassbert" / FILE


def add_rows(rows: Iterable[ReferenceRun], path: Path | None = None) -> int:
    """Add rows to the user's table, each once; returns how many were new."""
    path = path or user_table()
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    known = set(lines)
    new = [line for row in rows if (line := json.dumps(dataclasses.asdict(row), ensure_ascii=False)) not in known]
    if new:
        with atomic_write(path) as file:
            file.writelines(f"{line}\n" for line in [*lines, *dict.fromkeys(new)])
    return len(dict.fromkeys(new))


def row_of(history: History) -> ReferenceRun:
    """The row of a finished run from scratch; other runs are refused with the reason."""
    settings, result = TrainingSettings.from_dict(history.settings), history.result
    path = history.run.path
    if result is None or result.get("loss") is None:
        raise TrainingError(f"{path} is not finished; only finished runs can be added to the table")
    if reason := without_expectation(settings):
        raise TrainingError(f"{path} cannot be added to the table: {reason}")
    stored = history.info["model"]["config"]
    config = config_for(settings, stored["vocab_size"], stored["pad_token_id"])
    traits = traits_of(settings, config, result["tokens"], history.info["data"])
    return ReferenceRun(
        **dataclasses.asdict(traits), loss=result["loss"], accuracy=result["accuracy"], source=f"run {path.name}"
    )


def without_expectation(settings: TrainingSettings) -> str:
    """Why no loss can be expected from the table; "" where it can."""
    if settings.start_from:
        return "it starts from trained weights, and the table holds runs from scratch"
    measured = [one for one in Objectives.parse(settings.objective).terms if not one[0].taught]
    if [(one.name, weight) for one, weight in measured] != [("mlm", 1.0)]:
        return f"its held-out loss is that of {settings.objective!r}, and the table holds losses of mlm"
    return ""
