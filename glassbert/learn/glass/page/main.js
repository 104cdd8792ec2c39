// The glass: sections in order, one state, one way to ask.

import { AttentionPanel } from "./attention.js";
import { ComparePanel } from "./compare.js";
import { goTo, h, Latest, replace, select, sentence } from "./dom.js";
import { grouped } from "./format.js";
import { GradientPanel } from "./gradient.js";
import { MapPanel } from "./map.js";
import { OperationPanel } from "./operation.js";
import { PositionsPanel } from "./positions.js";
import { SaliencyPanel } from "./saliency.js";
import { Store } from "./state.js";
import { StepPanel } from "./step.js";
import { TextPanel } from "./text.js";
import { Tour } from "./tour.js";
import { TrainingPanel } from "./training.js";
import { overHttp, overWidget } from "./transport.js";

const KEYS = [
  ["/", "write a text"], ["f", "forward"], ["b", "backward"], ["[ and ]", "operation before and after"], ["arrows", "move in the map or in a table of numbers"], ["Enter", "open the sum behind a number"],
  ["t", "guided tour"], ["n and p", "next and previous stop"], ["d", "light or dark"], ["?", "these keys"], ["Esc", "close"],
];
const SECTIONS = [["text", "text"], ["map", "layers"], ["operation", "operation"], ["gradient", "gradient"], ["step", "step"], ["attention", "attention"], ["saliency", "saliency"], ["training", "training"], ["compare", "compare"], ["positions", "positions"]];

class App {
  constructor(element, ask, about, keepsAddress) {
    Object.assign(this, { element, ask });
    this.latest = new Latest();
    this.store = new Store(about, keepsAddress);
    this.text = new TextPanel(this);
    this.operation = new OperationPanel(this);
    this.tour = new Tour(this);
    this.panels = [this.text, new MapPanel(this), this.operation, new GradientPanel(this), new StepPanel(this), new AttentionPanel(this), new SaliencyPanel(this), new TrainingPanel(this), new ComparePanel(this), new PositionsPanel(this)];
    this.banner = h("div", { className: "gb-banner", role: "status", hidden: true });
    this.help = h("dialog", { className: "gb-help", "aria-label": "Keys" });
    element.classList.add("gb");
    replace(element, this.bar(), this.banner, h("main", {}, this.panels.map((panel) => panel.element)), this.tour.element, this.help);
    this.store.listen((changed) => this.changed(changed));
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => this.tell(new Set(["theme"])));
    element.addEventListener("keydown", (event) => this.keys(event));
    if (keepsAddress) addEventListener("keydown", (event) => event.target === document.body && this.keys(event));
    const all = new Set(["view", "side", "node", "role", "cell", "layer", "head", "parameter", "other"]);
    this.changed(all);
    if (this.store.state.stop !== null) this.tell(new Set(["stop"]));
  }

  bar() {
    const { about } = this.store;
    this.modelName = h("div", { className: "gb-model" });
    const models = about.models.length > 1 && about.live ? select("model", about.models.map((model, i) => [i, model.name]), this.store.state.view.model ?? 0, (value) => this.store.see({ model: Number(value), step: null, snapshot: null, silenced: null })) : null;
    const texts = !about.live && about.views.length > 1 ? select("text", about.views.map((view, i) => [i, view.text]), 0, (value) => this.store.update({ view: { ...about.views[Number(value)] } })) : null;
    return h(
      "header",
      { className: "gb-top" },
      h("div", { className: "gb-brand" }, h("b", {}, "GlassBERT"), h("span", { className: "gb-muted" }, "the glass")),
      this.modelName,
      h("nav", { className: "gb-nav", "aria-label": "Sections" }, SECTIONS.filter(([id]) => id !== "positions" || about.models.some((model) => model.rotary)).map(([id, name]) => h("a", { href: `#gb-${id}`, onclick: (event) => (event.preventDefault(), goTo(this.element.querySelector(`#gb-${id}`))) }, name))),
      models,
      texts,
      h("div", { className: "gb-tools" }, h("button", { className: "gb-button gb-primary", onclick: () => this.tour.begin() }, "Tour"), h("button", { className: "gb-button", "aria-label": "Light or dark", title: "Light or dark (d)", onclick: () => this.turnTheme() }, "◐"), h("button", { className: "gb-button", "aria-label": "Keys", title: "Keys (?)", onclick: () => this.showHelp() }, "?")),
    );
  }

  dark() {
    const chosen = this.element.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  turnTheme() {
    this.element.dataset.theme = this.dark() ? "light" : "dark";
    this.tell(new Set(["theme"]));
  }

  showHelp() {
    replace(this.help, h("h3", {}, "Keys"), h("dl", {}, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])), h("button", { className: "gb-button", onclick: () => this.help.close() }, "Close"));
    this.help.showModal();
  }

  tell(changed) {
    for (const panel of [...this.panels, this.tour]) panel.changed(changed);
  }

  changed(changed) {
    if (changed.has("view")) this.load();
    this.tell(changed);
  }

  load() {
    const { store } = this;
    const { view } = store.state;
    const { model } = store;
    if (model) replace(this.modelName, h("b", {}, model.name), h("span", { className: "gb-muted" }, ` ${grouped(model.parameters)} parameters, ${model.layers} layers of ${model.hidden}, ${model.heads} heads`));
    this.drawBanner();
    this.element.setAttribute("aria-busy", "true");
    this.latest.run(
      () => this.ask("look", { view }),
      (look) => {
        this.element.removeAttribute("aria-busy");
        store.look = look;
        const { state } = store;
        const side = look.map[state.side].length ? state.side : "forward";
        const names = look.map[side].map((entry) => entry.name);
        const node = names.includes(state.node) ? state.node : (names.find((name) => name.endsWith("attention.qkv")) ?? names[0] ?? "");
        const change = { side, node };
        if (node !== state.node) Object.assign(change, { role: "", cell: null });
        store.state = { ...state, ...change };
        store.write();
        this.tell(new Set(["look", "side", "node"]));
        this.element.dataset.ready = "look";
      },
      (error) => {
        this.element.removeAttribute("aria-busy");
        this.text.fail(error);
      },
    );
  }

  drawBanner() {
    const { view } = this.store.state;
    const parts = [];
    if (view.step) parts.push(`after ${view.step.count} step${view.step.count > 1 ? "s" : ""} of ${view.step.optimizer === "sgd" ? "SGD" : "AdamW"}`);
    if (view.silenced?.length) parts.push(`with head${view.silenced.length > 1 ? "s" : ""} ${view.silenced.map((pair) => pair.join(".")).join(", ")} silenced`);
    if (view.snapshot !== undefined) parts.push(`at step ${grouped(view.snapshot)} of its training`);
    this.banner.hidden = !parts.length;
    replace(this.banner, `You look at the model ${parts.join(", ")}. `, h("button", { className: "gb-link", onclick: () => this.store.see({ step: null, silenced: null, snapshot: null }) }, "Back to the model as it is"));
  }

  /** The next or previous operation in the direction of the pass. */
  step(by) {
    const { store } = this;
    const names = store.look?.map[store.state.side].map((entry) => entry.name) ?? [];
    const next = names[names.indexOf(store.state.node) + by];
    if (next) store.update({ node: next, role: "", cell: null });
  }

  show(node, role, cell) {
    this.store.update({ side: "forward", node, role, cell });
    goTo(this.operation.element);
  }

  follow(name, answer, side, role) {
    this.operation.follow(name, answer, side, role);
    goTo(this.operation.element);
  }

  keys(event) {
    if (event.key === "Escape") {
      if (this.help.open) this.help.close();
      else this.tour.end();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    const map = this.panels[1];
    const actions = {
      "/": () => this.text.input.focus(), f: () => map.turn("forward"), b: () => map.turn("backward"), "[": () => this.step(-1), "]": () => this.step(1),
      t: () => this.tour.begin(), n: () => this.tour.move(1), p: () => this.tour.move(-1), d: () => this.turnTheme(), "?": () => this.showHelp(),
    };
    if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    }
  }
}

/** Put a glass into an element. `keepsAddress`: the state is written into the address of the page. */
export async function mount(element, ask, keepsAddress) {
  element.classList.add("gb");
  replace(element, h("p", { className: "gb-hint gb-loading" }, "Opening the model …"));
  try {
    const about = await ask("about", {});
    return new App(element, ask, about, keepsAddress);
  } catch (error) {
    replace(element, sentence(error));
    return null;
  }
}

/** For anywidget: a notebook calls this with its channel to Python. */
export function render({ model, el }) {
  const element = h("div", { className: "gb gb-in-notebook" });
  el.append(element);
  mount(element, overWidget(model), false);
}

const place = typeof document === "undefined" ? null : document.querySelector("#glass[data-server]");
if (place) mount(place, overHttp(), true);
