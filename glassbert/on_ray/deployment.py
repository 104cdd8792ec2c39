"""A predictor as a deployment of Ray Serve: replicas of one model behind one address, with requests batched together.

    serve run glassbert.on_ray.deployment:build model=runs/reviews replicas=2
    curl -d '{"texts": ["A fine film."]}' http://127.0.0.1:8000/

A request is {"text": ...} or {"texts": [...]}, where a text is what `Predictor.predict` takes: a text, two texts for a
model on pairs, or an object with the columns of a table. The answer is {"predictions": [...]}, one object per text as
in the JSON output of `glassbert predict`. What is wrong with a request is a sentence with status 400, 413 or 422.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from glassbert.errors import GlassBertError, InputError
from glassbert.files import absolute_if_here
from glassbert.finetuning.embedding import embedder
from glassbert.finetuning.predictor import Predictor
from glassbert.on_ray.cluster import ray_package

MOST_TEXTS, MOST_BYTES = 256, 2**20  # of one request
BATCH, WAIT = 32, 0.005  # requests that are computed together, and seconds to wait for them
OPTIONS = {"model": "", "replicas": "1", "threads": "1", "engine": "auto", "kind": "predict"}
OPENERS = {"predict": Predictor.load, "embed": embedder}


def build(options: Mapping[str, str]) -> Any:
    """The application for `serve run`: model, replicas, threads of a replica, engine, and kind (predict or embed)."""
    unknown = next((name for name in options if name not in OPTIONS), None)
    if unknown is not None:
        raise InputError(f"there is no option {unknown}; there are {', '.join(OPTIONS)}")
    chosen = {**OPTIONS, **options}
    if not chosen["model"]:
        raise InputError("name the model, as in: serve run glassbert.on_ray.deployment:build model=runs/reviews")
    if chosen["kind"] not in OPENERS:
        raise InputError(f"kind must be one of {', '.join(OPENERS)}, got {chosen['kind']}")
    numbers = {}
    for name in ("replicas", "threads"):
        if not str(chosen[name]).isdigit() or int(chosen[name]) < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {chosen[name]}")
        numbers[name] = int(chosen[name])
    ray_package()
    from ray import serve

    deployment = serve.deployment(
        name="glassbert",
        num_replicas=numbers["replicas"],
        max_ongoing_requests=4 * BATCH,
        ray_actor_options={"num_cpus": numbers["threads"]},
    )(_replica_class(serve))
    return deployment.bind(chosen["kind"], absolute_if_here(chosen["model"]), chosen["engine"], numbers["threads"])


def texts_of(body: bytes) -> list[Any]:
    """The texts of a request. Raises InputError."""
    if len(body) > MOST_BYTES:
        raise TooLarge(f"a request has at most {MOST_BYTES:,} bytes, got {len(body):,}")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError('the body is not JSON; send {"texts": ["..."]}') from None
    given = content.get("texts", content.get("text")) if isinstance(content, dict) else None
    if given is None:
        raise InputError('the body must be an object with "text" or "texts"')
    texts = given if isinstance(given, list) and "texts" in content else [given]
    if not texts:
        raise InputError('"texts" is empty')
    if len(texts) > MOST_TEXTS:
        raise TooLarge(f"a request has at most {MOST_TEXTS} texts, got {len(texts):,}")
    pairs = [tuple(one) if isinstance(one, list) else one for one in texts]
    kinds = {type(one) for one in pairs}
    if len(kinds) > 1 or not kinds <= {str, tuple, dict}:
        raise InputError("a text is a string, a list of two strings or an object, and all texts are of one kind")
    if any(isinstance(one, tuple) and not (one and all(isinstance(part, str) for part in one)) for one in pairs):
        raise InputError("a list in the place of a text has strings only")
    return pairs


class TooLarge(InputError):
    """A request above the limits."""


def answer(predictor: Predictor, requests: list[list[Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Status and answer of each request. Texts and pairs are computed in one batch; objects are computed by request.

    Objects are rows of a table: their columns, and how its numbers are read, follow from all rows.
    """
    shared = [number for number, texts in enumerate(requests) if not isinstance(texts[0], Mapping)]
    found = {number: _answer_one(predictor, texts) for number, texts in enumerate(requests) if number not in shared}
    try:
        rows = iter(
            predictor.predict([text for number in shared for text in requests[number]]).rows() if shared else ()
        )
        found |= {number: (200, {"predictions": [next(rows) for _ in requests[number]]}) for number in shared}
    except GlassBertError:  # one of them cannot be read
        found |= {number: _answer_one(predictor, requests[number]) for number in shared}
    return [found[number] for number in range(len(requests))]


def _answer_one(predictor: Predictor, texts: list[Any]) -> tuple[int, dict[str, Any]]:
    try:
        return 200, {"predictions": predictor.predict(texts).rows()}
    except GlassBertError as error:
        return 422, {"error": str(error)}


def _replica_class(serve: Any) -> type:
    """The class of a replica. It is made here, because its decorator needs Ray."""

    class Replica:
        def __init__(self, kind: str, model: str, engine: str, threads: int):
            self.predictor = OPENERS[kind](model, engine=engine, threads=threads)

        @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=WAIT)
        async def predict(self, requests: list[list[Any]]) -> list[tuple[int, dict[str, Any]]]:
            return answer(self.predictor, requests)

        async def __call__(self, request: Any) -> Any:
            from starlette.responses import JSONResponse

            try:
                status, content = await self.predict(texts_of(await request.body()))
            except InputError as error:
                status, content = (413 if isinstance(error, TooLarge) else 400), {"error": str(error)}
            return JSONResponse(content, status_code=status)

    return Replica
