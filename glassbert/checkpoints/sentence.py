"""Sentence embeddings as the library `sentence-transformers` lays them out: modules that follow one another.

    modules.json                        Transformer, Pooling, Normalize, and where each lies
    1_Pooling/config.json               which tokens an embedding is made of
    2_Normalize/                        embeddings have the length one
    sentence_bert_config.json           how many tokens of a text are read
    config_sentence_transformers.json   embeddings are compared by their cosine

The Transformer is the folder itself: a bare encoder of Hugging Face, with the tokenizer's files beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassbert.checkpoints.locate import MODULES, read_json, read_list
from glassbert.errors import CheckpointError
from glassbert.files import write_json
from glassbert.models.config import EncoderConfig

POOLINGS = ("cls", "mean", "max")
PIECES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
OLD_NAMES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}
USUAL_LENGTH = 512


def write_modules(folder: Path, config: EncoderConfig, max_length: int | None = None) -> None:
    """What a folder with a bare encoder needs besides, to be one of sentence-transformers."""
    pooling = {"word_embedding_dimension": config.hidden_size, "include_prompt": True}
    pooling |= {key: mode == config.classifier_pooling for mode, key in OLD_NAMES.items()}
    length = max_length or min(config.max_position_embeddings, USUAL_LENGTH)
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(PIECES.items())
    ]
    write_json(folder / PIECES["Pooling"] / "config.json", pooling)
    (folder / PIECES["Normalize"]).mkdir(exist_ok=True)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    about = {"__version__": {"sentence_transformers": "2.0.0"}, "prompts": {}, "similarity_fn_name": "cosine"}
    write_json(folder / "config_sentence_transformers.json", about)
    write_json(folder / MODULES, modules)  # last: whoever finds it finds the others


def pooling_in(folder: Path) -> str | None:
    """The pooling of a folder of sentence-transformers; None where it is no such folder."""
    if not (folder / MODULES).exists():
        return None
    kinds = {_kind(module): module for module in read_list(folder / MODULES)}
    strange = [kind for kind in kinds if kind not in PIECES]
    if strange:
        raise CheckpointError(
            f"{folder / MODULES} has a module {strange[0]!r}, which GlassBERT cannot represent; it has "
            f"{', '.join(PIECES)}. load(..., head='core') opens the encoder alone"
        )
    if "Pooling" not in kinds:
        return "mean"  # as sentence-transformers does
    path = folder / Path(str(kinds["Pooling"].get("path"))).name / "config.json"
    modes = _modes(read_json(path))
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise CheckpointError(f"{path} pools by {' and '.join(map(str, modes))}; GlassBERT has {', '.join(POOLINGS)}")
    return str(modes[0])


def _kind(module: Any) -> str:
    return str(module.get("type")).rpartition(".")[2] if isinstance(module, dict) else str(module)


def _modes(fields: dict[str, Any]) -> list[Any]:
    """Present files name the modes, older ones have a switch for each."""
    named = fields.get("pooling_mode")
    if named is not None:
        return list(named) if isinstance(named, list) else [named]
    ours = {key: mode for mode, key in OLD_NAMES.items()}
    on = [key for key, value in fields.items() if key.startswith("pooling_mode_") and value is True]
    return [ours.get(key, key) for key in on] or ["mean"]
