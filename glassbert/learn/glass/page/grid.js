// A matrix as a heat map: a small picture of all of it, and a window of readable numbers.

import { h, Latest, replace, select, sentence } from "./dom.js";
import { css, heat, inkOn, numbers, paint, shown, times } from "./format.js";

const AXES = { a: "head", i: "query", j: "key", t: "token", m: "masked word", d: "feature", h: "feature", o: "output", k: "input", c: "feature", v: "word" };

export class Grid {
  /** `ask` answers questions; `dark()` says whether colours are dark; `onCell(index, value)` is called for a chosen cell. */
  constructor({ ask, dark, onCell, rows = 8, columns = 8 }) {
    Object.assign(this, { ask, dark, onCell, most: { rows, columns } });
    this.latest = new Latest();
    this.pictures = new Latest();
    this.leading = [];
    this.row = this.column = 0;
    this.active = null;
    this.canvas = h("canvas", { className: "gb-overview", "aria-hidden": "true" });
    this.frame = h("div", { className: "gb-overview-frame" });
    this.picture = h("div", { className: "gb-overview-box", title: "Click to move the window" }, this.canvas, this.frame);
    this.controls = h("div", { className: "gb-grid-controls" });
    this.table = h("table", { className: "gb-numbers", role: "grid" });
    this.note = h("p", { className: "gb-grid-note" });
    this.element = h("div", { className: "gb-grid" }, this.controls, this.picture, h("div", { className: "gb-numbers-box" }, this.table), this.note);
    this.picture.addEventListener("pointerdown", (event) => this.drag(event));
    this.table.addEventListener("click", (event) => this.choose(event.target.closest("td")));
    this.table.addEventListener("keydown", (event) => this.keys(event));
    new ResizeObserver(() => this.resized()).observe(this.element);
  }

  /** Show `role` of `name` in `view`; `shape` and `axes` are those of the whole array. `cell` is put into the window. */
  show({ view, name, role, shape, axes, label, cell = null, leading = null }) {
    const isNew = this.name !== name || this.role !== role;
    Object.assign(this, { view, name, role, shape, axes, label });
    const extra = Math.max(0, shape.length - 2);
    if (isNew) [this.row, this.column, this.active] = [0, 0, null];
    if (leading) this.leading = leading.slice(0, extra);
    while (this.leading.length < extra) this.leading.push(0);
    this.leading = this.leading.slice(0, extra).map((place, i) => Math.min(place, shape[i] - 1));
    if (cell) {
      this.leading = cell.slice(0, extra);
      this.reveal(...this.inMatrix(cell));
    }
    this.draw();
  }

  get matrix() {
    const { shape } = this;
    if (!shape.length) return [1, 1];
    return shape.length === 1 ? [1, shape[0]] : shape.slice(-2);
  }

  get size() {
    const [rows, columns] = this.matrix;
    const width = this.element.clientWidth || 460;
    const fits = Math.max(3, Math.floor((width - 66) / 59));
    return [Math.min(rows, this.most.rows), Math.min(columns, this.most.columns, fits)];
  }

  inMatrix(cell) {
    return cell.length >= 2 ? cell.slice(-2) : [0, cell[0] ?? 0];
  }

  index(row, column) {
    const { shape } = this;
    if (!shape.length) return [];
    return shape.length === 1 ? [column] : [...this.leading, row, column];
  }

  reveal(row, column) {
    const [rows, columns] = this.matrix;
    const [height, width] = this.size;
    const inside = (place, start, length) => place >= start && place < start + length;
    if (!inside(row, this.row, height)) this.row = row - Math.floor(height / 2);
    if (!inside(column, this.column, width)) this.column = column - Math.floor(width / 2);
    this.row = Math.max(0, Math.min(this.row, rows - height));
    this.column = Math.max(0, Math.min(this.column, columns - width));
    this.active = [row, column];
  }

  resized() {
    if (!this.shape || this.drawn === this.size.join()) return;
    this.draw();
  }

  draw() {
    this.drawn = this.size.join();
    this.drawControls();
    const [rows, columns] = this.matrix;
    const [height, width] = this.size;
    this.row = Math.max(0, Math.min(this.row, rows - height));
    this.column = Math.max(0, Math.min(this.column, columns - width));
    const { view, name, role, leading, row, column } = this;
    this.latest.run(
      () => this.ask("values", { view, name, role, leading, row, column, height, width }),
      (answer) => this.fill(answer),
      (error) => replace(this.note, sentence(error)),
    );
    const whole = rows <= height && columns <= width;
    this.picture.hidden = whole;
    if (whole) return;
    this.picture.classList.toggle("gb-wide", rows * 6 < columns);
    this.pictures.run(
      () => this.ask("overview", { view, name, role, leading }),
      (answer) => {
        paint(this.canvas, numbers(answer), answer.size[0], answer.size[1], answer.largest, this.dark());
        this.moveFrame();
      },
      () => {},
    );
  }

  drawControls() {
    const parts = this.leading.map((place, i) =>
      select(
        AXES[this.axes[i]] ?? `axis ${i}`,
        Array.from({ length: this.shape[i] }, (_, n) => [n, n]),
        place,
        (value) => {
          this.leading[i] = Number(value);
          this.draw();
        },
      ),
    );
    const key = JSON.stringify([this.leading, this.shape]);
    if (key !== this.controlsFor) replace(this.controls, parts);
    this.controlsFor = key;
    this.controls.hidden = !parts.length;
  }

  moveFrame() {
    const [rows, columns] = this.matrix;
    const [height, width] = this.size;
    const part = (value, all) => `${(100 * value) / all}%`;
    Object.assign(this.frame.style, {
      left: part(this.column, columns),
      top: part(this.row, rows),
      width: part(width, columns),
      height: part(height, rows),
    });
  }

  fill(answer) {
    const data = numbers(answer);
    const [height, width] = answer.size;
    const dark = this.dark();
    const axis = (i) => AXES[this.axes.slice(-2)[i]] ?? "";
    const several = answer.shape[0] > 1;
    const head = h(
      "tr",
      {},
      h("td", { className: "gb-corner" }),
      answer.columns.map((name) => h("th", { scope: "col", title: `${axis(this.axes.length > 1 ? 1 : 0)} ${name}` }, name)),
    );
    const lines = [];
    for (let r = 0; r < height; r++) {
      const cells = [];
      for (let c = 0; c < width; c++) {
        const value = data[r * width + c];
        const colour = heat(value, answer.largest, dark);
        const row = answer.row + r;
        const column = answer.column + c;
        const isActive = this.active && this.active[0] === row && this.active[1] === column;
        const text = shown(value);
        cells.push(
          h("td", {
            className: isActive ? "gb-active" : "",
            tabIndex: isActive || (!this.active && !r && !c) ? 0 : -1,
            dataset: { row, column },
            style: { background: css(colour), color: inkOn(colour) },
            "aria-label": `${several ? `row ${answer.rows[r]}, ` : ""}column ${answer.columns[c]}: ${text}`,
            "aria-selected": isActive ? "true" : null,
            textContent: text,
          }),
        );
      }
      lines.push(h("tr", {}, h("th", { scope: "row", title: several ? `${axis(0)} ${answer.rows[r]}` : "" }, several ? answer.rows[r] : ""), cells));
    }
    const hadFocus = this.table.contains(document.activeElement);
    this.table.setAttribute("aria-label", `${this.label}, ${times(this.shape)}`);
    replace(this.table, h("thead", {}, head), h("tbody", {}, lines));
    this.table.dataset.ready = `${this.name}|${this.role}|${this.leading}|${answer.row}|${answer.column}`;
    if (hadFocus) this.table.querySelector("td[tabindex='0']")?.focus();
    const [rows, columns] = answer.shape;
    this.note.textContent =
      rows <= height && columns <= width
        ? ""
        : `Rows ${answer.row}–${answer.row + height - 1} of ${rows}, columns ${answer.column}–${answer.column + width - 1} of ${columns}.`;
    this.moveFrame();
  }

  choose(cell) {
    if (!cell?.dataset.row) return;
    const [row, column] = [Number(cell.dataset.row), Number(cell.dataset.column)];
    this.mark(row, column, cell);
    this.onCell?.(this.index(row, column), cell.textContent);
  }

  mark(row, column, cell) {
    for (const old of this.table.querySelectorAll("td.gb-active, td[tabindex='0']")) {
      old.classList.remove("gb-active");
      old.tabIndex = -1;
      old.removeAttribute("aria-selected");
    }
    this.active = [row, column];
    cell.classList.add("gb-active");
    cell.setAttribute("aria-selected", "true");
    cell.tabIndex = 0;
    cell.focus({ preventScroll: true });
  }

  keys(event) {
    const cell = event.target.closest("td[data-row]");
    if (!cell) return;
    const [height, width] = this.size;
    const steps = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
      PageUp: [-height, 0], PageDown: [height, 0], Home: [0, -1e9], End: [0, 1e9],
    };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(cell);
      return;
    }
    const step = steps[event.key];
    if (!step || event.altKey || event.metaKey) return;
    event.preventDefault();
    const [rows, columns] = this.matrix;
    const row = Math.max(0, Math.min(rows - 1, Number(cell.dataset.row) + step[0]));
    const column = Math.max(0, Math.min(columns - 1, Number(cell.dataset.column) + step[1]));
    const next = this.table.querySelector(`td[data-row="${row}"][data-column="${column}"]`);
    if (next) {
      this.mark(row, column, next);
      return;
    }
    this.reveal(row, column);
    this.row = step[0] ? Math.max(0, Math.min(rows - height, step[0] > 0 ? row - height + 1 : row)) : this.row;
    this.column = step[1] ? Math.max(0, Math.min(columns - width, step[1] > 0 ? column - width + 1 : column)) : this.column;
    this.draw();
  }

  drag(event) {
    event.preventDefault();
    const move = (at) => {
      const box = this.canvas.getBoundingClientRect();
      const [rows, columns] = this.matrix;
      const [height, width] = this.size;
      this.row = Math.round(((at.clientY - box.top) / box.height) * rows - height / 2);
      this.column = Math.round(((at.clientX - box.left) / box.width) * columns - width / 2);
      this.draw();
    };
    move(event);
    const end = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
  }
}
