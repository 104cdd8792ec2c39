"""Replaced-token detection: a generator and a discriminator in one model (ELECTRA, DeBERTa v3).

The encoder of the model is the discriminator. This head holds its score of every token, and a whole generator: a
smaller encoder with a masked-language head, whose parameters have the names of a model of its own behind
`head.generator.`.

    shared embeddings          both encoders look words, positions and types up in the same tables
    disentangled embeddings    E_discriminator = stop_gradient(E_generator) + Δ; only words, each has the rest to itself

Shared means that both losses move the tables. With Δ, `embeddings.difference`, the discriminator's gradient goes to Δ
alone, so that it does not pull at what the generator has learned.

`glassbert.training.objectives.rtd` trains the two; `finished` gives the two models that are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.errors import ConfigError, InputError
from glassbert.layers.scope import Parameter, Scope, with_prefix
from glassbert.models.config import EncoderConfig
from glassbert.models.encoder import Encoder
from glassbert.models.heads.discriminator import DiscriminatorHead
from glassbert.models.heads.head import Head, HeadPart
from glassbert.models.heads.mlm import MaskedLanguageHead

GENERATOR = "generator"
PREFIX = f"head.{GENERATOR}."
WORDS, DIFFERENCE = "embeddings.token", "embeddings.difference"


class ReplacedTokenHead(Head):
    """The score of the discriminator, and a generator. The output is that of the discriminator."""

    kind = "rtd"
    losses = ("binary_cross_entropy",)
    scores_tokens = True
    head_of_generator = MaskedLanguageHead.kind

    def __init__(
        self,
        config: EncoderConfig,
        num_labels: int = 0,
        loss: str | None = None,
        loss_options: Mapping[str, Any] | None = None,
    ):
        super().__init__(config, num_labels, loss, loss_options)
        if config.series is not None:
            raise ConfigError("replaced-token detection replaces words, and this encoder reads a series")
        self.discriminator = DiscriminatorHead(config)
        self.parts = {self.kind: HeadPart(self.discriminator, "")}
        self.generator_config = config.generator()
        self.generator_head = MaskedLanguageHead(self.generator_config)
        self.disentangled = config.generator_embeddings == "disentangled"
        names = [parameter.name for parameter in Encoder(self.generator_config).parameters()]
        own = ("embeddings.projection.",)
        shared = [n for n in names if n == WORDS or (not self.disentangled and n.startswith("embeddings."))]
        aliases = {PREFIX + name: name for name in shared if not name.startswith(own)}
        self.generator = Encoder(self.generator_config, PREFIX, aliases, decodes=True)
        self.encoder_aliases = {WORDS: DIFFERENCE} if self.disentangled else {}  # type: ignore[misc]

    def parameters(self) -> list[Parameter]:
        inside = [p for p in self.generator.parameters() if p.name not in self.generator.aliases]
        inside = [p._replace(name=p.name.removeprefix("head.")) for p in inside]
        head = with_prefix(f"{GENERATOR}.head", self.generator_head.parameters())
        return [*self.discriminator.parameters(), *inside, *head]

    def encoder_parameters(self) -> list[Parameter]:
        shape = self.config.vocab_size, self.config.embedding_width
        return [Parameter(DIFFERENCE, shape, "zeros")] if self.disentangled else []

    def encoders(self) -> list[Encoder]:
        return [self.generator]

    def computing(self, parameters: Mapping[str, Array]) -> Mapping[str, Array]:
        """With disentangled embeddings Δ becomes the table of the discriminator; its gradient is that of Δ."""
        if not self.disentangled:
            return parameters
        return {**parameters, DIFFERENCE: parameters[WORDS] + parameters[DIFFERENCE]}

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        raise InputError(
            "a model with the head 'rtd' is trained by the objective 'rtd', which makes its own labels; use "
            "TrainingStep(model, ...), or the head 'discriminator' for labels of your own"
        )

    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        return self.discriminator.forward(hidden, batch, scope)

    def backward(self, doutput: Array, scope: Scope) -> Array:
        return self.discriminator.backward(doutput, scope)

    @classmethod
    def flops(
        cls, config: EncoderConfig, batch: int, length: int, num_labels: int = 0, scored_rows: int | None = None
    ) -> dict[str, int]:
        """Of the discriminator; the generator is counted as a model of its own."""
        return DiscriminatorHead.flops(config, batch, length)

    def finished(self, model: Any) -> dict[str, Any]:
        """The discriminator, with Δ added to its words, and the generator; both with weights of their own."""
        from glassbert.models.model import Model

        engine = model.engine
        weights = {name: engine.to_numpy(array) for name, array in model.parameters.items()}
        discriminator = Model(self.config, DiscriminatorHead.kind, engine=engine, initialize=False)
        generator = Model(self.generator_config, MaskedLanguageHead.kind, engine=engine, initialize=False)
        for name in discriminator.parameters:
            values = weights[name] + weights[DIFFERENCE] if name == WORDS and self.disentangled else weights[name]
            discriminator.parameters[name] = engine.array(np.array(values))
        for name in generator.parameters:
            inside = PREFIX + name
            generator.parameters[name] = engine.array(np.array(weights[self.generator.aliases.get(inside, inside)]))
        for kept in (discriminator, generator):
            kept.carried_fields = model.carried_fields
        return {"": discriminator, GENERATOR: generator}

    def take(self, model: Any, parts: Mapping[str, Any]) -> None:
        """Give `model` the weights of a discriminator and a generator, as `finished` returns them."""
        discriminator, generator = parts[""].parameters, parts[GENERATOR].parameters
        for name, array in generator.items():
            inside = PREFIX + name
            model.parameters[self.generator.aliases.get(inside, inside)] = array
        for name, array in discriminator.items():
            if name == WORDS and self.disentangled:
                model.parameters[DIFFERENCE] = array - generator[WORDS]
            else:
                model.parameters[name] = array
