"""One training step: forward, backward, clip, move. NumPy runs it over threads, MLX compiles it as a whole."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from glassbert.errors import InputError
from glassbert.layers.scope import Cache, Scope
from glassbert.models.encoder import Batch, encode, encode_backward
from glassbert.models.heads import pad_rows
from glassbert.models.inputs import as_array, check_inputs
from glassbert.models.model import Model
from glassbert.training.adamw import AdamW


class StepResult(NamedTuple):
    loss: Any  # a scalar of the engine; float(loss) waits for the device
    gradient_norm: Any


class TrainingStep:
    """Trains `model` a batch at a time with `optimizer`.

    step = TrainingStep(model, AdamW(model, 1e-3))
    loss, norm = step(input_ids, labels, attention_mask)
    """

    def __init__(self, model: Model, optimizer: AdamW):
        self.model = model
        self.optimizer = optimizer
        self._gradients: Any = None
        self._compiled: dict[Any, Any] = {}

    def __call__(self, input_ids: Any, labels: Any, attention_mask: Any = None, **inputs: Any) -> StepResult:
        if self.model.engine.compiles:
            return self._device_step(input_ids, labels, attention_mask, **inputs)
        model = self.model
        loss, cache = model.loss(input_ids, labels, attention_mask, **inputs)
        if self._gradients is None:
            self._gradients = model.engine.gradients(model.layout)
        model.backward(cache, into=self._gradients)
        norm = self.optimizer.update(model.parameters, self._gradients)
        return StepResult(loss, norm)

    def _device_step(self, input_ids: Any, labels: Any, attention_mask: Any = None, **inputs: Any) -> StepResult:
        import mlx.core as mx

        model, optimizer, engine = self.model, self.optimizer, self.model.engine
        if model.head is None:
            raise InputError("this model has no head, so it has no loss to train on")
        checked: Any = check_inputs(model.config, input_ids, attention_mask, **inputs)
        targets = pad_rows(model.head.prepare_labels(as_array("labels", labels), checked["ids"].shape))
        batch = model._batch(checked)
        arrays = {
            "ids": batch.ids, "positions": batch.positions, "types": batch.types, "mask": batch.mask,
            "segments": batch.segments, "angles": batch.angles,
            "rows": engine.integers(targets["rows"]) if "rows" in targets else None,
            "targets": (engine.integers if targets["targets"].dtype.kind in "iu" else engine.array)(targets["targets"]),
        }  # fmt: skip
        present = {name: value for name, value in arrays.items() if value is not None}
        optimizer.steps += 1
        model.dropout_seed += 1
        # What is compiled has these settings inside; with others it must be compiled anew.
        settings = (model.training, model.checkpointing, *optimizer.settings)
        if settings not in self._compiled:
            self._compiled[settings] = mx.compile(partial(self._pure_step))
        state = (model.parameters, optimizer.mean, optimizer.square)
        model.parameters, optimizer.mean, optimizer.square = {}, {}, {}  # the old arrays may now be overwritten
        step, rate = mx.array(float(optimizer.steps)), mx.array(optimizer.learning_rate)
        key = mx.random.key(model.dropout_seed)
        try:
            (*new, loss, norm) = self._compiled[settings](*state, present, step, rate, key)
        except BaseException:
            model.parameters, optimizer.mean, optimizer.square = state
            raise
        del state
        model.parameters, optimizer.mean, optimizer.square = new
        mx.async_eval(new, loss, norm)
        return StepResult(loss, norm)

    def _pure_step(self, parameters: Any, mean: Any, square: Any, arrays: Any, step: Any, rate: Any, key: Any) -> Any:
        model, engine = self.model, self.model.engine
        head = model.head
        assert head is not None
        source = engine.dropout(key) if model.training else None
        computing = engine.for_computing(parameters)
        batch = Batch(
            arrays["ids"], arrays["positions"], arrays.get("types"), arrays.get("mask"), arrays.get("segments"),
            arrays.get("angles"),
        )  # fmt: skip
        cache = Cache()
        gradients = engine.gradients(model.layout)
        hidden = encode(computing, model.config, batch, cache, source, model.checkpointing)
        at = Scope(computing, cache, gradients).inside("head")
        output = head.forward(hidden, arrays.get("mask"), at, source, arrays.get("rows"))
        loss = head.loss(output, arrays["targets"], at)
        doutput = head.loss_backward(engine.array(1.0), at).astype(hidden.dtype)
        dhidden = head.backward(doutput, at).reshape(hidden.shape)
        encode_backward(dhidden, computing, model.config, batch, cache, gradients, source, model.checkpointing)
        gradients.finish()
        *new, norm = self.optimizer.step_arrays(parameters, gradients, mean, square, step, rate)
        return *new, loss, norm
