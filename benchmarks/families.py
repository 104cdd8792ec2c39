"""The table of families for `benchmarks.train_step --family`: each member and its class in transformers, as data.

A row names a preset, our head and the class of transformers that computes the same. The config of that class is what
our model writes as its config.json. A new member is a new row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.peers import TorchTrainer
from glassbert.checkpoints.description import describe
from glassbert.checkpoints.family import PRESETS
from glassbert.checkpoints.formats import format_of_model
from glassbert.layers.two_streams import ORDER, predicted_positions
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model
from glassbert.ops import IGNORED


@dataclass(frozen=True)
class Row:
    """What is trained on both sides.

    changes    fields of the config that transformers does not have, set to what it computes
    generator  the class of a generator that is trained together with the model (replaced-token detection)
    labels     "masked": the masked tokens; "all": every token, for models of the next token; "permuted": the masked
               tokens in an order, each from the given ones and from those before it
    aim        how many times faster we mean to be
    """

    preset: str
    theirs: str
    head: str = "mlm"
    changes: Mapping[str, Any] = field(default_factory=dict)
    generator: str = ""
    labels: str = "masked"
    batch: int = 32
    length: int = 64
    steps: int = 3  # in a round
    aim: float = 1.5

    @property
    def config(self) -> EncoderConfig:
        return PRESETS[self.preset].replace(**self.changes)


ROWS: dict[str, Row] = {
    "roberta": Row("roberta-mini", "RobertaForMaskedLM"),
    "distilbert": Row("distilbert-mini", "DistilBertForMaskedLM"),
    "albert": Row("albert-mini", "AlbertForMaskedLM"),
    "modernbert": Row("modernbert-mini", "ModernBertForMaskedLM"),
    "electra": Row("electra-mini", "ElectraForPreTraining", "rtd", generator="ElectraForMaskedLM", aim=2.0),
    "deberta": Row("deberta-mini", "DebertaV2ForMaskedLM", changes={"mask_decoder": False}),
    "gpt2": Row("gpt2-mini", "GPT2LMHeadModel", "causal", labels="all"),
    "xlnet": Row("xlnet-mini", "XLNetLMHeadModel", labels="permuted"),
    "longformer": Row("longformer-mini", "LongformerForMaskedLM", batch=4, length=512),
    "mpnet": Row("mpnet-mini", "MPNetForMaskedLM"),
}


def torch_model(config: EncoderConfig, head: str, name: str) -> Any:
    """The class of transformers with the config that our model writes, and random weights."""
    import torch
    import transformers

    described = describe(Model(config, head, engine="numpy", initialize=False))
    model = Model(config, head, engine="numpy", initialize=False)
    file_format, obstacles = format_of_model(described, list(model.layout.shapes))
    if obstacles:
        raise ValueError(f"transformers has no such model: {'; '.join(obstacles)}")
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    return kind(kind.config_class.from_dict(file_format.write(described)))


class FamilyTrainer(TorchTrainer):
    """The training step of a row on PyTorch: forward, backward, clip at 1, AdamW."""

    def __init__(self, row: Row):
        import torch

        self.torch, self.device, self.bfloat16 = torch, "cpu", False
        self.row, self.fused, self.optimizer = row, False, None
        if row.generator:
            self.model = torch.nn.ModuleDict(
                {
                    "generator": torch_model(row.config.generator(), "mlm", row.generator),
                    "discriminator": torch_model(row.config, "discriminator", row.theirs),
                }
            )
            share_embeddings(self.model["generator"], self.model["discriminator"])
            self.loss = replaced_tokens_loss
        else:
            self.model = torch_model(row.config, row.head, row.theirs)
            self.loss = lambda model, ids, more: model(input_ids=ids, **more).loss
        self.model.train()
        self.parameters = list(self.model.parameters())


def share_embeddings(generator: Any, discriminator: Any) -> None:
    """Both look words, positions and types up in the same tables, and score words with them."""
    first, second = generator.base_model, discriminator.base_model
    first.embeddings = second.embeddings
    generator.tie_weights()


def replaced_tokens_loss(models: Any, ids: Any, more: Mapping[str, Any]) -> Any:
    """generator + 50 · discriminator, with the loss of each class and samples of the generator's scores."""
    import torch

    labels = more["labels"]
    words = models["generator"](input_ids=ids, labels=labels)
    masked = labels != IGNORED
    with torch.no_grad():
        samples = torch.distributions.Categorical(logits=words.logits[masked]).sample()
    originals = torch.where(masked, labels, ids)
    corrupted = ids.masked_scatter(masked, samples)
    found = models["discriminator"](input_ids=corrupted, labels=(corrupted != originals).long())
    return words.loss + 50 * found.loss


def inputs_of(row: Row, ids: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The arguments of our training step from a masked batch."""
    if row.labels == "masked":
        return {"input_ids": ids, "labels": labels}
    originals = np.where(labels == IGNORED, ids, labels)
    if row.labels == "all":
        return {"input_ids": originals, "labels": originals}
    masked = labels != IGNORED
    return {"input_ids": originals, "labels": labels, ORDER: np.where(masked, np.cumsum(masked, 1), 0)}


def their_inputs(inputs: dict[str, np.ndarray]) -> tuple[Any, dict[str, Any]]:
    """The ids and the other arguments of the class of transformers, as tensors."""
    import torch

    ids, labels = inputs["input_ids"], inputs["labels"]
    if ORDER not in inputs:
        return torch.from_numpy(ids), {"labels": torch.from_numpy(labels)}
    order = inputs[ORDER]
    positions = predicted_positions(order)  # [B, P]; -1: no token
    hidden = order[:, None, :] >= np.maximum(order, 1)[:, :, None]  # [B, T, T]: row i does not see column j
    at = np.maximum(positions, 0)
    given = {
        "perm_mask": hidden.astype(np.float32),
        "target_mapping": np.eye(ids.shape[1], dtype=np.float32)[at],  # [B, P, T]
        "labels": np.where(positions >= 0, np.take_along_axis(labels, at, 1), IGNORED),
    }
    return torch.from_numpy(ids), {name: torch.from_numpy(value) for name, value in given.items()}
