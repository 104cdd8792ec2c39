"""Thirty-two sentences to begin with, and a WordPiece vocabulary trained on them."""

from __future__ import annotations

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNKNOWN, CLS, SEP, MASK = range(5)

SENTENCES = (
    "Paris is the capital of France.",
    "Rome is the capital of Italy, and all roads are said to lead there.",
    "The moon pulls the water of the sea, and so the tide rises and falls.",
    "Bees carry pollen from flower to flower while they look for nectar.",
    "A triangle has three sides, and its angles add up to half a turn.",
    "The old lighthouse keeper climbed two hundred steps every evening.",
    "Bread needs flour, water, salt and a little patience.",
    "The train left the station seven minutes late because of the snow.",
    "Light from the sun takes about eight minutes to reach the earth.",
    "She tuned the violin before the rest of the orchestra arrived.",
    "Rivers carve valleys slowly, one grain of sand at a time.",
    "The baker opens her shop long before the street wakes up.",
    "Ice floats on water because it is less dense than the liquid below it.",
    "He forgot his umbrella at home and came back wet to the skin.",
    "A good map shows the things you need and leaves out the rest.",
    "The library keeps its oldest books in a cool and dark room.",
    "Cats sleep most of the day and hunt when the light is low.",
    "The bridge was built of stone and has stood for five centuries.",
    "Plants take in carbon dioxide and give off oxygen in the light.",
    "My grandmother taught me to play chess on rainy afternoons.",
    "The pilot waited for the fog to lift before she took off.",
    "Copper turns green when it stands in the rain for many years.",
    "The market sells apples, pears and plums in autumn.",
    "Sound travels faster through water than through air.",
    "The children built a dam of pebbles across the little stream.",
    "A compass needle points north because the earth is a magnet.",
    "The clock in the tower strikes twelve at noon.",
    "Wool keeps us warm because it holds so much air.",
    "The ship carried tea, silk and spices from the east.",
    "Snow fell through the night and covered every roof in the village.",
    "The teacher drew a circle on the board and asked for its center.",
    "Many small steps, taken in the right direction, make a long journey.",
)


def train_tokenizer(sentences: tuple[str, ...] = SENTENCES, vocabulary: int = 1_000) -> Tokenizer:
    """A WordPiece tokenizer as BERT has it: lower case, `##` for the inside of words, special tokens first."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.normalizer = normalizers.BertNormalizer()  # type: ignore[assignment]
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    tokenizer.decoder = decoders.WordPiece()  # type: ignore[assignment]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL_TOKENS), show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(sentences, trainer)
    return tokenizer


def padded_batch(tokenizer: Tokenizer, sentences: tuple[str, ...], length: int) -> tuple[np.ndarray, np.ndarray]:
    """ids and attention mask, [sentences, longest], each row as [CLS] ... [SEP]."""
    rows = [[CLS, *tokenizer.encode(text).ids[: length - 2], SEP] for text in sentences]
    longest = max(len(row) for row in rows)
    ids = np.full((len(rows), longest), PAD)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids, (ids != PAD).astype(np.int64)
