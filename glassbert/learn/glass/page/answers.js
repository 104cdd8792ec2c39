// Answers of two looks side by side, as bars.

import { h } from "./dom.js";
import { percent, shown, signed } from "./format.js";

/** `before` and `after` are summaries; the words of both are shown with both chances. */
export function paired(before, after, names = ["before", "after"]) {
  const boxes = after.answers.map((answer, i) => {
    const old = before.answers.find((one) => one.position === answer.position) ?? before.answers[i];
    const words = new Map();
    for (const [side, found] of [["old", old], ["new", answer]])
      for (const one of [...(found?.best ?? []), ...(found?.target ? [found.target] : [])]) words.set(one.id, { ...words.get(one.id), word: one.word, id: one.id, [side]: one.chance ?? one.value });
    const list = [...words.values()].sort((a, b) => (b.new ?? b.old ?? 0) - (a.new ?? a.old ?? 0)).slice(0, 7);
    const isChance = answer.best.some((one) => one.chance !== undefined);
    const text = (value) => (value === undefined ? "–" : isChance ? percent(value) : shown(value, 4));
    const line = (value, kind) =>
      h("span", { className: "gb-two-line" }, h("span", { className: "gb-answer-bar" }, h("span", { className: kind, style: { width: `${100 * (isChance ? (value ?? 0) : 0)}%` } })), h("span", { className: "gb-mono gb-answer-chance" }, text(value)));
    return h(
      "div",
      { className: "gb-answer-box" },
      h("p", { className: "gb-answer-title" }, answer.position === null ? "Answers" : [`Mask at ${answer.position}`, answer.target ? [": wanted ", h("b", { dir: "auto" }, answer.target.word)] : ""]),
      list.map((one) => h("div", { className: "gb-two" }, h("span", { className: `gb-answer-word${answer.target?.id === one.id ? " gb-wanted-word" : ""}`, dir: "auto" }, one.word), h("span", {}, line(one.old, "gb-was"), line(one.new, "gb-now")))),
    );
  });
  const change = before.loss !== null && after.loss !== null ? h("p", { className: "gb-losses" }, h("span", { className: "gb-muted" }, "loss "), h("b", { className: "gb-mono", dataset: { before: "" } }, shown(before.loss, 5)), " → ", h("b", { className: "gb-mono", dataset: { after: "" } }, shown(after.loss, 5)), h("span", { className: "gb-muted" }, ` (${signed(after.loss - before.loss, 3)})`)) : null;
  return [
    change,
    h("p", { className: "gb-legend" }, h("span", { className: "gb-key gb-was" }), ` ${names[0]}  `, h("span", { className: "gb-key gb-now" }), ` ${names[1]}`),
    h("div", { className: "gb-answers" }, boxes),
  ];
}
