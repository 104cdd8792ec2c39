"""The built-in insights, in the order of the page."""

from __future__ import annotations

import numpy as np

from glassbert.errors import GlassBertError, InputError
from glassbert.insight import attention_figures, model_figures
from glassbert.insight.attention import attention_maps, head_kinds, head_statistics
from glassbert.insight.dynamics import evolution, gradient_flow, logged_flow
from glassbert.insight.geometry import (
    Components,
    anisotropy,
    intrinsic_dimension,
    isotropy,
    principal_components,
    umap_points,
)
from glassbert.insight.inputs import LoadedModel, masked_batches, read_rows
from glassbert.insight.pictures import Scene, View, insight
from glassbert.insight.prediction import explain
from glassbert.insight.pruning import head_importance, remove_greedily
from glassbert.insight.states import layer_similarity, tagged_states, word_states
from glassbert.insight.syntax import syntactic_heads
from glassbert.metrics import Undefined
from glassbert.training.fill_mask import encode_masked

COMMON_TAGS = 5
PRUNING_TEXTS = 48  # one evaluation per head
MAX_GREEDY_HEADS = 16  # larger models stop after three removals, because the cost is quadratic


@insight("attention", title="Attention maps")
def attention(scene: Scene) -> View:
    ids = {one.name: encode_masked(one.tokenizer, scene.sentence) for one in scene.models}
    maps = {one.name: attention_maps(one.model, ids[one.name])[:, 0] for one in scene.models}
    tokens = {one.name: [one.tokenizer.id_to_token(int(i)) for i in ids[one.name][0]] for one in scene.models}
    return View(
        {"maps": maps, "tokens": tokens},
        lambda: attention_figures.maps_figure(maps, tokens),
        f"Every head on “{scene.sentence}”, as layer.head. A row is the query, a column the key.",
    )


@insight("heads", title="Attention statistics of the heads")
def heads(scene: Scene) -> View:
    texts = scene.require_texts()
    found = {one.name: head_statistics(one.model, read_rows(one, texts), scene.on_progress) for one in scene.models}
    kinds = {name: head_kinds(statistics) for name, statistics in found.items()}
    counts = "; ".join(f"{name}: {_counted(names)}" for name, names in kinds.items())
    return View(
        {"habits": {name: one.as_dict() for name, one in found.items()}, "kinds": kinds},
        lambda: attention_figures.statistics_figure(found),
        f"Shares of attention, averaged over {next(iter(found.values())).words:,} words. {counts}.",
    )


def _counted(kinds: list[list[str]]) -> str:
    names, counts = np.unique(np.array(kinds), return_counts=True)
    return ", ".join(f"{count} {name}" for count, name in sorted(zip(counts, names, strict=True), reverse=True))


@insight("syntax", title="Syntactic relations and heads")
def syntax(scene: Scene) -> View:
    annotated = scene.require_annotations()
    found = {one.name: syntactic_heads(one, annotated, len(scene.texts), scene.on_progress) for one in scene.models}
    arrays = {
        name: {
            "relations": [one.name for one in syntax.relations],
            "heads": np.array([(one.layer, one.head) for one in syntax.relations]),
            "accuracy": np.array([one.accuracy for one in syntax.relations]),
            "baseline": np.array([one.baseline for one in syntax.relations]),
        }
        for name, syntax in found.items()
    }
    one = next(iter(found.values()))
    return View(
        arrays,
        lambda: attention_figures.syntax_figure(found),
        f"Share of word pairs in which the best head (layer.head) finds the other word of a relation. The black line "
        f"is the best fixed distance; blue bars are significantly better than it. {one.sentences:,} sentences, "
        f"{one.too_long} too long for the model. Head and distance are chosen on one half and measured on the other.",
    )


@insight("pruning", title="Importance of the heads")
def pruning(scene: Scene) -> View:
    texts = scene.require_texts()[:PRUNING_TEXTS]
    importance, removal = {}, {}
    for one in scene.models:
        batches = masked_batches(one, texts)
        importance[one.name] = head_importance(one.model, batches, scene.on_progress)
        count = importance[one.name].rise.size
        limit = None if count <= MAX_GREEDY_HEADS else 3
        removal[one.name] = remove_greedily(one.model, batches, limit, scene.on_progress)
    return View(
        {
            "rise": {name: one.rise for name, one in importance.items()},
            "removed": {name: np.array(one.order) for name, one in removal.items()},
            "losses": {name: one.losses for name, one in removal.items()},
        },
        lambda: attention_figures.pruning_figure(importance, removal),
        f"The masked-word loss on {len(texts)} texts without heads: each removed alone, and removed cumulatively.",
    )


@insight("saliency", title="Attributions of the words")
def saliency(scene: Scene) -> View:
    found = {one.name: explain(one, scene.sentence, heads=1, on_progress=scene.on_progress) for one in scene.models}
    values = {name: one.integrated.attributions for name, one in found.items()}
    titles = {
        name: f"{name}: {one.answer.name}" + ("" if one.answer.chance is None else f" ({one.answer.chance:.1%})")
        for name, one in found.items()
    }
    tokens = {name: one.tokens for name, one in found.items()}
    return View(
        {"tokens": tokens, "integrated_gradients": values},
        lambda: model_figures.saliency_figure(tokens, values, titles),
        f"Integrated gradients of the most probable answer to “{scene.sentence}”, relative to the text with every word "
        "masked.",
    )


@insight("geometry", title="Principal components of the representations")
def geometry(scene: Scene) -> View:
    clouds: dict[str, dict[str, Components]] = {}
    groups: dict[str, np.ndarray] = {}
    for one in scene.models:
        states, groups = _states_and_groups(scene, one)
        clouds[one.name] = {name: principal_components(cloud) for name, cloud in states.items()}
        scene.on_progress()
    return View(
        {name: {layer: cloud.points for layer, cloud in layers.items()} for name, layers in clouds.items()},
        lambda: model_figures.clouds_figure(clouds, groups),
        "Words by layer, in the plane of their first two principal components"
        + (", coloured by part of speech." if len(groups) > 1 else "."),
    )


@insight("umap", title="UMAP of the last layer")
def neighbourhoods(scene: Scene) -> View:
    points: dict[str, np.ndarray] = {}
    groups: dict[str, np.ndarray] = {}
    for one in scene.models:
        states, groups = _states_and_groups(scene, one)
        points[one.name] = umap_points(list(states.values())[-1])
        scene.on_progress()
    return View(
        points,
        lambda: model_figures.neighbourhoods_figure(points, groups),
        "UMAP of the last layer. Neighbours stay neighbours; distances between clusters have no meaning.",
    )


@insight("shape", title="Anisotropy, isotropy, intrinsic dimension")
def shape(scene: Scene) -> View:
    measures = {"anisotropy": anisotropy, "isotropy": isotropy, "intrinsic dimension": intrinsic_dimension}
    found: dict[str, dict[str, list[float]]] = {}
    layers: list[str] = []
    reasons: dict[str, None] = {}
    for one in scene.models:
        states = word_states(one.model, read_rows(one, scene.require_texts()), 2_000, unique=True)
        layers = max(layers, list(states), key=len)
        found[one.name] = {title: [] for title in measures}
        for title, measure in measures.items():
            for cloud in states.values():
                try:
                    found[one.name][title].append(measure(cloud))
                except Undefined as error:
                    found[one.name][title].append(np.nan)
                    reasons[str(error)] = None
        scene.on_progress()
    return View(
        {**found, "layers": layers},
        lambda: model_figures.shape_figure(found, model_figures.short_names(layers)),
        "By layer, over different words. Anisotropy: the mean cosine of two words. Isotropy: 1 if the variance is the "
        "same in all directions. Intrinsic dimension: TwoNN estimate."
        + "".join(f" There is {reason}." for reason in reasons),
    )


@insight("likeness", title="Similarity of the layers")
def likeness(scene: Scene) -> View:
    states = {one.name: word_states(one.model, read_rows(one, scene.require_texts())) for one in scene.models}
    names = list(states)
    tables = {name: layer_similarity(states[name], states[name]) for name in names}
    counts = {len(next(iter(one.values()))) for one in states.values()}
    if len(names) > 1 and len(counts) == 1:
        tables[f"{names[0]} and {names[1]}"] = layer_similarity(states[names[0]], states[names[1]])
    layers = model_figures.short_names(max((list(one) for one in states.values()), key=len))
    return View(
        tables,
        lambda: model_figures.likeness_figure(tables, layers),
        f"Linear CKA over {max(counts):,} words: 1 if equal up to rotation and scale.",
    )


@insight("flow", title="Gradient norms by layer")
def flow(scene: Scene) -> View:
    texts = scene.require_texts()
    found = {
        one.name: gradient_flow(one.model, masked_batches(one, texts[:64]), scene.on_progress) for one in scene.models
    }
    return View(
        {name: {"stream": one.stream, "parameters": one.parameters} for name, one in found.items()},
        lambda: model_figures.flow_figure(found),
        "Gradient of the masked-word loss, from the last layer (right) to the embeddings (left).",
    )


@insight("training", title="Gradients and updates over the run")
def training(scene: Scene) -> View:
    run = scene.models[0].run
    if run is None:
        raise InputError(f"{scene.models[0].name} is no run, so it has no training log; give the folder of a run")
    found = logged_flow(run)
    return View(
        {**vars(found)},
        lambda: model_figures.logged_figure(found),
        f"From the training log of {scene.models[0].name}, {len(found.steps)} steps.",
    )


@insight("evolution", title="Weights and representations over the run")
def weight_evolution(scene: Scene) -> View:
    one = scene.models[0]
    found = evolution(one, read_rows(one, scene.require_texts()), scene.on_progress)
    return View(
        {**vars(found)},
        lambda: model_figures.evolution_figure(found),
        f"{len(found.steps)} saved steps of the run: relative change of the weights of each layer, and CKA of each "
        "layer with its final state. `--snapshots` of pretrain saves more steps.",
    )


def _states_and_groups(scene: Scene, one: LoadedModel) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """States of words by layer, and a mask for every part of speech; one group "words" without annotations."""
    if scene.annotated is None:
        states = word_states(one.model, read_rows(one, scene.require_texts()), 2_000)
        return states, {"words": np.ones(len(next(iter(states.values()))), bool)}
    states, tags = tagged_states(one, scene.annotated.select(range(len(scene.texts))), "upos", 2_000)
    names, counts = np.unique(tags, return_counts=True)
    common = [str(name) for name in names[np.argsort(-counts)][:COMMON_TAGS]]
    if not common:
        raise GlassBertError("no word has a part of speech (column upos)")
    return states, {name: tags == name for name in common}
