// The sum behind one number.

import { formula, h, replace, sentence } from "./dom.js";
import { shown, signed } from "./format.js";

const DIGITS = 5;
const FIRST = 24;

export class TermsPanel {
  /** `go(role, cell)` opens another cell of the same operation. */
  constructor({ go, goNode }) {
    Object.assign(this, { go, goNode, bySize: false, all: false });
    this.element = h("div", { className: "gb-terms", "aria-live": "polite" });
    this.empty();
  }

  empty(text = "Click a number to see the sum that made it.") {
    this.answer = null;
    replace(this.element, h("p", { className: "gb-hint" }, text));
  }

  fail(error) {
    replace(this.element, sentence(error));
  }

  show(answer, entry) {
    this.answer = answer;
    this.entry = entry;
    this.all = false;
    this.draw();
  }

  draw() {
    const { answer } = this;
    const where = answer.index.map((place, i) => (answer.where[i] === String(place) ? place : `${place} “${answer.where[i]}”`)).join(", ");
    const title = h(
      "div",
      { className: "gb-terms-title" },
      h("span", { className: "gb-mono" }, answer.name),
      h("span", { className: "gb-muted" }, where ? ` [${where}]` : ""),
      h("strong", { className: "gb-terms-value", dataset: { value: "" } }, shown(answer.value, DIGITS)),
    );
    const body = { sum: () => this.sum(), function: () => this.function(), given: () => this.given(), parts: () => this.parts() }[answer.kind]();
    replace(this.element, title, body);
  }

  given() {
    const made = this.entry?.made_by;
    if (this.entry?.kind === "parameter")
      return h("p", { className: "gb-hint" }, "A parameter: training made this number, and its gradient says how it would move.");
    if (!made) return h("p", { className: "gb-hint" }, "This number is not a sum: see the Python lines.");
    return h(
      "p",
      { className: "gb-hint" },
      "This number came in from ",
      h("button", { className: "gb-link gb-mono", onclick: () => this.goNode(made, this.answer) }, made),
      ".",
    );
  }

  function() {
    const parts = [];
    let rest = this.answer.formula;
    for (const cell of this.answer.cells) {
      const at = rest.indexOf(cell.text);
      parts.push(rest.slice(0, at), this.number(cell.role, cell.cell, cell.value));
      rest = rest.slice(at + cell.text.length);
    }
    parts.push(rest);
    return [
      h("p", { className: "gb-formula gb-mono" }, `${this.answer.role} = ${this.answer.formula}`),
      h("p", { className: "gb-function gb-mono" }, "= ", parts, " = ", h("strong", {}, shown(this.answer.value, DIGITS))),
    ];
  }

  number(role, cell, value) {
    return h("button", { className: "gb-number", title: `${role}[${cell.join(", ")}]`, onclick: () => this.go(role, cell) }, shown(value, DIGITS));
  }

  parts() {
    const { answer } = this;
    if (!answer.parts.length) return h("p", { className: "gb-hint" }, "No operation that can be opened used this parameter.");
    return [
      h("p", { className: "gb-hint" }, answer.parts.length > 1 ? "This parameter was used more than once. Its gradients add up:" : "The gradient comes from one operation:"),
      h(
        "ul",
        { className: "gb-parts" },
        answer.parts.map((part) =>
          h(
            "li",
            {},
            h("button", { className: "gb-link gb-mono", onclick: () => this.goNode(part.node, { ...answer, role: part.role }, "backward", part.role) }, part.node),
            h("span", { className: "gb-mono" }, shown(part.value, DIGITS)),
          ),
        ),
      ),
    ];
  }

  sum() {
    const { answer } = this;
    const many = answer.groups.some((group) => group.values.length > 2);
    return [
      h("p", { className: "gb-formula gb-mono" }, formula(answer.formula)),
      many
        ? h(
            "label",
            { className: "gb-check" },
            h("input", { type: "checkbox", checked: this.bySize, onchange: (event) => ((this.bySize = event.target.checked), this.draw()) }),
            "largest terms first",
          )
        : null,
      h("div", { className: "gb-sum" }, answer.groups.map((group) => this.group(group))),
      h(
        "p",
        { className: "gb-total gb-mono" },
        answer.groups.length > 1 ? `${answer.groups.map((group, i) => (i ? ` ${group.sum < 0 ? "−" : "+"} ${shown(Math.abs(group.sum), DIGITS)}` : shown(group.sum, DIGITS))).join("")} = ` : "sum = ",
        h("strong", {}, shown(answer.sum, DIGITS)),
      ),
    ];
  }

  group(group) {
    const largest = Math.max(...group.values.map(Math.abs), 1e-300);
    let order = group.values.map((_, i) => i);
    if (this.bySize) order.sort((a, b) => Math.abs(group.values[b]) - Math.abs(group.values[a]));
    const hidden = this.all ? 0 : Math.max(0, order.length - FIRST);
    if (hidden) order = order.slice(0, FIRST);
    const letters = Object.keys(group.over);
    const rows = order.map((i) => {
      const value = group.values[i];
      return h(
        "tr",
        {},
        letters.map((letter) => h("th", { scope: "row" }, group.over[letter][i])),
        h(
          "td",
          { className: "gb-factors" },
          group.sign < 0 ? "−" : "",
          group.factors.map((factor, n) => [n ? " · " : "", this.number(factor.role, factor.cells[i], factor.values[i])]),
        ),
        h("td", { className: "gb-bar-cell" }, bar(value, largest)),
        h("td", { className: "gb-term" }, signed(value, DIGITS)),
      );
    });
    const more =
      hidden > 0
        ? h("button", { className: "gb-link", onclick: () => ((this.all = true), this.draw()) }, `show ${hidden} more terms`)
        : null;
    const rest =
      group.count > group.values.length
        ? h("p", { className: "gb-hint" }, `The ${group.values.length} largest of ${group.count.toLocaleString("en-US")} terms; the others add up to ${shown(group.rest, DIGITS)}.`)
        : null;
    return h(
      "div",
      { className: "gb-group" },
      this.answer.groups.length > 1 || letters.length ? h("div", { className: "gb-group-title gb-mono" }, group.sign < 0 ? "− " : "", formula(group.text), h("span", { className: "gb-muted" }, ` = ${shown(group.sum, DIGITS)}`)) : null,
      h(
        "table",
        { className: "gb-term-table" },
        h("thead", { className: "gb-hidden" }, h("tr", {}, letters.map((letter) => h("th", {}, letter)), h("th", {}, "factors"), h("th", {}, "bar"), h("th", {}, "term"))),
        h("tbody", {}, rows),
      ),
      more,
      rest,
    );
  }
}

function bar(value, largest) {
  const width = `${(50 * Math.abs(value)) / largest}%`;
  const style = value < 0 ? { right: "50%", width } : { left: "50%", width };
  return h("span", { className: "gb-bar", "aria-hidden": "true" }, h("span", { className: value < 0 ? "gb-minus" : "gb-plus", style }));
}
