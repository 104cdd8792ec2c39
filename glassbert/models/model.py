"""Models: an encoder, perhaps with a head, its parameters, and the engine that computes.

output, cache = model.forward(input_ids, attention_mask)
loss, cache = model.loss(input_ids, labels, attention_mask)
gradients = model.backward(cache)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.engines import get_engine
from glassbert.engines.namespace import Array
from glassbert.engines.parameters import FlatGradients, Gradients, Layout, ShardGradients
from glassbert.engines.threads import run_together, using_threads
from glassbert.errors import InputError
from glassbert.layers.parameters import inside
from glassbert.layers.scope import Cache, Forgetful, Scope
from glassbert.models.cache import ModelCache, Part
from glassbert.models.config import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, BertConfig, EncoderConfig, ModernBertConfig
from glassbert.models.encoder import (
    Batch,
    Finished,
    angles_for,
    backward_order,
    encode,
    encode_backward,
    encoder_parameters,
    no_matter,
)
from glassbert.models.heads import Head, make_head, pad_rows, pooler, pooler_parameters
from glassbert.models.initialize import initial_values
from glassbert.models.inputs import check_inputs, shape_of
from glassbert.models.memory import activation_numbers
from glassbert.models.padding import pack, unpack
from glassbert.models.pouring import Pouring

KEPT_BY_FORWARD = 2 * 2**30  # bytes; a longer pass keeps the inputs of its blocks and computes the rest on demand
DRAWN: Any = object()  # for `source`: draw new masks
TABLES_TOUCHED_IN_ROWS = ("embeddings.token", "embeddings.position")


class Layer:
    """A view of one block: its parameters by their short names."""

    def __init__(self, model: Model, index: int):
        self.index = index
        self._parameters, self._prefix = model.parameters, f"layers.{index}."

    @property
    def parameters(self) -> dict[str, Array]:
        return {k.removeprefix(self._prefix): v for k, v in self._parameters.items() if k.startswith(self._prefix)}

    def __repr__(self) -> str:
        return f"Layer({self.index}: {', '.join(self.parameters)})"


class Model:
    """An encoder and, if asked, a head. `BertCore`, `ModernBertCore` and `BertWithHead` are its public names."""

    def __init__(
        self,
        config: EncoderConfig,
        head: str | None = None,
        num_labels: int = 0,
        *,
        loss: str | None = None,
        loss_options: Mapping[str, Any] | None = None,
        engine: Any = "auto",
        dtype: str = "float32",
        threads: int | None = None,
        seed: int = 0,
        initialize: bool = True,
    ):
        self.config = config
        self.engine = get_engine(engine, dtype, threads)
        self.head: Head | None = None if head is None else make_head(head, config, num_labels, loss, loss_options)
        self.training = False
        self.checkpointing = False
        self.dropout_seed = seed
        self.carried_fields: dict[str, Any] = {}  # label names and the like of a loaded checkpoint, saved with it again
        self.specification = self._specification()
        self.layout = Layout({parameter.name: parameter.shape for parameter in self.specification})
        self.parameters = self.engine.parameters(self.layout)
        self._shard_gradients: list[ShardGradients] = []
        if initialize:
            for name, values in initial_values(self.specification, config, seed):
                self.parameters[name] = self.engine.array(values)

    def _specification(self) -> list[Any]:
        parameters = encoder_parameters(self.config)
        if self.config.pooler and (self.head is None or self.head.pools):
            parameters += pooler_parameters(self.config)
        if self.head is not None:
            parameters += inside("head", self.head.parameters())
        return parameters

    def computing(self, parameters: Mapping[str, Array]) -> Mapping[str, Array]:
        """What encoder and head compute with: the parameters, in the precision of the arithmetic."""
        return self.engine.for_computing(parameters)

    def new_gradients(self) -> Gradients:
        """A place for the gradients of the parameters."""
        return self.engine.gradients(self.layout)

    # ---- forward ----------------------------------------------------------------------------------------------

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        trace: bool = False,
        *,
        segment_ids: Any = None,
        position_ids: Any = None,
        skip_padding: bool = False,
    ) -> tuple[Array, ModelCache]:
        """Hidden states [B, T, H], or the head's output, and the cache of everything in between.

        `input_ids` [B, T]; a model of series takes windows of values [B, W] in their place, here and everywhere.
        `segment_ids` (documents from 1, padding 0) keeps packed documents apart. With `skip_padding` nothing is
        computed for padding, whose hidden states are then zeros (where dropout is off). `trace` keeps every
        intermediate value. Without it, a pass that would keep more than 2 GiB keeps the inputs of its blocks, and
        computes the rest when asked.
        """
        checked = check_inputs(self.config, input_ids, attention_mask, token_type_ids, segment_ids, position_ids)
        with using_threads(self.engine.threads):
            hidden, cache = self.run_encoder(
                checked, Cache(trace), skip_padding, self._too_much_to_keep(checked, trace)
            )
            output = hidden if self.head is None else self._head_forward(hidden, checked, cache)
        cache.output_shape = _shape(output)
        if self.head is None and self.config.pooler:
            scope = Scope(cache.parameters, Cache())
            cache.head.promise("pooler.output", lambda: pooler(hidden[:, 0], scope))
        return output, cache

    def predict(
        self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None, *, skip_padding: bool = True
    ) -> Array:
        """The output alone, as fast as can be: nothing is kept for backward, nothing is computed for padding."""
        checked = check_inputs(self.config, input_ids, attention_mask, token_type_ids)
        with using_threads(self.engine.threads):
            hidden, cache = self.run_encoder(checked, Forgetful(), skip_padding)
            return hidden if self.head is None else self._head_forward(hidden, checked, cache)

    def loss(
        self,
        input_ids: Any,
        labels: Any,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        trace: bool = False,
        *,
        segment_ids: Any = None,
        position_ids: Any = None,
        pair_labels: Any = None,
        skip_padding: bool = False,
    ) -> tuple[Array, ModelCache]:
        """The head's loss, averaged over the labels that are not -100, and the cache for `backward`.

        A pretraining head also takes `pair_labels` [B]: 0 where the two sentences of a row belong together.
        """
        if self.head is None:
            raise InputError("this model has no head, so it has no loss; BertWithHead(config, head_type=...) has one")
        checked: Any = check_inputs(self.config, input_ids, attention_mask, token_type_ids, segment_ids, position_ids)
        prepared = self.head.prepare({"labels": labels, "pair_labels": pair_labels}, shape_of(checked))
        answers = self.on_engine(pad_rows(prepared) if self.engine.compiles else prepared)
        with using_threads(self.engine.threads):
            hidden, cache = self.run_encoder(checked, Cache(trace), skip_padding)
            cache.has_loss = True
            at = Scope(cache.parameters, cache.head).inside("head")
            return self.head.answer(hidden, self.for_head(checked), answers, at, cache.parts[0].source), cache

    def on_engine(self, prepared: Mapping[str, np.ndarray]) -> dict[str, Array]:
        """Prepared labels as arrays of the engine."""
        engine = self.engine
        return {k: (engine.array if v.dtype.kind == "f" else engine.integers)(v) for k, v in prepared.items()}

    def for_head(self, checked: dict[str, Any]) -> Array | None:
        """What the head is told besides hidden states: which tokens are real, or the windows of a series."""
        assert self.head is not None
        given = checked[self.head.told]
        return None if given is None else self.on_engine({"told": given})["told"]

    def _too_much_to_keep(self, checked: dict[str, Any], trace: bool) -> bool:
        """Whether a forward pass that nobody may follow up keeps only the inputs of its blocks."""
        batch, length = shape_of(checked)
        numbers = activation_numbers(self.config, batch, length, head=None)
        size = 8 if self.engine.dtype_name == "float64" else 4
        return self.checkpointing or (not trace and size * sum(numbers.values()) > KEPT_BY_FORWARD)

    def run_encoder(
        self,
        checked: dict[str, Any],
        head_cache: Cache,
        skip_padding: bool = False,
        checkpointing: bool | None = None,
        source: Any = DRAWN,
    ) -> tuple[Array, ModelCache]:
        """Hidden states of checked inputs, spread over threads. Masks of dropout are drawn, or come from `source`."""
        checkpointing = self.checkpointing if checkpointing is None else checkpointing
        source = self.draw_dropout() if source is DRAWN else source
        parameters = self.computing(self.parameters)
        parts = self._parts(checked, head_cache.like, skip_padding, source)
        batch, length = shape_of(checked)
        shape = (batch, length, self.config.hidden_size)

        def work(part: Part) -> Array:
            hidden = encode(parameters, self.config, part.batch, part.cache, part.source, checkpointing)
            return (
                hidden if part.index is None else unpack(hidden, part.index, (part.rows.stop - part.rows.start, length))
            )

        pieces = run_together(work, parts)
        hidden = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return hidden, ModelCache(parts, head_cache, parameters, shape, checkpointing)

    def _parts(
        self, checked: dict[str, Any], new_cache: Callable[[], Cache], skip_padding: bool, source: Any
    ) -> list[Part]:
        # Dropout masks belong to a token's place in its own row, which a packed row forgets.
        packed = skip_padding and source is None and checked["mask"] is not None and self.engine.name == "numpy"
        tokens = checked["mask"].sum(1) if packed else None
        whole = self.batch_of(checked)
        parts = []
        for rows in self.engine.split(shape_of(checked)[0], tokens):
            drawn = source.from_row(rows.start) if source is not None else None
            if packed and checked["mask"][rows].any():
                cut = {k: (v[rows] if v is not None and v.shape[0] > 1 else v) for k, v in checked.items()}
                packed_row, index = pack(cut)
                parts.append(Part(rows, self.batch_of(packed_row), new_cache(), drawn, index))
            else:
                parts.append(Part(rows, whole.rows(rows), new_cache(), drawn))
        return parts

    def batch_of(self, checked: dict[str, Any]) -> Batch:
        engine = self.engine
        given = self.on_engine({k: v for k, v in checked.items() if v is not None})
        host = np.dtype("float64" if engine.dtype_name == "float64" else "float32")
        angles = angles_for(checked["positions"], self.config, host)
        if angles is not None:
            angles = tuple((engine.array(cos), engine.array(sin)) for cos, sin in angles)  # type: ignore[assignment]
        return Batch(**given, angles=angles)

    def _head_forward(self, hidden: Array, checked: dict[str, Any], cache: ModelCache) -> Array:
        assert self.head is not None
        at = Scope(cache.parameters, cache.head).inside("head")
        return self.head.forward(hidden, self.for_head(checked), at, cache.parts[0].source)

    def draw_dropout(self) -> Any:
        """Masks for this pass; every pass in training draws new ones."""
        if not self.training:
            return None
        self.dropout_seed += 1
        return self.engine.dropout(self.dropout_seed)

    # ---- backward ---------------------------------------------------------------------------------------------

    def backward(self, cache: ModelCache, d_output: Any = None, into: Gradients | None = None) -> Gradients:
        """Gradients by the name of their parameter: of the loss, or of `d_output · output` after `forward`.

        `into` may name gradients of an earlier step, whose memory is then used again.
        """
        if d_output is None and not cache.has_loss:
            raise InputError(
                "this cache comes from forward(); say where the gradient begins: backward(cache, d_output)"
            )
        if d_output is not None and _shape(d_output) != cache.output_shape:
            raise InputError(
                f"d_output must have the shape of the output, {_in_words(cache.output_shape)}, "
                f"got {_in_words(_shape(d_output))}"
            )
        gradients = into if into is not None else self.new_gradients()
        if into is not None:
            into.clear()
        with using_threads(self.engine.threads):
            dhidden = self._head_backward(cache, d_output, gradients)
            self.run_encoder_backward(dhidden.reshape(cache.hidden_shape), cache, gradients)
        gradients.finish()
        return gradients

    def _head_backward(self, cache: ModelCache, d_output: Any, gradients: Gradients) -> Array:
        if self.head is None:
            return self.engine.array(d_output)
        scope = Scope(cache.parameters, cache.head, gradients).inside("head")
        if cache.has_loss:
            return self.head.answer_backward(self.engine.array(1.0 if d_output is None else d_output), scope)
        if isinstance(d_output, Mapping):
            return self.head.backward({part: self.engine.array(d) for part, d in d_output.items()}, scope)
        return self.head.backward(self.engine.array(d_output), scope)

    def run_encoder_backward(
        self, dhidden: Array, cache: ModelCache, gradients: Gradients, finished: Finished = no_matter
    ) -> None:
        """`finished` hears the name of every layer whose gradients are complete, while backward goes on."""
        parts = cache.parts
        shards = self._shards(len(parts) - 1)
        for shard in shards:
            shard.learn_only(gradients.learning)
        told = finished
        if isinstance(gradients, FlatGradients) and shards:
            told = Pouring(gradients, shards, backward_order(self.config), finished)

        def work(pair: tuple[Part, Gradients]) -> None:
            part, shard = pair
            dx = dhidden[part.rows] if len(parts) > 1 else dhidden
            if part.index is not None:
                dx = dx.reshape(-1, dx.shape[-1])[part.index][None]
            encode_backward(
                dx, cache.parameters, self.config, part.batch, part.cache, shard, part.source, cache.checkpointing, told
            )

        run_together(work, list(zip(parts, [gradients, *shards], strict=True)))

    def _shards(self, count: int) -> list[ShardGradients]:
        """Gradients for the threads beside the first; kept from step to step."""
        while len(self._shard_gradients) < count:
            self._shard_gradients.append(self._new_shard())
        shards = self._shard_gradients[:count]
        for shard in shards:
            shard.clear()
        return shards

    def _new_shard(self) -> ShardGradients:
        names = [p.name for p in encoder_parameters(self.config) if p.name not in TABLES_TOUCHED_IN_ROWS]
        return ShardGradients(Layout({name: self.layout.shapes[name] for name in names}), self.engine.dtype)

    # ---- everything else --------------------------------------------------------------------------------------

    def set_training(self, flag: bool = True) -> None:
        """In training dropout is on."""
        self.training = bool(flag)

    def set_checkpointing(self, flag: bool = True) -> None:
        """Keep only the input of every block and run the block again in backward: less memory, a third more time."""
        self.checkpointing = bool(flag)

    def untrained(self, seed: int = 0) -> Model:
        """The same model before its first step, on the same engine."""
        head = self.head
        if head is None:
            return Model(self.config, engine=self.engine, seed=seed)
        labels = head.num_labels if head.labelled else 0
        return Model(
            self.config, head.kind, labels, loss=head.loss_name, loss_options=head.loss_options.to_dict(),
            engine=self.engine, seed=seed,
        )  # fmt: skip

    def get_parameter_count(self) -> int:
        return sum(int(np.prod(shape, dtype=np.int64)) for shape in self.layout.shapes.values())

    @property
    def token_embeddings(self) -> Array:
        return self.parameters["embeddings.token"]

    @property
    def position_embeddings(self) -> Array | None:
        return self.parameters.get("embeddings.position")

    @property
    def layers(self) -> list[Layer]:
        return [Layer(self, i) for i in range(self.config.num_hidden_layers)]

    def to_huggingface(self, tensors: Mapping[str, Array] | None = None) -> dict[str, np.ndarray]:
        """The weights, or the given gradients, under Hugging Face's names and in its layout."""
        from glassbert.checkpoints import to_huggingface

        return to_huggingface(self, tensors)

    def save(self, folder: str | Path, **options: Any) -> None:
        """Write safetensors and config.json, in Hugging Face's layout where it has one for this model.

        labels     names for the outputs of a head, for whoever opens the model
        tokenizer  a tokenizer whose files travel along
        """
        from glassbert.checkpoints import save_model

        save_model(self, folder, **options)

    def load_checkpoint(self, folder: str | Path) -> None:
        """Take the weights of a saved model of the same config; nothing changes unless all of them fit."""
        from glassbert.checkpoints import load_weights

        load_weights(self, folder)

    def describe(self, batch_size: int = 32, length: int | None = None) -> str:
        """Print and return a table of parameters, shapes, memory and FLOPs, computed from the config."""
        from glassbert.models.describe import describe

        return describe(self, batch_size, length)

    def __repr__(self) -> str:
        head = f", head={self.head.kind!r}" if self.head else ""
        parameters = f"{self.get_parameter_count():,} parameters"
        return f"{type(self).__name__}({self.config.family}{head}, {parameters}, {self.engine.name})"


class BertCore(Model):
    """A classic BERT encoder: forward gives hidden states."""

    def __init__(self, config: EncoderConfig | None = None, **options: Any):
        super().__init__(config or BertConfig.get_base_config(), **options)


class ModernBertCore(Model):
    """A ModernBERT encoder: forward gives hidden states."""

    def __init__(self, config: EncoderConfig | None = None, **options: Any):
        super().__init__(config or ModernBertConfig.get_base_config(), **options)


class BertWithHead(Model):
    """Any encoder with a head: "mlm", "sequence", "token", "span", "embedding", "forecast" or "pretraining"."""

    def __init__(
        self, config: EncoderConfig | None = None, head_type: str = "mlm", num_labels: int = 0, **options: Any
    ):
        super().__init__(config or BertConfig.get_base_config(), head_type, num_labels, **options)


class MiniBERT(BertWithHead):
    """3 layers of 192: small enough to train on a laptop while you watch."""

    def __init__(self, config: EncoderConfig = MINI_BERT_CONFIG, **options: Any):
        super().__init__(config, "mlm", **options)


class LargerBERT(BertWithHead):
    """6 layers of 384, with dropout and a vocabulary of 50,000."""

    def __init__(self, config: EncoderConfig = LARGER_BERT_CONFIG, **options: Any):
        super().__init__(config, "mlm", **options)


def _shape(output: Any) -> Any:
    """The shape of an output, or one for each part of a head."""
    if isinstance(output, Mapping):
        return {part: _shape(value) for part, value in output.items()}
    return tuple(np.shape(output))


def _in_words(shape: Any) -> str:
    if isinstance(shape, Mapping):
        return ", ".join(f"{list(one)} for {part!r}" for part, one in shape.items())
    return str(list(shape))
