"""What the server answers is what the package computes, for every head and for OpenAI's client."""

import base64
import dataclasses
import json

import numpy as np
import pytest

from glassbert.finetuning.embedding import embedder
from glassbert.finetuning.predictor import Predictor
from glassbert.serving import metrics, openapi
from glassbert.serving.answers import ENDPOINTS
from glassbert.serving.keys import Keys
from glassbert.text.loading import load_with_tokenizer
from glassbert.training.fill_mask import fill_mask
from tests.finetuning.test_predictor import HEADS, save
from tests.serving.running import save_language_model, serving

TEXTS = ["the bird sings", "a bitter night", "king " * 60, "", "ß and 字"]  # the third takes several windows
PAIRS = [["who sings", "the bird sings by the river"], ["what falls", "night " * 40]]
INPUTS = {"token": [*TEXTS[:2], ["the", "king", "runs"]], "span": PAIRS}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {head: save(root / head, head) for head in HEADS} | {"words": save_language_model(root / "words")}


@pytest.fixture(scope="module")
def server(folders):
    with serving(*folders.values()) as running:
        yield running


@pytest.mark.parametrize("head", HEADS)
def test_predictions_are_those_of_the_predictor(server, folders, head):
    given = INPUTS.get(head, TEXTS)
    predictor = Predictor.load(folders[head], engine="numpy", threads=1)
    expected = predictor.predict([tuple(one) for one in given] if head == "span" else given)
    found = server.post("/v1/predict", model=head, input=given)
    assert found["model"] == head and found["usage"]["tokens"] > 0
    for one, answer in zip(found["predictions"], expected.answers(), strict=True):
        assert one["prediction"] == (pytest.approx(answer, abs=1e-5) if head in ("regression", "embedding") else answer)
    if expected.by_label() is not None:
        for one, chances in zip(found["predictions"], expected.by_label(), strict=True):
            assert one["probabilities"] == pytest.approx(chances, abs=2e-6)
    if head == "token":
        assert found["predictions"][2]["words"] == ["the", "king", "runs"] and "entities" in found["predictions"][0]
    if head == "span":
        one, (_, context) = found["predictions"][0], PAIRS[0]
        assert context[one["start"] : one["end"]] == one["prediction"]


def test_pairs_of_an_embedding_model_have_the_cosines_of_the_predictor(tmp_path):
    folder = save(tmp_path / "vectors", "embedding", pair="pair")
    expected = Predictor.load(folder, engine="numpy", threads=1).predict([tuple(one) for one in PAIRS]).answers()
    with serving(folder) as running:
        found = running.post("/v1/predict", input=PAIRS)["predictions"]
        assert [one["prediction"] for one in found] == pytest.approx(expected, abs=1e-6)
        alone = running.post("/v1/predict", input=PAIRS[1:])["predictions"]
        assert alone[0]["prediction"] == pytest.approx(expected[1], abs=1e-6)


def test_a_single_text_and_a_single_pair_need_no_array(server):
    assert len(server.post("/v1/predict", model="binary", input="a bird")["predictions"]) == 1
    assert len(server.post("/v1/predict", model="span", input=PAIRS[0])["predictions"]) == 1


def test_rows_of_a_table(tmp_path):
    from glassbert.tasks import auto_template
    from glassbert.tasks.reading import table_from_records

    table = table_from_records(
        [{"sex": "female", "age": 26}, {"sex": "male", "age": 30}, {"sex": "male", "age": 2}], ""
    )
    folder = save(tmp_path / "rows", "binary", text=None, template=auto_template(table))
    with serving(folder) as running:
        rows = [{"sex": "female", "age": 26}, {"sex": "male"}, {"sex": None, "age": 1e10}]
        expected = Predictor.load(folder, engine="numpy").predict([{"sex": None, "age": None} | row for row in rows])
        found = running.post("/v1/predict", input=rows)
        assert [one["prediction"] for one in found["predictions"]] == expected.answers()
        assert running.post("/v1/predict", input=rows[0])["predictions"] == found["predictions"][:1]
        assert running.refusal("/v1/predict", input=[{"sexx": "male"}])[1] == "unknown_column"
        assert "true, false or null" in running.refusal("/v1/predict", input=[{"sex": ["male"]}])[2]
        assert "too large" in running.refusal("/v1/predict", input=[{"age": 10**400}])[2]
        assert running.ask("/v1/models/rows")[1]["columns"] == ["sex", "age"]


@pytest.mark.parametrize("model", ["words", "binary", "embedding"])
def test_vectors_are_those_of_the_embedder_without_a_second_copy_of_the_weights(server, folders, model):
    expected = embedder(folders[model], engine="numpy").predict(TEXTS[:2]).vectors
    found = server.post("/v1/embed", model=model, input=TEXTS[:2])
    np.testing.assert_allclose(found["embeddings"], expected, atol=1e-6)
    served = server.app.shelf.models[model]
    own, views = served.model.parameters, served.embed.predictor.model.parameters
    assert all(np.shares_memory(own[name], views[name]) for name in views)


def test_masked_words_are_those_of_fill_mask(server, folders):
    model, tokenizer = load_with_tokenizer(folders["words"], engine="numpy")
    texts = ["the [MASK] sings", "[MASK] [MASK] falls by the river and the stone", "a king [MASK]"]
    found = server.post("/v1/fill-mask", model="words", input=texts, top=3)
    for text, one in zip(texts, found["data"], strict=True):
        for words, answers in zip(one["masks"], fill_mask(model, tokenizer, text, 3), strict=True):
            assert [word["word"] for word in words] == [answer.word for answer in answers]
            assert [word["chance"] for word in words] == pytest.approx([answer.chance for answer in answers], abs=1e-6)
    assert len(server.post("/v1/fill-mask", model="words", input="[MASK]", top=100)["data"][0]["masks"][0]) > 60


def test_many_masks_are_computed_in_parts_and_too_many_are_refused(server, monkeypatch):
    from glassbert.serving import bodies, work

    texts = ["the [MASK] sings", "[MASK] [MASK] falls", "a king [MASK]", "[MASK]"]
    whole = server.post("/v1/fill-mask", model="words", input=texts)["data"]
    lane = server.app.shelf.models["words"].fill
    sizes, compute = [], lane.model.check
    monkeypatch.setattr(lane.model, "check", lambda ids, mask: sizes.append(len(ids)) or compute(ids, mask))
    monkeypatch.setattr(work, "MASKS_AT_ONCE", 2)
    item = lane.prepare(texts, 5)
    parts = lane.finish(item, lane.run([(item, i) for i in range(4)]))
    assert sizes == [1, 1, 2]
    for one, other in zip(whole, parts, strict=True):
        for words, same in zip(one["masks"], other["masks"], strict=True):
            assert [word["word"] for word in words] == [word["word"] for word in same]
            assert [word["chance"] for word in words] == pytest.approx([word["chance"] for word in same], abs=1e-6)
    monkeypatch.setattr(bodies, "MOST_MASKS", 4)
    assert server.refusal("/v1/fill-mask", model="words", input=texts)[:2] == (422, "too_many_masks")
    many = "[MASK]" * (bodies.MOST_MASKS_OF_A_TEXT + 1)
    status, code, message = server.refusal("/v1/fill-mask", model="words", input=["[MASK]", many])
    assert (status, code) == (422, "too_many_masks") and "input 1 has 129 [MASK]" in message and "128" in message


def test_tokens(server, folders):
    _, tokenizer = load_with_tokenizer(folders["words"], engine="numpy")
    found = server.post("/v1/tokens", model="words", input=["the bird", "字"])["data"]
    assert found[0]["ids"] == tokenizer.encode("the bird").ids and found[0]["offsets"][2] == [4, 8]
    assert server.post("/v1/tokens", model="words", input="the", special_tokens=False)["data"][0]["tokens"] == ["the"]


# ---- as OpenAI's clients ask ----


def test_openai_client(server, folders):
    from openai import NotFoundError, OpenAI, UnprocessableEntityError

    client = OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="not needed", max_retries=0)
    expected = embedder(folders["words"], engine="numpy").predict(TEXTS[:2]).vectors
    by_default = client.embeddings.create(model="words", input=TEXTS[:2])  # the client asks for base64
    as_floats = client.embeddings.create(model="words", input=TEXTS[:2], encoding_format="float")
    for found in (by_default, as_floats):
        np.testing.assert_allclose([one.embedding for one in found.data], expected, atol=1e-6)
        assert found.object == "list" and found.model == "words" and [one.index for one in found.data] == [0, 1]
        assert found.usage.prompt_tokens == found.usage.total_tokens == 10
    short = np.array(client.embeddings.create(model="words", input="the bird", dimensions=4).data[0].embedding)
    assert short.shape == (4,) and np.linalg.norm(short) == pytest.approx(1, abs=1e-6)
    names = [one.id for one in client.models.list()]
    assert set(names) == set(folders) and client.models.retrieve("words").object == "model"
    with pytest.raises(NotFoundError, match="there is no model 'gpt'"):
        client.embeddings.create(model="gpt", input="a")
    with pytest.raises(UnprocessableEntityError, match="at most 24"):
        client.embeddings.create(model="words", input="king " * 60)


def test_token_ids_give_the_vectors_of_their_text(server, folders):
    _, tokenizer = load_with_tokenizer(folders["words"], engine="numpy")
    plain, whole = tokenizer.encode(TEXTS[0], special_tokens=False).ids, tokenizer.encode(TEXTS[0]).ids
    by_text = server.post("/v1/embeddings", model="words", input=TEXTS[0])["data"][0]["embedding"]
    for given in (plain, [plain], [whole], [whole, plain]):
        found = server.post("/v1/embeddings", model="words", input=given)["data"]
        assert all(one["embedding"] == pytest.approx(by_text, abs=1e-6) for one in found)
    encoded = server.post("/v1/embeddings", model="words", input=plain, encoding_format="base64")["data"][0]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(encoded["embedding"]), "<f4"), by_text, atol=1e-7)
    numbers = server.post("/v1/embeddings", model="words", input=plain)["data"][0]
    assert len(encoded["embedding"]) < len(json.dumps(numbers["embedding"], separators=(",", ":"))) / 2
    assert "token ids of this model" in server.refusal("/v1/embeddings", model="words", input=[[10**6]])[2]


def test_long_texts_are_refused_or_cut(server):
    long = "king " * 60
    assert server.refusal("/v1/embed", model="words", input=["a", long])[0] == 422
    cut = server.post("/v1/embed", model="words", input=long, truncate=True)
    assert cut["usage"]["tokens"] == 24
    assert cut["embeddings"] == server.post("/v1/embed", model="words", input="king " * 22)["embeddings"]


def test_json_is_the_same_without_orjson(monkeypatch):
    from glassbert.serving import answers

    content = {"a": [np.float32([0.1, 1e-8, -3.0])], "b": "ß", "c": [1, None, True, 0.25]}
    fast = answers.to_json(content)
    monkeypatch.setattr(answers, "orjson", None)
    assert json.loads(answers.to_json(content)) == json.loads(fast)


# ---- what is refused ----

WRONG = [
    ("/v1/predict", {}, 422, "no_input"),
    ("/v1/predict", {"input": []}, 422, "no_input"),
    ("/v1/predict", {"input": 3}, 422, "wrong_value"),
    ("/v1/predict", {"input": [None]}, 422, "wrong_value"),
    ("/v1/predict", {"input": ["a", 3]}, 422, "wrong_value"),
    ("/v1/predict", {"input": [["a", "b"]]}, 422, "wrong_value"),
    ("/v1/predict", {"input": "a", "model": "nobody"}, 404, "model_not_found"),
    ("/v1/predict", {"input": "a", "model": 3}, 422, "wrong_value"),
    ("/v1/predict", {"input": "a", "texts": "b"}, 422, "unknown_field"),
    ("/v1/predict", {"input": "a", "model": "words"}, 422, "no_such_answer"),
    ("/v1/predict", {"input": "\ud800"}, 422, "wrong_input"),
    ("/v1/predict", {"input": "one", "model": "span"}, 422, "wrong_value"),
    ("/v1/predict", {"input": [["a"]], "model": "span"}, 422, "wrong_value"),
    ("/v1/predict", {"input": [[]], "model": "token"}, 422, "wrong_value"),
    ("/v1/predict", {"input": [["a", 1]], "model": "token"}, 422, "wrong_value"),
    ("/v1/predict", {"input": ["a", ["a", "b"]], "model": "embedding"}, 422, "wrong_value"),
    ("/v1/fill-mask", {"input": "no mask", "model": "words"}, 422, "wrong_input"),
    ("/v1/fill-mask", {"input": "[MASK]"}, 422, "no_such_answer"),
    ("/v1/fill-mask", {"input": "[MASK]", "model": "words", "top": 0}, 422, "wrong_value"),
    ("/v1/fill-mask", {"input": "[MASK]", "model": "words", "top": True}, 422, "wrong_value"),
    ("/v1/fill-mask", {"input": "[MASK] " * 40, "model": "words"}, 422, "wrong_input"),
    ("/v1/embed", {"input": [[]]}, 422, "wrong_value"),
    ("/v1/embed", {"input": [-1]}, 422, "wrong_value"),
    ("/v1/embed", {"input": [[1, "a"]]}, 422, "wrong_value"),
    ("/v1/embed", {"input": "a", "dimensions": 17}, 422, "wrong_value"),
    ("/v1/embed", {"input": "a", "encoding_format": "hex"}, 422, "wrong_value"),
    ("/v1/embed", {"input": "a", "encoding_format": ["float"]}, 422, "wrong_value"),
    ("/v1/embed", {"input": "a", "truncate": 1}, 422, "wrong_value"),
    ("/v1/tokens", {"input": {"a": 1}}, 422, "wrong_value"),
]


@pytest.mark.parametrize(("path", "body", "status", "code"), WRONG)
def test_wrong_bodies_get_a_sentence(server, path, body, status, code):
    assert server.refusal(path, **body)[:2] == (status, code)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "no_body"),
        (b"  ", "no_body"),
        (b"{", "not_json"),
        (b"[" * 100_000, "not_json"),
        (b'{"input": NaN}', "not_json"),
        (b'{"input": ' + b"1" * 5000 + b"}", "not_json"),
        (b'{"input": "\xff"}', "not_utf8"),
        (b"[1]", "not_an_object"),
        (b"null", "not_an_object"),
    ],
)
def test_bodies_that_are_no_json_object(server, raw, code):
    status, content, _ = server.ask("/v1/embed", raw=raw)
    assert status == 400 and content["error"]["code"] == code


def test_addresses_methods_and_media_types(server):
    assert server.ask("/v1/nothing", {})[0] == 404 and server.ask("/page/secret.html")[0] == 404
    status, _, headers = server.ask("/v1/predict")
    assert status == 405 and headers["allow"] == "POST"
    assert server.ask("/v1/models", {})[0] == 405
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert server.ask("/v1/embed", raw=b'{"input": "a"}', headers=form)[0] == 415
    zipped = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert server.ask("/v1/embed", raw=b"x", headers=zipped)[0] == 415
    assert server.ask("/v1/models/nobody")[0] == 404
    status, content, headers = server.ask("/docs", method="HEAD")
    assert status == 200 and content == b"" and int(headers["content-length"]) > 100


def test_limits(folders):
    from glassbert.serving.bodies import Limits

    with serving(folders["binary"], limits=Limits(body_bytes=2000, texts=3, tokens=30)) as running:
        status, content, headers = running.ask("/v1/predict", {"input": "a" * 3000})
        assert status == 413 and "2,000 bytes" in content["error"]["message"] and headers["connection"] == "close"
        assert running.refusal("/v1/predict", input=["a"] * 4)[1] == "too_many_texts"
        assert running.refusal("/v1/predict", input=["king " * 40])[1] == "too_many_tokens"
        assert running.refusal("/v1/tokens", input=["king " * 40])[1] == "too_many_tokens"
        assert running.refusal("/v1/embed", input=["king " * 12] * 3)[1] == "too_many_tokens"


def test_too_many_tokens_are_counted_before_anything_is_prepared(server, monkeypatch):
    from glassbert.serving.bodies import Limits
    from glassbert.serving.work import MaskLane, PredictLane
    from glassbert.text.fast import FastTokenizer

    def prepare(*given, **options):
        raise AssertionError("the tokens were not counted first")

    for owner, name in ((PredictLane, "prepare"), (MaskLane, "prepare"), (FastTokenizer, "encode_batch")):
        monkeypatch.setattr(owner, name, prepare)
    monkeypatch.setattr(server.app, "settings", dataclasses.replace(server.app.settings, limits=Limits(tokens=30)))
    long = "king " * 40
    for model, given in (("binary", long), ("token", long), ("token", [["king"] * 40]), ("span", [["a", long]])):
        assert server.refusal("/v1/predict", model=model, input=given)[1] == "too_many_tokens"
    assert server.refusal("/v1/fill-mask", model="words", input="[MASK] " + long)[1] == "too_many_tokens"
    assert server.refusal("/v1/tokens", input=long)[1] == "too_many_tokens"


def test_keys(folders):
    key = "k" * 20
    with serving(folders["binary"], keys=Keys(["another key that is long", key])) as running:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": key}, {"Authorization": "Bearer"}):
            status, content, found = running.ask("/v1/models", headers=headers)
            assert status == 401 and found["www-authenticate"] == "Bearer" and "k" * 20 not in str(content)
        assert running.ask("/v1/predict", {"input": "a"})[0] == 401
        assert running.ask("/v1/models", headers={"Authorization": f"bearer {key}"})[0] == 200
        for path in ("/healthz", "/readyz", "/metrics", "/", "/docs", "/page/page.js"):
            assert running.ask(path)[0] == 200
        assert key not in running.ask("/metrics")[1].decode()
        assert running.ask("/openapi.json")[1]["security"]
    assert key not in running._log.getvalue()


def test_other_websites_are_refused_unless_they_are_allowed(folders):
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    with serving(folders["binary"]) as running:
        assert running.ask("/v1/predict", method="OPTIONS", headers=asked)[0] == 405
        assert "access-control-allow-origin" not in running.ask("/v1/models", headers=asked)[2]
    with serving(folders["binary"], origins=("https://example.org",), keys=Keys(["k" * 20])) as running:
        status, _, headers = running.ask("/v1/predict", method="OPTIONS", headers=asked)
        assert status == 204 and headers["access-control-allow-origin"] == "https://example.org"
        assert "Authorization" in headers["access-control-allow-headers"]
        other = running.ask("/v1/models", headers={"Origin": "https://example.com"})[2]
        assert "access-control-allow-origin" not in other


# ---- what is shown ----


def test_the_openapi_document_describes_every_address(server):
    document = server.ask("/openapi.json")[1]
    assert {*ENDPOINTS, *openapi.GETS} == set(document["paths"])
    for path, (_, fields, answer, example) in openapi.POSTS.items():
        model = {"/v1/predict": "binary"}.get(path, "words")
        found = server.post(path, **example, model=model)
        assert set(found) == set(answer) and set(example) <= set(fields)
        for name in fields:  # a field of the document is one that the server knows
            body = {**example, "model": model, name: {"no": "such value"}}
            assert server.ask(path, body)[1].get("error", {}).get("code") != "unknown_field"


def test_metrics_count_and_logs_hold_no_text(server):
    secret = "lovely grim stone"
    server.post("/v1/predict", model="binary", input=secret)
    server.ask(f"/v1/{secret.replace(' ', '_')}", {"input": secret})
    server.refusal("/v1/predict", model="binary", input=[secret, 3], note=secret)
    server.refusal("/v1/fill-mask", model="words", input=secret)
    text = server.ask("/metrics")[1].decode()
    assert 'glassbert_requests_total{path="/v1/predict",status="200"}' in text
    assert 'glassbert_requests_total{path="other",status="404"}' in text and "glassbert_queue_rows 0" in text
    assert all(line.startswith("#") or len(line.rsplit(" ", 1)) == 2 for line in text.splitlines())
    assert "lovely" not in text and "lovely" not in server._log.getvalue()
    last = [one for one in server.log if one["event"] == "request" and one.get("texts") == 1][-1]
    assert {"time", "request", "path", "status", "ms", "model", "tokens"} <= set(last)


def test_memory_is_counted_in_pages_of_the_system(monkeypatch):
    monkeypatch.setattr(metrics.os, "sysconf", {"SC_PAGE_SIZE": 0}.__getitem__)
    assert metrics.resident_bytes() == 0
