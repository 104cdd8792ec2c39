// The chosen operation: formula, operands, results, the opened sum, and the Python lines that ran.

import { h, Latest, replace, sentence } from "./dom.js";
import { times } from "./format.js";
import { Grid } from "./grid.js";
import { section } from "./state.js";
import { TermsPanel } from "./terms.js";

const KINDS = { input: "in", parameter: "parameter", inside: "inside", output: "out", incoming: "gradient in", gradient: "gradient out" };

export class OperationPanel {
  constructor(app) {
    this.app = app;
    this.latest = new Latest();
    this.opening = new Latest();
    this.grids = new Map();
    const { element, body } = section("operation", "The operation", "Its formula, what went in, what came out. Click any number: the sum that made it opens beside it.");
    this.element = element;
    this.title = h("h3", { className: "gb-mono gb-operation-name" });
    this.formula = h("p", { className: "gb-formula gb-big" });
    this.steps = h("div", { className: "gb-step-buttons" });
    this.arrays = h("div", { className: "gb-arrays" });
    this.terms = new TermsPanel({ go: (role, cell) => this.open(role, cell), goNode: (...given) => this.follow(...given) });
    this.code = h("div", { className: "gb-code" });
    this.side = h("aside", { className: "gb-side", "aria-label": "The opened sum and the Python lines" }, h("h4", {}, "The sum behind a number"), this.terms.element, this.code);
    body.append(
      h("div", { className: "gb-operation-head" }, h("div", {}, this.title, this.formula), this.steps),
      h(
        "div",
        { className: "gb-operation" },
        this.arrays,
        this.side,
      ),
    );
  }

  changed(changed) {
    if (["view", "node", "side", "look", "theme"].some((key) => changed.has(key))) this.load();
    else if (changed.has("cell") || changed.has("role")) this.showCell();
  }

  load() {
    const { state, look } = this.app.store;
    const names = look?.map[state.side].map((entry) => entry.name) ?? [];
    if (!names.length) {
      replace(this.title);
      replace(this.arrays, look ? h("p", { className: "gb-hint" }, look.why_no_loss) : null);
      replace(this.formula);
      replace(this.code);
      replace(this.steps);
      this.terms.empty("");
      this.detail = null;
      this.element.classList.remove("gb-backward");
      return;
    }
    const at = Math.max(0, names.indexOf(state.node));
    const neighbour = (step, label, text) =>
      h("button", { className: "gb-button", disabled: !names[at + step], "aria-label": label, onclick: () => this.app.store.update({ node: names[at + step], role: "", cell: null }) }, text);
    replace(this.steps, neighbour(-1, "The operation before", "‹ before"), neighbour(1, "The operation after", "after ›"));
    this.latest.run(
      () => this.app.ask("operation", { view: state.view, name: state.node }),
      (detail) => this.draw(detail),
      (error) => replace(this.arrays, sentence(error)),
    );
  }

  draw(detail) {
    const { state } = this.app.store;
    this.detail = detail;
    const back = state.side === "backward";
    this.element.classList.toggle("gb-backward", back);
    replace(this.title, detail.name, h("span", { className: "gb-tag" }, back && detail.phase === "forward" ? `${detail.operation} backward` : detail.operation));
    const text = back && detail.phase === "forward" ? detail.backward_formula : back ? "Where a value went two ways, its two gradients add up: y = a + b" : detail.formula;
    this.formula.textContent = text;
    const entries = detail.arrays[state.side] ?? detail.arrays.forward;
    const wanted = new Map();
    const cards = entries.map((entry) => {
      const key = entry.role;
      const grid = this.grids.get(key) ?? new Grid({ ask: this.app.ask, dark: () => this.app.dark(), onCell: null });
      grid.onCell = (index) => {
        this.open(entry.role, index);
        if (this.side.getBoundingClientRect().bottom < 120) this.side.scrollIntoView({ block: "start", behavior: "smooth" });
      };
      wanted.set(key, grid);
      return h(
        "article",
        { className: `gb-array gb-kind-${entry.kind}`, dataset: { role: entry.role } },
        h(
          "header",
          {},
          h("span", { className: "gb-role" }, symbol(entry.role)),
          h("span", { className: "gb-mono gb-array-name", title: entry.name }, entry.name),
          h("span", { className: "gb-kind" }, KINDS[entry.kind]),
          h("span", { className: "gb-muted gb-shape" }, times(entry.shape)),
          entry.made_by ? h("button", { className: "gb-link gb-made", title: `Made by ${entry.made_by}`, onclick: () => this.follow(entry.made_by, null) }, "made by ↗") : null,
        ),
        grid.element,
      );
    });
    this.grids = wanted;
    replace(this.arrays, cards);
    for (const entry of entries) {
      const isChosen = entry.role === state.role && state.cell?.length === entry.shape.length;
      wanted.get(entry.role).show({
        view: state.view,
        name: detail.name,
        role: entry.role,
        shape: entry.shape,
        axes: entry.axes,
        label: entry.name,
        cell: isChosen ? state.cell : null,
        leading: entry.axes[0] === "a" ? [state.head] : null,
      });
    }
    this.drawCode(detail, back);
    this.showCell();
  }

  showCell() {
    const { state } = this.app.store;
    if (!this.detail) return;
    const entry = this.entry(state.role);
    if (!state.cell || !entry || entry.shape.length !== state.cell.length) {
      this.terms.empty();
      return;
    }
    const grid = this.grids.get(state.role);
    if (grid && JSON.stringify(grid.active) !== JSON.stringify(grid.inMatrix(state.cell)))
      grid.show({ view: state.view, name: this.detail.name, role: entry.role, shape: entry.shape, axes: entry.axes, label: entry.name, cell: state.cell });
    this.opening.run(
      () => this.app.ask("terms", { view: state.view, name: this.detail.name, role: state.role, index: state.cell }),
      (answer) => this.terms.show(answer, entry),
      (error) => this.terms.fail(error),
    );
  }

  entry(role) {
    return Object.values(this.detail.arrays).flat().find((one) => one.role === role);
  }

  open(role, cell) {
    const store = this.app.store;
    if (!this.detail) return;
    if (this.detail.arrays[store.state.side]?.some((one) => one.role === role) || !this.detail.arrays.forward.some((one) => one.role === role))
      store.update({ role, cell });
    else store.update({ side: "forward", role, cell });
  }

  /** Go to the operation that made an array; where the shapes agree, to the same cell. */
  follow(name, answer, side = null, role = null) {
    const { store } = this.app;
    const target = store.look.map.forward.find((one) => one.name === name);
    const change = { node: name, role: "", cell: null };
    if (side) change.side = side;
    else if (target && store.state.side === "backward" && !store.look.map.backward.some((one) => one.name === name)) change.side = "forward";
    if (role && answer) Object.assign(change, { role, cell: answer.index });
    else if (answer && target && target.shape.length - 1 === answer.index.length && target.shape[0] === 1 && answer.index.every((place, i) => place < target.shape[i + 1]))
      Object.assign(change, { role: "y", cell: answer.index });
    store.update(change);
  }

  drawCode(detail, back) {
    const source = detail.source[back && detail.phase === "forward" ? "backward" : "forward"];
    if (!source) {
      replace(this.code, h("p", { className: "gb-hint" }, "One line of a layer: ", h("code", {}, "a + b"), "."));
      return;
    }
    replace(
      this.code,
      h("h4", {}, "The Python lines that ran"),
      h("p", { className: "gb-muted gb-mono gb-file" }, `${source.file}:${source.line}`),
      h("pre", { tabIndex: 0, "aria-label": `Source of ${source.file}, from line ${source.line}` }, h("code", {}, colour(source.code))),
    );
  }
}

const NAMES = { x_hat: "x̂", dx_hat: "dx̂", gamma: "γ", beta: "β", dgamma: "dγ", dbeta: "dβ", weight: "W", dweight: "dW", bias: "b", dbias: "db", mean_g: "mean(g)", mean_gx: "mean(g·x̂)", cdf: "Φ(x)", density: "φ(x)", logits: "z", dlogits: "dz", x1: "x₁", x2: "x₂", y1: "y₁", y2: "y₂", dx1: "dx₁", dx2: "dx₂", dy1: "dy₁", dy2: "dy₂", inner: "Σ dw·w", aim: "onehot", log_total: "log Σ exp" };

export function symbol(role) {
  return NAMES[role] ?? role;
}

const TOKENS = /("""[\s\S]*?"""|#[^\n]*|"[^"\n]*"|\b(?:def|return|if|else|for|in|not|is|None|lambda|and|or)\b|@\w+)/g;

function colour(code) {
  return code.split(TOKENS).map((part, i) => {
    if (i % 2 === 0) return part;
    const kind = part.startsWith('"""') || part.startsWith("#") ? "gb-comment" : part.startsWith('"') ? "gb-string" : "gb-keyword";
    return h("span", { className: kind }, part);
  });
}
