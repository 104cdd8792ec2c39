"""Read and write the files of a WordPiece tokenizer: tokenizer.json, vocab.txt and the config files of AutoTokenizer.

`Description` is the content of these files. It defines a WordPiece tokenizer completely.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from glassbert import files
from glassbert.errors import TextError
from glassbert.files import adding_files, atomic_write, write_json
from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import SPECIAL_TOKENS
from glassbert.text.wordpiece import CONTINUATION_PREFIX

FILES = ("tokenizer.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json")
JSON_FILE, VOCABULARY_FILE, CONFIG_FILE, SPECIAL_FILE = FILES
TOKEN_KEYS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")


@dataclass(frozen=True)
class Description:
    """A BERT WordPiece tokenizer: vocabulary, normaliser and word limit."""

    tokens: tuple[str, ...]  # in the order of their ids
    normaliser: Normaliser = field(default_factory=Normaliser)
    longest_word: int = 100  # longer words become [UNK]

    def __post_init__(self) -> None:
        missing = [token for token in SPECIAL_TOKENS if token not in self.vocabulary]
        if missing:
            raise TextError(
                f"the vocabulary of {len(self.tokens):,} entries has no {' '.join(missing)}; "
                f"a BERT tokenizer needs {' '.join(SPECIAL_TOKENS)}"
            )

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self.tokens)}

    @cached_property
    def fingerprint(self) -> str:
        """A checksum that is equal exactly for tokenizers that give the same ids."""
        normaliser = {**asdict(self.normaliser), "strip_accents": self.normaliser.strips_accents}
        content = ["WordPiece", self.tokens, normaliser, self.longest_word]
        return hashlib.sha256(json.dumps(content, ensure_ascii=True, sort_keys=True).encode()).hexdigest()


# ---- writing ----


def write(folder: str | Path, description: Description) -> None:
    """Write the four FILES."""
    with adding_files(folder, FILES):
        _write(Path(folder), description)


def _write(folder: Path, description: Description) -> None:
    with atomic_write(folder / VOCABULARY_FILE) as file:
        file.writelines(f"{token}\n" for token in description.tokens)
    special = dict(zip(TOKEN_KEYS, SPECIAL_TOKENS, strict=True))
    write_json(folder / SPECIAL_FILE, special)
    normaliser = description.normaliser
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normaliser.lowercase,
        "strip_accents": normaliser.strip_accents,
        "tokenize_chinese_chars": normaliser.handle_chinese_chars,
        "clean_up_tokenization_spaces": False,
        **special,
    }
    write_json(folder / CONFIG_FILE, config)
    write_json(folder / JSON_FILE, as_json(description))  # last: if it exists, the other files exist


def as_json(description: Description) -> dict[str, Any]:
    """The content of tokenizer.json in Hugging Face's format."""
    vocabulary = description.vocabulary
    added = [_added(token, vocabulary[token]) for token in sorted(SPECIAL_TOKENS, key=vocabulary.__getitem__)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", **asdict(description.normaliser)},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": _template("[CLS] A0 [SEP]"),
            "pair": _template("[CLS] A0 [SEP] B1 [SEP]1"),
            "special_tokens": {
                token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION_PREFIX, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": CONTINUATION_PREFIX,
            "max_input_chars_per_word": description.longest_word,
            "vocab": vocabulary,
        },
    }


def _added(token: str, id: int) -> dict[str, Any]:
    """A special token that is matched anywhere in the text, before normalisation."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": id, "content": token, **flags}


def _template(text: str) -> list[dict[str, Any]]:
    """'[CLS] A0 [SEP]' in the format of TemplateProcessing; a trailing digit is the type id."""
    parts: list[dict[str, Any]] = []
    for word in text.split():
        type_id = int(word[-1]) if word[-1].isdigit() else 0
        name = word.rstrip("01")
        parts.append({"Sequence" if len(name) == 1 else "SpecialToken": {"id": name, "type_id": type_id}})
    return parts


# ---- reading ----


def find(path: str | Path) -> Path:
    """The tokenizer.json or vocab.txt at `path`, which may be the file, its folder, or a run."""
    path = Path(path)
    if os.path.isfile(path):  # False for a name that no file can have
        return path
    for folder in (path, path / "model", path / "tokenizer"):
        for name in (JSON_FILE, VOCABULARY_FILE):
            if os.path.isfile(folder / name):
                return folder / name
    if os.path.isdir(path):
        raise TextError(f"{path} is not a tokenizer: it contains neither {JSON_FILE} nor {VOCABULARY_FILE}")
    raise TextError(f"no tokenizer at {path}: no such file or folder")


def read(path: str | Path) -> Description:
    """Read a BERT WordPiece tokenizer; any other kind raises TextError."""
    path = find(path)
    return from_json(read_json(path), path) if path.suffix == ".json" else from_vocabulary(path)


def read_json(path: Path) -> dict[str, Any]:
    return files.read_json(path, TextError)


def from_vocabulary(path: Path) -> Description:
    """Read vocab.txt (one token per line), and the options in tokenizer_config.json, if it exists."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (UnicodeDecodeError, OSError) as error:
        raise TextError(f"{path} cannot be read: {error}") from error
    tokens = [line.removesuffix("\r") for line in lines]
    if tokens and not tokens[-1]:
        tokens.pop()
    lines_of: dict[str, int] = {}
    for number, token in enumerate(tokens, 1):
        if token in lines_of:
            raise TextError(f"{path} contains {token!r} twice, in lines {lines_of[token]} and {number}")
        lines_of[token] = number
    config_path = path.with_name(CONFIG_FILE)
    config = read_json(config_path) if config_path.is_file() else {}
    normaliser = Normaliser(
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    return _described(path, tokens, normaliser, 100)


def from_json(content: Mapping[str, Any], path: Path) -> Description:
    """The description in a tokenizer.json, if `WordPieceTokenizer` supports all its components."""
    expected = {
        "model": ("WordPiece",),
        "normalizer": ("BertNormalizer",),
        "pre_tokenizer": ("BertPreTokenizer",),
        "post_processor": ("TemplateProcessing", "BertProcessing"),
    }
    for part, kinds in expected.items():
        kind = (content.get(part) or {}).get("type")
        if kind not in kinds:
            raise TextError(
                f"the {part} of {path} is {kind or 'missing'}, but WordPieceTokenizer supports only {kinds[0]}; "
                "load it with load_tokenizer"
            )
    model = content["model"]
    prefix, unknown = model.get("continuing_subword_prefix", CONTINUATION_PREFIX), model.get("unk_token", "[UNK]")
    if (prefix, unknown) != (CONTINUATION_PREFIX, "[UNK]"):
        raise TextError(f"{path} does not use ## for continuations and [UNK] for unknown words; use load_tokenizer")
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise TextError(f"the ids in the vocabulary of {path} must start at 0 without gaps; use load_tokenizer")
    added = {token["content"]: token for token in content.get("added_tokens", ())}
    for name in {*added, *SPECIAL_TOKENS} & {*vocabulary, *added}:
        if name not in SPECIAL_TOKENS or added.get(name) != _added(name, vocabulary.get(name, -1)):
            raise TextError(f"{path} defines {name!r} differently from BERT's special tokens; use load_tokenizer")
    switches = {key: content["normalizer"][key] for key in asdict(Normaliser()) if key in content["normalizer"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    return _described(path, tokens, Normaliser(**switches), model.get("max_input_chars_per_word", 100))


def _described(path: Path, tokens: Sequence[str], normaliser: Normaliser, longest_word: int) -> Description:
    try:
        return Description(tuple(tokens), normaliser, longest_word)
    except TextError as error:
        raise TextError(f"{path}: {error}") from None
