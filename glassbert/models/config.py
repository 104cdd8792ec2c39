"""A config describes an encoder; a family member is a recipe of a few lines.

Every choice that distinguishes one member of the family from another is a field of `EncoderConfig`. `BertConfig` and
`ModernBertConfig` are the same fields with other defaults, so that reading the two side by side is reading how the
models differ. Configs are frozen; an unknown or impossible value is an error that names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from glassbert.errors import ConfigError
from glassbert.models.series import SeriesConfig

CHOICES = {
    "positions": ("learned", "rotary"),
    "norm_position": ("post", "pre"),
    "activation": ("relu", "gelu", "gelu_tanh"),
    "initializer": ("normal", "truncated", "depth_scaled"),
    "classifier_pooling": ("cls", "mean", "max", "attention", "flatten"),
}


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _divisors(size: int) -> list[int]:
    return [n for n in range(1, min(size, 64) + 1) if size % n == 0]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Everything that can differ between two encoders."""

    family: str = "encoder"

    vocab_size: int = 30_522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3_072
    max_position_embeddings: int = 512
    type_vocab_size: int = 0
    pad_token_id: int | None = 0
    series: SeriesConfig | None = None  # windows of values take the place of token ids

    positions: str = "learned"
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    norm_position: str = "post"
    embedding_norm: bool = True
    skip_first_norm: bool = False
    final_norm: bool = False
    layer_norm_eps: float = 1e-12
    activation: str = "gelu"
    gated: bool = False
    attention_bias: bool = True
    ffn_bias: bool = True
    norm_bias: bool = True
    local_window: int | None = None
    global_attention_every: int = 1
    causal: bool = False

    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    ffn_dropout: float = 0.0
    classifier_dropout: float = 0.0

    initializer: str = "normal"
    initializer_range: float = 0.02

    tie_word_embeddings: bool = True
    head_transform: bool = True
    head_bias: bool = True
    decoder_bias: bool = True
    pooler: bool = False
    classifier_pooling: str = "cls"

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings",
                     "global_attention_every"):  # fmt: skip
            self._require(
                _is_integer(getattr(self, name)) and getattr(self, name) >= 1, name, "an integer of at least 1"
            )
        for name in ("num_hidden_layers", "type_vocab_size"):
            self._require(
                _is_integer(getattr(self, name)) and getattr(self, name) >= 0, name, "an integer of at least 0"
            )
        for name in ("embedding_dropout", "attention_dropout", "hidden_dropout", "ffn_dropout", "classifier_dropout"):
            self._require(_is_number(getattr(self, name)) and 0.0 <= getattr(self, name) < 1.0, name, "in [0, 1)")
        for name in ("layer_norm_eps", "initializer_range", "global_rope_theta", "local_rope_theta"):
            self._require(_is_number(getattr(self, name)) and getattr(self, name) > 0, name, "a number above 0")
        for name, choices in CHOICES.items():
            self._require(getattr(self, name) in choices, name, f"one of {', '.join(map(repr, choices))}")
        for field in dataclasses.fields(self):
            if field.type == "bool":
                self._require(isinstance(getattr(self, field.name), bool), field.name, "true or false")
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"{self.num_attention_heads} attention heads do not divide hidden_size {self.hidden_size}; "
                f"heads that would: {', '.join(map(str, _divisors(self.hidden_size)))}"
            )
        if self.positions == "rotary" and self.head_size % 2:
            raise ConfigError(
                f"rotary positions turn pairs of features, but a head has {self.head_size}, an odd number"
            )
        if self.local_window is not None:
            self._require(
                _is_integer(self.local_window) and self.local_window >= 1, "local_window", "at least 1, or None"
            )
        elif self.global_attention_every > 1:
            raise ConfigError("global_attention_every above 1 makes layers local, which needs a local_window")
        if self.pad_token_id is not None and not (
            _is_integer(self.pad_token_id) and 0 <= self.pad_token_id < self.vocab_size
        ):
            raise ConfigError(f"pad_token_id {self.pad_token_id} is no id of a vocabulary of {self.vocab_size}")
        if self.series is not None:
            self._require(isinstance(self.series, SeriesConfig), "series", "a SeriesConfig, or None")
            if self.series.tokens > self.max_position_embeddings:
                raise ConfigError(
                    f"a window of {self.series.tokens} patches is longer than the {self.max_position_embeddings} "
                    "positions of this encoder; with_series(config, series) makes room"
                )
        elif self.classifier_pooling == "flatten":
            raise ConfigError(
                "flatten lays the tokens of a window side by side, and this encoder reads texts, which differ in "
                f"length; choose one of {', '.join(CHOICES['classifier_pooling'][:-1])}, or give the config a series"
            )
        if self.skip_first_norm and self.norm_position != "pre":
            raise ConfigError(
                "skip_first_norm leaves out the norm before the first attention; a post-norm block has none there"
            )

    def _require(self, holds: bool, name: str, what: str) -> None:
        if not holds:
            raise ConfigError(f"{name} must be {what}, got {getattr(self, name)!r}")

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def window_of(self, layer: int) -> int | None:
        """How far layer `layer` sees to each side; None: to the ends."""
        if self.local_window is None or (self.global_attention_every and layer % self.global_attention_every == 0):
            return None
        return self.local_window

    def replace(self, **changes: Any) -> Self:
        """A config that differs in the named fields. An unknown name is an error."""
        self._known(changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        cls._known(values)
        series = values.get("series")
        return cls(**values) if series is None else cls(**{**values, "series": SeriesConfig.from_dict(series)})

    @classmethod
    def _known(cls, values: Mapping[str, Any]) -> None:
        names = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                close = difflib.get_close_matches(name, names, 1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(names)}"
                raise ConfigError(f"{cls.__name__} has no field {name!r}{hint}")


@dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderConfig):
    """Classic BERT: learned positions, token types, post-norm, exact GELU, biases everywhere, a pooler."""

    family: str = "bert"
    type_vocab_size: int = 2
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    hidden_dropout: float = 0.1
    classifier_dropout: float = 0.1
    pooler: bool = True

    @classmethod
    def get_base_config(cls) -> BertConfig:
        return cls()

    @classmethod
    def get_large_config(cls) -> BertConfig:
        return cls(hidden_size=1_024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4_096)


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(EncoderConfig):
    """ModernBERT: rotary positions, pre-norm, GeGLU, no biases, two layers in three see a window of 128 tokens."""

    family: str = "modernbert"
    vocab_size: int = 50_368
    num_hidden_layers: int = 22
    intermediate_size: int = 1_152
    max_position_embeddings: int = 8_192
    pad_token_id: int | None = 50_283
    positions: str = "rotary"
    norm_position: str = "pre"
    skip_first_norm: bool = True
    final_norm: bool = True
    layer_norm_eps: float = 1e-5
    gated: bool = True
    attention_bias: bool = False
    ffn_bias: bool = False
    norm_bias: bool = False
    local_window: int | None = 64
    global_attention_every: int = 3
    initializer: str = "depth_scaled"
    head_bias: bool = False

    @classmethod
    def get_base_config(cls) -> ModernBertConfig:
        return cls()

    @classmethod
    def get_large_config(cls) -> ModernBertConfig:
        return cls(hidden_size=1_024, num_hidden_layers=28, num_attention_heads=16, intermediate_size=2_624)


MINI_BERT_CONFIG = BertConfig(
    vocab_size=8_192,
    hidden_size=192,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=768,
    max_position_embeddings=64,
    type_vocab_size=0,
    embedding_norm=False,
    final_norm=True,
    layer_norm_eps=1e-5,
    activation="relu",
    embedding_dropout=0.0,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    classifier_dropout=0.0,
    tie_word_embeddings=False,
    head_transform=False,
    pooler=False,
)

LARGER_BERT_CONFIG = MINI_BERT_CONFIG.replace(
    vocab_size=50_000,
    hidden_size=384,
    num_hidden_layers=6,
    num_attention_heads=8,
    intermediate_size=1_536,
    max_position_embeddings=128,
    embedding_dropout=0.1,
    attention_dropout=0.1,
    hidden_dropout=0.1,
    classifier_dropout=0.1,
    initializer="depth_scaled",
)

PRESETS: dict[str, EncoderConfig] = {
    "mini": MINI_BERT_CONFIG,
    "larger": LARGER_BERT_CONFIG,
    "bert-base": BertConfig.get_base_config(),
    "bert-large": BertConfig.get_large_config(),
    "modernbert-base": ModernBertConfig.get_base_config(),
    "modernbert-large": ModernBertConfig.get_large_config(),
}
