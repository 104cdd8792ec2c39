// Two texts or two models side by side.

import { h, Latest, replace, select, sentence } from "./dom.js";
import { percent, shown, times } from "./format.js";
import { Grid } from "./grid.js";
import { section, whenSeen } from "./state.js";
import { symbol } from "./operation.js";

export class ComparePanel {
  constructor(app) {
    this.app = app;
    this.latest = new Latest();
    this.arrays = new Latest();
    const { element, body } = section("compare", "Side by side", "Another text or another model beside yours: answers, loss, and the operation you chose above.");
    this.element = element;
    this.input = h("input", { className: "gb-wide-input", "aria-label": "Another text", placeholder: "Another text, with [MASK] where a word is wanted", dir: "auto", onchange: () => this.set({ text: this.input.value }) });
    this.controls = h("div", { className: "gb-row" });
    this.result = h("div", { className: "gb-pair" });
    this.role = h("div");
    const grid = () => new Grid({ ask: app.ask, dark: () => app.dark(), onCell: null, rows: 10, columns: 8 });
    this.grids = [grid(), grid()];
    this.tables = h("div", { className: "gb-pair" });
    body.append(h("div", { className: "gb-row" }, this.input, this.controls), this.result, this.role, this.tables);
    this.seen = whenSeen(element, () => this.draw());
  }

  set(change) {
    const other = { ...this.app.store.state.other, ...change };
    if (!other.text) delete other.text;
    this.app.store.update({ other: Object.keys(other).length ? other : null });
  }

  changed(changed) {
    if (["look", "other", "node", "side", "theme"].some((key) => changed.has(key))) this.seen();
  }

  view() {
    const { state, about } = this.app.store;
    const other = state.other ?? {};
    const view = { ...state.view };
    if (other.model !== undefined) {
      view.model = other.model;
      for (const key of ["step", "snapshot", "silenced"]) delete view[key];
    }
    if (other.text !== undefined && other.text !== state.view.text) {
      view.text = other.text;
      view.masked = [];
      delete view.targets;
      delete view.label;
    } else if (view.model !== state.view.model) delete view.targets;
    const known = about.live ? null : about.views.find((one) => one.text === view.text);
    if (known) view.masked = known.masked;
    if (!about.live && !known) return null;
    return view;
  }

  draw() {
    const { store } = this.app;
    const { state, about, look } = store;
    if (!look) return;
    if (document.activeElement !== this.input) this.input.value = state.other?.text ?? "";
    this.input.hidden = !about.live;
    const models = about.models.map((model, i) => [i, model.name]);
    replace(
      this.controls,
      models.length > 1 ? select("model", models, state.other?.model ?? state.view.model ?? 0, (value) => this.set({ model: Number(value) })) : null,
      !about.live && about.views.length > 1 ? select("text", about.views.map((one, i) => [i, one.text]), about.views.findIndex((one) => one.text === state.other?.text), (value) => this.set({ text: about.views[Number(value)].text })) : null,
    );
    const view = state.other ? this.view() : null;
    if (!view) {
      replace(this.result, h("p", { className: "gb-hint" }, about.live ? "Type another text, for instance the same sentence with one word changed." : "Choose another text."));
      replace(this.tables);
      replace(this.role);
      return;
    }
    this.latest.run(
      () => Promise.all([this.app.ask("summary", { view: state.view }), this.app.ask("summary", { view })]),
      (both) => {
        replace(this.result, both.map((summary, i) => this.side(summary, i ? view : state.view)));
        this.drawArrays(view);
      },
      (error) => replace(this.result, sentence(error)),
    );
  }

  side(summary, view) {
    const name = this.app.store.about.models[view.model ?? 0].name;
    return h(
      "div",
      { className: "gb-card" },
      h("p", { className: "gb-compare-text", dir: "auto" }, summary.tokens.filter((token) => token.word !== null).map((token) => [h("span", { className: token.masked ? "gb-masked-text" : "" }, token.masked ? token.shown : token.token), " "])),
      h("p", { className: "gb-muted" }, name, summary.loss === null ? "" : `, loss ${shown(summary.loss, 5)}`),
      summary.note ? h("p", { className: "gb-note" }, summary.note) : null,
      summary.answers.map((answer) => h("div", {}, answer.best.map((one) => h("div", { className: `gb-answer${answer.target?.id === one.id ? " gb-wanted" : ""}` }, h("span", { className: "gb-answer-word", dir: "auto" }, one.word), h("span", { className: "gb-answer-bar" }, h("span", { style: { width: `${100 * (one.chance ?? 0)}%` } })), h("span", { className: "gb-mono gb-answer-chance" }, one.chance === undefined ? shown(one.value, 4) : percent(one.chance)))))),
    );
  }

  drawArrays(view) {
    const { state } = this.app.store;
    this.arrays.run(
      () => Promise.all([this.app.ask("operation", { view: state.view, name: state.node }), this.app.ask("operation", { view, name: state.node })]),
      (details) => {
        const entries = details.map((detail) => detail.arrays[state.side] ?? detail.arrays.forward);
        const roles = entries[0].map((entry) => entry.role).filter((role) => entries[1].some((entry) => entry.role === role));
        if (!roles.includes(this.chosen)) this.chosen = roles.includes(details[0].result) ? details[0].result : roles.at(-1);
        replace(this.role, select(`array of ${state.node}`, roles.map((role) => [role, symbol(role)]), this.chosen, (value) => ((this.chosen = value), this.drawArrays(view))));
        replace(
          this.tables,
          this.grids.map((grid, i) => {
            const entry = entries[i].find((one) => one.role === this.chosen);
            grid.show({ view: i ? view : state.view, name: state.node, role: entry.role, shape: entry.shape, axes: entry.axes, label: entry.name });
            return h("article", { className: "gb-array" }, h("header", {}, h("span", { className: "gb-role" }, symbol(entry.role)), h("span", { className: "gb-mono gb-array-name" }, entry.name), h("span", { className: "gb-muted gb-shape" }, times(entry.shape))), grid.element);
          }),
        );
      },
      (error) => replace(this.tables, sentence(error)),
    );
  }
}
