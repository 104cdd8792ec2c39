// Rotary positions: the rotation of a query, and local against global attention.

import { h, Latest, replace, select, sentence, svg } from "./dom.js";
import { shown } from "./format.js";
import { section, whenSeen } from "./state.js";

const SIZE = 220;

export class PositionsPanel {
  constructor(app) {
    this.app = app;
    this.latest = new Latest();
    const { element, body } = section("positions", "Rotary positions", "A query is rotated, pair by pair, by an angle that grows with its position. Local layers look only at near words.");
    this.element = element;
    this.controls = h("div", { className: "gb-row" });
    this.plane = h("div", { className: "gb-plane" });
    this.dials = h("div", { className: "gb-dials", role: "group", "aria-label": "The angle of every pair" });
    this.windows = h("div", { className: "gb-windows" });
    this.note = h("p", { className: "gb-hint" });
    body.append(this.controls, h("div", { className: "gb-pair" }, h("div", {}, this.plane, this.note), h("div", {}, this.dials, this.windows)));
    this.seen = whenSeen(element, () => this.draw());
  }

  changed(changed) {
    if (changed.has("look") || changed.has("view")) this.element.hidden = !this.app.store.model.rotary;
    if (["look", "layer", "head", "token", "pair"].some((key) => changed.has(key))) this.seen();
  }

  draw() {
    const { store } = this.app;
    const { state, look, model } = store;
    if (!look || !model.rotary) return;
    const token = Math.min(state.token, look.tokens.length - 1);
    const slider = h("input", { type: "range", min: 0, max: look.tokens.length - 1, value: token, "aria-label": "Position of the query", oninput: (event) => store.update({ token: Number(event.target.value) }) });
    if (!this.slider || Number(this.slider.max) !== look.tokens.length - 1) this.slider = slider;
    if (document.activeElement !== this.slider) this.slider.value = token;
    replace(
      this.controls,
      select("layer", model.windows.map((window, i) => [i, `${i} ${window === null ? "global" : "local"}`]), state.layer, (value) => store.update({ layer: Number(value) })),
      select("head", Array.from({ length: model.heads }, (_, i) => [i, i]), state.head, (value) => store.update({ head: Number(value) })),
      h("label", { className: "gb-field" }, h("span", {}, "position"), this.slider),
    );
    this.latest.run(
      () => this.app.ask("rotation", { view: state.view, layer: state.layer, head: state.head, token }),
      (answer) => this.show(answer, token),
      (error) => replace(this.plane, sentence(error)),
    );
    this.drawWindows(token);
  }

  show(answer, token) {
    const { store } = this.app;
    const pair = Math.min(store.state.pair, answer.angle.length - 1);
    const [before, after] = [answer.before[pair], answer.after[pair]];
    const reach = Math.max(...answer.before.flat().map(Math.abs), 1e-9) * 1.15;
    const at = ([x, y]) => [SIZE / 2 + ((SIZE / 2) * x) / reach, SIZE / 2 - ((SIZE / 2) * y) / reach];
    const arrow = (point, kind) => {
      const [x, y] = at(point);
      return [svg("line", { x1: SIZE / 2, y1: SIZE / 2, x2: x, y2: y, class: kind }), svg("circle", { cx: x, cy: y, r: 4, class: kind })];
    };
    replace(
      this.plane,
      svg(
        "svg",
        { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": `Pair ${pair} of “${answer.token}” before and after its rotation by ${shown(answer.angle[pair], 3)} radians` },
        svg("line", { x1: 0, x2: SIZE, y1: SIZE / 2, y2: SIZE / 2, class: "gb-rule" }),
        svg("line", { y1: 0, y2: SIZE, x1: SIZE / 2, x2: SIZE / 2, class: "gb-rule" }),
        svg("circle", { cx: SIZE / 2, cy: SIZE / 2, r: Math.hypot(...at(before).map((place) => place - SIZE / 2)), class: "gb-orbit" }),
        arrow(before, "gb-before"),
        arrow(after, "gb-after"),
      ),
      h("p", { className: "gb-legend" }, h("span", { className: "gb-key gb-was" }), ` q (${shown(before[0])}, ${shown(before[1])})  `, h("span", { className: "gb-key gb-now" }), ` rotated (${shown(after[0])}, ${shown(after[1])})`),
    );
    this.note.textContent = `“${answer.token}” at position ${token}, pair ${pair} (features ${pair} and ${pair + answer.angle.length}): rotated by θ = ${shown(answer.angle[pair], 4)} (within one turn). The first pairs turn fast, the last ones slowly.`;
    replace(
      this.dials,
      answer.angle.map((angle, i) =>
        h(
          "button",
          { className: `gb-dial${i === pair ? " gb-on" : ""}`, "aria-label": `pair ${i}, angle ${shown(angle, 3)}`, title: `pair ${i}: θ = ${shown(angle, 3)}`, onclick: () => store.update({ pair: i }) },
          svg("svg", { viewBox: "-10 -10 20 20" }, svg("circle", { r: 9, class: "gb-dial-ring" }), svg("line", { x1: 0, y1: 0, x2: 8 * Math.cos(angle), y2: -8 * Math.sin(angle), class: "gb-dial-hand" })),
        ),
      ),
    );
  }

  /** Which keys each layer lets the chosen query see. */
  drawWindows(token) {
    const { store } = this.app;
    const { look, state, model } = store;
    const length = look.tokens.length;
    replace(
      this.windows,
      h("h4", {}, `What “${look.tokens[token].token}” may look at`),
      model.windows.map((window, layer) =>
        h(
          "div",
          { className: `gb-window${layer === state.layer ? " gb-on" : ""}` },
          h("span", { className: "gb-window-name" }, `layer ${layer} `, h("span", { className: "gb-muted" }, window === null ? "global" : `local, ±${window}`)),
          h("span", { className: "gb-window-strip", role: "img", "aria-label": window === null ? "all words" : `words at most ${window} away` }, Array.from({ length: Math.min(length, 512) }, (_, key) => h("i", { className: `${window === null || Math.abs(key - token) <= window ? "gb-sees" : ""}${key === token ? " gb-self" : ""}` }))),
        ),
      ),
      model.windows.some((window) => window !== null && window >= length) ? h("p", { className: "gb-hint" }, "This text is shorter than the window, so local layers see all of it. Paste a longer text to see the difference.") : null,
    );
  }
}
