"""Features of the baselines.

    words        TF-IDF of words and word pairs
    letters      the same, plus character n-grams of three to five letters, which tolerate misspellings
    pairs        overlap of two texts: cosines, common words, lengths; and the words they share or do not share
    columns      the cells of a table: scaled numbers, one-hot categories

All features are fitted on training rows only, with scikit-learn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from glassbert.reading.cells import as_number, is_missing
from glassbert.tasks.data import TaskData
from glassbert.tasks.profile import BOOLEANS, profile

WORD = r"(?u)\w+|[^\w\s]"  # words and punctuation marks
PAIR_SCALE = 3.0  # factor on the few dense pair features, against thousands of word features
MAX_CATEGORIES = 50  # columns per categorical feature
MIN_CATEGORY_COUNT = 2
SVD_DIMENSIONS = 256

Transform = Callable[[TaskData], Any]  # from examples to a sparse matrix [N, features]


def word_features(train: TaskData) -> Transform:
    return _pair_features(train, letters=False) if train.pairs is not None else _text_features(train.texts, False)


def letter_features(train: TaskData) -> Transform:
    return _pair_features(train, letters=True) if train.pairs is not None else _text_features(train.texts, True)


def column_features(train: TaskData) -> Transform:
    """Features of the template columns by their type; text columns as TF-IDF of words."""
    return _column_features(train, COLUMN_ENCODERS)


def short_column_features(train: TaskData) -> Transform:
    """The same, but text columns only as present or missing: few enough features for boosted trees."""
    return _column_features(train, {**COLUMN_ENCODERS, "text": _presence})


def _column_features(train: TaskData, encoders: Mapping[str, Any]) -> Transform:
    assert train.template is not None
    fitted = []
    for part in train.template.parts:
        values = train.table.column(part.column)
        kind = profile(part.column, values).kind
        fitted.append((part.column, encoders.get(kind, _presence)(values)))

    def transform(data: TaskData) -> Any:
        from scipy.sparse import csr_matrix, hstack

        blocks = [csr_matrix(encode(data.table.column(name))) for name, encode in fitted]
        return hstack([csr_matrix((len(data), 0)), *blocks]).tocsr()

    return transform


def cosine_vectors(train: TaskData, data: TaskData, scored: bool) -> np.ndarray:
    """Two vectors for every pair, [N, 2, H], whose cosine is that of the texts' TF-IDF vectors.

    If pairs have scores (`scored`), only that cosine is needed, and H is 2. Otherwise every text is compared with every
    partner, and the TF-IDF vectors are reduced by a truncated SVD.
    """
    assert data.pairs is not None
    vectorizer = _word_vectorizer().fit([*train.texts, *(train.pairs or ())])
    first, second = vectorizer.transform(data.texts), vectorizer.transform(data.pairs)
    if scored:
        cosine = np.clip(_row_products(first, second), 0.0, 1.0)
        pairs = np.stack([np.ones_like(cosine), 0 * cosine, cosine, np.sqrt(1 - cosine**2)], 1)
        return pairs.reshape(-1, 2, 2)
    from scipy.sparse import vstack
    from sklearn.decomposition import TruncatedSVD

    both = vstack([first, second]).tocsr()
    dimensions = min(SVD_DIMENSIONS, min(both.shape) - 1)
    reduced = TruncatedSVD(dimensions, random_state=0).fit_transform(both) if dimensions > 0 else both.toarray()
    return np.stack([reduced[: len(data)], reduced[len(data) :]], 1)


def _word_vectorizer() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True, dtype=np.float64)


def _letter_vectorizer() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, min_df=2, dtype=np.float64)


def _fitted(vectorizer: Any, texts: Sequence[str]) -> Any | None:
    """A fitted vectorizer; None if the texts give no feature."""
    try:
        return vectorizer.fit(texts)
    except ValueError:
        return None


def _text_features(texts: Sequence[str], letters: bool) -> Transform:
    vectorizers = [_word_vectorizer(), *([_letter_vectorizer()] if letters else [])]
    fitted = [one for vectorizer in vectorizers if (one := _fitted(vectorizer, texts)) is not None]

    def transform(data: TaskData) -> Any:
        from scipy.sparse import csr_matrix, hstack

        # An empty column keeps the matrix valid if the texts give no feature.
        return hstack([csr_matrix((len(data), 1)), *(one.transform(data.texts) for one in fitted)]).tocsr()

    return transform


def _pair_features(train: TaskData, letters: bool) -> Transform:
    both = [*train.texts, *(train.pairs or ())]
    words, letter_runs = _fitted(_word_vectorizer(), both), _fitted(_letter_vectorizer(), both) if letters else None

    def transform(data: TaskData) -> Any:
        from scipy.sparse import csr_matrix, hstack

        assert data.pairs is not None
        dense = [_overlap(data.texts, data.pairs)]
        blocks = []
        for vectorizer in (words, letter_runs):
            if vectorizer is None:
                continue
            a, b = vectorizer.transform(data.texts), vectorizer.transform(data.pairs)
            cosine = _row_products(a, b)
            dense.append(np.stack([cosine, cosine**2], 1))
            blocks += [a.minimum(b), abs(a - b)]
        return hstack([csr_matrix(PAIR_SCALE * np.concatenate(dense, 1)), *blocks]).tocsr()

    return transform


def _overlap(first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """[N, 5]: shared words over all words, over the shorter text; length ratio, log length difference; same numbers."""
    rows = []
    for a, b in zip(first, second, strict=True):
        left, right = set(a.lower().split()), set(b.lower().split())
        shared, shorter = len(left & right), min(len(left), len(right))
        numbers = [{word for word in words if any(c.isdigit() for c in word)} for words in (left, right)]
        rows.append(
            [
                shared / max(1, len(left | right)),
                shared / max(1, shorter),
                shorter / max(1, len(left), len(right)),
                abs(np.log1p(len(left)) - np.log1p(len(right))),
                float(numbers[0] == numbers[1]),
            ]
        )
    return np.array(rows, np.float64).reshape(-1, 5)


def _row_products(a: Any, b: Any) -> np.ndarray:
    return np.asarray(a.multiply(b).sum(1), np.float64).ravel()


# ---- columns of a table: each function is fitted on training values and returns a function from values to a matrix


def _numbers(values: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    known = np.array([number for value in values if (number := _number(value)) is not None] or [0.0])
    mean, spread = float(known.mean()), float(known.std()) or 1.0

    def transform(cells: Sequence[Any]) -> Any:
        numbers = [_number(cell) for cell in cells]
        scaled = [0.0 if number is None else (number - mean) / spread for number in numbers]
        return np.stack([scaled, [number is None for number in numbers]], 1).astype(np.float64)

    return transform


def _categories(values: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    counts = Counter(_category(value) for value in values)
    names = [name for name, count in counts.most_common(MAX_CATEGORIES) if count >= MIN_CATEGORY_COUNT]
    column_of = {name: column for column, name in enumerate(names)}

    def transform(cells: Sequence[Any]) -> Any:
        matrix = np.zeros((len(cells), len(names)))
        for row, cell in enumerate(cells):
            if (column := column_of.get(_category(cell))) is not None:
                matrix[row, column] = 1.0
        return matrix

    return transform


def _text_words(values: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    vectorizer = _fitted(_word_vectorizer(), [_category(value) for value in values])
    if vectorizer is None:
        return _presence(values)
    return lambda cells: vectorizer.transform([_category(cell) for cell in cells])


def _presence(values: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    return lambda cells: np.array([[float(not is_missing(cell))] for cell in cells]).reshape(-1, 1)


COLUMN_ENCODERS: dict[str, Callable[[Sequence[Any]], Callable[[Sequence[Any]], Any]]] = {
    "number": _numbers,
    "boolean": _categories,
    "category": _categories,
    "text": _text_words,
    "id": lambda values: lambda cells: np.zeros((len(cells), 0)),
    "constant": lambda values: lambda cells: np.zeros((len(cells), 0)),
    "empty": lambda values: lambda cells: np.zeros((len(cells), 0)),
}


def _number(value: Any) -> float | None:
    return None if is_missing(value) else as_number(value)


def _category(value: Any) -> str:
    if is_missing(value):
        return ""
    word = str(value).strip()
    return str(BOOLEANS.get(word.lower(), word))
