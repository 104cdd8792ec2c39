// The addresses of the server, from its OpenAPI document.

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function kind(schema) {
  if (schema.oneOf) return schema.oneOf.map(kind).join(" or ");
  if (schema.type === "array") return `array of ${kind(schema.items)}`;
  return schema.type ?? "any value";
}

function fields(schema) {
  const rows = Object.entries(schema.properties).map(([name, one]) => {
    const needed = (schema.required ?? []).includes(name) ? " (required)" : "";
    const choices = one.enum ? `One of ${one.enum.join(", ")}. ` : "";
    const standard = one.default === undefined ? "" : ` Default: ${one.default}.`;
    return make("tr", {}, make("td", {}, make("code", {}, name), needed), make("td", {}, kind(one)),
      make("td", {}, `${choices}${one.description ?? ""}${standard}`));
  });
  return make("div", { class: "wide" }, make("table", {}, make("tbody", {}, ...rows)));
}

function article(address, method, one, known) {
  const parts = [
    make("h2", {}, make("span", { class: "method" }, method.toUpperCase()), address),
    make("p", {}, one.summary),
  ];
  const body = one.requestBody?.content["application/json"];
  if (body) {
    const sent = JSON.stringify(body.example).replaceAll("'", "'\\''");
    const command = `curl ${new URL(address.slice(1), location.href)} \\\n  -H "Content-Type: application/json" \\\n  -d '${sent}'`;
    parts.push(make("p", { class: "muted" }, "Fields"), fields(body.schema), make("pre", {}, command));
    parts.push(make("p", { class: "muted" }, "Answer"), fields(one.responses["200"].content["application/json"].schema));
    const refusals = Object.entries(one.responses).filter(([, answer]) => answer.$ref);
    const rows = refusals.map(([status, answer]) => make("tr", {}, make("td", {}, make("code", {}, status)),
      make("td", {}, known[answer.$ref.split("/").pop()].description)));
    parts.push(make("details", {}, make("summary", {}, "Errors"), make("table", {}, make("tbody", {}, ...rows))));
  }
  return make("article", {}, ...parts);
}

const given = await (await fetch("openapi.json")).json();
document.getElementById("about").textContent = `Version ${given.info.version}. ${given.info.description}`;
document.getElementById("addresses").replaceChildren(
  ...Object.entries(given.paths).flatMap(([address, methods]) =>
    Object.entries(methods).map(([method, one]) => article(address, method, one, given.components.responses))),
);
