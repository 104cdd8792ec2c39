// An exported page: answers come from what was recorded. Cells are looked up; the terms of an opened sum are multiplied here.

import { floats } from "./format.js";
import { mount } from "./main.js";

const HERE = "This page was exported, so it holds what was recorded for its texts. Start glassbert glass to try this.";
const MOST = 512;

function bytes(text) {
  const letters = atob(text);
  const found = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) found[i] = letters.charCodeAt(i);
  return found;
}

async function unzip(text) {
  const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

class Recorded {
  constructor(data, block) {
    Object.assign(this, { data, block, made: new Map(), corrections: new Map() });
  }

  /** A stored array as numbers. */
  stored(number) {
    if (!this.made.has(number)) {
      const [width, offset, shape] = this.data.arrays[number];
      const count = shape.reduce((a, b) => a * b, 1);
      const raw = new Uint8Array(count * width);
      for (let i = 0; i < count; i++) for (let b = 0; b < width; b++) raw[i * width + b] = this.block[offset + b * count + i];
      const values = width === 4 ? new Float32Array(raw.buffer) : Float32Array.from(new Uint16Array(raw.buffer), half);
      this.made.set(number, { values, shape });
    }
    return this.made.get(number);
  }

  view(view) {
    const found = this.data.views.find((one) => one.view.text === view.text && String(one.view.masked) === String(view.masked ?? []));
    if (!found) throw new Error(HERE);
    return found;
  }

  /** Something with a shape and a function from an index to its value. */
  source(recorded, name, role) {
    if (name === "parameters") return this.plain(recorded.parameters[role]);
    if (name === "gradients") {
      const entry = recorded.gradients[role];
      if (entry.array !== undefined) return this.plain(entry.array);
      return this.computed(entry, (index) => entry.uses.reduce((total, [node, part]) => total + this.evaluate(recorded, node, part, index), 0));
    }
    const entry = recorded.nodes[name]?.[role];
    if (!entry) throw new Error(`${name} has no array ${role}`);
    if (entry.array !== undefined) return this.plain(entry.array);
    return this.computed(entry, (index) => this.evaluate(recorded, name, role, index));
  }

  plain(number) {
    const { values, shape } = this.stored(number);
    return { shape, at: (index) => values[flat(index, shape)] };
  }

  computed(entry, evaluate) {
    if (!this.corrections.has(entry)) {
      const where = new Uint32Array(bytes(entry.where).buffer);
      const values = floats(entry.values);
      this.corrections.set(entry, new Map(Array.from(where, (place, i) => [place, values[i]])));
    }
    const known = this.corrections.get(entry);
    const { shape } = entry;
    return { shape, entry, at: (index) => known.get(flat(index, shape)) ?? evaluate(index) };
  }

  evaluate(recorded, name, role, index) {
    const entry = recorded.nodes[name][role];
    if (!entry.sum) return this.source(recorded, name, role).at(index);
    return this.products(recorded, name, entry, index).reduce((total, group) => total + group.sum, 0);
  }

  /** The terms of a cell, summand by summand. */
  products(recorded, name, entry, index) {
    const [, left] = entry.sum.left;
    return entry.sum.products.map(([sign, factors, over]) => {
      const bound = {};
      const allowed = {};
      left.forEach((axis, i) => {
        if (typeof axis === "string") bound[axis] = index[i];
        else allowed[axis[1]] = this.places(recorded, name, axis[0], index[i]);
      });
      const sources = factors.map(([factor, axes]) => ({ factor, axes, source: this.source(recorded, name, factor) }));
      let rows = [{ ...bound }];
      for (const letter of over) {
        const places = allowed[letter] ?? Array.from({ length: this.size(recorded, name, letter, sources) }, (_, i) => i);
        rows = rows.flatMap((row) => places.map((place) => ({ ...row, [letter]: place })));
      }
      const cells = sources.map(({ axes }) => rows.map((row) => axes.map((axis) => (typeof axis === "string" ? row[axis] : this.source(recorded, name, axis[0]).at([row[axis[1]]])))));
      const values = sources.map(({ source }, f) => cells[f].map((cell) => source.at(cell)));
      const terms = rows.map((_, i) => values.reduce((product, list) => product * list[i], sign));
      return { sign, factors: sources.map(({ factor }, f) => ({ role: factor, cells: cells[f], values: values[f] })), rows, over, values: terms, sum: terms.reduce((a, b) => a + b, 0) };
    });
  }

  places(recorded, name, table, wanted) {
    const source = this.source(recorded, name, table);
    return Array.from({ length: source.shape[0] }, (_, i) => i).filter((i) => source.at([i]) === wanted);
  }

  size(recorded, name, letter, sources) {
    for (const { axes, source } of sources)
      for (let i = 0; i < axes.length; i++) {
        if (axes[i] === letter) return source.shape[i];
        if (Array.isArray(axes[i]) && axes[i][1] === letter) return this.source(recorded, name, axes[i][0]).shape[0];
      }
    throw new Error(`no axis is named ${letter}`);
  }

  /** What stands at an index of an axis: a token, a masked token, a word, or a number. */
  place(recorded, letter, index, size) {
    if (["t", "i", "j"].includes(letter) && size === recorded.tokens.length) return recorded.tokens[index];
    if (["t", "m"].includes(letter) && size === recorded.scored.length) return recorded.tokens[recorded.scored[index]];
    if (["", "o", "v"].includes(letter) && size === this.data.words.length) return this.data.words[index];
    return String(index);
  }

  matrix(recorded, { name, role, leading }) {
    const source = this.source(recorded, name, role);
    const { shape } = source;
    const extra = Math.max(0, shape.length - 2);
    const chosen = [...leading, ...Array(extra).fill(0)].slice(0, extra);
    const axes = recorded.nodes[name]?.[role].axes ?? shape.map(() => "");
    const size = shape.length >= 2 ? shape.slice(-2) : [1, shape[0] ?? 1];
    const at = (row, column) => source.at(shape.length >= 2 ? [...chosen, row, column] : shape.length ? [column] : []);
    return { size, at, entry: source.entry, axes: shape.length >= 2 ? axes.slice(-2) : ["", axes[0] ?? ""] };
  }

  largest({ size, at, entry }) {
    if (entry) return entry.largest;
    let top = 0;
    for (let r = 0; r < size[0]; r++)
      for (let c = 0; c < size[1]; c++) {
        const value = Math.abs(at(r, c));
        if (value > top && Number.isFinite(value)) top = value;
      }
    return top;
  }

  // ---- questions ----

  about() {
    return this.data.about;
  }

  look({ view }) {
    return this.view(view).look;
  }

  summary({ view }) {
    const recorded = this.view(view);
    if (view.step) return recorded.step.summary;
    if (view.silenced?.length) {
      const found = view.silenced.length === 1 && recorded.silenced?.[view.silenced[0].join(".")];
      if (!found) throw new Error(HERE);
      return found;
    }
    return recorded.summary;
  }

  operation({ view, name }) {
    const found = this.view(view).operations[name];
    if (!found) throw new Error(`this pass has no operation ${name}`);
    return found;
  }

  values({ view, name, role, leading, row, column, height, width }) {
    const recorded = this.view(view);
    const matrix = this.matrix(recorded, { name, role, leading });
    const [rows, columns] = matrix.size;
    const size = [Math.min(height, rows - row), Math.min(width, columns - column)];
    const numbers = [];
    for (let r = 0; r < size[0]; r++) for (let c = 0; c < size[1]; c++) numbers.push(matrix.at(row + r, column + c));
    const names = (axis, start, count, all) => Array.from({ length: count }, (_, i) => this.place(recorded, matrix.axes[axis], start + i, all));
    return { row, column, shape: matrix.size, size, numbers, rows: names(0, row, size[0], rows), columns: names(1, column, size[1], columns), largest: this.largest(matrix) };
  }

  overview({ view, name, role, leading }) {
    const matrix = this.matrix(this.view(view), { name, role, leading });
    const top = this.largest(matrix);
    if (matrix.entry) {
      const { size, data } = matrix.entry.picture;
      return { shape: matrix.size, size, numbers: Array.from(new Int8Array(bytes(data).buffer), (pixel) => (pixel / 127) * top), largest: top };
    }
    const size = [Math.min(96, matrix.size[0]), Math.min(192, matrix.size[1])];
    const numbers = new Float32Array(size[0] * size[1]);
    for (let r = 0; r < matrix.size[0]; r++)
      for (let c = 0; c < matrix.size[1]; c++) {
        const place = Math.floor((r * size[0]) / matrix.size[0]) * size[1] + Math.floor((c * size[1]) / matrix.size[1]);
        const value = matrix.at(r, c);
        if (Math.abs(value) > Math.abs(numbers[place])) numbers[place] = value;
      }
    return { shape: matrix.size, size, numbers, largest: top };
  }

  terms({ view, name, role, index }) {
    const recorded = this.view(view);
    const source = this.source(recorded, name, role);
    const value = source.at(index);
    if (name === "gradients") {
      const { uses } = recorded.gradients[role];
      const prefix = role.includes(".") ? role.slice(0, role.lastIndexOf(".") + 1) : "";
      const parts = uses.map(([node, part]) => ({ node, role: part, value: this.source(recorded, node, part).at(index) }));
      return { kind: "parts", name: `${prefix}d_${role.slice(prefix.length)}`, role, index, value, parts, where: index.map((place, i) => this.place(recorded, i ? "i" : "o", place, source.shape[i])) };
    }
    const entry = recorded.nodes[name][role];
    const where = index.map((place, i) => this.place(recorded, entry.axes[i], place, source.shape[i]));
    const answer = { name: entry.name, role, index, value, where };
    if (entry.function) {
      const bound = Object.fromEntries(entry.axes.map((axis, i) => [axis, index[i]]));
      const cells = [...entry.function.matchAll(/(\w+)\[([^\]]*)\]/g)].map(([text, factor, axes]) => {
        const cell = axes.split(",").filter(Boolean).map((axis) => bound[axis]);
        return { text, role: factor, cell, value: this.source(recorded, name, factor).at(cell) };
      });
      return { ...answer, kind: "function", formula: entry.function, cells };
    }
    if (!entry.sum) return { ...answer, kind: "given" };
    const texts = entry.sum.text.slice(entry.sum.text.indexOf("=") + 2).split(/ [+−] /);
    const groups = this.products(recorded, name, entry, index).map((group, g) => {
      let order = group.values.map((_, i) => i);
      if (order.length > MOST) order = order.sort((a, b) => Math.abs(group.values[b]) - Math.abs(group.values[a])).slice(0, MOST).sort((a, b) => a - b);
      const listed = order.reduce((total, i) => total + group.values[i], 0);
      const sizeOf = (letter) => this.size(recorded, name, letter, entry.sum.products[g][1].map(([factor, axes]) => ({ axes, source: this.source(recorded, name, factor) })));
      return {
        text: texts[g].replace(/^− /, ""), sign: group.sign,
        over: Object.fromEntries(group.over.map((letter) => [letter, order.map((i) => this.place(recorded, letter, group.rows[i][letter], sizeOf(letter)))])),
        factors: group.factors.map((factor) => ({ role: factor.role, name: recorded.nodes[name][factor.role].name, values: order.map((i) => factor.values[i]), cells: order.map((i) => factor.cells[i]) })),
        values: order.map((i) => group.values[i]), count: group.values.length, rest: group.sum - listed, sum: group.sum,
      };
    });
    return { ...answer, kind: "sum", formula: entry.sum.text, groups, sum: groups.reduce((total, group) => total + group.sum, 0) };
  }

  nudge({ view, parameter, index, epsilon }) {
    const found = this.view(view).nudge?.[`${parameter}|${index}`];
    if (!found || found.epsilon !== epsilon) throw new Error(`${HERE} Recorded for this parameter, with ε = 0.0001: ${Object.keys(this.view(view).nudge ?? {}).filter((key) => key.startsWith(`${parameter}|`)).map((key) => `[${key.split("|")[1]}]`).join(", ")}`);
    return found;
  }

  moved({ view }) {
    return this.view(view).moved;
  }

  attention({ view, layer }) {
    const recorded = this.view(view);
    const entry = recorded.nodes[`layers.${layer}.attention.attention`]?.weights;
    if (!entry) throw new Error(`layer ${layer} has no attention weights to show`);
    const { values, shape } = this.stored(entry.array);
    return { shape, numbers: values, tokens: recorded.tokens, window: this.data.about.models[0].windows[layer] };
  }

  heads({ view }) {
    return this.view(view).heads;
  }

  saliency({ view, position, target, method }) {
    const found = this.view(view).saliency[`${position ?? ""}|${target}|${method}`];
    if (!found) throw new Error(HERE);
    return found;
  }

  rotation({ view, layer, head, token }) {
    const recorded = this.view(view);
    const angles = recorded.rotation[layer];
    if (!angles) throw new Error(`layer ${layer} does not rotate its queries`);
    const roles = recorded.nodes[`layers.${layer}.attention.q_rotary`];
    const [, pairs] = angles.size;
    const all = floats(angles.data);
    const pick = (role, i) => this.plain(roles[role].array).at([head, token, i]);
    const list = (one, other) => Array.from({ length: pairs }, (_, i) => [pick(one, i), pick(other, i)]);
    return { before: list("x1", "x2"), after: list("y1", "y2"), angle: Array.from(all.subarray(token * pairs, (token + 1) * pairs)), token: recorded.tokens[token], window: this.data.about.models[0].windows[layer] };
  }
}

function flat(index, shape) {
  let place = 0;
  for (let i = 0; i < shape.length; i++) place = place * shape[i] + index[i];
  return place;
}

export async function openRecorded(element) {
  const data = JSON.parse(document.getElementById("recorded").textContent);
  const block = await unzip(document.getElementById("arrays").textContent);
  const recorded = new Recorded(data, block);
  mount(element, async (method, given) => recorded[method](given), true);
}
