// One step of AdamW or SGD on this text: before and after.

import { paired } from "./answers.js";
import { h, Latest, replace, select, sentence } from "./dom.js";
import { shown, signed } from "./format.js";
import { section, whenSeen } from "./state.js";

export class StepPanel {
  constructor(app) {
    this.app = app;
    this.latest = new Latest();
    this.settings = { optimizer: "adamw", learning_rate: 0.0001, count: 1 };
    const { element, body } = section("step", "One step of training", "Every weight moves a little against its gradient. What changes?");
    this.element = element;
    this.controls = h("div", { className: "gb-row" });
    this.result = h("div", { "aria-live": "polite" });
    body.append(this.controls, this.result);
    this.seen = whenSeen(element, () => this.draw());
  }

  changed(changed) {
    if (changed.has("look")) this.seen();
  }

  draw() {
    const { look, about } = this.app.store;
    if (!look) return;
    if (look.loss === null) {
      replace(this.controls);
      replace(this.result, h("p", { className: "gb-hint" }, look.why_no_loss));
      return;
    }
    const set = (change) => {
      Object.assign(this.settings, change);
      this.take();
    };
    const { settings } = this;
    replace(
      this.controls,
      about.live
        ? [
            select("optimizer", [["adamw", "AdamW"], ["sgd", "SGD"]], settings.optimizer, (value) => set({ optimizer: value, learning_rate: value === "sgd" ? 0.1 : 0.0001 })),
            select("learning rate", [1, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001].map((rate) => [rate, rate]), settings.learning_rate, (value) => set({ learning_rate: Number(value) })),
            select("steps", [1, 2, 3, 5, 10, 20].map((count) => [count, count]), settings.count, (value) => set({ count: Number(value) })),
            h("button", { className: "gb-button", onclick: () => this.app.store.see({ step: { ...settings } }) }, "Look inside the model after it"),
          ]
        : null,
    );
    this.take();
  }

  take() {
    const { store } = this.app;
    const before = { ...store.state.view };
    delete before.step;
    const after = { ...before, step: { ...this.settings } };
    this.element.classList.add("gb-busy");
    this.latest.run(
      async () => Promise.all([this.app.ask("summary", { view: before }), this.app.ask("summary", { view: after }), this.app.ask("moved", { view: before, other: after })]),
      ([old, now, moved]) => {
        this.element.classList.remove("gb-busy");
        replace(this.result, h("div", { className: "gb-pair" }, h("div", {}, paired(old, now)), h("div", {}, this.moved(moved))));
        this.refreshSelects();
      },
      (error) => {
        this.element.classList.remove("gb-busy");
        replace(this.result, sentence(error));
      },
    );
  }

  refreshSelects() {
    const [optimizer, rate] = this.controls.querySelectorAll("select");
    if (optimizer) optimizer.value = this.settings.optimizer;
    if (rate) rate.value = String(this.settings.learning_rate);
  }

  moved(moved) {
    const largest = Math.max(...moved.parameters.map((one) => one.relative ?? 0), 1e-300);
    return [
      h("h4", {}, "Which parameters moved most, for their size"),
      h(
        "ul",
        { className: "gb-moved" },
        moved.parameters.slice(0, 8).map((one) =>
          h("li", {}, h("button", { className: "gb-link gb-mono", onclick: () => this.app.store.update({ parameter: one.name, weight: null }) }, one.name), h("span", { className: "gb-answer-bar" }, h("span", { className: "gb-now", style: { width: `${(100 * (one.relative ?? 0)) / largest}%` } })), h("span", { className: "gb-mono" }, one.relative === null ? "–" : `${shown(100 * one.relative, 3)} %`)),
        ),
      ),
      h("h4", {}, "Which single weights moved most"),
      h(
        "table",
        { className: "gb-facts" },
        h("thead", {}, h("tr", {}, h("th", {}, "weight"), h("th", {}, "before"), h("th", {}, "after"), h("th", {}, "change"))),
        h(
          "tbody",
          {},
          moved.weights.slice(0, 8).map((one) =>
            h(
              "tr",
              {},
              h("td", {}, h("button", { className: "gb-link gb-mono", onclick: () => this.app.store.update({ parameter: one.name, weight: one.index }) }, `${one.name}[${one.index.join(", ")}]`)),
              h("td", { className: "gb-mono" }, shown(one.before, 5)),
              h("td", { className: "gb-mono" }, shown(one.after, 5)),
              h("td", { className: "gb-mono" }, signed(one.change, 4)),
            ),
          ),
        ),
      ),
    ];
  }
}
