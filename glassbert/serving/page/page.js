// The page to try the models by hand. It asks its own server and nothing else.

const KINDS = {
  predict: { name: "Predict", address: "v1/predict" },
  "fill-mask": { name: "Fill the mask", address: "v1/fill-mask" },
  embed: { name: "Embed", address: "v1/embed" },
  tokens: { name: "Tokens", address: "v1/tokens" },
};
const MOST_SHOWN = 12;

const at = (id) => document.getElementById(id);
const state = { models: [], model: null, kind: null, texts: {}, asked: 0 };

function make(tag, attributes = {}, ...children) {
  const svg = tag === "svg" || tag === "rect";
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function headers() {
  const key = at("key").value.trim();
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function ask(address, body) {
  const options = body === undefined ? { headers: headers() } : { method: "POST", headers: headers(), body };
  const response = await fetch(address, options);
  const answer = await response.json();
  if (!response.ok) {
    if (response.status === 401) at("key-field").hidden = false;
    throw new Error(answer.error.message);
  }
  return answer;
}

// ---- what can be asked ----

async function loadModels() {
  try {
    state.models = (await ask("v1/models")).data;
  } catch (error) {
    at("about").textContent = error.message;
    return;
  }
  at("about").textContent = state.models.length === 1 ? "One model answers here." : `${state.models.length} models answer here.`;
  at("model").replaceChildren(...state.models.map((one) => make("option", {}, one.id)));
  chooseModel(state.models[0]);
}

function chooseModel(model) {
  state.model = model;
  at("kinds").replaceChildren(
    ...model.answers.map((kind) => {
      const tab = make("button", { type: "button", role: "tab", "data-kind": kind }, KINDS[kind].name);
      tab.addEventListener("click", () => chooseKind(kind));
      return tab;
    }),
  );
  chooseKind(model.answers.includes(state.kind) ? state.kind : model.answers[0]);
}

function chooseKind(kind) {
  if (state.kind) state.texts[`${state.last} ${state.kind}`] = at("input").value;
  state.kind = kind;
  state.last = state.model.id;
  for (const tab of at("kinds").children) tab.setAttribute("aria-selected", String(tab.dataset.kind === kind));
  const input = at("input");
  input.classList.toggle("code", needsJson());
  input.value = state.texts[`${state.last} ${kind}`] ?? example();
  at("hint").textContent = hint();
  for (const id of ["answer", "curl", "raw"]) at(id).hidden = true;
  at("status").textContent = "";
  state.asked++; // an answer that is still on its way belongs to what was chosen before
  at("send").disabled = false;
}

const needsJson = () => state.kind === "predict" && ["row", "pair"].includes(state.model.input);

function example() {
  if (state.kind === "fill-mask") return "She opened the [MASK] and went out.";
  if (state.kind !== "predict") return "A king ruled the land.\nThe queen ruled the country.\nThe train was late.";
  if (state.model.input === "row") return JSON.stringify(Object.fromEntries(state.model.columns.map((name) => [name, null])), null, 1);
  if (state.model.input === "pair") return '["A man sings.", "Someone is singing."]';
  return "A warm film that never loses its way.";
}

function hint() {
  if (state.kind === "fill-mask") return "One sentence a line, each with [MASK].";
  if (state.kind === "embed") return "One text a line. Two or more texts are compared with the first.";
  if (state.kind === "predict" && state.model.input === "row") return "A row of the table as JSON; null is an unknown value.";
  if (state.kind === "predict" && state.model.input === "pair") return "Two texts as a JSON array.";
  return "One text a line.";
}

function body() {
  const text = at("input").value;
  const input = needsJson() ? [JSON.parse(text)] : text.split("\n").filter((line) => line.trim());
  return JSON.stringify({ model: state.model.id, input });
}

// ---- answers ----

async function submit(event) {
  event.preventDefault();
  const number = ++state.asked;
  const kind = state.kind;
  const { address } = KINDS[kind];
  at("send").disabled = true;
  const start = performance.now();
  try {
    let sent;
    try {
      sent = body();
    } catch {
      throw new Error("The input is not JSON.");
    }
    const answer = await ask(address, sent);
    if (number !== state.asked) return;
    at("status").textContent = `${answer.usage.tokens} tokens, ${(performance.now() - start).toFixed(0)} ms`;
    const inputs = JSON.parse(sent).input;
    at("answer").replaceChildren(...SHOW[kind](answer, inputs));
    at("raw").querySelector("pre").textContent = JSON.stringify(answer, null, 1);
    at("curl").querySelector("pre").textContent =
      `curl ${new URL(address, location.href)} -H "Content-Type: application/json" -d '${sent.replaceAll("'", "'\\''")}'`;
    at("raw").hidden = at("curl").hidden = false;
  } catch (error) {
    if (number !== state.asked) return;
    at("status").textContent = "";
    at("answer").replaceChildren(make("p", { class: "error" }, error.message));
    at("raw").hidden = at("curl").hidden = true;
  }
  at("answer").hidden = false;
  at("send").disabled = false;
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;
const result = (title, ...children) => make("div", { class: "result" }, make("p", { class: "muted" }, title), ...children);

function bars(rows, best) {
  const cells = rows.slice(0, MOST_SHOWN).flatMap(([name, share]) => [
    make("span", { class: best.includes(name) ? "name best" : "name" }, name),
    make("span", { class: "share" }, percent(share)),
    make("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      make("rect", { width: String(Math.max(0.4, 100 * share)), height: "10", rx: "1" })),
  ]);
  return make("div", { class: "bars" }, ...cells);
}

function showPredictions(answer, inputs) {
  return answer.predictions.map((one, i) => {
    const title = typeof inputs[i] === "string" ? inputs[i] : JSON.stringify(inputs[i]);
    if (one.probabilities) {
      const ranked = Object.entries(one.probabilities).sort((a, b) => b[1] - a[1]);
      return result(title, bars(ranked, [one.prediction].flat()));
    }
    if (one.words) {
      const words = one.words.map((word, place) => make("span", { class: "token" }, word, make("small", {}, one.prediction[place])));
      return result(title, make("div", { class: "tokens" }, ...words));
    }
    const shown = typeof one.prediction === "number" ? one.prediction.toPrecision(4) : JSON.stringify(one.prediction);
    return result(title, make("p", {}, make("strong", {}, shown.length > 300 ? `${shown.slice(0, 300)}…` : shown)));
  });
}

function showMasks(answer, inputs) {
  return answer.data.map((one, i) => {
    const lists = one.masks.map((words) => bars(words.map((word) => [word.word, word.chance]), [words[0].word]));
    return result(inputs[i], ...lists.flatMap((list, place) => (place ? [make("p", { class: "muted" }, `mask ${place + 1}`), list] : [list])));
  });
}

function showVectors(answer, inputs) {
  const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
  const first = answer.embeddings[0];
  return answer.embeddings.map((vector, i) => {
    const most = Math.max(...vector.map(Math.abs));
    const columns = vector.map((value, x) => {
      const height = (50 * Math.abs(value)) / most;
      return make("rect", { x: String(x), y: String(value > 0 ? 50 - height : 50), width: "0.8", height: String(height) });
    });
    const picture = make("svg", { class: "vector", viewBox: `0 0 ${vector.length} 100`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...columns);
    const cosine = i ? `cosine with the first text ${dot(first, vector).toFixed(3)}` : `${vector.length} numbers, unit length`;
    return result(inputs[i], make("p", {}, cosine), picture);
  });
}

function showTokens(answer, inputs) {
  return answer.data.map((one, i) => {
    const tokens = one.tokens.map((token, place) => make("span", { class: "token" }, token, make("small", {}, String(one.ids[place]))));
    return result(inputs[i], make("div", { class: "tokens" }, ...tokens));
  });
}

const SHOW = { predict: showPredictions, "fill-mask": showMasks, embed: showVectors, tokens: showTokens };

at("form").addEventListener("submit", submit);
at("model").addEventListener("change", () => chooseModel(state.models[at("model").selectedIndex]));
at("key").addEventListener("change", loadModels);
at("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
});
loadModels();
