"""Insight: internals of a model as NumPy arrays, and as pictures.

    from glassbert.insight import explain, head_kinds, head_statistics, open_model, read_rows

    loaded = open_model("runs/mini")
    found = explain(loaded, "Paris is the [MASK] of France.")              # answers, saliency, layers, heads
    statistics = head_statistics(loaded.model, read_rows(loaded, texts))   # [layers, heads] each
    head_kinds(statistics)

| module | content |
|---|---|
| inputs | models with their tokenizers, texts as batches |
| attention | attention maps, entropy, distance, statistics and kinds of heads |
| syntax | heads that follow dependency relations, against a fixed distance |
| pruning | the loss without heads |
| saliency, aims, answers, prediction | attributions and explanations of one prediction |
| states, geometry | hidden states, logit lens, layer similarity, PCA, isotropy, intrinsic dimension |
| dynamics | gradient norms, the log of a run, change of weights over a run |
| pictures, views | the registry of insights (`@insight`) and the built-in ones |
"""

from glassbert.insight.aims import Aim
from glassbert.insight.attention import (
    HeadStatistics,
    attention_distance,
    attention_entropy,
    attention_maps,
    head_kinds,
    head_statistics,
)
from glassbert.insight.dynamics import Evolution, Flow, LoggedFlow, evolution, gradient_flow, logged_flow, weight_change
from glassbert.insight.geometry import anisotropy, intrinsic_dimension, isotropy, principal_components, umap_points
from glassbert.insight.inputs import LoadedModel, masked_batches, open_model, read_rows, read_texts, untrained
from glassbert.insight.pictures import Scene, View, draw_pictures, get_insights, insight
from glassbert.insight.prediction import Prediction, explain
from glassbert.insight.prediction_page import prediction_page
from glassbert.insight.pruning import head_importance, remove_greedily, without_heads
from glassbert.insight.saliency import baseline_ids, gradient_x_input, integrated_gradients
from glassbert.insight.states import hidden_states, layer_similarity, logit_lens, tagged_states, word_states
from glassbert.insight.syntax import Syntax, syntactic_heads

__all__ = [
    "Aim",
    "Evolution",
    "Flow",
    "HeadStatistics",
    "LoadedModel",
    "LoggedFlow",
    "Prediction",
    "Scene",
    "Syntax",
    "View",
    "anisotropy",
    "attention_distance",
    "attention_entropy",
    "attention_maps",
    "baseline_ids",
    "draw_pictures",
    "evolution",
    "explain",
    "get_insights",
    "gradient_flow",
    "gradient_x_input",
    "head_importance",
    "head_kinds",
    "head_statistics",
    "hidden_states",
    "insight",
    "integrated_gradients",
    "intrinsic_dimension",
    "isotropy",
    "layer_similarity",
    "logged_flow",
    "logit_lens",
    "masked_batches",
    "open_model",
    "prediction_page",
    "principal_components",
    "read_rows",
    "read_texts",
    "remove_greedily",
    "syntactic_heads",
    "tagged_states",
    "umap_points",
    "untrained",
    "weight_change",
    "without_heads",
    "word_states",
]
