// Attention by layer and head; silence a head and see what changes.

import { paired } from "./answers.js";
import { h, Latest, replace, sentence } from "./dom.js";
import { css, heat, inkOn, numbers, paint, shown, signed } from "./format.js";
import { Grid } from "./grid.js";
import { section, whenSeen } from "./state.js";

export class AttentionPanel {
  constructor(app) {
    this.app = app;
    this.latest = new Latest();
    this.effects = new Latest();
    this.silence = new Latest();
    const { element, body } = section("attention", "Attention", "Who looks at whom: a row is a query, a column a key, and every row adds up to 1.");
    this.element = element;
    this.layers = h("div", { className: "gb-tabs", role: "tablist", "aria-label": "Layer" });
    this.heads = h("div", { className: "gb-heads" });
    this.grid = new Grid({ ask: app.ask, dark: () => app.dark(), onCell: (index) => app.show(this.node, "weights", index), rows: 14, columns: 14 });
    this.title = h("h4", {});
    this.button = h("div");
    this.silenced = h("div", { "aria-live": "polite" });
    this.importance = h("div", { className: "gb-importance" });
    body.append(
      this.layers,
      h("div", { className: "gb-pair gb-attention" }, h("div", {}, this.heads, h("article", { className: "gb-array" }, h("header", {}, this.title), this.grid.element)), h("div", {}, h("h4", {}, "Silence a head"), this.button, this.importance, this.silenced)),
    );
    this.seen = whenSeen(element, () => this.draw());
  }

  get node() {
    return `layers.${this.app.store.state.layer}.attention.attention`;
  }

  changed(changed) {
    if (["look", "layer", "head", "theme"].some((key) => changed.has(key))) this.seen();
  }

  draw() {
    const { store } = this.app;
    const { state, look } = store;
    if (!look) return;
    const { model } = store;
    replace(
      this.layers,
      Array.from({ length: model.layers }, (_, i) =>
        h("button", { role: "tab", "aria-selected": i === state.layer ? "true" : "false", onclick: () => store.update({ layer: i }) }, `layer ${i}`, model.windows[i] === null ? null : h("span", { className: "gb-muted" }, " local")),
      ),
    );
    this.latest.run(
      () => this.app.ask("attention", { view: state.view, layer: state.layer }),
      (answer) => this.drawHeads(answer),
      (error) => replace(this.heads, sentence(error)),
    );
    this.drawImportance();
    this.drawSilenced();
  }

  drawHeads(answer) {
    const { store } = this.app;
    const { state } = store;
    const data = numbers(answer);
    const [heads, rows, columns] = answer.shape;
    const size = rows * columns;
    replace(
      this.heads,
      Array.from({ length: heads }, (_, i) => {
        const canvas = h("canvas", { "aria-hidden": "true" });
        paint(canvas, data.slice(i * size, (i + 1) * size), rows, columns, 1, this.app.dark());
        const off = isSilent(state.view, state.layer, i);
        return h("button", { className: `gb-head${i === state.head ? " gb-on" : ""}${off ? " gb-off" : ""}`, "aria-pressed": i === state.head ? "true" : "false", "aria-label": `head ${i} of layer ${state.layer}`, onclick: () => store.update({ head: i }) }, canvas, h("span", {}, `head ${i}`));
      }),
    );
    const head = Math.min(state.head, heads - 1);
    this.title.textContent = `layers.${state.layer}.attention.weights, head ${head}${answer.window === null ? "" : `, keys at most ${answer.window} away`}`;
    this.grid.show({ view: state.view, name: this.node, role: "weights", shape: [heads, rows, columns], axes: ["a", "i", "j"], label: this.title.textContent, leading: [head] });
  }

  drawSilenced() {
    const { store } = this.app;
    const { state, about } = store;
    const view = { ...state.view };
    const pair = [state.layer, Math.min(state.head, store.model.heads - 1)];
    const others = (view.silenced ?? []).filter(([layer, head]) => layer !== pair[0] || head !== pair[1]);
    const off = others.length !== (view.silenced ?? []).length;
    replace(
      this.button,
      h("p", { className: "gb-hint" }, `Head ${pair[1]} of layer ${pair[0]}: its columns of the output projection are set to zero.`),
      about.live ? h("button", { className: "gb-button", onclick: () => store.see({ silenced: off ? others : [...others, pair] }) }, off ? "Let it speak again everywhere" : "Silence it in the whole glass") : null,
    );
    const before = { ...view };
    delete before.silenced;
    const after = { ...before, silenced: [...others, pair] };
    this.silence.run(
      () => Promise.all([this.app.ask("summary", { view: before }), this.app.ask("summary", { view: after })]),
      ([old, now]) => replace(this.silenced, paired(old, now, ["all heads", others.length ? `without ${others.length + 1} heads` : `without head ${pair.join(".")}`])),
      (error) => replace(this.silenced, sentence(error)),
    );
  }

  drawImportance() {
    const { store } = this.app;
    const { state, look } = store;
    if (look.loss === null) {
      replace(this.importance);
      return;
    }
    const view = { ...state.view };
    delete view.silenced;
    this.effects.run(
      () => this.app.ask("heads", { view }),
      (answer) => {
        const largest = Math.max(...answer.rise.flat().map(Math.abs));
        replace(
          this.importance,
          h("p", { className: "gb-hint" }, "How much the loss rises without each head:"),
          h(
            "table",
            { className: "gb-numbers gb-rise" },
            h("thead", {}, h("tr", {}, h("td", {}), answer.rise[0].map((_, i) => h("th", { scope: "col" }, `head ${i}`)))),
            h(
              "tbody",
              {},
              answer.rise.map((row, layer) =>
                h(
                  "tr",
                  {},
                  h("th", { scope: "row" }, `layer ${layer}`),
                  row.map((rise, head) => {
                    const colour = heat(-rise, largest, this.app.dark());
                    return h("td", { className: layer === state.layer && head === state.head ? "gb-active" : "", style: { background: css(colour), color: inkOn(colour) } }, h("button", { "aria-label": `layer ${layer}, head ${head}: ${signed(rise, 3)}`, style: { color: inkOn(colour) }, onclick: () => store.update({ layer, head }) }, shown(rise, 3)));
                  }),
                ),
              ),
            ),
          ),
        );
      },
      (error) => replace(this.importance, sentence(error)),
    );
  }
}

function isSilent(view, layer, head) {
  return (view.silenced ?? []).some(([one, other]) => one === layer && other === head);
}
