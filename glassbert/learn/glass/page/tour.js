// A guided tour: every stop sets the view and points at a section.

import { goTo, h, replace } from "./dom.js";

/** The name of an operation of the map: the first whose name ends like this in a layer, or anywhere. */
function find(look, side, ...endings) {
  const entries = look?.map[side] ?? [];
  for (const ending of endings) {
    const found = entries.find((entry) => entry.name.endsWith(ending));
    if (found) return found.name;
  }
  return entries[0]?.name ?? "";
}

function masked(store) {
  return store.look?.answers[0]?.position ?? 1;
}

export const STOPS = [
  { title: "A text becomes tokens", at: "text", text: "The model does not read letters. WordPiece cuts the text into pieces of a fixed vocabulary; each has a number. A word that is not in the vocabulary falls into several pieces, marked with ##." },
  { title: "A word is hidden", at: "text", text: "One word is replaced by [MASK]. The model gives every word of its vocabulary a probability at that place; these are the five best. The loss is the surprise at the word that stood there: −log of its probability." },
  { title: "The stack of layers", at: "map", go: () => ({ side: "forward" }), text: "Everything that happened between text and answer, from left to right. The line is the residual stream: each layer reads from it, computes in a branch and adds its result back." },
  { title: "A vector for every token", at: "operation", go: (store) => ({ side: "forward", node: find(store.look, "forward", "embeddings.token"), role: "y", cell: [masked(store), 0] }), text: "Each token's number picks a row of a table. That row is all the model knows of a word before it looks at the others." },
  { title: "A sum you can open", at: "operation", go: (store) => ({ side: "forward", node: find(store.look, "forward", "attention.qkv"), role: "y", cell: [masked(store), 3] }), text: "A linear map is many sums of products. The opened cell shows all of its terms with the real numbers, and their sum is the number in the table. Click another cell, or a factor." },
  { title: "Who looks at whom", at: "attention", go: (store) => ({ side: "forward", layer: Math.min(1, store.model.layers - 1), head: 0 }), text: "In each head every token asks a question (query) and compares it with what the others offer (key). The weights of a row add up to 1. Silence a head and see what the answer loses." },
  { title: "From scores to weights", at: "operation", go: (store) => ({ side: "forward", node: find(store.look, "forward", "layers.1.attention.attention", "attention.attention"), role: "scores", cell: [0, masked(store), 1] }), text: "A score is a dot product of query and key, divided by √d. Softmax turns the scores of a row into weights. Follow the cell from scores to exponentials to weights to context." },
  { title: "The loss, and the way back", at: "map", go: (store) => ({ side: "backward", node: find(store.look, "backward", "loss"), role: "", cell: null }), text: "Now the other direction, from right to left. The backward begins with 1 at the loss and asks of every number: if you were a little larger, how much would the loss change?" },
  { title: "The gradient of a weight", at: "operation", go: (store) => ({ side: "backward", node: find(store.look, "backward", "layers.1.ffn.up", "layers.0.ffn.up", "attention.qkv", "classifier"), role: "dweight", cell: [3, 4] }), text: "dW = dyᵀ x: a weight's gradient is a sum over the tokens, what came in times what comes back. The Python lines beside it are the ones that ran." },
  { title: "The referee", at: "gradient", go: (store) => ({ parameter: store.look?.map.parameters.find((one) => one.name.endsWith("ffn.up.weight"))?.name ?? "", weight: [3, 4] }), text: "Is the gradient right? Nudge the weight by ε and measure the loss. The prediction g · ε and the measurement agree, digit by digit." },
  { title: "One step of training", at: "step", text: "All weights move against their gradients, once. The loss of this text falls and the wanted word rises. Training is this step, repeated over millions of texts." },
  { title: "Which words mattered", at: "saliency", text: "The same gradient, taken at the input, says which words made the answer. Below: watch the answer form through training, compare two texts, and turn the rotary positions. Now choose your own text." },
];

export class Tour {
  constructor(app) {
    this.app = app;
    this.element = h("div", { className: "gb-tour", role: "dialog", "aria-label": "Guided tour", hidden: true });
  }

  changed(changed) {
    if (changed.has("stop")) this.draw();
    if (changed.has("look") && this.app.store.state.stop !== null && this.waiting) this.go();
  }

  begin() {
    this.app.store.update({ stop: 0 });
  }

  end() {
    this.app.store.update({ stop: null });
  }

  move(step) {
    const { stop } = this.app.store.state;
    if (stop === null) return;
    const next = stop + step;
    if (next >= 0 && next < STOPS.length) this.app.store.update({ stop: next });
  }

  draw() {
    const { stop } = this.app.store.state;
    for (const old of this.app.element.querySelectorAll(".gb-spot")) old.classList.remove("gb-spot");
    this.element.hidden = stop === null;
    this.app.element.classList.toggle("gb-touring", stop !== null);
    if (stop === null) return;
    const current = STOPS[Math.min(stop, STOPS.length - 1)];
    replace(
      this.element,
      h("div", { className: "gb-tour-head" }, h("span", { className: "gb-muted" }, `${stop + 1} of ${STOPS.length}`), h("button", { className: "gb-link", "aria-label": "End the tour", onclick: () => this.end() }, "close ✕")),
      h("h3", { tabIndex: -1 }, current.title),
      h("p", {}, current.text),
      h("div", { className: "gb-tour-buttons" }, h("button", { className: "gb-button", disabled: stop === 0, onclick: () => this.move(-1) }, "‹ back"), stop + 1 < STOPS.length ? h("button", { className: "gb-button gb-primary", onclick: () => this.move(1) }, "next ›") : h("button", { className: "gb-button gb-primary", onclick: () => this.end() }, "done")),
    );
    this.go();
  }

  go() {
    const { store } = this.app;
    this.waiting = !store.look;
    if (this.waiting) return;
    const current = STOPS[Math.min(store.state.stop, STOPS.length - 1)];
    const change = current.go?.(store) ?? {};
    if (change.side === "backward" && !store.look.map.backward.length) delete change.side;
    const { look } = store;
    if (change.node) {
      const names = look.map[change.side ?? store.state.side].map((entry) => entry.name);
      if (!names.includes(change.node)) for (const key of ["node", "role", "cell"]) delete change[key];
    }
    store.update(change);
    const target = this.app.element.querySelector(`#gb-${current.at}`);
    target?.classList.add("gb-spot");
    if (target) goTo(target);
    this.element.querySelector("h3")?.focus({ preventScroll: true });
  }
}
