// Scrub through the snapshots of a training run and watch the answer form.

import { h, Latest, replace, sentence, svg } from "./dom.js";
import { grouped, percent, shown } from "./format.js";
import { section, whenSeen } from "./state.js";

export class TrainingPanel {
  constructor(app) {
    this.app = app;
    this.latest = new Latest();
    this.curve = new Latest();
    this.at = 0;
    const { element, body } = section("training", "Through training", "The same text at every saved step of the run: watch the answer form.");
    this.element = element;
    this.slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "Step of training", oninput: (event) => this.move(Number(event.target.value)) });
    this.label = h("output", { className: "gb-mono" });
    this.controls = h("div", { className: "gb-row gb-scrub" }, this.slider, this.label);
    this.button = h("button", { className: "gb-button", onclick: () => this.app.store.see({ snapshot: this.steps[this.at] }) }, "Look inside this step");
    this.chart = h("div", { className: "gb-chart" });
    this.result = h("div", { className: "gb-answers", "aria-live": "polite" });
    this.box = h("div", {}, this.controls, h("div", { className: "gb-pair" }, h("div", {}, this.result, this.button), this.chart));
    this.hint = h("p", { className: "gb-hint" });
    body.append(this.hint, this.box);
    this.seen = whenSeen(element, () => this.draw());
  }

  changed(changed) {
    if (changed.has("look")) this.seen();
  }

  draw() {
    const { store } = this.app;
    this.steps = store.model.snapshots;
    this.box.hidden = this.steps.length < 2;
    this.hint.textContent = this.box.hidden ? "This model has no snapshots of its training. A run made with glassbert pretrain --snapshots 12 has them." : "";
    if (this.box.hidden || !store.look) return;
    this.slider.max = this.steps.length - 1;
    this.at = store.state.view.snapshot === undefined ? Math.min(this.at || this.steps.length - 1, this.steps.length - 1) : Math.max(0, this.steps.indexOf(store.state.view.snapshot));
    this.slider.value = this.at;
    this.button.hidden = !store.about.live;
    this.move(this.at);
    this.drawChart();
  }

  view(step) {
    const view = { ...this.app.store.state.view, snapshot: step };
    const wanted = this.app.store.look.answers.filter((one) => one.target).map((one) => [one.position, one.target.id]);
    if (wanted.length) view.targets = Object.fromEntries(wanted);
    return view;
  }

  move(at) {
    this.at = at;
    const step = this.steps[at];
    this.label.textContent = `step ${grouped(step)}`;
    this.slider.setAttribute("aria-valuetext", `step ${step}`);
    this.latest.run(
      () => this.app.ask("summary", { view: this.view(step) }),
      (summary) => {
        replace(
          this.result,
          summary.answers.map((answer) =>
            h(
              "div",
              { className: "gb-answer-box" },
              h("p", { className: "gb-answer-title" }, answer.target ? ["Wanted ", h("b", {}, answer.target.word), h("span", { className: "gb-muted" }, `, rank ${grouped(answer.rank)}, ${percent(answer.target.chance)}`)] : "Answers"),
              answer.best.map((one) => h("div", { className: `gb-answer${answer.target?.id === one.id ? " gb-wanted" : ""}` }, h("span", { className: "gb-answer-word" }, one.word), h("span", { className: "gb-answer-bar" }, h("span", { style: { width: `${100 * (one.chance ?? 0)}%` } })), h("span", { className: "gb-mono gb-answer-chance" }, one.chance === undefined ? shown(one.value, 4) : percent(one.chance)))),
            ),
          ),
          summary.loss === null ? null : h("p", { className: "gb-muted" }, `loss ${shown(summary.loss, 5)}`),
        );
        this.markChart();
      },
      (error) => replace(this.result, sentence(error)),
    );
  }

  drawChart() {
    if (this.app.store.look.loss === null) {
      replace(this.chart);
      return;
    }
    replace(this.chart, h("p", { className: "gb-hint" }, "Reading the loss at every step …"));
    this.curve.run(
      async () => {
        const found = [];
        for (const step of this.steps) found.push((await this.app.ask("summary", { view: this.view(step) })).loss);
        return found;
      },
      (losses) => {
        this.losses = losses;
        const top = Math.max(...losses) * 1.05;
        const x = (i) => 44 + (i * 340) / Math.max(1, losses.length - 1);
        const y = (loss) => 150 - (130 * loss) / top;
        const points = losses.map((loss, i) => `${x(i)},${y(loss)}`).join(" ");
        this.dot = svg("circle", { r: 5, class: "gb-dot" });
        this.place = (i) => [x(i), y(losses[i])];
        replace(
          this.chart,
          svg(
            "svg",
            { viewBox: "0 0 400 190", role: "img", "aria-label": `Loss at ${losses.length} steps, from ${shown(losses[0], 3)} to ${shown(losses.at(-1), 3)}` },
            [0, top / 2, top].map((value) => [svg("line", { x1: 44, x2: 388, y1: y(value), y2: y(value), class: "gb-rule" }), svg("text", { x: 38, y: y(value) + 4, class: "gb-tick", "text-anchor": "end" }, shown(value, 2))]),
            svg("polyline", { points, class: "gb-curve" }),
            losses.map((_, i) => svg("circle", { cx: x(i), cy: y(losses[i]), r: 2.5, class: "gb-point" })),
            svg("text", { x: 44, y: 172, class: "gb-tick" }, `step ${grouped(this.steps[0])}`),
            svg("text", { x: 388, y: 172, class: "gb-tick", "text-anchor": "end" }, grouped(this.steps.at(-1))),
            svg("text", { x: 216, y: 186, class: "gb-tick", "text-anchor": "middle" }, "loss of this text through training"),
            this.dot,
          ),
        );
        this.markChart();
      },
      () => replace(this.chart),
    );
  }

  markChart() {
    if (!this.dot || !this.losses) return;
    const [x, y] = this.place(this.at);
    this.dot.setAttribute("cx", x);
    this.dot.setAttribute("cy", y);
  }
}
