"""Models: an encoder, perhaps with a head, its parameters, and the engine that computes.

output, cache = model.forward(input_ids, attention_mask)
loss, cache = model.loss(input_ids, labels, attention_mask)
gradients = model.backward(cache)
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.arrays import Array, FlatArrays, Gradients, Layout, ThreadGradients
from glassbert.engines import DropoutSource, get_engine
from glassbert.errors import InputError
from glassbert.layers.registry import ATTENTIONS
from glassbert.layers.scope import NullCache, Parameter, linear_parameters, with_prefix
from glassbert.models.config import EncoderConfig
from glassbert.models.encoder import Batch, Encoder
from glassbert.models.heads import Head, make_head, pad_rows, pooler, pooler_parameters
from glassbert.models.initialize import initial_values
from glassbert.models.inputs import check_inputs, labels_at_outputs, shape_of
from glassbert.models.memory import activation_numbers
from glassbert.models.passes import HeadLoss, Network, Pass, batch_of, on_engine
from glassbert.models.passes import shape_of as output_shape

KEPT_BY_FORWARD = 2 * 2**30  # bytes; a longer pass keeps the inputs of its blocks and computes the rest on demand
# Threads collect rows of these tables, not whole tables.
TABLES_WITH_FEW_ROWS = ("embeddings.token", "embeddings.position", "embeddings.difference", "decoder.position")


class Layer:
    """A view of one block: its parameters by their short names."""

    def __init__(self, model: Model, index: int):
        self.index = index
        self._parameters, self._prefix = model.parameters, f"layers.{model.config.group_of(index)}."

    @property
    def parameters(self) -> dict[str, Array]:
        return {k.removeprefix(self._prefix): v for k, v in self._parameters.items() if k.startswith(self._prefix)}

    def __repr__(self) -> str:
        return f"Layer({self.index}: {', '.join(self.parameters)})"


class Model:
    """An encoder with or without a head.

    config       which encoder, as a config or preset (`glassbert.PRESETS`)
    head         "mlm", "binary", "multiclass", "token", "span", "embedding", ... (`glassbert.head_names()`), or None
    num_labels   classes, labels or ranks, where the head needs a number
    loss         another loss than the head's own, with its `loss_options`
    engine       "auto", "numpy" or "mlx"; `dtype` is "float32", "bfloat16" or "float64" (NumPy)
    kernels      "fast", or "plain" for the operations as they are written in `glassbert.ops`
    threads      of the NumPy engine; None: every core
    seed         of the first weights and of dropout
    """

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
        kernels: str = "fast",
        seed: int = 0,
        initialize: bool = True,
    ):
        self.config = config
        self.engine = get_engine(engine, dtype, threads, kernels)
        self.head: Head | None = None if head is None else make_head(head, config, num_labels, loss, loss_options)
        aliases = {} if self.head is None else self.head.encoder_aliases
        self.encoder = Encoder(config, "", aliases, self.head is not None and self.head.uses_mask_decoder)
        self.training = False
        self.checkpointing = False
        self.dropout_seed = seed
        self.carried_fields: dict[str, Any] = {}  # label names and the like of a loaded checkpoint, saved with it again
        self.specification = self._specification()
        self.layout = Layout({parameter.name: parameter.shape for parameter in self.specification})
        self.parameters = self.engine.parameters(self.layout)
        self._prepare_sharing()
        if initialize:
            for name, values in initial_values(self.specification, config, seed):
                self.parameters[name] = self.engine.array(values)

    def _specification(self) -> list[Parameter]:
        parameters = self.encoder.parameters()
        if self.config.pooler and (not self.config.pooler_of_head if self.head is None else self.head.pools):
            parameters += pooler_parameters(self.config)
        if self.head is not None:
            parameters += self.head.encoder_parameters()
            parameters += with_prefix("head", self.head.parameters())
            if self.config.teacher_size is not None:
                parameters += linear_parameters(
                    "head.teacher", self.config.hidden_size, self.config.teacher_size, False
                )
        return parameters

    def _prepare_sharing(self) -> None:
        """What lets several threads use one model: a lock, and gradient buffers that are lent to one pass at a time."""
        self._lock = threading.Lock()
        self._thread_gradients: list[ThreadGradients] = []

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_thread_gradients")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare_sharing()

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        """A model of its own memory; config, encoder and engine hold no data and are shared."""
        shared = ("config", "encoder", "head", "engine", "specification", "layout")
        new = object.__new__(type(self))
        memo[id(self)] = new
        new.__setstate__({k: v if k in shared else copy.deepcopy(v, memo) for k, v in self.__getstate__().items()})
        return new

    def read_only(self) -> Model:
        """Refuse changes of the parameters from now on, and return this model. A deep copy can be changed.

        The NumPy engine then keeps every weight that it multiplies with in a faster layout as well: predictions of
        single texts take about half of the time, and the model more memory. Other engines ignore it.
        """
        if isinstance(self.parameters, FlatArrays):
            self.parameters.read_only()
        return self

    @property
    def network(self) -> Network:
        """What computes, without the parameters."""
        return Network(self.config, self.encoder, self.head, self.engine)

    def computing(self, parameters: Mapping[str, Array]) -> Mapping[str, Array]:
        """The parameters in the precision of the arithmetic."""
        return self.engine.for_computing(parameters)

    def new_gradients(self) -> Gradients:
        """Memory for the gradients of the parameters."""
        return self.engine.gradients(self.layout)

    # ---- forward --------------------------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Any] | Batch, **options: Any) -> Pass:
        """A pass over checked inputs, with this model's parameters; `options` are those of `Pass`."""
        options.setdefault("checkpointing", self.checkpointing)
        return Pass(self.network, inputs, self.computing(self.parameters), **options)

    def check(self, *inputs: Any, **more: Any) -> dict[str, Any]:
        """Checked inputs of this model; the arguments are those of `check_inputs`."""
        return check_inputs(self.config, *inputs, head=None if self.head is None else self.head.kind, **more)

    def check_missing(self, input_ids: np.ndarray, missing: np.ndarray) -> dict[str, Any]:
        """Checked inputs with which the tokens where `missing` [B, T] is true are predicted."""
        return self.check(input_ids, **ATTENTIONS[self.config.attention].inputs_for_missing(missing))

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        trace: bool = False,
        *,
        segment_ids: Any = None,
        position_ids: Any = None,
        memory: Any = None,
        fields: Any = None,
        values: Any = None,
        skip_padding: bool = False,
        kernels: str | None = None,
        **more: Any,
    ) -> tuple[Array, Pass]:
        """Hidden states [B, T, H], or the head's output, and the cache of everything in between.

        input_ids       [B, T]; a model of series takes windows of values [B, W] in their place, here and everywhere
        attention_mask  [B, T], 0 for padding, or [B, T, T], which token attends to which
        trace           keep every value by name; the plain operations compute then, unless `kernels` says otherwise
        segment_ids     documents from 1, padding 0: packed documents do not attend to each other
        memory          what each layer keeps of earlier tokens, such as keys and values: `memory()` of an earlier cache
        fields, values  [B, T], the column (from 1; 0: none) and the number of each token, for `config.numbers`
        skip_padding    compute nothing for padding, whose hidden states are zeros then (where dropout is off)
        more            inputs that only the attention of this model has, such as `global_attention_mask`

        Without `trace`, a pass that would keep more than 2 GiB keeps the inputs of its blocks, and computes the rest
        when it is read.
        """
        checked = self.check(
            input_ids, attention_mask, token_type_ids, segment_ids, position_ids, memory, fields, values, **more
        )
        cache = self.run(
            checked, dropout=self.draw_dropout(), trace=trace, kernels=kernels, skip_padding=skip_padding,
            checkpointing=self._too_much_to_keep(checked, trace),
        )  # fmt: skip
        output = cache.output()
        if self.head is None and self.config.pooler and not self.config.pooler_of_head:
            scope, hidden = cache.head_scope().with_cache(NullCache()), cache.hidden
            cache.head_cache.compute_later("pooler.output", lambda: pooler(hidden[:, 0], scope, self.config))
        return output, cache

    def predict(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        *,
        skip_padding: bool = True,
        **inputs: Any,
    ) -> Array:
        """The output alone, as fast as possible: nothing is kept for a backward, nothing is computed for padding.

        `inputs` are the other inputs of `forward`: segment_ids, position_ids, fields, values.
        """
        checked = self.check(input_ids, attention_mask, token_type_ids, **inputs)
        dropout = self.draw_dropout()
        return self.run(checked, dropout=dropout, inference=True, skip_padding=skip_padding).output()

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
        fields: Any = None,
        values: Any = None,
        pair_labels: Any = None,
        memory: Any = None,
        skip_padding: bool = False,
        kernels: str | None = None,
        **more: Any,
    ) -> tuple[Array, Pass]:
        """The head's loss, averaged over the labels that are not -100, and the cache for `backward`.

        A pretraining head also takes `pair_labels` [B]: 0 where the two sentences of a row belong together.
        """
        if self.head is None:
            raise InputError("this model has no head, so it has no loss; BertWithHead(config, head=...) has one")
        checked = self.check(
            input_ids, attention_mask, token_type_ids, segment_ids, position_ids, memory, fields, values, **more
        )
        labels = labels_at_outputs(labels, checked)
        prepared = self.head.prepare({"labels": labels, "pair_labels": pair_labels}, shape_of(checked))
        targets = on_engine(pad_rows(prepared) if self.engine.compiles else prepared, self.engine)
        dropout = self.draw_dropout()
        cache = self.run(checked, dropout=dropout, trace=trace, kernels=kernels, skip_padding=skip_padding)
        return cache.loss(HeadLoss(), targets), cache

    def _too_much_to_keep(self, checked: Mapping[str, Any], trace: bool) -> bool:
        """Whether a forward keeps only the inputs of its blocks."""
        batch, length = shape_of(checked)
        numbers = activation_numbers(self.config, batch, length, head=None)
        size = 8 if self.engine.dtype_name == "float64" else 4
        return self.checkpointing or (not trace and size * sum(numbers.values()) > KEPT_BY_FORWARD)

    def batch_of(self, checked: Mapping[str, Any]) -> Batch:
        """Checked inputs as arrays of the engine."""
        return batch_of(checked, self.network)

    def on_engine(self, prepared: Mapping[str, np.ndarray]) -> dict[str, Array]:
        """Prepared targets as arrays of the engine."""
        return on_engine(prepared, self.engine)

    def draw_dropout(self) -> DropoutSource | None:
        """Dropout masks for one pass; every pass in training draws new ones."""
        if not self.training:
            return None
        with self._lock:
            self.dropout_seed += 1
            return self.engine.dropout(self.dropout_seed)

    # ---- backward -------------------------------------------------------------------------------------------------

    def backward(self, cache: Pass, d_output: Any = None, into: Gradients | None = None) -> Gradients:
        """Gradients by the name of their parameter: of the loss, or of `d_output · output` after `forward`.

        `into` may be the gradients of an earlier step, whose memory is then used again.
        """
        if cache.objective is None:
            self._check_gradient(d_output, cache.output_shape)
        gradients = into if into is not None else self.new_gradients()
        if into is not None:
            into.clear()
        self.backward_into(gradients, cache, d_output)
        gradients.fill_missing()
        return gradients

    def _check_gradient(self, d_output: Any, shape: Any) -> None:
        if d_output is None:
            raise InputError(
                "this cache comes from forward(); give the gradient of the output: backward(cache, d_output)"
            )
        if output_shape(d_output) != shape:
            raise InputError(
                f"d_output must have the shape of the output, {_in_words(shape)}, "
                f"got {_in_words(output_shape(d_output))}"
            )

    def backward_into(self, gradients: Gradients, cache: Pass, d_output: Any = None, **options: Any) -> None:
        """Add to `gradients`; `options` are those of `Pass.backward`."""
        borrowed: list[ThreadGradients] = []

        def lend(count: int) -> Sequence[ThreadGradients]:
            with self._lock:
                missing = max(0, count - len(borrowed))
                borrowed.extend(self._thread_gradients.pop() for _ in range(min(missing, len(self._thread_gradients))))
            borrowed.extend(self.new_thread_gradients() for _ in range(count - len(borrowed)))
            for one in borrowed[:count]:
                one.clear()
            return borrowed[:count]

        if cache.objective is not None:
            dloss = options.pop("dloss", 1.0 if d_output is None else self.engine.array(d_output))
            cache.backward(gradients, dloss, thread_gradients=lend, **options)
        else:
            given = d_output
            if isinstance(given, Mapping):
                given = {part: self.engine.array(d) for part, d in given.items()}
            else:
                given = self.engine.array(given)
            cache.backward(gradients, d_output=given, thread_gradients=lend, **options)
        with self._lock:
            self._thread_gradients.extend(borrowed)  # not after an error: they may still be written to

    def new_thread_gradients(self) -> ThreadGradients:
        """Gradient buffers for one thread besides the first."""
        encoders = [self.encoder, *([] if self.head is None else self.head.encoders())]
        names = [e.aliases.get(p.name, p.name) for e in encoders for p in e.parameters()]
        names = [name for name in dict.fromkeys(names) if not name.endswith(TABLES_WITH_FEW_ROWS)]
        return ThreadGradients(Layout({name: self.layout.shapes[name] for name in names}), self.engine.dtype)

    # ---- everything else --------------------------------------------------------------------------------------

    def set_training(self, flag: bool = True) -> None:
        """In training dropout is on."""
        self.training = bool(flag)

    def set_checkpointing(self, flag: bool = True) -> None:
        """Keep only the input of every block and run the block again in backward: less memory, a third more time."""
        self.checkpointing = bool(flag)

    def untrained(self, seed: int = 0) -> Model:
        """A model of the same config and head with new weights, on the same engine."""
        head = self.head
        if head is None:
            return Model(self.config, engine=self.engine, seed=seed)
        labels = head.num_labels if head.labelled else 0
        return Model(
            self.config, head.kind, labels, loss=head.loss_name, loss_options=head.loss_options.to_dict(),
            engine=self.engine, seed=seed,
        )  # fmt: skip

    def with_config(self, config: EncoderConfig, seed: int = 0) -> Model:
        """A model of another config with the weights of this one, where names and shapes agree, on the same engine."""
        head = self.head
        options: dict[str, Any] = {"engine": self.engine, "seed": seed}
        if head is not None:
            options |= {"loss": head.loss_name, "loss_options": head.loss_options.to_dict()}
        labels = head.num_labels if head is not None and head.labelled else 0
        model = type(self)(config, None if head is None else head.kind, labels, **options)
        for name, values in self.parameters.items():
            if model.layout.shapes.get(name) == tuple(values.shape):
                model.parameters[name] = values
        model.carried_fields, model.dropout_seed = dict(self.carried_fields), self.dropout_seed
        model.set_training(self.training)
        model.set_checkpointing(self.checkpointing)
        return model

    @property
    def num_parameters(self) -> int:
        """The number of trainable numbers."""
        return self.get_parameter_count()

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

        labels     names for the outputs of a head (id2label)
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


def _in_words(shape: Any) -> str:
    if isinstance(shape, Mapping):
        return ", ".join(f"{list(one)} for {part!r}" for part, one in shape.items())
    return str(list(shape))
