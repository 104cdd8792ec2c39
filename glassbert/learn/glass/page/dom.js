// Small helpers for elements.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(node.style, value);
    else if (key === "dataset") Object.assign(node.dataset, value);
    else if (key in node && !key.includes("-") && !(node instanceof SVGElement) && key !== "list") node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export function replace(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Runs the last of several overlapping tasks to its end; answers of earlier ones are dropped. */
export class Latest {
  constructor() {
    this.ticket = 0;
  }

  async run(task, done, failed) {
    const ticket = ++this.ticket;
    try {
      const answer = await task();
      if (ticket === this.ticket) done(answer);
    } catch (error) {
      if (ticket === this.ticket) failed(error);
    }
  }
}

export function sentence(error) {
  return h("p", { className: "gb-error", role: "alert" }, capital(error.message ?? String(error)));
}

export function capital(text) {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

export function select(label, options, value, onchange) {
  const list = h(
    "select",
    { "aria-label": label, onchange: (event) => onchange(event.target.value) },
    options.map(([key, text]) => h("option", { value: String(key) }, text)),
  );
  list.value = String(value);
  return h("label", { className: "gb-field" }, h("span", {}, label), list);
}

/** Text of a formula: the letter of a sum as a subscript. */
export function formula(text) {
  return text.split(/Σ([a-z]) /).map((part, i) => (i % 2 ? ["Σ", h("sub", {}, part), " "] : part));
}

/** Scroll to an element and stay there while what stands above it is still loading. */
export function goTo(element) {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  element.scrollIntoView({ block: "start", behavior: still ? "auto" : "smooth" });
  const begun = performance.now();
  let free = false;
  const release = () => (free = true);
  for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) addEventListener(kind, release, { once: true, passive: true });
  const observer = new ResizeObserver(() => {
    if (free || performance.now() - begun > 4000) observer.disconnect();
    else if (performance.now() - begun > (still ? 0 : 700)) element.scrollIntoView({ block: "start" });
  });
  for (const other of element.parentElement.children) observer.observe(other);
}
