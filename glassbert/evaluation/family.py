"""The members of the family beside BERT: parameters, FLOPs a token, memory, and what differs.

Everything is read from the registered families and their configs, so that a new member appears without a change here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glassbert.checkpoints.family import FAMILIES, Family, family_name
from glassbert.errors import ConfigError
from glassbert.families.factory import default_config
from glassbert.layers.registry import unknown
from glassbert.models.config import EncoderConfig
from glassbert.models.flops import training_flops
from glassbert.models.memory import training_numbers
from glassbert.models.model import Model
from glassbert.training.objectives import Objectives

BATCH, LENGTH, MASKED = 32, 128, 0.15  # the training step whose cost is shown
FLOAT32 = 4
COPIES = 4  # weights, gradients and the two moments of AdamW
REFERENCE = "bert"  # the member that the others are compared with


@dataclass(frozen=True)
class Size:
    """One size of a member with the head that it is pretrained with."""

    preset: str
    parameters: int
    flops_per_token: float  # of training
    memory: int  # bytes of a training step of BATCH · LENGTH tokens in float32, with AdamW

    @classmethod
    def of(cls, preset: str, config: EncoderConfig, head: str) -> Size:
        model = Model(config, head, engine="numpy", threads=1, initialize=False)
        length = min(LENGTH, config.max_length)
        rows = BATCH * LENGTH // length
        tokens, weights = rows * length, model.get_parameter_count()
        flops = training_flops(config, rows, length, head=head, scored_rows=round(tokens * MASKED))
        memory = FLOAT32 * (COPIES * weights + training_numbers(config, rows, length, head))
        return cls(preset, weights, flops / tokens, round(memory))


@dataclass(frozen=True)
class Member:
    """A registered family, with its base size and its Mini size."""

    family: Family
    base: Size
    mini: Size

    @property
    def name(self) -> str:
        return self.family.name

    @property
    def title(self) -> str:
        return self.family.title or self.family.name

    @property
    def head(self) -> str:
        return Objectives.parse(self.family.objective).head_type


def members() -> list[Member]:
    """Every registered family that describes itself, BERT first."""
    found = [member(name) for name, family in FAMILIES.items() if family.mini]
    return sorted(found, key=lambda one: one.name != REFERENCE)


def member(name: str) -> Member:
    """One member, by its name or its title."""
    family = find(name)
    head = Objectives.parse(family.objective).head_type
    config = default_config(family.name)
    preset = next((preset for preset, one in family.presets.items() if one == config), "")
    return Member(family, Size.of(preset, config, head), Size.of(family.mini, family.presets[family.mini], head))


def find(name: str) -> Family:
    described = {family.name: family for family in FAMILIES.values() if family.mini}
    found = described.get(family_name(name))
    if found is None:
        raise ConfigError(unknown("member of the family", name, described))
    return found


def as_dict(one: Member) -> dict[str, Any]:
    """The member as JSON values."""
    sizes = {kind: vars(size) for kind, size in (("base", one.base), ("mini", one.mini))}
    return {
        "name": one.name,
        "title": one.title,
        "paper": one.family.paper,
        "objective": one.family.objective,
        "tokenizer": one.family.tokenizer,
        "differences": dict(one.family.differences),
        "formulas": one.family.formulas,
        "presets": list(one.family.presets),
        **sizes,
    }


# ---- the scheme of a member: what it is made of, in words ------------------------------------------------------------


def scheme(family: Family) -> dict[str, str]:
    """The parts of the Mini size from the input to the output, in a few words each."""
    config = family.presets[family.mini]
    return {
        "tokenizer": {"bpe": "byte-level BPE", "unigram": "Unigram", "wordpiece": "WordPiece"}.get(
            family.tokenizer, family.tokenizer
        ),
        "embeddings": _embeddings(config),
        "positions": config.positions + (", from pad + 1" if config.position_offset else ""),
        "attention": _attention(config),
        "feed-forward": f"{config.feed_forward}, {config.activation}",
        "norms": f"{config.norm_position.partition('_')[0]}-norm",
        "layers": "one set of parameters" if config.layer_groups == 1 else "own parameters each",
        "pretraining": family.objective,
    }


def reference_scheme() -> Mapping[str, str]:
    """BERT as it was published: Mini-BERT leaves out token types and has a ReLU."""
    bert = FAMILIES[REFERENCE]
    whole = {**bert.presets, bert.mini: default_config(REFERENCE)}
    return {**scheme(Family(REFERENCE, bert.config_class, presets=whole, mini=bert.mini)), "pretraining": "mlm+nsp"}


def _embeddings(config: EncoderConfig) -> str:
    width = "narrow, projected" if config.embedding_width < config.hidden_size else "as wide as the layers"
    return width + (f", {config.type_vocab_size} types" if config.type_vocab_size > 1 else "")


def _attention(config: EncoderConfig) -> str:
    reach = "earlier tokens" if config.causal else "all tokens"
    if config.local_window is not None:
        reach = "near tokens, some layers all" if config.global_attention_every > 1 else "near tokens"
    return reach if config.attention == "self" else f"{config.attention}, {reach}"
