// The text, how it falls into pieces, and the answers.

import { h, replace, sentence } from "./dom.js";
import { grouped, percent, shown } from "./format.js";
import { section } from "./state.js";

export class TextPanel {
  constructor(app) {
    this.app = app;
    const { element, body } = section("text", "Your text", "WordPiece takes it apart. Click a word to mask it, and the model says what it expects there.");
    this.element = element;
    this.input = h("textarea", { rows: 1, spellcheck: false, "aria-label": "Text", dir: "auto" });
    this.input.addEventListener("input", () => {
      this.grow();
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.read(), 450);
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        clearTimeout(this.timer);
        this.read();
      }
    });
    this.pieces = h("div", { className: "gb-pieces", role: "group", "aria-label": "Words and their pieces; press one to mask it" });
    this.note = h("div", { role: "status" });
    this.loss = h("div", { className: "gb-loss" });
    this.answers = h("div", { className: "gb-answers" });
    body.append(this.input, this.note, this.pieces, this.loss, this.answers);
  }

  grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, 180)}px`;
  }

  read() {
    if (this.input.value !== this.app.store.state.view.text) this.app.store.see({ text: this.input.value });
  }

  changed(changed) {
    const { state, look } = this.app.store;
    if (changed.has("view") && document.activeElement !== this.input) this.input.value = state.view.text;
    if (changed.has("view")) requestAnimationFrame(() => this.grow());
    if (changed.has("look")) this.draw(look);
    this.input.readOnly = !this.app.store.about.live;
  }

  fail(error) {
    replace(this.note, sentence(error));
  }

  draw(look) {
    const about = this.element.querySelector(".gb-about");
    about.textContent = look.task.kind === "mlm" ? "WordPiece takes it apart. Click a word to mask it, and the model says what it expects there." : "WordPiece takes it apart, and the model reads the pieces.";
    replace(this.note, look.note ? h("p", { className: "gb-note" }, look.note) : null);
    const words = [];
    look.tokens.forEach((token, i) => {
      const last = words.at(-1);
      if (token.word !== null && last?.word === token.word) last.pieces.push({ ...token, i });
      else words.push({ word: token.word, pieces: [{ ...token, i }] });
    });
    const canMask = look.task.kind === "mlm" && this.app.store.about.live;
    const few = words.length <= 120;
    replace(this.pieces, (few || this.everything ? words : words.slice(0, 120)).map((word) => this.word(word, canMask)), few || this.everything ? null : h("button", { className: "gb-link", onclick: () => ((this.everything = true), this.draw(look)) }, `show all ${words.length} words`));
    replace(
      this.loss,
      look.loss === null
        ? h("p", { className: "gb-note" }, look.why_no_loss)
        : h("p", {}, h("span", { className: "gb-muted" }, "loss "), h("strong", { className: "gb-mono", dataset: { loss: "" } }, shown(look.loss, 5)), h("span", { className: "gb-muted" }, look.task.kind === "mlm" ? " nats a masked word" : "")),
    );
    replace(this.answers, look.answers.map((answer) => this.answer(answer, look)), this.labels(look));
  }

  word({ word, pieces }, canMask) {
    const masked = pieces.some((piece) => piece.masked);
    const special = word === null;
    const content = pieces.map((piece) =>
      h(
        "span",
        { className: "gb-piece", title: `id ${piece.id}, position ${piece.i}` },
        h("span", { className: "gb-piece-text", dir: "auto" }, masked ? piece.shown : piece.token),
        h("span", { className: "gb-piece-id" }, masked && piece.shown !== piece.token ? piece.token : piece.id),
      ),
    );
    const name = pieces.map((piece) => piece.token).join(" ");
    if (special || !canMask) return h("span", { className: `gb-word${special ? " gb-special" : ""}${masked ? " gb-masked" : ""}` }, content);
    return h(
      "button",
      {
        className: `gb-word${masked ? " gb-masked" : ""}`,
        "aria-pressed": masked ? "true" : "false",
        "aria-label": `${name}: ${masked ? "masked, press to show" : "press to mask"}`,
        onclick: () => this.toggle(pieces, masked),
      },
      content,
    );
  }

  toggle(pieces, masked) {
    const { store } = this.app;
    const places = pieces.map((piece) => piece.i);
    const kept = (store.state.view.masked ?? []).filter((place) => !places.includes(place));
    const targets = { ...store.state.view.targets };
    for (const place of places) delete targets[place];
    store.see({ masked: masked ? kept : [...kept, ...places].sort((a, b) => a - b), targets: Object.keys(targets).length ? targets : undefined });
  }

  answer(answer, look) {
    const { store } = this.app;
    const place = answer.position;
    const live = store.about.live;
    const rows = answer.best.map((one) => {
      const wanted = answer.target?.id === one.id;
      const chance = one.chance ?? null;
      const choose = () =>
        place === null ? store.see({ label: one.id }) : store.see({ targets: { ...store.state.view.targets, [place]: one.id } });
      return h(
        live ? "button" : "div",
        { className: `gb-answer${wanted ? " gb-wanted" : ""}`, title: live ? "Make this the target of the loss" : "", onclick: live ? choose : null },
        h("span", { className: "gb-answer-word", dir: "auto" }, one.word),
        h("span", { className: "gb-answer-bar" }, h("span", { style: { width: `${100 * (chance ?? 0)}%` } })),
        h("span", { className: "gb-mono gb-answer-chance" }, chance === null ? shown(one.value, 4) : percent(chance)),
      );
    });
    const { target } = answer;
    const outside = target && !answer.best.some((one) => one.id === target.id);
    return h(
      "div",
      { className: "gb-answer-box", role: "group", "aria-label": place === null ? "Answers" : `Answers for the mask at position ${place}` },
      h(
        "p",
        { className: "gb-answer-title" },
        place === null ? "The model answers" : [`Mask at ${place}: wanted `, h("b", { dir: "auto" }, target.word), h("span", { className: "gb-muted" }, `, rank ${grouped(answer.rank)}`)],
      ),
      rows,
      outside ? h("div", { className: "gb-answer gb-wanted gb-outside" }, h("span", { className: "gb-answer-word", dir: "auto" }, target.word), h("span", { className: "gb-answer-bar" }, h("span", { style: { width: `${100 * target.chance}%` } })), h("span", { className: "gb-mono gb-answer-chance" }, percent(target.chance))) : null,
    );
  }

  labels(look) {
    const { task } = look;
    const { store } = this.app;
    if (task.kind !== "sequence" || !store.about.live) return null;
    if (task.loss === "cross_entropy" || task.loss === "ordinal")
      return h("p", { className: "gb-hint" }, "The loss is computed for ", h("b", {}, task.labels[task.label[0]]), ". Click another answer to choose it.");
    const read = (event) => {
      const values = event.target.value.split(",").map(Number);
      if (values.every(Number.isFinite)) store.see({ label: values });
    };
    return h("label", { className: "gb-field" }, h("span", {}, `label (${task.labels.length} number${task.labels.length > 1 ? "s" : ""})`), h("input", { value: task.label.map((one) => Number(one.toPrecision(4))).join(", "), onchange: read }));
  }
}
