"""What the baselines see of an example: counts of words instead of their meaning.

    words        TF-IDF of words and of two words in a row
    letters      the same, and runs of three to five letters: they forgive spelling and endings
    pairs        how much two texts share: cosines, common words, lengths; and the words they share or do not share
    columns      the cells of a table as they are: numbers scaled, one column for each value of a category

Everything is fitted on training rows alone. scikit-learn does the counting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from glassbert.tasks.data import TaskData
from glassbert.tasks.profile import BOOLEANS, profile
from glassbert.tasks.table import as_number, is_missing

WORD = r"(?u)\w+|[^\w\s]"  # "!" and ":" say something too
LOUD = 3.0  # the few features of a pair weigh this much against thousands of words
MOST_VALUES = 50  # of a category that get a column of their own
SEEN_OFTEN_ENOUGH = 2
DIRECTIONS = 256

Transform = Callable[[TaskData], Any]  # examples to a sparse matrix [N, features]


def word_features(train: TaskData) -> Transform:
    return _pair_features(train, letters=False) if train.pairs is not None else _text_features(train.texts, False)


def letter_features(train: TaskData) -> Transform:
    return _pair_features(train, letters=True) if train.pairs is not None else _text_features(train.texts, True)


def column_features(train: TaskData) -> Transform:
    """The columns that went into the text, each as what it is; texts among them as words."""
    return _column_features(train, COLUMNS)


def short_column_features(train: TaskData) -> Transform:
    """The same without the words of texts: few enough for trees."""
    return _column_features(train, {**COLUMNS, "text": _known_or_not})


def _column_features(train: TaskData, ways: Mapping[str, Any]) -> Transform:
    assert train.template is not None
    makers = []
    for part in train.template.parts:
        values = train.table.column(part.column)
        kind = profile(part.column, values).kind
        makers.append((part.column, ways.get(kind, _known_or_not)(values)))

    def transform(data: TaskData) -> Any:
        from scipy.sparse import csr_matrix, hstack

        blocks = [csr_matrix(make(data.table.column(name))) for name, make in makers]
        return hstack([csr_matrix((len(data), 0)), *blocks]).tocsr()

    return transform


def cosine_vectors(train: TaskData, data: TaskData, scored: bool) -> np.ndarray:
    """Two vectors for every pair, [N, 2, H], whose cosine is that of the texts' TF-IDF vectors.

    Where pairs have scores nothing but that cosine is asked for, and vectors of two numbers have it. Where they have
    none, every text is compared with every partner: there the TF-IDF vectors are cut down to their main directions.
    """
    assert data.pairs is not None
    vectorizer = _words().fit([*train.texts, *(train.pairs or ())])
    first, second = vectorizer.transform(data.texts), vectorizer.transform(data.pairs)
    if scored:
        cosine = np.clip(_row_products(first, second), 0.0, 1.0)
        pairs = np.stack([np.ones_like(cosine), 0 * cosine, cosine, np.sqrt(1 - cosine**2)], 1)
        return pairs.reshape(-1, 2, 2)
    from scipy.sparse import vstack
    from sklearn.decomposition import TruncatedSVD

    both = vstack([first, second]).tocsr()
    directions = min(DIRECTIONS, min(both.shape) - 1)
    cut = TruncatedSVD(directions, random_state=0).fit_transform(both) if directions > 0 else both.toarray()
    return np.stack([cut[: len(data)], cut[len(data) :]], 1)


def _words() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True, dtype=np.float64)


def _letters() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, min_df=2, dtype=np.float64)


def _fitted(make: Callable[[], Any], texts: Sequence[str]) -> Any | None:
    """None where no feature is left: texts without a word, or without a run of letters that comes twice."""
    try:
        return make().fit(texts)
    except ValueError:
        return None


def _text_features(texts: Sequence[str], letters: bool) -> Transform:
    fitted = [one for make in (_words, *([_letters] if letters else [])) if (one := _fitted(make, texts)) is not None]

    def transform(data: TaskData) -> Any:
        from scipy.sparse import csr_matrix, hstack

        # A column of ones would be the intercept, which the models have; without words there is nothing else to see.
        return hstack([csr_matrix((len(data), 1)), *(one.transform(data.texts) for one in fitted)]).tocsr()

    return transform


def _pair_features(train: TaskData, letters: bool) -> Transform:
    both = [*train.texts, *(train.pairs or ())]
    words, runs = _fitted(_words, both), _fitted(_letters, both) if letters else None

    def transform(data: TaskData) -> Any:
        from scipy.sparse import csr_matrix, hstack

        assert data.pairs is not None
        dense = [_overlap(data.texts, data.pairs)]
        blocks = []
        for vectorizer in (words, runs):
            if vectorizer is None:
                continue
            a, b = vectorizer.transform(data.texts), vectorizer.transform(data.pairs)
            cosine = _row_products(a, b)
            dense.append(np.stack([cosine, cosine**2], 1))
            blocks += [a.minimum(b), abs(a - b)]
        return hstack([csr_matrix(LOUD * np.concatenate(dense, 1)), *blocks]).tocsr()

    return transform


def _overlap(first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """Of each pair, [N, 5]: words shared among all, among those of the shorter, lengths, and numbers shared."""
    rows = []
    for a, b in zip(first, second, strict=True):
        left, right = set(a.lower().split()), set(b.lower().split())
        shared, shorter = len(left & right), min(len(left), len(right))
        figures = [{word for word in words if any(sign.isdigit() for sign in word)} for words in (left, right)]
        rows.append(
            [
                shared / max(1, len(left | right)),
                shared / max(1, shorter),
                shorter / max(1, len(left), len(right)),
                abs(np.log1p(len(left)) - np.log1p(len(right))),
                float(figures[0] == figures[1]),
            ]
        )
    return np.array(rows, np.float64).reshape(-1, 5)


def _row_products(a: Any, b: Any) -> np.ndarray:
    return np.asarray(a.multiply(b).sum(1), np.float64).ravel()


# ---- columns of a table: each function looks at the training values and returns the way from values to a matrix


def _numbers(values: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    known = np.array([number for value in values if (number := _number(value)) is not None] or [0.0])
    middle, spread = float(known.mean()), float(known.std()) or 1.0

    def transform(cells: Sequence[Any]) -> Any:
        numbers = [_number(cell) for cell in cells]
        scaled = [0.0 if number is None else (number - middle) / spread for number in numbers]
        return np.stack([scaled, [number is None for number in numbers]], 1).astype(np.float64)

    return transform


def _categories(values: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    counts = Counter(_word(value) for value in values)
    names = [name for name, count in counts.most_common(MOST_VALUES) if count >= SEEN_OFTEN_ENOUGH]
    place = {name: column for column, name in enumerate(names)}

    def transform(cells: Sequence[Any]) -> Any:
        matrix = np.zeros((len(cells), len(names)))
        for row, cell in enumerate(cells):
            if (column := place.get(_word(cell))) is not None:
                matrix[row, column] = 1.0
        return matrix

    return transform


def _prose(values: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    vectorizer = _fitted(_words, [_word(value) for value in values])
    if vectorizer is None:
        return _known_or_not(values)
    return lambda cells: vectorizer.transform([_word(cell) for cell in cells])


def _known_or_not(values: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    return lambda cells: np.array([[float(not is_missing(cell))] for cell in cells]).reshape(-1, 1)


COLUMNS: dict[str, Callable[[Sequence[Any]], Callable[[Sequence[Any]], Any]]] = {
    "number": _numbers,
    "boolean": _categories,
    "category": _categories,
    "text": _prose,
    "id": lambda values: lambda cells: np.zeros((len(cells), 0)),
    "constant": lambda values: lambda cells: np.zeros((len(cells), 0)),
    "empty": lambda values: lambda cells: np.zeros((len(cells), 0)),
}


def _number(value: Any) -> float | None:
    return None if is_missing(value) else as_number(value)


def _word(value: Any) -> str:
    if is_missing(value):
        return ""
    word = str(value).strip()
    return str(BOOLEANS.get(word.lower(), word))
