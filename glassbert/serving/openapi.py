"""The OpenAPI document: what the addresses take and give, made from one table."""

from __future__ import annotations

from typing import Any

import glassbert
from glassbert.serving.bodies import MOST_MASKS, MOST_MASKS_OF_A_TEXT, MOST_TOP, Limits

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
MODEL = {"type": "string", "description": "The name of a model, as /v1/models lists it. Default: the first."}
TRUNCATE = {"type": "boolean", "description": "Use the beginning of a text that is too long, instead of refusing it."}
USAGE = {"type": "object", "properties": {"tokens": WHOLE}}
FORMAT = {"type": "string", "enum": ["float", "base64"], "default": "float",
          "description": "base64: the bytes of float32 numbers, the lowest first."}  # fmt: skip
NUMBERS = {"type": "array", "items": {"type": "number"}}
VECTOR = {"oneOf": [NUMBERS, TEXT]}


def many(one: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": one}


def thing(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXTS = {"oneOf": [TEXT, many(TEXT)]}
TEXTS_OR_IDS = {"oneOf": [TEXT, many(TEXT), many(WHOLE), many(many(WHOLE))]}
EXAMPLES = {
    "oneOf": [TEXT, many(TEXT), many(many(TEXT)), {"type": "object"}, many({"type": "object"})],
    "description": "A text or an array of texts; of pairs of texts, for models that compare two; of arrays of words, "
    "for models that tag words; of objects with the columns of a table. /v1/models says which in `input`.",
}
VECTORS = {"input": TEXTS_OR_IDS, "model": MODEL, "encoding_format": FORMAT,
           "dimensions": {**WHOLE, "description": "Shorter vectors: the first numbers, at unit length again."},
           "truncate": TRUNCATE, "user": TEXT}  # fmt: skip

# Address -> summary, fields of the body, fields of the answer, an example.
POSTS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "/v1/predict": (
        "What a fine-tuned model predicts: a label with its probability, a number, tags, or a span.",
        {"input": EXAMPLES, "model": MODEL},
        {"model": TEXT, "usage": USAGE, "predictions": many(
            thing(prediction={}, probability={"type": "number"}, probabilities={"type": "object"}, words=many(TEXT),
                  entities=many(thing(type=TEXT, text=TEXT, start=WHOLE, end=WHOLE)), start=WHOLE, end=WHOLE))},
        {"input": ["A warm film.", "Dull."]},
    ),
    "/v1/fill-mask": (
        f"The most probable words for every [MASK] of a text; at most {MOST_MASKS_OF_A_TEXT} of a text and "
        f"{MOST_MASKS:,} of a request.",
        {"input": TEXTS, "model": MODEL, "top": {**WHOLE, "minimum": 1, "maximum": MOST_TOP, "default": 5}},
        {"model": TEXT, "usage": USAGE,
         "data": many(thing(masks=many(many(thing(word=TEXT, chance={"type": "number"})))))},
        {"input": "She opened the [MASK] and went out.", "top": 3},
    ),
    "/v1/embed": (
        "Vectors of unit length: a dot product of two is their cosine.",
        VECTORS,
        {"model": TEXT, "dimensions": WHOLE, "embeddings": many(VECTOR), "usage": USAGE},
        {"input": ["A king ruled the land."]},
    ),
    "/v1/embeddings": (
        "The same vectors, as OpenAI's clients ask for them.",
        VECTORS,
        {"object": TEXT, "model": TEXT, "usage": thing(prompt_tokens=WHOLE, total_tokens=WHOLE),
         "data": many(thing(object=TEXT, index=WHOLE, embedding=VECTOR))},
        {"input": "A king ruled the land.", "encoding_format": "base64"},
    ),
    "/v1/tokens": (
        "The tokens of texts, with their places in the text.",
        {"input": TEXTS, "model": MODEL, "special_tokens": {"type": "boolean", "default": True}},
        {"model": TEXT, "usage": USAGE,
         "data": many(thing(ids=many(WHOLE), tokens=many(TEXT), offsets=many(many(WHOLE))))},
        {"input": "A king ruled the land."},
    ),
}  # fmt: skip
GETS = {
    "/v1/models": "The models, what they answer and what they read.",
    "/v1/models/{model}": "One model.",
    "/healthz": "Whether the process is alive.",
    "/readyz": "200 if requests are welcome, 503 while the server is shutting down.",
    "/metrics": "Counters and histograms in the text format of Prometheus.",
    "/openapi.json": "This document.",
}
ERRORS = {
    400: "The body is no JSON object.",
    401: "The key is missing or wrong.",
    404: "There is no such model.",
    408: "The request arrived too slowly.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "A field is wrong, or the model cannot answer this.",
    429: "The server is busy; Retry-After has the seconds to wait.",
    503: "The answer was not computed in time, or the model or the memory of the server failed.",
}


def document(limits: Limits, with_keys: bool) -> dict[str, Any]:
    """The whole document as an object."""
    sizes = (
        f"A request has at most {limits.body_bytes:,} bytes, {limits.texts:,} texts and {limits.tokens:,} tokens. "
        "Every error is an object with a sentence."
    )
    paths: dict[str, Any] = {address: {"post": _post(address)} for address in POSTS}
    for address, summary in GETS.items():
        responses: dict[str, Any] = {"200": {"description": "The answer."}}
        paths[address] = {"get": {"summary": summary, "responses": responses}}
        if "{" in address:
            paths[address]["get"]["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": TEXT}]
            responses["404"] = {"$ref": "#/components/responses/404"}
    components: dict[str, Any] = {
        "schemas": {"Error": thing(error=thing(message=TEXT, type=TEXT, code=TEXT))},
        "responses": {str(status): _error(meaning) for status, meaning in ERRORS.items()},
    }
    info = {"title": "GlassBERT", "version": glassbert.__version__, "description": sizes}
    found: dict[str, Any] = {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}
    if with_keys:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"key": []}]
    return found


def _post(address: str) -> dict[str, Any]:
    summary, fields, answer, example = POSTS[address]
    body = {"type": "object", "required": ["input"], "properties": fields, "additionalProperties": False}
    responses: dict[str, Any] = {str(status): {"$ref": f"#/components/responses/{status}"} for status in ERRORS}
    responses["200"] = {"description": "The answer.", "content": {"application/json": {"schema": thing(**answer)}}}
    return {"summary": summary, "operationId": address.rpartition("/")[2].replace("-", "_"),
            "requestBody": {"required": True, "content": {"application/json": {"schema": body, "example": example}}},
            "responses": dict(sorted(responses.items()))}  # fmt: skip


def _error(meaning: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": meaning, "content": {"application/json": {"schema": schema}}}
