"""Insight: what happens inside a model, as plain arrays first and as pictures of them.

    from glassbert.insight import explain, head_habits, head_kinds, open_model, read_rows

    opened = open_model("runs/mini")
    found = explain(opened, "Paris is the [MASK] of France.")        # answers, saliency, layers, heads
    habits = head_habits(opened.model, read_rows(opened, texts))     # [layers, heads] each
    head_kinds(habits)

| file | question |
|---|---|
| attention | where do heads look, how widely, how far; what kind of head is it? |
| syntax | which relations of a CoNLL-U file do heads know, against a fixed distance? |
| pruning | what does the loss say when heads fall silent? |
| saliency, lens, prediction | why this answer? |
| states, geometry | what do representations look like, which layers are alike? |
| flow, evolution | how did gradients flow and weights grow? |
| registry, views, pictures | all of it as pictures; `@insight` adds your own |
"""

from glassbert.insight.aims import Aim
from glassbert.insight.attention import (
    HeadHabits,
    attention_distance,
    attention_entropy,
    attention_maps,
    head_habits,
    head_kinds,
)
from glassbert.insight.dynamics import Evolution, Flow, LoggedFlow, evolution, gradient_flow, logged_flow, weight_change
from glassbert.insight.geometry import anisotropy, intrinsic_dimension, isotropy, principal_components, umap_points
from glassbert.insight.inputs import Opened, masked_batches, open_model, read_rows, read_texts, untrained
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
    "HeadHabits",
    "LoggedFlow",
    "Opened",
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
    "head_habits",
    "head_importance",
    "head_kinds",
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
