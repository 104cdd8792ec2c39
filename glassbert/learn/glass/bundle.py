"""All modules of the page as one, for a notebook and for an exported file; nothing has to be built or installed.

Every module becomes a function that returns its exports, and an import becomes a look into them. The modules keep to
two forms: `import { a, b } from "./x.js";` and `export` before a function, a class or a constant.
"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent / "page"
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)


def style() -> str:
    return (PAGE / "style.css").read_text(encoding="utf-8")


def modules(first: str) -> list[str]:
    """The names of a module and of all that it imports, each after those it needs."""
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"the modules import each other in a circle: {' -> '.join((*path, name))}")
        if name not in order:
            for _, other in IMPORT.findall(read(name)):
                visit(other, (*path, name))
            order.append(name)

    visit(first, ())
    return order


def read(name: str) -> str:
    return (PAGE / f"{name}.js").read_text(encoding="utf-8")


def bundle(first: str = "main") -> str:
    """One ES module with the exports of `first`."""
    parts = []
    for name in modules(first):
        text = read(name)
        exported = ", ".join(EXPORT.findall(text))
        text = IMPORT.sub(lambda found: f"const {{{found[1]}}} = module_{found[2]};", text)
        text = re.sub(r"^export ", "", text, flags=re.MULTILINE)
        parts.append(f"const module_{name} = (() => {{\n{text}\nreturn {{ {exported} }};\n}})();")
    names = ", ".join(EXPORT.findall(read(first)))
    return "\n".join([*parts, f"const {{ {names} }} = module_{first};", f"export {{ {names} }};"])


def widget() -> str:
    """The module that anywidget takes."""
    return bundle("main") + "\nexport default { render };\n"
