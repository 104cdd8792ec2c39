// What the page looks at, and its address: every state has a link.

import { h } from "./dom.js";

const EMPTY = {
  side: "forward",
  node: "",
  role: "",
  cell: null,
  layer: 0,
  head: 0,
  token: 1,
  pair: 0,
  parameter: "",
  weight: null,
  other: null,
  stop: null,
};

export class Store {
  constructor(about, keepsAddress) {
    this.about = about;
    this.keepsAddress = keepsAddress;
    this.listeners = [];
    this.look = null;
    this.state = { ...EMPTY, view: { ...about.view }, ...(keepsAddress ? read(location.hash) : {}) };
    this.state.view = { ...about.view, ...this.state.view };
    if (keepsAddress) {
      addEventListener("hashchange", () => {
        if (location.hash === this.address) return;
        const found = read(location.hash);
        this.update({ ...EMPTY, ...found, view: { ...about.view, ...found.view } });
      });
    }
  }

  get model() {
    return this.about.models[this.state.view.model ?? 0];
  }

  listen(listener) {
    this.listeners.push(listener);
  }

  update(change) {
    const before = this.state;
    this.state = { ...before, ...change };
    const changed = new Set(Object.keys(change).filter((key) => !same(before[key], this.state[key])));
    if (!changed.size) return;
    this.write();
    for (const listener of this.listeners) listener(changed, before);
  }

  /** Change the view: another text has other positions, so masks and targets go. */
  see(change) {
    const view = { ...this.state.view, ...change };
    if ("text" in change && change.text !== this.state.view.text) {
      delete view.masked;
      delete view.targets;
      delete view.label;
      Object.assign(view, { masked: change.masked ?? [] });
    }
    for (const key of Object.keys(view)) if (view[key] === null || view[key] === undefined) delete view[key];
    this.update({ view });
  }

  write() {
    if (!this.keepsAddress) return;
    this.address = address(this.state, this.about.view);
    history.replaceState(null, "", this.address || location.pathname);
  }
}

export function same(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

function address(state, first) {
  const fields = new URLSearchParams();
  const { view } = state;
  const put = (key, value) => value !== "" && value !== null && value !== undefined && fields.set(key, value);
  if (view.text !== first.text) put("text", view.text);
  if (!same(view.masked ?? [], first.masked ?? [])) put("mask", (view.masked ?? []).join(",") || "none");
  if (view.targets && Object.keys(view.targets).length)
    put("target", Object.entries(view.targets).map((pair) => pair.join(":")).join(","));
  if (view.label !== undefined) put("label", [view.label].flat().join(","));
  if (view.model) put("model", view.model);
  put("snapshot", view.snapshot);
  if (view.silenced?.length) put("silent", view.silenced.map((pair) => pair.join(".")).join(","));
  if (view.step) put("step", [view.step.optimizer, view.step.learning_rate, view.step.count].join(","));
  if (state.side !== "forward") put("side", state.side);
  put("node", state.node);
  put("role", state.role);
  if (state.cell) put("cell", state.cell.join(","));
  if (state.layer) put("layer", state.layer);
  if (state.head) put("head", state.head);
  put("parameter", state.parameter);
  if (state.weight) put("weight", state.weight.join(","));
  if (state.other?.text) put("other", state.other.text);
  if (state.other?.model !== undefined) put("othermodel", state.other.model);
  if (state.stop !== null) put("stop", state.stop + 1);
  const text = fields.toString();
  return text ? `#${text}` : "";
}

function read(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const numbers = (key) => fields.get(key).split(",").map(Number).filter((one) => Number.isInteger(one) && one >= 0);
  const found = { view: {} };
  const { view } = found;
  if (fields.has("text")) Object.assign(view, { text: fields.get("text"), masked: [] });
  if (fields.has("mask")) view.masked = fields.get("mask") === "none" ? [] : numbers("mask");
  if (fields.has("target")) view.targets = Object.fromEntries(fields.get("target").split(",").map((one) => one.split(":").map(Number)));
  if (fields.has("label")) view.label = fields.get("label").includes(",") ? fields.get("label").split(",").map(Number) : Number(fields.get("label"));
  if (fields.has("model")) view.model = Number(fields.get("model"));
  if (fields.has("snapshot")) view.snapshot = Number(fields.get("snapshot"));
  if (fields.has("silent")) view.silenced = fields.get("silent").split(",").map((one) => one.split(".").map(Number));
  if (fields.has("step")) {
    const [optimizer, rate, count] = fields.get("step").split(",");
    view.step = { optimizer, learning_rate: Number(rate), count: Number(count) };
  }
  if (fields.get("side") === "backward") found.side = "backward";
  for (const key of ["node", "role", "parameter"]) if (fields.has(key)) found[key] = fields.get(key);
  for (const key of ["layer", "head"]) if (fields.has(key)) found[key] = Number(fields.get(key)) || 0;
  for (const key of ["cell", "weight"]) if (fields.has(key)) found[key] = numbers(key);
  if (fields.has("other") || fields.has("othermodel")) {
    found.other = {};
    if (fields.has("other")) found.other.text = fields.get("other");
    if (fields.has("othermodel")) found.other.model = Number(fields.get("othermodel"));
  }
  if (fields.has("stop")) found.stop = Math.max(0, Number(fields.get("stop")) - 1) || 0;
  return found;
}

/** A section of the page with a number, a title and a sentence. */
export function section(id, title, about) {
  const body = h("div", { className: "gb-section-body" });
  const element = h(
    "section",
    { id: `gb-${id}`, className: "gb-section", "aria-labelledby": `gb-${id}-title` },
    h("header", {}, h("h2", { id: `gb-${id}-title` }, title), about ? h("p", { className: "gb-about" }, about) : null),
    body,
  );
  return { element, body };
}

/** Calls `show` once an element comes near the window, and on every later call while it is near. */
export function whenSeen(element, show) {
  let near = false;
  let waiting = true;
  const first = () => {
    element.classList.remove("gb-lazy");
    show();
  };
  element.classList.add("gb-lazy");
  const observer = new IntersectionObserver(
    (entries) => {
      near = entries.some((entry) => entry.isIntersecting);
      if (near && waiting) {
        waiting = false;
        first();
      }
    },
    { rootMargin: "120px" },
  );
  observer.observe(element);
  return () => {
    if (near) first();
    else waiting = true;
  };
}
