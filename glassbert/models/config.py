"""A config describes an encoder: which parts it is made of, and their sizes.

Every choice that distinguishes one member of the family from another is a field of `EncoderConfig`; nothing in the code
depends on the name of a family. A family member is a config class with other defaults (`glassbert.families`). Configs
are frozen; an unknown or impossible value is an error that names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import glassbert.layers  # noqa: F401  (fills the tables of parts)
from glassbert.errors import ConfigError
from glassbert.layers.registry import ATTENTIONS, BLOCKS, EMBEDDINGS, FEED_FORWARDS, POSITIONS
from glassbert.models.numbers import NumbersConfig
from glassbert.models.series import SeriesConfig
from glassbert.ops.registry import OPERATIONS, SUFFIX

CHOICES = {
    "initializer": ("normal", "truncated", "depth_scaled"),
    "classifier_pooling": ("cls", "mean", "max", "attention", "last", "flatten"),
    "generator_embeddings": ("shared", "disentangled"),
}
PARTS = {
    "embeddings": EMBEDDINGS,
    "positions": POSITIONS,
    "attention": ATTENTIONS,
    "feed_forward": FEED_FORWARDS,
    "norm_position": BLOCKS,
}
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "tanh")


def activations() -> tuple[str, ...]:
    """The operations that can serve as an activation: those of one array, ours first."""
    own = [name for name, function in OPERATIONS.items() if name not in ACTIVATIONS and _is_activation(name, function)]
    return (*ACTIVATIONS, *own)


def _is_activation(name: str, function: Any) -> bool:
    if function.__module__.startswith("glassbert.ops.") or name + SUFFIX not in OPERATIONS:
        return False
    parameters = inspect.signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in parameters) == 1


# The least and the largest sizes. What a file asks for is not allocated before it is checked.
SIZES = {
    "vocab_size": (1, 2**24),
    "hidden_size": (1, 2**20),
    "num_attention_heads": (1, 2**20),
    "intermediate_size": (1, 2**22),
    "max_position_embeddings": (1, 2**24),
    "num_hidden_layers": (0, 2**12),
    "type_vocab_size": (0, 2**20),
    "global_attention_every": (0, 2**12),
}


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


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
    sep_token_id: int | None = None  # the token between two texts, where an attention looks for it
    frozen_padding: bool = True  # lookups of pad_token_id give its embedding no gradient
    series: SeriesConfig | None = None  # windows of values take the place of token ids
    numbers: NumbersConfig | None = None  # numbers of a table beside the tokens

    embeddings: str = "tokens"
    embedding_size: int | None = None  # narrower embeddings, projected to hidden_size; None: hidden_size
    positions: str = "learned"
    position_offset: int = 0  # learned positions count real tokens from here; padding has the position before it
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    attention: str = "self"
    attention_scale: float | None = None  # of the scores; None: 1/√d
    feed_forward: str = "dense"
    layer_groups: int | None = None  # so many sets of parameters, shared by runs of layers; None: one for each layer
    mask_decoder: bool = False  # in masked language models the last layer runs twice and sees absolute positions
    norm_position: str = "post"
    embedding_norm: bool = True
    skip_first_norm: bool = False
    final_norm: bool = False
    layer_norm_eps: float = 1e-12
    activation: str = "gelu"
    attention_bias: bool = True
    ffn_bias: bool = True
    norm_bias: bool = True
    local_window: int | None = None
    global_attention_every: int = 1  # layers from the first without a window; 0: every layer has one
    causal: bool = False
    memory_length: int | None = None  # tokens that a pass keeps for the next one; None or 0: all

    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    ffn_dropout: float = 0.0
    pooler_dropout: float = 0.0  # before the pooler
    classifier_dropout: float = 0.0

    initializer: str = "normal"
    initializer_range: float = 0.02

    tie_word_embeddings: bool = True
    head_transform: bool = True
    head_bias: bool = True
    decoder_bias: bool = True
    pooler: bool = False
    pooler_activation: str = "tanh"
    pooler_of_head: bool = False  # the pooler belongs to heads: an encoder without a head has none
    classifier_pooling: str = "cls"
    classifier_transform: bool = False  # dense, activation and norm before the classifier
    sequence_bias: bool = True  # of the classifier of sequences
    span_dropout: bool = False  # whether a head for spans drops out

    generator_width: float = 0.25  # the generator of replaced-token detection, as shares of this encoder
    generator_depth: float = 1.0
    generator_embeddings: str = "shared"  # with the generator; "disentangled": no gradient of ours reaches its words
    discriminator_norm: bool = False  # a norm before the score of a discriminator
    teacher_size: int | None = None  # training only: hidden states are projected to this width, that of a teacher

    def __post_init__(self) -> None:
        for name, (low, high) in SIZES.items():
            value = getattr(self, name)
            self._require(_is_integer(value) and value >= low, name, f"an integer of at least {low}")
            self._require(value <= high, name, f"at most {high:,}")
        for name in ("embedding_dropout", "attention_dropout", "hidden_dropout", "ffn_dropout", "pooler_dropout",
                     "classifier_dropout"):  # fmt: skip
            self._require(_is_number(getattr(self, name)) and 0.0 <= getattr(self, name) < 1.0, name, "in [0, 1)")
        for name in ("generator_width", "generator_depth"):
            self._require(_is_number(getattr(self, name)) and 0.0 < getattr(self, name) <= 1.0, name, "in (0, 1]")
        for name in ("layer_norm_eps", "initializer_range", "global_rope_theta", "local_rope_theta"):
            self._require(_is_number(getattr(self, name)) and getattr(self, name) > 0, name, "a number above 0")
        choices: dict[str, Any] = {
            **CHOICES,
            **PARTS,
            **dict.fromkeys(("activation", "pooler_activation"), activations()),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if not (isinstance(value, str) and value in allowed):
                own = (
                    "" if name in CHOICES else "; a part of your own is loaded with --with FILE.py, or by importing it"
                )
                raise ConfigError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}{own}")
        for name, table in PARTS.items():  # a part may need other fields
            if hasattr(table[getattr(self, name)], "check_config"):
                table[getattr(self, name)].check_config(self)
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
                f"rotary positions rotate pairs of features, but a head has {self.head_size}, an odd number"
            )
        self._require(_is_integer(self.position_offset) and self.position_offset >= 0, "position_offset", "at least 0")
        if self.position_offset and not POSITIONS[self.positions].uses_table:
            raise ConfigError(
                f"position_offset counts rows of a table of positions, and positions={self.positions!r} has no table"
            )
        if self.position_offset >= self.max_position_embeddings:
            raise ConfigError(
                f"position_offset {self.position_offset} leaves no position of {self.max_position_embeddings}"
            )
        if self.embedding_size is not None:
            self._require(
                _is_integer(self.embedding_size) and 1 <= self.embedding_size <= 2**20,
                "embedding_size",
                "from 1 to 1,048,576, or None",
            )
            if self.series is not None and self.embedding_size != self.hidden_size:
                raise ConfigError("a series is projected to hidden_size directly; leave embedding_size out")
        if self.teacher_size is not None:
            self._require(
                _is_integer(self.teacher_size) and self.teacher_size >= 1, "teacher_size", "at least 1, or None"
            )
        if self.memory_length is not None:
            self._require(
                _is_integer(self.memory_length) and self.memory_length >= 0, "memory_length", "at least 0, or None"
            )
        if self.attention_scale is not None:
            self._require(_is_number(self.attention_scale), "attention_scale", "a number, or None")
        if self.layer_groups is not None:
            self._require(
                _is_integer(self.layer_groups) and 1 <= self.layer_groups <= max(1, self.num_hidden_layers),
                "layer_groups", f"between 1 and the {self.num_hidden_layers} layers, or None",
            )  # fmt: skip
            if self.skip_first_norm and self.layer_groups < self.num_hidden_layers:
                raise ConfigError("skip_first_norm gives the first layer other parameters, so no layer can share them")
        if self.mask_decoder and (self.num_hidden_layers == 0 or self.layer_groups is not None):
            raise ConfigError("mask_decoder runs the last layer twice, so it needs a layer that shares no parameters")
        if self.local_window is not None:
            self._require(
                _is_integer(self.local_window) and self.local_window >= 1, "local_window", "at least 1, or None"
            )
        elif self.global_attention_every != 1:
            raise ConfigError("global_attention_every other than 1 makes layers local, which needs a local_window")
        if self.pad_token_id is not None and not (
            _is_integer(self.pad_token_id) and 0 <= self.pad_token_id < self.vocab_size
        ):
            raise ConfigError(f"pad_token_id {self.pad_token_id} is no id of a vocabulary of {self.vocab_size}")
        if self.sep_token_id is not None and not (
            _is_integer(self.sep_token_id) and 0 <= self.sep_token_id < self.vocab_size
        ):
            raise ConfigError(f"sep_token_id {self.sep_token_id} is no id of a vocabulary of {self.vocab_size}")
        if (self.series is not None) != (self.embeddings == "values"):
            raise ConfigError(
                'embeddings="values" read a series, so both are set or neither; with_series(config, series) sets both'
            )
        if (self.numbers is not None) != (self.embeddings == "numbers"):
            raise ConfigError('embeddings="numbers" read the numbers of a table, so both are set or neither')
        if self.series is not None:
            self._require(isinstance(self.series, SeriesConfig), "series", "a SeriesConfig, or None")
            if self.series.tokens > self.max_position_embeddings:
                raise ConfigError(
                    f"a window of {self.series.tokens} patches is longer than the {self.max_position_embeddings} "
                    "positions of this encoder; with_series(config, series) makes a fitting config"
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

    @property
    def embedding_width(self) -> int:
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def gated(self) -> bool:
        return self.feed_forward == "gated"

    @property
    def max_length(self) -> int:
        """The longest sequence: tables of positions may begin later than at 0."""
        return self.max_position_embeddings - self.position_offset

    def generator(self) -> Self:
        """The config of the generator of replaced-token detection. Its heads are as wide as ours."""
        heads = max(1, round(self.generator_width * self.num_attention_heads))
        return self.replace(
            hidden_size=heads * self.head_size,
            embedding_size=self.embedding_width,
            num_attention_heads=heads,
            intermediate_size=max(1, round(self.generator_width * self.intermediate_size)),
            num_hidden_layers=max(1, round(self.generator_depth * self.num_hidden_layers)),
            layer_groups=None if self.layer_groups is None else 1,
            tie_word_embeddings=True,
            head_transform=True,
        )

    @property
    def groups(self) -> int:
        """The number of sets of layer parameters."""
        return self.num_hidden_layers if self.layer_groups is None else min(self.layer_groups, self.num_hidden_layers)

    def group_of(self, layer: int) -> int:
        """The group of layers with whose parameters this layer computes."""
        groups = self.num_hidden_layers if self.layer_groups is None else self.layer_groups
        return layer * groups // max(1, self.num_hidden_layers)

    def layer_of_group(self, group: int) -> int:
        """The first layer of a group."""
        return next(i for i in range(self.num_hidden_layers) if self.group_of(i) == group)

    def first_of_group(self, layer: int) -> bool:
        return layer == 0 or self.group_of(layer) != self.group_of(layer - 1)

    def window_of(self, layer: int) -> int | None:
        """How far the attention of this layer reaches to each side; None: to the ends."""
        if self.local_window is None or (self.global_attention_every and layer % self.global_attention_every == 0):
            return None
        return self.local_window

    def replace(self, **changes: Any) -> Self:
        """A config that differs in the named fields. An unknown name is an error."""
        changes = renamed(changes)
        self._known(changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        values = renamed(values)
        cls._known(values)
        for name, read, part in (("series", SeriesConfig, "values"), ("numbers", NumbersConfig, "numbers")):
            if values.get(name) is not None:
                values = {"embeddings": part, **values, name: read.from_dict(values[name])}
        return cls(**values)

    @classmethod
    def _known(cls, values: Mapping[str, Any]) -> None:
        names = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                close = difflib.get_close_matches(name, names, 1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(names)}"
                raise ConfigError(f"{cls.__name__} has no field {name!r}{hint}")


def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of older files under their present names."""
    values = dict(values)
    if isinstance(values.get("gated"), bool):
        values["feed_forward"] = "gated" if values.pop("gated") else "dense"
    return values
