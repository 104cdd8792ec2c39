// Any parameter, its gradient, and the referee: nudge one weight and compare.

import { h, Latest, replace, select, sentence } from "./dom.js";
import { grouped, shown, signed, times } from "./format.js";
import { Grid } from "./grid.js";
import { section, whenSeen } from "./state.js";
import { TermsPanel } from "./terms.js";

const STEPS = [0.1, 0.01, 0.001, 1e-4, 1e-5];

export class GradientPanel {
  constructor(app) {
    this.app = app;
    this.latest = new Latest();
    this.opening = new Latest();
    this.epsilon = 1e-4;
    const { element, body } = section("gradient", "Gradient and nudge", "The gradient g of a weight says how the loss changes with it. Nudge the weight by ε and measure: is the change g · ε?");
    this.element = element;
    this.chooser = h("div", { className: "gb-row" });
    this.note = h("div");
    const grid = () => new Grid({ ask: app.ask, dark: () => app.dark(), onCell: (index) => app.store.update({ weight: index }), rows: 8, columns: 8 });
    [this.weights, this.gradients] = [grid(), grid()];
    this.card = (title, one) => h("article", { className: "gb-array" }, h("header", {}, h("span", { className: "gb-role" }, title)), one.element);
    this.terms = new TermsPanel({ go: () => {}, goNode: (name, answer, side, role) => app.follow(name, answer, side, role) });
    this.terms.empty("Click a weight or a gradient.");
    this.result = h("div", { className: "gb-nudge", "aria-live": "polite" });
    this.pair = h("div", { className: "gb-pair" }, this.card("weight w", this.weights), this.card("gradient g = ∂loss/∂w", this.gradients));
    body.append(this.chooser, this.note, this.pair, h("div", { className: "gb-pair" }, h("div", { className: "gb-card" }, h("h4", {}, "Where the gradient comes from"), this.terms.element), h("div", { className: "gb-card" }, h("h4", {}, "The referee"), this.result)));
    this.seen = whenSeen(element, () => this.draw());
  }

  changed(changed) {
    if (["look", "parameter", "theme"].some((key) => changed.has(key))) this.seen();
    else if (changed.has("weight")) this.showWeight();
  }

  draw() {
    const { look, state, about } = this.app.store;
    if (!look) return;
    const has = look.loss !== null;
    this.pair.hidden = this.terms.element.parentElement.parentElement.hidden = !has;
    if (!has) {
      replace(this.chooser);
      replace(this.note, h("p", { className: "gb-hint" }, look.why_no_loss));
      return;
    }
    replace(this.note);
    const list = look.map.parameters;
    const chosen = list.find((one) => one.name === state.parameter) ?? list.find((one) => one.name.endsWith("ffn.up.weight")) ?? list[0];
    if (chosen.name !== state.parameter) {
      this.app.store.update({ parameter: chosen.name });
      return;
    }
    replace(
      this.chooser,
      select("parameter", list.map((one) => [one.name, `${one.name}   ${times(one.shape)}`]), chosen.name, (name) => this.app.store.update({ parameter: name, weight: null })),
      h("p", { className: "gb-muted" }, `size (root mean square) of the weights ${shown(chosen.rms, 4)}, of the gradient ${shown(chosen.gradient_rms, 4)}; ${grouped(chosen.shape.reduce((a, b) => a * b, 1))} numbers`),
    );
    const common = { view: state.view, role: chosen.name, shape: chosen.shape, axes: chosen.shape.map(() => ""), cell: fits(state.weight, chosen.shape) ? state.weight : null };
    this.weights.show({ ...common, name: "parameters", label: chosen.name });
    this.gradients.show({ ...common, name: "gradients", label: `gradient of ${chosen.name}` });
    this.entry = chosen;
    this.live = about.live;
    this.showWeight();
  }

  showWeight() {
    const { state } = this.app.store;
    if (!this.entry || !fits(state.weight, this.entry.shape)) {
      this.terms.empty("Click a weight or a gradient.");
      replace(this.result, h("p", { className: "gb-hint" }, "Choose a weight, and it is nudged by ε, up and down, in float64."));
      return;
    }
    for (const [grid, name] of [[this.weights, "parameters"], [this.gradients, "gradients"]])
      if (JSON.stringify(grid.active) !== JSON.stringify(grid.inMatrix(state.weight)))
        grid.show({ view: state.view, name, role: this.entry.name, shape: this.entry.shape, axes: this.entry.shape.map(() => ""), label: this.entry.name, cell: state.weight });
    this.opening.run(
      () => this.app.ask("terms", { view: state.view, name: "gradients", role: this.entry.name, index: state.weight }),
      (answer) => this.terms.show(answer, null),
      (error) => this.terms.fail(error),
    );
    this.nudge();
  }

  nudge() {
    const { state } = this.app.store;
    this.latest.run(
      () => this.app.ask("nudge", { view: state.view, parameter: this.entry.name, index: state.weight, epsilon: this.epsilon }),
      (answer) => this.showNudge(answer),
      (error) => replace(this.result, sentence(error)),
    );
  }

  showNudge(answer) {
    const line = (name, value, what) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { className: "gb-mono", dataset: { nudge: name } }, value), h("td", { className: "gb-muted" }, what));
    const digits = agreement(answer.predicted, answer.measured);
    replace(
      this.result,
      select("ε", STEPS.map((step) => [step, step]), this.epsilon, (value) => {
        this.epsilon = Number(value);
        this.nudge();
      }),
      h(
        "table",
        { className: "gb-facts" },
        h(
          "tbody",
          {},
          line("weight", shown(answer.weight, 6), `${answer.parameter} [${answer.index.join(", ")}]`),
          line("gradient", shown(answer.gradient, 6), "from the hand-written backward"),
          line("loss", shown(answer.loss, 8), "as it is"),
          line("loss at w + ε", shown(answer.loss_up, 8), ""),
          line("loss at w − ε", shown(answer.loss_down, 8), ""),
          line("predicted", signed(answer.predicted, 6), "g · ε"),
          line("measured", signed(answer.measured, 6), "(loss(w + ε) − loss(w − ε)) / 2"),
        ),
      ),
      h("p", { className: `gb-verdict${digits >= 3 ? " gb-good" : ""}` }, verdict(digits)),
    );
  }
}

function fits(index, shape) {
  return index?.length === shape.length && index.every((place, i) => place < shape[i]);
}

/** How many leading digits of two numbers agree, for a sentence. */
function agreement(one, other) {
  if (one === other) return 9;
  const size = Math.max(Math.abs(one), Math.abs(other));
  return Math.max(0, Math.floor(-Math.log10(Math.abs(one - other) / size)));
}

function verdict(digits) {
  if (digits >= 9) return "Prediction and measurement agree.";
  if (digits >= 3) return `Prediction and measurement agree to ${digits} digits.`;
  return `They agree to ${digits} digit${digits === 1 ? "" : "s"}: the loss is not a straight line over a step of this size. Try a smaller ε.`;
}
