// The dialog of one microprocess: its facts, its stack, and actions, each after a confirmation.

import { duration, element, plain, waits } from "./tables.js";

const $ = (id) => document.getElementById(id);

/** What an action does, to be asked before it is requested. */
const QUESTIONS = {
  suspend: "Suspend it? It keeps what it holds: threads that wait for its locks stop, too.",
  resume: "Let it continue?",
  cancel: "Cancel it? It unwinds at its next wait, and cannot be brought back.",
};

/** Sends a request that changes something. Returns what the server has said. */
export async function post(path, body) {
  const key = document.querySelector('meta[name="page-key"]').content;
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Page-Key": key },
    body: JSON.stringify(body),
  });
  return answer(response);
}

/** The object in an answer. Any failure becomes one with an error. */
export async function answer(response) {
  const text = await response.text();
  if (response.headers.get("Content-Type")?.startsWith("application/json")) return JSON.parse(text);
  return { error: text.trim() || response.statusText };
}

/** The microprocess that the dialog is about, and the action that waits for a confirmation. */
let shown = null;
let asked = null;

export function open(row) {
  shown = row;
  const name = row.name ? " (" + plain(row.name) + ")" : "";
  $("one-title").textContent = "Microprocess " + row.short + name;
  $("priority").value = row.priority;
  const latency = row.wake_latency_ns;
  const facts = [
    ["State", row.state + (row.stopping ? ", stopping" : "")],
    ["Waits for", waits(row)],
    ["Waits since", row.waiting_ns == null ? "" : duration(row.waiting_ns)],
    ["CPU time", duration(row.cpu_ns)],
    ["Switches", row.switches + ", " + row.preemptions + " preemptions"],
    ["Wake-up to run", latency == null ? "" : duration(latency) + " on average"],
    ["Keeps its kernel thread", row.sticky ? plain(row.sticky) : ""],
  ];
  const lines = facts.filter(([, text]) => text !== "");
  $("one-facts").replaceChildren(
    ...lines.flatMap(([what, text]) => [element("dt", {}, what), element("dd", {}, text)]),
  );
  $("one-said").textContent = "";
  $("one-stack").hidden = true;
  ask(null);
  $("one").showModal();
}

/** Shows the question about an action, or the actions again. */
function ask(action) {
  asked = action;
  $("one-question").hidden = action === null;
  $("one-actions").hidden = action !== null;
  if (action === null) return;
  const subject = shown.short + (shown.name ? " (" + plain(shown.name) + ")" : "") + ": ";
  const question =
    action === "priority" ? "Set its priority to " + $("priority").value + "?" : QUESTIONS[action];
  $("one-asked").textContent = subject + question;
  $("one-no").focus();
}

async function act(action) {
  const what = action === "priority" ? { priority: Number($("priority").value) } : action;
  const { said, error } = await post("/act", { id: shown.id, action: what });
  $("one-said").textContent = plain(said ?? error);
}

async function stack() {
  const response = await fetch("/backtrace?id=" + encodeURIComponent(shown.id));
  const { said, error } = await answer(response);
  $("one-said").textContent = error ? plain(error) : "";
  $("one-stack").hidden = Boolean(error);
  $("one-stack").textContent = (said ?? "").split("\n").map(plain).join("\n");
}

/** A connection that has gone is said, too. */
const told = (promise) =>
  promise.catch(() => ($("one-said").textContent = "kumi web does not answer: does it still run?"));

for (const button of document.querySelectorAll("[data-act]")) {
  button.onclick = () => {
    if (button.dataset.act === "backtrace") told(stack());
    else if (button.dataset.act === "priority" && !$("priority").reportValidity()) return;
    else ask(button.dataset.act);
  };
}
$("one-no").onclick = () => ask(null);
$("one-yes").onclick = () => {
  const action = asked;
  ask(null);
  told(act(action));
};
$("one-close").onclick = () => $("one").close();
