"""The glass in a notebook (Jupyter, marimo, Colab): the same page over an anywidget.

import glassbert
glassbert.glass("runs/mine", "Paris is the [MASK] of France.")
"""

from __future__ import annotations

from typing import Any

from glassbert.errors import InputError, needs
from glassbert.learn.glass.bundle import style
from glassbert.learn.glass.bundle import widget as widget_module
from glassbert.learn.glass.opening import as_loaded, first_view
from glassbert.learn.glass.session import TEXT, Glass


def glass(model: Any = "mini", text: str = TEXT, *, tokenizer: Any = None, against: Any = None) -> Any:
    """Look inside a model in a notebook: every number of a pass, forward and backward.

    model      a run, a model folder, or a model together with its `tokenizer`
    text       the text to begin with; the longest word is masked unless [MASK] is written
    against    another model, to compare
    """
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise InputError(needs("the glass in a notebook", "anywidget")) from None

    models = [as_loaded(model, tokenizer)]
    if against is not None:
        models.append(as_loaded(against, tokenizer, "other"))
    answers = Glass(models, [first_view(models[0], text)])

    class GlassWidget(anywidget.AnyWidget):
        _esm = traitlets.Unicode(widget_module()).tag(sync=True)
        _css = traitlets.Unicode(style()).tag(sync=True)

    widget = GlassWidget()
    widget.on_msg(lambda sender, message, buffers: _answer(answers, sender, message))
    return widget


def _answer(answers: Glass, sender: Any, message: Any) -> None:
    """Answer one question of the page; what is no question is ignored."""
    if not isinstance(message, dict) or "number" not in message:
        return
    given = message.get("given")
    answer = answers.ask(str(message.get("method")), given if isinstance(given, dict) else {})
    sender.send({"number": message["number"], "answer": answer})
