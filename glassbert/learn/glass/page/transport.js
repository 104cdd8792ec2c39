// Where answers come from: a server, a notebook, or what an exported page recorded.

function withMemory(ask) {
  const kept = new Map();
  return (method, given) => {
    const key = method + JSON.stringify(given);
    if (!kept.has(key)) {
      const answer = ask(method, given).then((found) => {
        if (found.error) throw new Error(found.error);
        return found;
      });
      answer.catch(() => kept.delete(key));
      kept.set(key, answer);
      if (kept.size > 300) kept.delete(kept.keys().next().value);
    }
    return kept.get(key);
  };
}

/** Questions to the server of this page. */
export function overHttp() {
  return withMemory(async (method, given) => {
    let response;
    try {
      response = await fetch(`ask/${method}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(given),
      });
    } catch {
      throw new Error("the server does not answer; start it again with glassbert glass");
    }
    const answer = await response.json().catch(() => ({ error: `the server answered with the status ${response.status}` }));
    return answer;
  });
}

/** Questions to Python in a notebook, over the channel of an anywidget. */
export function overWidget(model) {
  const waiting = new Map();
  let number = 0;
  model.on("msg:custom", (message) => {
    const answered = waiting.get(message?.number);
    if (!answered) return;
    waiting.delete(message.number);
    answered(message.answer);
  });
  return withMemory(
    (method, given) =>
      new Promise((answered) => {
        number += 1;
        waiting.set(number, answered);
        model.send({ number, method, given });
      }),
  );
}
