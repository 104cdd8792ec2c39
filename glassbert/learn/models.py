"""A trained model for the lessons: the packaged Mini where it is there, else a tiny one, trained in seconds.

The tiny one reads sentences of a small English grammar, in which everything that a lesson asks about is known: the part
of speech of every word, and which word decides which other word.

    the old dogs near the river see a white cat .       the verb agrees with "dogs", not with "river"
    the queen in the garden loves her horse .           "her" depends on "queen"
"""

from __future__ import annotations

import shutil
import string
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import glassbert
from glassbert.checkpoints import load
from glassbert.errors import GlassBertError
from glassbert.families.bert import MINI_BERT_CONFIG
from glassbert.learn.folders import cache_folder
from glassbert.models.model import Model
from glassbert.text.loading import load_with_tokenizer
from glassbert.text.masking import mask_tokens
from glassbert.text.tokenizer import SPECIAL_TOKENS
from glassbert.text.wordpiece_files import Description
from glassbert.text.wordpiece_tokenizer import WordPieceTokenizer
from glassbert.training.optimizers import AdamW
from glassbert.training.schedules import make_schedule
from glassbert.training.step import TrainingStep

VERSION = 1  # of text, config and training: another one is trained again
STEPS, BATCH, RATE, MASKED = 450, 96, 4e-3, 0.25
POOL = 9600  # sentences that training draws its batches from
PEOPLE = {  # singular, plural, possessive
    "king": ("kings", "his"), "queen": ("queens", "her"), "man": ("men", "his"), "woman": ("women", "her"),
    "boy": ("boys", "his"), "girl": ("girls", "her"), "father": ("fathers", "his"), "mother": ("mothers", "her"),
}  # fmt: skip
ANIMALS = {"dog": "dogs", "cat": "cats", "bird": "birds", "horse": "horses", "fish": "fishes", "cow": "cows"}
PLACES = ("garden", "house", "river", "street", "town", "field", "church", "door")
ADJECTIVES = ("old", "young", "small", "big", "white", "black", "good", "poor")
VERBS = {"sees": "see", "loves": "love", "finds": "find", "follows": "follow", "knows": "know", "wants": "want"}
PREPOSITIONS = ("in", "near", "behind", "from")
TAGS = {
    **dict.fromkeys(("the", "a", "some", "these", "his", "her", "their"), "determiner"),
    **dict.fromkeys(ADJECTIVES, "adjective"),
    **dict.fromkeys((*PEOPLE, *(plural for plural, _ in PEOPLE.values())), "noun"),
    **dict.fromkeys((*ANIMALS, *ANIMALS.values(), *PLACES), "noun"),
    **dict.fromkeys((*VERBS, *VERBS.values()), "verb"),
    **dict.fromkeys(PREPOSITIONS, "preposition"),
    ".": "mark",
}


class Trained(NamedTuple):
    """A model with its tokenizer, and where it comes from."""

    model: Model
    tokenizer: Any
    origin: str


def sentences(count: int, seed: int = 0) -> list[str]:
    """Random sentences of the grammar; the same for the same seed."""
    draw = np.random.default_rng(seed)

    def one_of(words: Any) -> str:
        words = list(words)
        return words[draw.integers(len(words))]

    def phrase(singular: str, plural: str, many: bool) -> list[str]:
        determiner = one_of(("the", "some", "these") if many else ("the", "a"))
        adjective = [one_of(ADJECTIVES)] if draw.random() < 0.4 else []
        return [determiner, *adjective, plural if many else singular]

    def sentence() -> str:
        many = draw.random() < 0.5
        person = one_of(PEOPLE)
        plural, possessive = PEOPLE[person]
        words = phrase(person, plural, many)
        if draw.random() < 0.5:
            words += [one_of(PREPOSITIONS), "the", one_of(PLACES)]
        verb = one_of(VERBS)
        words.append(VERBS[verb] if many else verb)
        animal = one_of(ANIMALS)
        if draw.random() < 0.7:
            words += ["their" if many else possessive, animal]
        else:
            words += phrase(animal, ANIMALS[animal], draw.random() < 0.5)
        if draw.random() < 0.2:
            words += [one_of(PREPOSITIONS), "the", one_of(PLACES)]
        return " ".join([*words, "."])

    return [sentence() for _ in range(count)]


def encode(tokenizer: Any, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Ids and attention mask [B, T] of some texts, padded to the longest."""
    rows = [row.ids for row in tokenizer.encode_batch(texts)]
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for line, row in zip(ids, rows, strict=True):
        line[: len(row)] = row
    return ids, (np.arange(ids.shape[1]) < np.array([[len(row)] for row in rows])).astype(np.int64)


class MaskedBatch(NamedTuple):
    input_ids: np.ndarray
    labels: np.ndarray
    attention_mask: np.ndarray


def masked_batch(tokenizer: Any, texts: list[str], seed: int, rate: float = 0.15) -> MaskedBatch:
    """A batch of texts for masked-language training."""
    return mask_batch(tokenizer, *encode(tokenizer, texts), seed, rate)


def mask_batch(tokenizer: Any, ids: np.ndarray, mask: np.ndarray, seed: int, rate: float) -> MaskedBatch:
    masked = mask_tokens(
        ids, tokenizer.mask_id, tokenizer.vocab_size, rate, seed=seed, special_ids=tokenizer.special_ids
    )
    return MaskedBatch(masked.input_ids, masked.targets, mask)


def tiny_tokenizer() -> WordPieceTokenizer:
    """The words of the grammar, and letters for all others."""
    letters = string.ascii_lowercase + string.digits
    pieces = [*letters, *(f"##{letter}" for letter in letters), *"?!,'-"]
    return WordPieceTokenizer(Description(tuple(dict.fromkeys([*SPECIAL_TOKENS, *pieces, *TAGS]))))


def tiny_config(tokenizer: Any, **changes: Any) -> Any:
    """A Mini-BERT of 2 layers of 64."""
    settings = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
    return MINI_BERT_CONFIG.replace(
        vocab_size=tokenizer.vocab_size, max_position_embeddings=32, **{**settings, **changes}
    )


def train_tiny(
    config: Any, tokenizer: Any, steps: int = STEPS, seed: int = 0, rate: float = RATE
) -> Iterator[tuple[Model, float]]:
    """Train a tiny model; gives the model and the loss after every step."""
    model = Model(config, "mlm", engine="numpy", threads=1, seed=seed)
    optimizer = AdamW(model, rate)
    step = TrainingStep(model, optimizer)
    pool = min(POOL, steps * BATCH)
    ids, mask = encode(tokenizer, sentences(pool, seed + 1))
    schedule = make_schedule("linear", warmup=0.1)
    for number in range(steps):
        rows = np.arange(number * BATCH, (number + 1) * BATCH) % pool
        batch = mask_batch(tokenizer, ids[rows], mask[rows], number, MASKED)
        optimizer.learning_rate = rate * schedule((number + 1) / (steps + 1))
        yield model, float(step(*batch).loss)


@cache
def trained() -> Trained:
    """The model that lessons look into. The first call may train for some seconds; later ones read the cache."""
    packaged = Path(glassbert.__file__).parent / "pretrained" / "mini"
    if (packaged / "manifest.json").is_file():
        return Trained(
            *load_with_tokenizer(packaged, engine="numpy", head="mlm"), "the Mini that ships with the package"
        )
    return tiny()


@cache
def tiny() -> Trained:
    """The tiny model of the small grammar, from the cache folder or newly trained."""
    origin = "a tiny model, trained on sentences of a small grammar"
    try:
        folder: Path | None = cache_folder() / "learn" / f"tiny-{VERSION}"
    except GlassBertError:  # no home: trained anew every time
        folder = None
    if folder is not None and (folder / "config.json").is_file():
        try:
            return Trained(load(folder, engine="numpy", head="mlm"), WordPieceTokenizer.load(folder), origin)
        except GlassBertError:
            shutil.rmtree(folder, ignore_errors=True)  # half written or damaged: trained again
    tokenizer = tiny_tokenizer()
    *_, (model, _) = train_tiny(tiny_config(tokenizer), tokenizer)
    if folder is not None:
        keep(model, tokenizer, folder)
    return Trained(model, tokenizer, origin)


def keep(model: Model, tokenizer: WordPieceTokenizer, folder: Path) -> None:
    """Write beside the folder and move into place: two lessons may train at once. Without permission, do nothing."""
    with suppress(OSError, GlassBertError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".tiny-") as part:
            model.save(Path(part) / "model")
            tokenizer.save(Path(part) / "model")
            (Path(part) / "model").rename(folder)
