"""What people do with vectors of texts: an index to search in, and groups of similar texts.

    from glassbert.finetuning.embedding import embedder
    from glassbert.search import VectorIndex, gather_vectors

    found = gather_vectors("sentences.txt", "mini")
    index = VectorIndex.build("index", found)
    index.ask(embedder("mini"), ["Where is the river?"], count=3)

Names are imported on first access, to keep the import of the package fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassbert.search.clusters import cluster_texts as cluster_texts
    from glassbert.search.index import VectorIndex as VectorIndex
    from glassbert.search.vectors import TextVectors as TextVectors
    from glassbert.search.vectors import gather_vectors as gather_vectors

MODULES = {
    "TextVectors": "vectors",
    "VectorIndex": "index",
    "cluster_texts": "clusters",
    "gather_vectors": "vectors",
}
__all__ = [*MODULES]


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"glassbert.search has no {name!r}")
    return getattr(import_module(f"glassbert.search.{MODULES[name]}"), name)
