// The stack of layers as a map of named values: forward left to right, backward right to left.

import { h, replace } from "./dom.js";
import { shown, times } from "./format.js";
import { section } from "./state.js";

const STREAM = new Set(["add"]);

export class MapPanel {
  constructor(app) {
    this.app = app;
    const { element, body } = section("map", "The stack of layers", "Every box is an operation with a name. The line is the residual stream: branches leave it and are added to it again.");
    this.element = element;
    this.switch = h(
      "div",
      {
        className: "gb-switch",
        role: "radiogroup",
        "aria-label": "Direction",
        onkeydown: (event) => {
          const side = { ArrowLeft: "backward", ArrowRight: "forward" }[event.key];
          if (!side) return;
          this.turn(side);
          this.switch.querySelector("[aria-checked=true]").focus();
        },
      },
      ["forward", "backward"].map((side) =>
        h("button", { role: "radio", dataset: { side }, onclick: () => this.turn(side) }, side === "forward" ? "forward →" : "← backward"),
      ),
    );
    this.board = h("div", { className: "gb-map", tabIndex: 0, role: "group", "aria-label": "Map of operations; arrow keys move between them" });
    this.board.addEventListener("keydown", (event) => this.keys(event));
    this.note = h("p", { className: "gb-hint" });
    body.append(h("div", { className: "gb-map-head" }, this.switch, this.note), this.board);
  }

  turn(side) {
    const { store } = this.app;
    const { look, state } = store;
    if (side === "backward" && !look?.map.backward.length) {
      this.note.textContent = look?.why_no_loss ?? "";
      return;
    }
    const names = look?.map[side].map((entry) => entry.name) ?? [];
    store.update({ side, node: names.includes(state.node) ? state.node : names[0], role: "", cell: null });
  }

  changed(changed) {
    if (changed.has("look") || changed.has("side")) this.draw();
    if (changed.has("node") || changed.has("look") || changed.has("side")) this.mark();
  }

  draw() {
    const { look, state } = this.app.store;
    if (!look) return;
    const back = state.side === "backward";
    this.element.classList.toggle("gb-backward", back);
    for (const button of this.switch.children) {
      const on = button.dataset.side === state.side;
      button.setAttribute("aria-checked", on);
      button.tabIndex = on ? 0 : -1;
    }
    this.note.textContent = back
      ? `The gradient of the loss (${shown(look.loss, 4)}) flows back. Bars show the size of the gradient at each output.`
      : "Bars show the size of what each operation made.";
    const entries = look.map[state.side];
    const order = [...new Set(look.map.forward.map((entry) => entry.group))];
    for (const entry of entries) if (!order.includes(entry.group)) order.push(entry.group);
    const sizes = entries.map((entry) => entry.rms).filter((size) => size > 0);
    const [low, high] = [Math.min(...sizes), Math.max(...sizes)].map(Math.log);
    const share = (size) => (size > 0 ? 0.12 + 0.88 * ((Math.log(size) - low) / (high - low || 1)) : 0);
    const columns = order.map((group) => {
      const own = entries.filter((entry) => entry.group === group);
      if (back) own.reverse();
      const first = own.findIndex((entry) => STREAM.has(entry.operation));
      const isBlock = group.startsWith("layers.");
      const branch = isBlock && !back && first >= 0 ? own.slice(0, first) : isBlock && back ? own.filter((entry) => !STREAM.has(entry.operation)) : own;
      const stream = own.filter((entry) => !branch.includes(entry));
      return h(
        "div",
        { className: `gb-column${isBlock ? " gb-block" : ""}` },
        h("div", { className: "gb-column-title" }, title(group)),
        h("div", { className: "gb-stream" }, stream.map((entry) => this.box(entry, share))),
        h("div", { className: "gb-branch" }, branch.map((entry) => this.box(entry, share))),
      );
    });
    replace(this.board, columns);
  }

  box(entry, share) {
    const name = entry.name.slice(entry.group.length + 1) || entry.name;
    const sum = STREAM.has(entry.operation);
    return h(
      "button",
      {
        className: `gb-box${sum ? " gb-plus-box" : ""}`,
        tabIndex: -1,
        dataset: { node: entry.name },
        title: `${entry.name}\n${entry.operation}, ${times(entry.shape)}\nsize (root mean square) ${shown(entry.rms, 3)}`,
        "aria-label": `${entry.name}, ${entry.operation}, shape ${times(entry.shape)}, size ${shown(entry.rms, 3)}`,
        onclick: () => this.app.store.update({ node: entry.name, role: "", cell: null }),
      },
      h("span", { className: "gb-box-name" }, sum ? "+" : name),
      sum ? null : h("span", { className: "gb-box-operation" }, entry.operation === name ? "" : entry.operation.replace("_", " ")),
      h("span", { className: "gb-box-bar" }, h("span", { style: { width: `${100 * share(entry.rms)}%` } })),
    );
  }

  mark() {
    const { node } = this.app.store.state;
    for (const box of this.board.querySelectorAll(".gb-box")) {
      const on = box.dataset.node === node;
      box.classList.toggle("gb-on", on);
      box.tabIndex = on ? 0 : -1;
      if (on) {
        box.setAttribute("aria-current", "true");
        const [own, board] = [box.getBoundingClientRect(), this.board.getBoundingClientRect()];
        const left = this.board.scrollLeft + own.left - board.left - (board.width - own.width) / 2;
        this.board.scrollTo({ left, behavior: this.moved ? "smooth" : "auto" });
        this.moved = true;
      } else box.removeAttribute("aria-current");
    }
  }

  keys(event) {
    const { store } = this.app;
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.app.step(steps[event.key] * (store.state.side === "backward" && event.key.match(/Left|Right/) ? -1 : 1));
    this.board.querySelector(".gb-on")?.focus();
  }
}

function title(group) {
  const found = /^layers\.(\d+)(?:\.(.*))?$/.exec(group);
  if (!found) return group.replace("_", " ");
  return [h("b", {}, `layer ${found[1]}`), found[2] ? ` ${found[2]}` : ""];
}
