"""An endpoint for every kind of answer: a checked body, a job in the queue, and the object that is sent back."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.serving import bodies
from glassbert.serving.bodies import Limits, wrong
from glassbert.serving.models import Served, input_of
from glassbert.training.fill_mask import MASK

orjson: Any
try:
    import orjson
except ImportError:  # ten times slower for vectors, and the same answer
    orjson = None


class Asked(NamedTuple):
    """A prepared request: what to compute, and how its answer is made. Without a lane the answer is ready."""

    served: Served
    lane: Any
    item: Any
    texts: int
    answer: Callable[[list[Any]], bytes]


def predict(body: Mapping[str, Any], served: Served, limits: Limits, truncate: bool) -> Asked:
    bodies.only(body, "model", "input")
    lane = _lane(served, served.predict, "predict", "fine-tune it first with glassbert finetune")
    card = lane.predictor.card
    columns = list(card.template.columns) if card.template is not None else []
    given = bodies.examples_in(body, limits, input_of(card), columns, card.head == "embedding")
    _count_first(given, served, limits)
    item = lane.prepare(given)
    _few_tokens(item.tokens, limits)

    def answer(outputs: list[Any]) -> bytes:
        found = {"model": served.name, "predictions": lane.finish(item, outputs), "usage": _usage(item.tokens)}
        return to_json(found)

    return Asked(served, lane, item, len(given), answer)


def fill_mask(body: Mapping[str, Any], served: Served, limits: Limits, truncate: bool) -> Asked:
    bodies.only(body, "model", "input", "top")
    lane = _lane(served, served.fill, "fill-mask", "it is no masked language model")
    given = bodies.texts_in(body, limits)
    bodies.few_masks(given, MASK)
    _count_first(given, served, limits)
    item = lane.prepare(given, bodies.whole(body, "top", 5, 1, bodies.MOST_TOP))
    _few_tokens(item.tokens, limits)

    def answer(outputs: list[Any]) -> bytes:
        return to_json({"model": served.name, "data": lane.finish(item, outputs), "usage": _usage(item.tokens)})

    return Asked(served, lane, item, len(given), answer)


def embed(body: Mapping[str, Any], served: Served, limits: Limits, truncate: bool) -> Asked:
    """Vectors in one array."""

    def shape(vectors: list[Any], tokens: int, width: int) -> dict[str, Any]:
        return {"model": served.name, "dimensions": width, "embeddings": vectors, "usage": _usage(tokens)}

    return _vectors(body, served, limits, truncate, shape)


def embeddings(body: Mapping[str, Any], served: Served, limits: Limits, truncate: bool) -> Asked:
    """The same as OpenAI's clients expect it."""

    def shape(vectors: list[Any], tokens: int, width: int) -> dict[str, Any]:
        data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": served.name, "usage": usage}

    return _vectors(body, served, limits, truncate, shape)


def _vectors(
    body: Mapping[str, Any],
    served: Served,
    limits: Limits,
    truncate: bool,
    shape: Callable[[list[Any], int, int], dict[str, Any]],
) -> Asked:
    bodies.only(body, "model", "input", "encoding_format", "dimensions", "truncate", "user")
    lane = _lane(served, served.embed, "embed", "its exported graph has no vectors")
    given = bodies.texts_or_ids(body, limits)
    encoding = bodies.choice(body, "encoding_format", ("float", "base64"))
    dimensions = bodies.whole(body, "dimensions", None, 1, lane.width)
    item = lane.prepare(given, bodies.flag(body, "truncate", truncate))
    _few_tokens(item.tokens, limits)

    def answer(outputs: list[Any]) -> bytes:
        vectors = lane.finish(item, outputs, dimensions)
        shown = [base64.b64encode(one.astype("<f4").tobytes()).decode() for one in vectors]
        return to_json(shape(list(vectors) if encoding == "float" else shown, item.tokens, vectors.shape[1]))

    return Asked(served, lane, item, len(given), answer)


def tokens(body: Mapping[str, Any], served: Served, limits: Limits, truncate: bool) -> Asked:
    """The tokens of texts; nothing is computed."""
    bodies.only(body, "model", "input", "special_tokens")
    given = bodies.texts_in(body, limits)
    special = bodies.flag(body, "special_tokens", True)
    _count_first(given, served, limits)
    found = served.tokenizer.encode_batch(given, special_tokens=special)
    data = [{"ids": one.ids, "tokens": one.tokens, "offsets": one.offsets} for one in found]
    total = sum(map(len, found))
    _few_tokens(total, limits)
    return Asked(served, None, None, len(given),
                 lambda outputs: to_json({"model": served.name, "data": data, "usage": _usage(total)}))  # fmt: skip


ENDPOINTS: dict[str, Callable[[Mapping[str, Any], Served, Limits, bool], Asked]] = {
    "/v1/predict": predict,
    "/v1/fill-mask": fill_mask,
    "/v1/embed": embed,
    "/v1/embeddings": embeddings,
    "/v1/tokens": tokens,
}


def _lane(served: Served, lane: Any, kind: str, reason: str) -> Any:
    if lane is None:
        gives = ", ".join(served.answers)
        raise wrong(f"the model {served.name!r} does not {kind}: {reason}; it answers {gives}", "no_such_answer")
    return lane


def _count_first(given: Sequence[Any], served: Served, limits: Limits) -> None:
    """Refuse too many tokens before texts are encoded with offsets and windows, which is slow and needs memory."""
    texts = [text for one in given for text in _texts_of(one)]
    count = len(texts)  # words of a sentence; each has a token
    if count <= limits.tokens < sum(map(len, texts)):
        count = int(served.tokenizer.encode_ids(texts)[1].sum())
    _few_tokens(count, limits)


def _texts_of(one: Any) -> list[str]:
    """The texts of one input: itself, a pair, words, or the cells of a row."""
    if isinstance(one, str):
        return [one]
    return [part for part in (one.values() if isinstance(one, Mapping) else one) if isinstance(part, str)]


def _few_tokens(count: int, limits: Limits) -> None:
    if count > limits.tokens:
        raise wrong(f"the request has {count:,} tokens, and at most {limits.tokens:,} are accepted", "too_many_tokens")


def _usage(count: int) -> dict[str, int]:
    return {"tokens": count}


def to_json(content: Any) -> bytes:
    """JSON in UTF-8; vectors are arrays of numbers with the shortest digits that give the same float32."""
    if orjson is not None:
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(content, default=_plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [float(str(one)) for one in value] if value.dtype == np.float32 else value.tolist()
    return value.item()
