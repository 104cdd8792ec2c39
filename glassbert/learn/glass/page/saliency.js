// Which words of the text made the answer.

import { h, Latest, replace, select, sentence } from "./dom.js";
import { css, heat, inkOn, shown, signed } from "./format.js";
import { section, whenSeen } from "./state.js";

export class SaliencyPanel {
  constructor(app) {
    this.app = app;
    this.latest = new Latest();
    this.method = "integrated";
    const { element, body } = section("saliency", "Saliency", "How much each word raises (blue) or lowers (orange) the log-probability of an answer.");
    this.element = element;
    this.controls = h("div", { className: "gb-row" });
    this.result = h("div", { "aria-live": "polite" });
    body.append(this.controls, this.result);
    this.seen = whenSeen(element, () => this.draw());
  }

  changed(changed) {
    if (changed.has("look") || changed.has("theme")) this.seen();
  }

  draw() {
    const { look } = this.app.store;
    if (!look) return;
    if (!look.answers.length || !["mlm", "sequence"].includes(look.task.kind)) {
      replace(this.controls);
      replace(this.result, h("p", { className: "gb-hint" }, look.why_no_loss || "Saliency explains a masked word or a class; this model has neither."));
      return;
    }
    const choices = look.answers.flatMap((answer) => {
      const words = [...answer.best];
      if (answer.target && !words.some((one) => one.id === answer.target.id)) words.push(answer.target);
      return words.map((one) => [`${answer.position ?? ""}|${one.id}`, answer.position === null ? one.word : `“${one.word}” at ${answer.position}`]);
    });
    if (!choices.some(([key]) => key === this.choice)) this.choice = choices[0][0];
    replace(
      this.controls,
      select("answer", choices, this.choice, (value) => ((this.choice = value), this.ask())),
      select("method", [["gradient", "gradient × input"], ["integrated", "integrated gradients"]], this.method, (value) => ((this.method = value), this.ask())),
    );
    this.ask();
  }

  ask() {
    const { store } = this.app;
    const [position, target] = this.choice.split("|");
    this.element.classList.add("gb-busy");
    this.latest.run(
      () => this.app.ask("saliency", { view: store.state.view, position: position === "" ? null : Number(position), target: Number(target), method: this.method }),
      (answer) => {
        this.element.classList.remove("gb-busy");
        const largest = Math.max(...answer.values.map(Math.abs));
        replace(
          this.result,
          h(
            "p",
            { className: "gb-salient" },
            store.look.tokens.map((token, i) => {
              const colour = heat(answer.values[i], largest, this.app.dark());
              return h("span", { className: "gb-salient-word", style: { background: css(colour), color: inkOn(colour) } }, h("span", { dir: "auto" }, token.masked ? token.shown : token.token), h("small", {}, shown(answer.values[i], 2)));
            }),
          ),
          h(
            "p",
            { className: "gb-hint" },
            this.method === "gradient"
              ? "e · ∂s/∂e for each word: the change of the score, to first order, if its embedding grew. After a norm these numbers nearly cancel, since the norm takes the size away."
              : `Along the straight line from all words masked (score ${shown(answer.baseline, 4)}) to the text (${shown(answer.score, 4)}): the words share the difference, ${signed(answer.sum, 4)} nats.`,
          ),
        );
      },
      (error) => {
        this.element.classList.remove("gb-busy");
        replace(this.result, sentence(error));
      },
    );
  }
}
