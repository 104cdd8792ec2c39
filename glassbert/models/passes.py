"""One pass of a model over one batch: forward, loss and backward.

    run = Pass(network, inputs, parameters)
    run.encode()                              hidden states [B, T, H]
    run.output()                              the output of the head
    run.loss(objective, targets)              a loss, or what the objective returns
    run.backward(gradients, ...)              gradients by the name of their parameter

The model, the training step, evaluation and saliency all use this one object. On NumPy it splits the batch over
threads, and a part may leave out its padding; on MLX it is the body of a compiled function. It is also the cache that
`model.forward` and `model.loss` return: every value of the pass by its dotted name, in the shape of the whole batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

import numpy as np

from glassbert.arrays import Array, FlatGradients, Gradients, ThreadGradients
from glassbert.engines import DropoutSource, Engine
from glassbert.engines.threads import run_together, using_threads
from glassbert.layers.positions import Positions
from glassbert.layers.registry import ATTENTIONS
from glassbert.layers.scope import Cache, NullCache, Scope
from glassbert.models.config import EncoderConfig
from glassbert.models.encoder import Batch, Encoder, Memory, OnComplete, host_terms, ignore
from glassbert.models.gradient_reduction import GradientReduction
from glassbert.models.heads.head import Head
from glassbert.models.packed_rows import PACKED_INPUTS, one_run, pack, unpack
from glassbert.models.read_rows import DropoutOfRows, among_all, among_packed, few_enough, split_rows

ThreadBuffers = Callable[[int], Sequence[ThreadGradients]]
OnOutput = Callable[[Array, Array], Array]  # (output, targets) -> the targets that the loss is computed with


class Network(NamedTuple):
    """What computes, without parameters: a compiled function may hold it without keeping a model alive."""

    config: EncoderConfig
    encoder: Encoder
    head: Head | None
    engine: Engine

    def with_kernels(self, kernels: str | None) -> Network:
        return self if kernels is None else self._replace(engine=self.engine.with_kernels(kernels))


class Objective(Protocol):
    """What a pass needs from an objective: a loss over the hidden states, and its gradient at them.

    `begin` is called before there are hidden states, and may replace the tokens that the encoder reads.
    """

    def begin(self, run: Pass, targets: Mapping[str, Any], **options: Any) -> None: ...

    def rows_read(self, head: Head, batch: Batch, targets: Mapping[str, Any]) -> Array | None:
        """The tokens whose hidden states it reads (`Head.rows_read`); None: all."""

    def loss(
        self, head: Head, hidden: Array, batch: Batch, targets: Mapping[str, Any], scope: Scope, **options: Any
    ) -> Any: ...

    def backward(self, head: Head, dloss: Any, scope: Scope) -> Array: ...


@dataclass
class Part:
    """Some rows of a batch, computed by one thread.

    `index` [N] says where the tokens of a packed part belong among its rows · length; None: it is not packed.
    `read` [M] are those of its tokens whose hidden states are computed; None: all.
    """

    rows: slice
    batch: Batch
    cache: Cache
    dropout: DropoutSource | None = None
    index: np.ndarray | None = None
    read: Array | None = None


class Pass(Mapping[str, Any]):
    """Forward, loss and backward over one batch, and the cache of its values.

    network        what computes
    inputs         checked inputs (`check_inputs`), or a `Batch` of arrays of the engine
    parameters     in the precision of the arithmetic, by name
    dropout        dropout masks; None: nothing is dropped
    trace          keep every value; by default the plain operations compute then
    inference      keep nothing for a backward, and only the values of the names in `keep`
    kernels        "fast" or "plain", for this pass
    skip_padding   compute nothing for padding (NumPy, where nothing is dropped); its hidden states are zeros
    checkpointing  keep only the inputs of blocks, and compute each block again in the backward
    """

    def __init__(
        self,
        network: Network,
        inputs: Mapping[str, Any] | Batch,
        parameters: Mapping[str, Array],
        *,
        dropout: DropoutSource | None = None,
        trace: bool = False,
        inference: bool = False,
        keep: Sequence[str] = (),
        kernels: str | None = None,
        skip_padding: bool = False,
        checkpointing: bool = False,
    ):
        self.network = network.with_kernels("plain" if trace and kernels is None else kernels)
        self.engine, self.encoder = self.network.engine, self.network.encoder
        self.parameters = parameters if network.head is None else network.head.computing(parameters)
        self.dropout = dropout
        self.inputs, self.skip_padding = inputs, skip_padding
        self.inner: list[Pass] = []  # passes of other encoders that this one depends on, such as a generator's
        self.thread_gradients: ThreadBuffers | None = None  # of the pass that this one is inside
        self.checkpointing = checkpointing
        self.head_cache = NullCache(frozenset(keep)) if inference else Cache(trace)
        self.batch = inputs if isinstance(inputs, Batch) else batch_of(inputs, self.network)
        self.shape = (self.batch.size, self.batch.outputs, network.config.hidden_size)
        self.parts = self._parts(inputs, skip_padding)
        self.hidden: Array = None  # [B, T, H], or [M, H] if the last layer computes only what is read
        self.objective: Objective | None = None
        self.output_shape: Any = ()  # of what a backward begins with, or one for each part of a head

    def _parts(self, inputs: Mapping[str, Any] | Batch, skip_padding: bool) -> list[Part]:
        if isinstance(inputs, Batch) or self.engine.compiles:
            return [Part(slice(0, self.batch.size), self.batch, self.head_cache.like(), self.dropout)]
        packed = skip_padding and self._can_pack(inputs)
        tokens = inputs["mask"].sum(1) if packed else None
        parts = []
        for rows in self.engine.split(self.batch.size, tokens):
            masks = self.dropout.from_row(rows.start) if self.dropout is not None else None
            if packed and inputs["mask"][rows].any():
                cut = {k: (v[rows] if v is not None and v.shape[0] > 1 else v) for k, v in inputs.items()}
                packed_row, index = pack(cut)
                parts.append(Part(rows, batch_of(packed_row, self.network), self.head_cache.like(), masks, index))
            else:
                parts.append(Part(rows, self.batch.rows(rows), self.head_cache.like(), masks))
        return parts

    def _can_pack(self, inputs: Mapping[str, Any]) -> bool:
        """Whether leaving out padding changes nothing.

        Dropout masks belong to a token's position in its own row, and so may a bias of the scores. A local window, or
        an attention of one's own, counts positions, so it must not reach across padding that was left out.
        """
        mask, config = inputs["mask"], self.network.config
        if mask is None or self.dropout is not None or not set(inputs) <= PACKED_INPUTS:
            return False
        if not ATTENTIONS[config.attention].leaves_out_padding:
            return False
        scheme = self.encoder.positions
        if type(scheme).begin is not Positions.begin and not scheme.packs:
            return False
        if self.network.head is not None and not mask[:, 0].all():  # cls pooling reads the first token, padding or not
            return False
        return (config.local_window is None and config.attention == "self") or one_run(mask)

    def _threads(self) -> Any:
        """BLAS with one thread inside a pass: its own threads would keep the cores busy between products."""
        return using_threads(self.engine.threads) if self.engine.limits_blas else nullcontext()

    # ---- forward and loss ------------------------------------------------------------------------------------------

    def encode(self) -> Array:
        """Hidden states [B, T, H], computed once; [M, H] of the tokens that a loss reads, or an output of inference."""
        if self.hidden is not None:
            return self.hidden

        def work(part: Part) -> Array:
            hidden = self.encoder.forward(part.batch, self._scope(part), self.checkpointing, part.read)
            if part.index is None or part.read is not None:
                return hidden
            return unpack(hidden, part.index, part.rows.stop - part.rows.start, self.shape[1], (1,))

        with self._threads():
            pieces = [work(self.parts[0])] if len(self.parts) == 1 else run_together(work, self.parts)
        self.hidden = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return self.hidden

    def output(self, rows: Array | None = None) -> Any:
        """The output of the head, or the hidden states of a model without one. An MLM head scores only `rows`."""
        head = self.network.head
        if head is not None and self.head_cache.inference and not self._is_looked_at():
            self._read_only(head.rows_read(self.batch, rows))
        hidden = self.encode()
        with self._threads():
            result = hidden if head is None else head.forward(hidden, self.batch, self.head_scope(), rows)
        self.output_shape = shape_of(result)
        return result

    def loss(self, objective: Objective, targets: Mapping[str, Any], **options: Any) -> Any:
        """What the objective makes of the hidden states; `backward` then begins at it."""
        objective.begin(self, targets, **options)
        head: Any = self.network.head
        if not self._is_looked_at():
            self._read_only(objective.rows_read(head, self.batch, targets))
        hidden = self.encode()
        self.objective = objective
        with self._threads():
            return objective.loss(head, hidden, self.batch, targets, self.head_scope(), **options)

    def _read_only(self, rows: Array | None) -> None:
        """Compute the hidden states of these tokens alone, indices into [B · T]; None: of all."""
        if self.hidden is not None and self.parts[0].read is not None:  # asked before, perhaps for other tokens
            self.hidden = None
            for part in self.parts:
                part.read = None
        batch, length, _ = self.shape
        if rows is None or not few_enough(len(rows), batch * length):
            return
        if self.hidden is not None or not self.encoder.selects_rows:
            return
        starts = [part.rows.start * length for part in self.parts]
        whole = len(starts) == 1 and self.parts[0].index is None
        if not whole and (rows[1:] <= rows[:-1]).any():  # only ascending ones can be cut
            return
        own: list[Any] = [rows] if len(starts) == 1 else split_rows(rows, starts)
        for i, part in enumerate(self.parts):
            own[i] = own[i] if part.index is None else among_packed(own[i], part.index)
        if all(one is not None and len(one) for one in own):
            for part, one in zip(self.parts, own, strict=True):
                part.read = one

    def _is_looked_at(self) -> bool:
        """Whether values of all tokens are wanted by name."""
        cache = self.head_cache
        return cache.trace or (isinstance(cache, NullCache) and bool(cache.keep))

    def with_network(self, network: Network) -> Pass:
        """A pass of another encoder over the same inputs, whose values can be read from this one."""
        cache = self.head_cache
        keep = tuple(cache.keep) if isinstance(cache, NullCache) else ()
        inner = Pass(
            network, self.inputs, self.parameters, dropout=self.dropout, trace=cache.trace, inference=cache.inference,
            keep=keep, kernels=self.engine.kernels, skip_padding=self.skip_padding, checkpointing=self.checkpointing,
        )  # fmt: skip
        self.inner.append(inner)
        return inner

    def replace_ids(self, ids: Array) -> None:
        """Read other tokens [B, T] than the inputs have; padding stays where it is."""
        self.batch = dataclasses.replace(self.batch, ids=ids)
        for part in self.parts:
            own = ids[part.rows]
            own = own if part.index is None else own.reshape(-1)[part.index][None]
            part.batch = dataclasses.replace(part.batch, ids=own)

    # ---- backward --------------------------------------------------------------------------------------------------

    def backward(
        self,
        gradients: Gradients,
        dloss: Any = 1.0,
        *,
        d_output: Any = None,
        thread_gradients: ThreadBuffers | None = None,
        on_complete: OnComplete = ignore,
    ) -> None:
        """Add the gradient of dloss · loss, or of d_output · output, to `gradients`.

        `thread_gradients(n)` gives buffers for the n threads besides the first. `on_complete` is called with every
        group of parameters ("layers.3") whose gradients are complete, while the backward continues.
        """
        scope, head = self.head_scope(gradients), self.network.head
        for inner in self.inner:
            inner.thread_gradients = thread_gradients
        with self._threads():
            if self.objective is not None:
                dhidden = self.objective.backward(head, dloss, scope)  # type: ignore[arg-type]
            else:
                dhidden = d_output if head is None else head.backward(d_output, scope)
            on_complete("head")
            self.encode_backward(dhidden.reshape(self.hidden.shape), gradients, thread_gradients, on_complete)

    def encode_backward(
        self,
        dhidden: Array,
        gradients: Gradients,
        thread_gradients: ThreadBuffers | None = None,
        on_complete: OnComplete = ignore,
    ) -> None:
        """From the gradient of the hidden states to those of the encoder's parameters."""
        if len(self.parts) == 1:
            self._part_backward(self.parts[0], dhidden, gradients, on_complete)
            return
        assert thread_gradients is not None and isinstance(gradients, FlatGradients)
        others = thread_gradients(len(self.parts) - 1)
        for other in others:
            other.train_only(gradients.trainable)
        reduction = GradientReduction(gradients, others, self.encoder.backward_order(), on_complete)

        sizes = [part.rows.stop - part.rows.start if part.read is None else len(part.read) for part in self.parts]
        pieces = np.split(dhidden, np.cumsum(sizes)[:-1])

        def work(of_part: tuple[Part, Array, Gradients]) -> None:
            self._part_backward(*of_part, reduction)

        run_together(work, list(zip(self.parts, pieces, [gradients, *others], strict=True)))

    def _part_backward(self, part: Part, dx: Array, gradients: Gradients, on_complete: OnComplete) -> None:
        if part.index is not None and part.read is None:
            dx = dx.reshape(-1, dx.shape[-1])[part.index][None]
        self.encoder.backward(dx, part.batch, self._scope(part, gradients), self.checkpointing, on_complete)

    def memory(self) -> Memory:
        """What the layers keep of this pass and of its memory, as the memory of a next pass."""
        return tuple(tuple(self[name] for name in names) for names in self.encoder.memory_names())

    # ---- scopes and values -----------------------------------------------------------------------------------------

    def _scope(self, part: Part, gradients: Gradients | None = None) -> Scope:
        prefix, aliases, dropout = self.encoder.prefix, self.encoder.aliases, part.dropout
        if dropout is not None and part.read is not None:
            dropout = DropoutOfRows(dropout, part.read, (part.batch.size, part.batch.outputs))
        return Scope(self.engine.ops, self.parameters, part.cache, gradients, dropout, prefix, None, prefix, aliases)

    def head_scope(self, gradients: Gradients | None = None) -> Scope:
        """The scope of the head: its values and parameters are named `head...`."""
        root, aliases = self.encoder.prefix, self.encoder.aliases
        return Scope(
            self.engine.ops, self.parameters, self.head_cache, gradients, self.dropout, f"{root}head.", None, root,
            aliases,
        )  # fmt: skip

    def __getitem__(self, name: str) -> Any:
        if name in self.head_cache:
            return self.head_cache[name]
        for inner in self.inner:
            if name.startswith(inner.encoder.prefix):
                return inner[name]
        values = [part.cache[name] for part in self.parts]
        if not hasattr(values[0], "ndim") or not values[0].ndim:
            return values[0]
        length = self.shape[1]
        for i, part in enumerate(self.parts):
            axes = part.cache.token_axes.get(name, (1,))
            if part.read is not None and axes == (1,) and values[i].ndim == 2:  # [M, ...]
                values[i] = among_all(values[i], part.read, (part.batch.size, part.batch.outputs))
            if part.index is not None:
                values[i] = unpack(values[i], part.index, part.rows.stop - part.rows.start, length, axes)
        if len(values) == 1 or values[0].shape[0] != self.parts[0].rows.stop - self.parts[0].rows.start:
            return values[0]  # one value for all rows
        return np.concatenate(values)

    def __iter__(self) -> Iterator[str]:
        for inner in self.inner:
            yield from inner
        yield from self.parts[0].cache
        yield from self.head_cache

    def __len__(self) -> int:
        return len(self.parts[0].cache) + len(self.head_cache) + sum(map(len, self.inner))


class HeadLoss:
    """The objective of `model.loss`: the sum of the losses of the head's parts."""

    def begin(self, run: Pass, targets: Mapping[str, Any], **options: Any) -> None:
        """Nothing is needed before the hidden states."""

    def rows_read(self, head: Head, batch: Batch, targets: Mapping[str, Any]) -> Array | None:
        if len(head.parts) > 1:
            return None
        (part,) = head.parts.values()
        return part.head.rows_read(batch, part.select_targets(targets).get("rows"))

    def loss(
        self, head: Head, hidden: Array, batch: Batch, targets: Mapping[str, Any], scope: Scope, **options: Any
    ) -> Array:
        parts = head.parts.values()
        return _sum([head_loss(p.head, hidden, batch, p.select_targets(targets), scope.inside(p.name)) for p in parts])

    def backward(self, head: Head, dloss: Any, scope: Scope) -> Array:
        return _sum([head_loss_backward(part.head, dloss, scope.inside(part.name)) for part in head.parts.values()])


def head_loss(
    head: Head,
    hidden: Array,
    batch: Batch,
    targets: Mapping[str, Array],
    scope: Scope,
    on_output: OnOutput | None = None,
) -> Array:
    """From hidden states to the loss of one head. `on_output` may measure the output, and exchange the targets."""
    output = head.forward(hidden, batch, scope, targets.get("rows"))
    return output_loss(head, output, targets["targets"], scope, on_output)


def output_loss(
    head: Head, output: Array, wanted: Array, scope: Scope, on_output: OnOutput | None = None, donate: bool = True
) -> Array:
    """From the output of one head to its loss. `donate`: the loss may overwrite the output."""
    scope.save("loss.output", (output.shape, output.dtype))
    if on_output is not None:
        wanted = on_output(output, wanted)
    operation, options = head.criterion
    if head.pairs:  # rows 0 and 1 are a pair, rows 2 and 3, and so on
        loss = scope.run(operation, "loss", output[0::2], output[1::2], wanted, **options)
    else:
        rows = output.reshape(-1, output.shape[-1]) if operation in ROW_LOSSES else output
        loss = scope.run(operation, "loss", rows, wanted, **options, donate=donate and head.donates_output)
    return scope.record("loss", loss)


def head_loss_backward(head: Head, dloss: Any, scope: Scope) -> Array:
    """The gradient at the hidden states, with the loss weighted by `dloss`."""
    return head.backward(output_loss_backward(head, dloss, scope), scope)


def output_loss_backward(head: Head, dloss: Any, scope: Scope) -> Array:
    """The gradient at the output of the head."""
    doutput = scope.run_backward("loss", dloss)
    shape, dtype = scope.saved("loss.output")
    if head.pairs:
        doutput = head.join_pairs(*doutput)
    doutput = doutput.reshape(shape)
    return doutput if doutput.dtype == dtype else doutput.astype(dtype)


ROW_LOSSES = ("cross_entropy", "focal_loss")  # one target a row of scores


def _sum(terms: list[Array]) -> Array:
    total = terms[0]
    for term in terms[1:]:
        total = total + term.reshape(total.shape)
    return total


def shape_of(output: Any) -> Any:
    """The shape of an output, or one for each part of a head."""
    if isinstance(output, Mapping):
        return {part: shape_of(value) for part, value in output.items()}
    return tuple(np.shape(output))


KNOWN_INPUTS = {field.name for field in fields(Batch)}


def batch_of(checked: Mapping[str, Any], network: Network) -> Batch:
    """Checked inputs as arrays of the engine."""
    given = on_engine({k: v for k, v in checked.items() if v is not None and k != "memory"}, network.engine)
    more = {name: given.pop(name) for name in list(given) if name not in KNOWN_INPUTS}
    memory = checked.get("memory")
    if memory is not None:
        memory = tuple(tuple(network.engine.array(array) for array in arrays) for arrays in memory)
    terms = host_terms(checked["positions"], network.encoder, network.engine)
    return Batch(**given, position_terms=terms, memory=memory, more=more)


def on_engine(arrays: Mapping[str, np.ndarray], engine: Engine) -> dict[str, Array]:
    """Checked inputs or targets as arrays of the engine: floats in its precision, all others as integers."""
    return {k: (engine.array if v.dtype.kind == "f" else engine.integers)(v) for k, v in arrays.items()}
