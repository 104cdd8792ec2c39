"""Small tokenizers: a WordPiece vocabulary with many kinds of characters, and folders of other kinds."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import SPECIAL_TOKENS
from glassbert.text.wordpiece_files import Description
from tests.text.sample_sentences import SENTENCES

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["the", "un", "play", "water", "café", "über", "ñandú", "İ", "i", "σ", "ς", "ß", "ſ", "ﬁ", "é", "cafe", "uber"]
INSIDE = ["##ing", "##aff", "##able", "##s", "##er", "##̈", "##é", "##ß", "##σ", "##ς", "##𝅥", "##〮", "##中"]
SIGNS = [*"0123456789.,!?'\"-#[]", "…", "—", "中", "文", "ا", "ب", "א", "😀", "👍", "\u200d", "\ufe0f"]


def description(normaliser: Normaliser | None = None, longest_word: int = 100) -> Description:
    tokens = [*SPECIAL_TOKENS, *LETTERS, *LETTERS.upper(), *(f"##{c}" for c in LETTERS + "0123456789"), *SIGNS]
    return Description(tuple(dict.fromkeys([*tokens, *WORDS, *INSIDE])), normaliser or Normaliser(), longest_word)


def byte_level_folder(folder: Path) -> Path:
    """Byte-level BPE as in RoBERTa: spaces as Ġ, <s> and </s>."""
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return _written(tokenizer, folder, ["<pad>", "<unk>", "<s>", "</s>", "<mask>"])


def unigram_folder(folder: Path) -> Path:
    """Unigram as in ALBERT and DeBERTa: spaces as ▁, [CLS] and [SEP]."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=list(SPECIAL_TOKENS), unk_token="[UNK]", show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return _written(tokenizer, folder, list(SPECIAL_TOKENS))


def _written(tokenizer: Tokenizer, folder: Path, names: list[str]) -> Path:
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    keys = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **dict(zip(keys, names, strict=True))}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
