"""The folder layout of the library `sentence-transformers` for sentence embeddings: a chain of modules.

    modules.json                        Transformer, Pooling, Normalize, and the folder of each
    1_Pooling/config.json               the pooling
    2_Normalize/                        embeddings are scaled to length one
    sentence_bert_config.json           the maximal number of tokens
    config_sentence_transformers.json   the similarity, cosine

The folder of the Transformer module is the folder itself: a bare encoder of Hugging Face with its tokenizer files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassbert.checkpoints.locate import MODULES, inside_folder, read_json, read_list
from glassbert.errors import CheckpointError
from glassbert.files import write_json
from glassbert.models.config import EncoderConfig

POOLINGS = ("cls", "mean", "max", "last")
MODULE_FOLDERS = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
OLD_POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "last": "pooling_mode_lasttoken",
}
THEIR_NAMES = {"lasttoken": "last"}  # where theirs differ from ours
DEFAULT_LENGTH = 512


def write_modules(folder: Path, config: EncoderConfig, max_length: int | None = None) -> None:
    """Add the files that make a folder with a bare encoder a folder of sentence-transformers."""
    pooling = {"word_embedding_dimension": config.hidden_size, "include_prompt": True}
    pooling |= {key: mode == config.classifier_pooling for mode, key in OLD_POOLING_KEYS.items()}
    length = max_length or min(config.max_length, DEFAULT_LENGTH)
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(MODULE_FOLDERS.items())
    ]
    write_json(folder / MODULE_FOLDERS["Pooling"] / "config.json", pooling)
    (folder / MODULE_FOLDERS["Normalize"]).mkdir(exist_ok=True)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    about = {"__version__": {"sentence_transformers": "2.0.0"}, "prompts": {}, "similarity_fn_name": "cosine"}
    write_json(folder / "config_sentence_transformers.json", about)
    write_json(folder / MODULES, modules)  # last, because it marks the folder as complete


def pooling_in(folder: Path) -> str | None:
    """The pooling of a folder of sentence-transformers; None for other folders."""
    if not (folder / MODULES).exists():
        return None
    kinds = {_kind(module): module for module in read_list(folder / MODULES)}
    unknown = [kind for kind in kinds if kind not in MODULE_FOLDERS]
    if unknown:
        raise CheckpointError(
            f"{folder / MODULES} has a module {unknown[0]!r}, but GlassBERT supports only "
            f"{', '.join(MODULE_FOLDERS)}. load(..., head='core') loads only the encoder"
        )
    if "Pooling" not in kinds:
        return "mean"  # the default of sentence-transformers
    inside = inside_folder(folder, kinds["Pooling"].get("path"))
    if inside is None:
        raise CheckpointError(
            f"{folder / MODULES} must name a subfolder for Pooling, got {kinds['Pooling'].get('path')!r}"
        )
    path = inside / "config.json"
    modes = _modes(read_json(path))
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise CheckpointError(f"{path} pools by {' and '.join(map(str, modes))}; GlassBERT has {', '.join(POOLINGS)}")
    return str(modes[0])


def _kind(module: Any) -> str:
    return str(module.get("type")).rpartition(".")[2] if isinstance(module, dict) else str(module)


def _modes(fields: dict[str, Any]) -> list[Any]:
    """The pooling modes: current files name them, older ones have a boolean for each."""
    named = fields.get("pooling_mode")
    if named is not None:
        return [THEIR_NAMES.get(str(mode), mode) for mode in (named if isinstance(named, list) else [named])]
    ours = {key: mode for mode, key in OLD_POOLING_KEYS.items()}
    on = [key for key, value in fields.items() if key.startswith("pooling_mode_") and value is True]
    return [ours.get(key, key) for key in on] or ["mean"]
