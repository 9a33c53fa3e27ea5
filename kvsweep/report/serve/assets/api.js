// Talking to the server that this page came from.

/** What the server refused: `fields` maps names of inputs to messages, `message` is for everything else. */
class Refusal extends Error {
  constructor(message, fields = {}) {
    super(message);
    this.fields = fields;
  }
}

/** Promise of a JSON answer and what it took; rejects with a Refusal. `signal` abandons the request. */
async function ask(path, body = null, signal = null) {
  const started = performance.now();
  const options = body === null ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(path, { ...options, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal("The server does not answer. Is kvsweep serve still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw refusalOf(answer.detail, response.status);
  return { answer, milliseconds: performance.now() - started, server: serverTime(response.headers.get("Server-Timing")) };
}

function refusalOf(detail, status) {
  if (!Array.isArray(detail)) return new Refusal(typeof detail === "string" ? `The server says: ${detail}.` : `The server answered ${status}.`);
  const fields = {};
  const others = [];
  for (const { loc, msg } of detail) {
    if (loc.length > 1) fields[loc[1]] = msg;
    else others.push(msg);
  }
  return new Refusal(others.join("; "), fields);
}

/** Milliseconds the server took in all, null where it does not say. */
function serverTime(header) {
  const total = /total;dur=([\d.]+)/.exec(header ?? "");
  return total ? Number(total[1]) : null;
}

/** Source of the viewer over an answer of /api/sweep. */
function fetchedSource(answer) {
  return { header: answer.header, bytes: (name) => gunzip(fromBase64(answer.planes[name])) };
}

/**
 * Runs the newest of a burst of computations: `run(signal)` is called `wait` ms after the last call of `start`, and
 * what an older one still waits for is abandoned. `show(result)` and `fail(error)` hear of the newest only.
 */
class Newest {
  constructor(wait, show, fail) {
    Object.assign(this, { wait, show, fail, timer: 0, controller: null });
  }

  start(run) {
    clearTimeout(this.timer);
    this.controller?.abort();
    const controller = new AbortController();
    this.controller = controller;
    this.timer = setTimeout(async () => {
      try {
        const result = await run(controller.signal);
        if (!controller.signal.aborted) await this.show(result);
      } catch (error) {
        if (!controller.signal.aborted) this.fail(error);
      }
    }, this.wait);
  }
}
