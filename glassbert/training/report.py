"""The report of a run: one HTML file with curves, predictions, and everything needed to repeat the run.

It is made from the run folder alone, so it can be written at any time.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.reports import Page, figures, short
from glassbert.reports.figures import Series
from glassbert.text.masking import Masking
from glassbert.training.adapting import outcome as adaptation
from glassbert.training.display import distinct_words, duration
from glassbert.training.history import History, moving_mean, weights_sentence
from glassbert.training.planning import receipt
from glassbert.training.run_folder import RunFolder

SAMPLES = 14
HELD_OUT_RATE = Masking().rate


def write_report(run: RunFolder, result: dict[str, Any] | None = None) -> Path:
    """Write RUN/report.html; `result` is passed while a run ends, before its result.json exists."""
    history = History.read(run)
    history.result = result or history.result
    parameters = history.info["model"]["parameters"]
    engine = history.info["engine"]
    page = Page(
        f"Run {run.name}",
        f"{parameters:,} parameters, {history.settings['optimizer']}, {engine['name']} {engine['precision']}; "
        f"started {history.info['begun'].replace('T', ' ').replace('+00:00', ' UTC')}; {history.state}.",
    )
    _facts(page, history)
    _adaptation(page, history)
    _plan(page, history)
    _curves(page, history)
    _predictions(page, history)
    _model_numbers(page, history)
    _events(page, history)
    _reproduction(page, history)
    return page.write(run.report)


def _facts(page: Page, history: History) -> None:
    last, result = history.last, history.result or {}
    facts: list[tuple[str, Any, str]] = []
    if history.held_out is not None:
        loss, accuracy = history.held_out
        parts = history.parts
        perplexity = math.exp(min(next(iter(parts.values()))["loss"] if parts else loss, 50))
        facts.append(("Held-out loss", f"{loss:.3f}", f"perplexity {perplexity:,.1f}"))
        if not parts:
            facts.append(("Accuracy on masked words", share(accuracy), "of held-out text"))
        for name, one in parts.items():
            facts.append((f"Accuracy: {name}", share(one["accuracy"]), f"loss {one['loss']:.3f}"))
    seconds = result.get("seconds", last["seconds"])
    facts.append(("Steps", f"{result.get('steps', last['step']):,}", f"{duration(seconds)} of training"))
    facts.append(("Tokens", short(result.get("tokens", last["tokens"])), _epochs(history)))
    speeds = history.curve("train", "tokens_per_second")[1]
    if speeds:
        facts.append(("Tokens per second", short(float(np.median(speeds))), "median"))
    page.facts(facts)
    if sentence := weights_sentence(result):
        page.text(sentence)
    if history.held_out is not None:
        page.text(held_out_sentence(history))
    if not history.result:
        page.message(
            "note",
            "This run is not finished.",
            f"Continue with: `glassbert resume {shlex.quote(str(history.run.path))}`",
        )


def held_out_sentence(history: History) -> str:
    """How the held-out figures are measured, and why `glassbert evaluate` finds others."""
    rows, length = history.settings["final_evaluation_rows"], history.settings["length"]
    masks = (
        ""
        if history.info["model"]["config"].get("causal")
        else " with masks of its own that are the same for all models,"
    )
    number = f"up to {rows:,} rows" if history.result else "the rows of the last evaluation"
    return (
        f"Held-out figures are means over {number} of {length} tokens, packed as in training. `glassbert evaluate` "
        f"cuts the same documents into rows of whole sentences of at most 128 tokens,{masks} and gives intervals. So "
        "its figures differ from these; compare models by those, and the steps of one run by these."
    )


def _adaptation(page: Page, history: History) -> None:
    found = adaptation.read(history.run)
    if found is not None:
        page.heading("Adaptation")
        for sentence in adaptation.sentences(found):
            page.text(sentence)
        page.table(list(adaptation.COLUMNS), adaptation.rows(found))


def _plan(page: Page, history: History) -> None:
    found = (history.result or {}).get("plan")
    if found:
        page.heading("How the plan did")
        for sentence in receipt.sentences(found):
            page.text(sentence)


def _epochs(history: History) -> str:
    tokens = history.info["data"].get("splits", {}).get("train", {}).get("tokens")
    seen = (history.result or history.last).get("tokens", 0)
    return f"{seen / tokens:.2g} epochs" if tokens else ""


def _curves(page: Page, history: History) -> None:
    page.heading("Loss and accuracy")
    steps, losses = history.curve("train", "loss")
    held_steps, held = history.curve("evaluation", "loss")
    if not steps and len(held_steps) < 2:
        page.text("No step has been logged yet.")
        return
    curves: dict[str, Series] = {}
    if len(steps) > 1:
        curves["_raw"] = Series(steps, losses, faint=True, colour=0)
        window = max(1, len(losses) // 50)
        # The first value is repeated before the curve, so that every mean is over a whole window.
        smooth = moving_mean([losses[0]] * (window - 1) + losses, window - 1)[window - 1 :]
        curves["training"] = Series(steps, smooth, colour=0)
    if len(held_steps) > 1:
        curves["held-out"] = Series(held_steps, held, colour=1)
    if curves:
        page.figure(
            lambda: figures.lines(curves, xlabel="step", ylabel="loss (nats per token)"),
            "The loss on training text and on held-out documents. All evaluations use the same masks"
            + _mask_rates(history.settings),
        )
    with page.columns(2) as (left, right):
        accuracy = history.curve("evaluation", "accuracy")
        if len(accuracy[0]) > 1:
            left.figure(
                lambda: figures.lines({"accuracy": accuracy}, xlabel="step", ylabel="accuracy", width=4.6),
                "The share of masked tokens of held-out text that are predicted correctly.",
            )
        rates, norms = history.curve("train", "learning_rate"), history.curve("train", "gradient_norm")
        if len(rates[0]) > 1:
            right.figure(
                lambda: figures.lines(
                    {"learning rate": Series(rates[0], np.array(rates[1]) / max(rates[1])),
                     "gradient norm": Series(norms[0], np.array(norms[1]) / max(*norms[1], 1e-12))},
                    xlabel="step", ylabel="relative to the largest", width=4.6,
                ),
                f"Largest learning rate {max(rates[1]):.2g}, largest mean gradient norm {max(norms[1]):.2g}.",
            )  # fmt: skip
    _parts(page, history)
    forecasts = history.kind("forecast")
    if forecasts and history.held_out:
        first = forecasts[0]
        page.text(
            f"After {first['progress']:.0%} of the run the forecast of the final held-out loss was {first['loss']:.2f} "
            f"({first['low']:.2f} to {first['high']:.2f})."
        )
    by_source = history.kind("final")[-1].get("by_source") if history.kind("final") else None
    if by_source:
        rows = [(name, f"{v['loss']:.3f}", f"{math.exp(min(v['loss'], 50)):,.2f}", share(v['accuracy'])) for name, v in
                by_source.items()]  # fmt: skip
        page.table(["held-out text of", "loss", "perplexity", "accuracy"], rows)
    with page.details("All evaluations") as section:
        rows = [(e["step"], f"{e['progress']:.0%}", f"{e['loss']:.4f}", share(e['accuracy'], 2)) for e in
                history.kind("evaluation")]  # fmt: skip
        section.table(["step", "progress", "held-out loss", "accuracy"], rows)


def _parts(page: Page, history: History) -> None:
    """Loss and accuracy of each objective, where there are several."""
    lines = [line for line in history.kind("evaluation") if line.get("parts")]
    if len(lines) < 2:
        return
    steps = [line["step"] for line in lines]
    with page.columns(2) as columns:
        for section, what in zip(columns, ("loss", "accuracy"), strict=True):
            curves = {name: (steps, [float(line["parts"][name][what]) for line in lines]) for name in lines[0]["parts"]}
            section.figure(
                partial(figures.lines, curves, xlabel="step", ylabel=what, width=4.6),
                f"The held-out {what} of each objective.",
            )


def _predictions(page: Page, history: History) -> None:
    samples = history.kind("sample")
    if not samples:
        return
    page.heading("Predictions for one sentence")
    page.text(f"“{history.settings['sentence']}”")
    chosen = [samples[i] for i in np.unique(np.geomspace(1, len(samples), SAMPLES).astype(int) - 1)]
    rows = [
        (f"{s['progress']:.1%}", f"{s['step']:,}", *(f"{word} ({chance:.1%})" for word, chance in s["answers"][:4]))
        for s in chosen
    ]
    page.table(["progress", "step", "first choice", "second", "third", "fourth"], rows)
    words = distinct_words([(s["progress"], s["answers"][0][0]) for s in samples])
    if len(words) > 1:
        page.text("First choices in order: " + " → ".join(words[-20:]))


def _model_numbers(page: Page, history: History) -> None:
    lines = history.kind("inside")
    if len(lines) < 2:
        return
    page.heading("Inside the model")
    steps = [line["step"] for line in lines]
    for name, ylabel, caption, log in (
        ("gradient_norm", "norm", "The gradient norm of each module.", True),
        ("update_ratio", "update / weight", "The norm of one update over the norm of the weights.", True),
        ("attention_entropy", "relative entropy", "Attention entropy: 1 if attention is uniform, 0 if on one token.",
         False),
    ):  # fmt: skip
        curves = {module: (steps, [line[name].get(module, math.nan) for line in lines]) for module in lines[0][name]}
        page.figure(
            lambda curves=curves, ylabel=ylabel, log=log: figures.lines(  # type: ignore[misc]
                curves, xlabel="step", ylabel=ylabel, log_y=log
            ),
            caption,
        )


def _events(page: Page, history: History) -> None:
    events = history.kind("event")
    skipped = [event for event in events if "skipped" in event["text"]]
    if skipped:
        page.warning(
            f"{len(skipped)} steps were skipped because a number was not finite.",
            "Try a lower --learning-rate or a longer --warmup.",
            samples=[event["text"] for event in skipped[:5]],
        )
    elif history.result:
        page.good("Every step had a finite loss and gradient.")


def _reproduction(page: Page, history: History) -> None:
    info = history.info
    page.heading("Reproducing the run")
    page.text("This command, on the same text, repeats the run with the same settings.")
    page.code(repeat_command(history))
    machine = {**info["machine"], "engine": " ".join(str(value) for value in info["engine"].values())}
    page.table(["machine", ""], [(key.replace("_", " "), str(value)) for key, value in machine.items() if value])
    page.table(["version", ""], list(info["versions"].items()))
    data = info["data"]
    page.table(
        ["text", "documents", "sentences", "tokens"],
        [(name, split["documents"], split["sentences"], split["tokens"]) for name, split in
         data.get("splits", {}).items()],
        caption=f"Tokenizer of {data.get('tokenizer', {}).get('vocab_size', 0):,} entries",
    )  # fmt: skip
    with page.details("Settings") as section:
        section.code(json.dumps(history.settings, indent=2, ensure_ascii=False))
    with page.details("Model config") as section:
        section.code(json.dumps(info["model"]["config"], indent=2))
    with page.details("Data manifest") as section:
        section.code(json.dumps(data, indent=2, ensure_ascii=False))


def repeat_command(history: History) -> str:
    """A pretrain command with the same settings; values that equal the defaults are left out."""
    from glassbert.training.settings import TrainingSettings

    settings = TrainingSettings.from_dict(history.settings)
    instead_of_none = {"clip": ("clip", 0), "final_mask_rate": ("mask_rate", settings.mask_rate)}
    flags: dict[str, Any] = {"preset": settings.preset}
    for field in dataclasses.fields(settings):
        name, value = field.name, getattr(settings, field.name)
        if name in ("model", "recipe") or getattr(TrainingSettings.from_dict(flags), name) == value:
            continue
        name, value = (name, value) if value is not None else instead_of_none[name]
        flags[name] = value
    words = ["glassbert", "pretrain"]
    for name, value in {**flags, **settings.model}.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            for one in value if isinstance(value, tuple) else [value]:
                words += [flag, shlex.quote(str(one))]
    return " ".join(words)


def _mask_rates(settings: dict[str, Any]) -> str:
    """The masking rates of evaluation and training, if they differ."""
    first, last = settings["mask_rate"], settings["final_mask_rate"]
    if first == HELD_OUT_RATE and last in (None, first):
        return "."
    share = f"{first:.0%} of the tokens" + ("" if last in (None, first) else f" at the start and {last:.0%} at the end")
    return f" on {HELD_OUT_RATE:.0%} of the tokens; training masked {share}."


def share(value: Any, digits: int = 1) -> str:
    """A share as a percentage; an objective may have no accuracy."""
    return "–" if math.isnan(float(value)) else f"{float(value):.{digits}%}"
