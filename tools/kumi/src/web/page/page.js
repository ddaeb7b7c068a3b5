// The live page: follows two views, that of all address spaces and one of the chosen address space,
// and draws what arrives.

import { answer, open, post } from "./dialog.js";
import { Stream } from "./stream.js";
import { bytes, duration, element, fill, histogram } from "./tables.js";
import { percent, plain, rate, waits } from "./tables.js";

const $ = (id) => document.getElementById(id);
const SPACES = JSON.stringify({ show: "spaces" });
const LOCKS = 100;

/** What the page shows; kept in the address, so that a reload shows the same. */
const state = {
  space: 0,
  show: "microprocesses",
  sort: "cpu",
  groupSort: "count",
  backwards: false,
  filter: "",
  by: "stack",
  within: [],
  skip: 0,
  limit: 50,
};
let spaces = [];
let latest = {};
/** The text that was searched last, the row where it was found, and whether that is to be shown. */
let sought = { text: "", found: null, isNew: false };
let views = [];
let paused = false;

function remembered() {
  try {
    const before = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    for (const [key, value] of Object.entries(before)) {
      if (key in state && typeof value === typeof state[key]) state[key] = value;
    }
    if (!Array.isArray(state.within)) state.within = [];
  } catch {
    // An address without a state, or with a damaged one, begins with the defaults.
  }
}

/** The view of the chosen address space, as the server reads it; null if there is none. */
function detail() {
  const { space, backwards, filter, within, skip, limit } = state;
  if (!space || state.show === "profile") return null;
  const groups = within.map((part) => ({ [part.by]: part.key }));
  const list = { backwards, filter, within: groups, skip, limit };
  switch (state.show) {
    case "locks":
      return { show: "locks", space, limit: LOCKS };
    case "latency":
      return { show: "latency", space };
    case "groups":
      return { show: "groups", space, by: state.by, sort: state.groupSort, ...list };
    default:
      return { show: "microprocesses", space, sort: state.sort, ...list };
  }
}

// The connection.

let tell;

function connect() {
  if (typeof SharedWorker === "function" && navigator.locks) {
    const { port } = new SharedWorker("/worker.js", { type: "module" });
    port.onmessage = ({ data: [what, text] }) => receive(what, text);
    tell = (message) => port.postMessage(message);
    // Held as long as this tab lives, which is how the worker knows.
    const lock = crypto.randomUUID();
    navigator.locks.request(lock, () => {
      port.postMessage({ lock });
      return new Promise(() => {});
    });
    return;
  }
  const stream = new Stream();
  let before = [];
  tell = ({ views: wanted, again }) => {
    if (again) stream.again();
    if (!wanted) return;
    for (const view of wanted) if (!before.includes(view)) stream.join(view, receive);
    for (const view of before) if (!wanted.includes(view)) stream.leave(view, receive);
    before = wanted;
  };
}

/** Follows the views that the state demands; none while nobody looks. */
function follow() {
  const wanted = detail();
  views = wanted ? [SPACES, JSON.stringify(wanted)] : [SPACES];
  tell({ views: paused || document.hidden ? [] : views });
  history.replaceState(null, "", "#" + encodeURIComponent(JSON.stringify(state)));
}

function receive(what, text) {
  if (what === "status") return status(text);
  if (what === "refused") return status("refused", text);
  if (paused) return;
  if ($("status").className !== "open") status("open");
  const data = JSON.parse(text);
  if (what === SPACES) return drawSpaces(data);
  // What belongs to an earlier view may still arrive.
  if (what === views[1]) draw(data);
}

function status(is, why) {
  const texts = {
    open: "live",
    lost: "connection lost, trying again …",
    refused: why ?? "refused: sign in again, or start kumi web again, and reload",
    paused: "paused",
  };
  $("status").textContent = texts[is];
  $("status").className = is;
}

/** Changes the state, and shows and follows what it demands. */
function change(part) {
  // The buttons of rows that belong to another list must not be pressed for this one.
  if ("show" in part || "space" in part) $("rows").tBodies[0].replaceChildren();
  Object.assign(state, part);
  $("complaint").textContent = "";
  latest = {};
  frame();
  follow();
}

// Address spaces.

function drawSpaces(data) {
  if (data.error) return void ($("complaint").textContent = plain(data.error));
  spaces = data.spaces;
  $("spaces-none").hidden = spaces.length > 0;
  const columns = [
    {
      head: "Space",
      text: (row) => String(row.number),
      press: (row) => change({ space: row.number, skip: 0, within: [] }),
      pressed: (row) => row.number === state.space,
      label: (row) => "Show address space " + row.number,
    },
    { head: "PID", text: (row) => String(row.pid ?? "-"), class: "number" },
    { head: "Program", text: (row) => plain(row.error ?? row.program), class: "text" },
    { head: "VPs", text: (row) => String(row.vps ?? "-"), class: "number" },
    { head: "Living", text: (row) => String(row.living ?? "-"), class: "number" },
    { head: "CPU", text: (row) => percent(row.cpu), class: "number" },
    { head: "Switches/s", text: (row) => rate(row.switches), class: "number" },
    { head: "Started/s", text: (row) => rate(row.spawned), class: "number optional" },
    {
      head: "Kernel threads",
      text: (row) => String(row.kernel_threads ?? "-"),
      class: "number optional",
    },
  ];
  fill($("spaces"), columns, spaces, (row) => String(row.number));
  if (!spaces.some((row) => row.number === state.space) && spaces.length > 0) {
    change({ space: spaces[0].number, skip: 0, within: [] });
  }
  frame();
}

// The chosen address space.

/** Shows the parts of the page that the state demands. */
function frame() {
  const space = spaces.find((row) => row.number === state.space);
  $("detail").hidden = !space;
  if (!space) return;
  const program = plain(space.program ?? "");
  $("detail-title").textContent = "Address space " + space.number + ": " + program;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const is = tab.dataset.show === state.show;
    tab.setAttribute("aria-selected", String(is));
    tab.tabIndex = is ? 0 : -1;
  }
  const isList = ["microprocesses", "groups"].includes(state.show);
  const shown = "panel-" + (isList ? "list" : state.show);
  for (const panel of document.querySelectorAll("[role=tabpanel]")) {
    panel.hidden = panel.id !== shown;
  }
  if (isList) $("panel-list").setAttribute("aria-labelledby", "tab-" + state.show);
  $("by-label").hidden = state.show !== "groups";
  $("within").replaceChildren(
    ...state.within.map((part, at) => {
      const button = element("button", { type: "button" }, "× " + title(part));
      button.setAttribute("aria-label", "Leave the group " + title(part));
      button.onclick = () => change({ within: state.within.slice(0, at), skip: 0 });
      return button;
    }),
  );
}

/** A group in one line: of a stack the first frame of the program. */
const title = (part) => plain(String(part.title ?? "").split("\n")[0].slice(0, 80));

function draw(data) {
  if (data.error) return void ($("complaint").textContent = plain(data.error));
  $("complaint").textContent = "";
  latest = data;
  switch (state.show) {
    case "locks":
      return drawLocks(data);
    case "latency":
      return drawLatency();
    case "groups":
      summary(data.totals);
      return drawGroups(data);
    default:
      summary(data.totals);
      return drawRows(data);
  }
}

function summary({ living, matching, states, cpu, switch_rate }) {
  const names = ["running", "runnable", "waiting", "blocked", "suspended"];
  const parts = [living + " living"];
  if (matching !== living) parts.push(matching + " match");
  names.forEach((name, at) => states[at] > 0 && parts.push(states[at] + " " + name));
  parts.push("CPU " + percent(cpu), rate(switch_rate) + " switches/s");
  $("summary").textContent = parts.join(", ");
}

const sorted = (by, to) => ({ by, backwards: state.backwards, to });

function drawRows({ rows, totals }) {
  const priority = (row) => row.priority + (row.inherited == null ? "" : "+" + row.inherited);
  const columns = [
    {
      head: "ID",
      sort: "id",
      text: (row) => row.short,
      press: open,
      label: (row) => "Steer " + row.short + (row.name ? " (" + plain(row.name) + ")" : ""),
    },
    { head: "Name", sort: "name", text: (row) => plain(row.name ?? "-"), class: "text" },
    { head: "CPU", sort: "cpu", falls: true, text: (row) => percent(row.cpu), class: "number" },
    { head: "State", sort: "state", text: (row) => row.state + (row.stopping ? ", stopping" : "") },
    { head: "Priority", sort: "priority", falls: true, text: priority, class: "number" },
    { head: "VP", sort: "vp", text: (row) => String(row.vp), class: "number optional" },
    {
      head: "Switches/s",
      sort: "switches",
      falls: true,
      text: (row) => rate(row.switch_rate),
      class: "number optional",
    },
    {
      head: "Stack",
      sort: "stack",
      falls: true,
      text: (row) => bytes(row.stack_bytes),
      class: "number optional",
    },
    {
      head: "For",
      sort: "wait-time",
      falls: true,
      text: (row) => (row.waiting_ns == null ? "-" : duration(row.waiting_ns)),
      class: "number",
    },
    { head: "Waits for", sort: "waits-for", text: waits, class: "text" },
  ];
  const to = (key) =>
    change({ sort: key, backwards: state.sort === key && !state.backwards, skip: 0 });
  fill($("rows"), columns, rows, (row) => row.id, sorted(state.sort, to));
  place(totals.matching);
  const found = $("rows").tBodies[0].rows[sought.found - state.skip];
  if (sought.isNew && found) found.cells[0].firstElementChild.focus();
  sought.isNew = false;
}

function drawGroups({ groups, totals }) {
  const columns = [
    {
      head: "Members",
      sort: "count",
      falls: true,
      text: (row) => String(row.count),
      class: "number",
    },
    { head: "CPU", sort: "cpu", falls: true, text: (row) => percent(row.cpu), class: "number" },
    {
      head: "Waited",
      sort: "wait-time",
      falls: true,
      text: (row) => duration(row.waiting_ns),
      class: "number",
    },
    {
      head: "Group",
      sort: "name",
      text: (row) => "  ".repeat(row.depth) + row.what.split("\n").map(plain).join("\n"),
      class: "text stack",
    },
    {
      head: "Show",
      text: () => "Members",
      press: (row) => {
        const part = { by: state.by, key: row.stack ?? row.what, title: row.what };
        change({ show: "microprocesses", within: [...state.within, part], skip: 0 });
      },
      label: (row) => "Show the " + row.count + " members of " + title({ title: row.what }),
    },
  ];
  const named = { name: "what", what: "name" };
  const to = (key) => {
    const by = named[key] ?? key;
    change({ groupSort: by, backwards: state.groupSort === by && !state.backwards, skip: 0 });
  };
  const key = (row) => row.stack ?? row.depth + ":" + row.what;
  fill($("rows"), columns, groups, key, sorted(named[state.groupSort] ?? state.groupSort, to));
  place(totals.groups);
}

/** Where the shown rows are in the list, and the buttons that lead elsewhere. */
function place(all) {
  latest.all = all;
  const { skip, limit } = state;
  // The list has become shorter.
  if (skip > 0 && skip >= all) return change({ skip: last(all) });
  const end = Math.min(skip + limit, all);
  $("place").textContent = all === 0 ? "none" : skip + 1 + " to " + end + " of " + all;
  for (const button of document.querySelectorAll("[data-page]")) {
    const back = button.dataset.page === "first" || button.dataset.page === "back";
    button.disabled = back ? skip === 0 : skip + limit >= all;
  }
}

const last = (all) => Math.max(0, Math.ceil(all / state.limit) - 1) * state.limit;

function drawLocks({ locks, chains, totals }) {
  $("summary").textContent = "";
  $("lock-totals").textContent =
    `${totals.waiters} wait for ${totals.locks} locks; ` +
    `${totals.chains} chains, ${totals.cycles} deadlocks`;
  const columns = [
    { head: "Lock", text: (row) => plain(row.kind) + " at 0x" + row.address.toString(16) },
    { head: "Holder", text: (row) => plain(row.held), class: "text" },
    { head: "Holder does", text: (row) => plain(row.holder_does ?? ""), class: "text" },
    { head: "Waiters", text: (row) => String(row.waiters), class: "number" },
    { head: "Longest wait", text: (row) => duration(row.longest_ns), class: "number" },
    {
      head: "First waiters",
      text: (row) => row.first.slice(0, 3).map((one) => plain(one.name ?? one.id)).join(", "),
      class: "text",
    },
  ];
  fill($("locks"), columns, locks, (row) => String(row.address));
  const chain = (one) => {
    const others = one.others > 0 ? " (and " + one.others + " more behind the first)" : "";
    return element("li", {}, (one.is_cycle ? "deadlock: " : "") + plain(one.text) + others);
  };
  $("chains").replaceChildren(...(chains.length ? chains.map(chain) : [element("li", {}, "none")]));
}

function drawLatency() {
  $("summary").textContent = "";
  const vps = latest.totals?.vps ?? [];
  const choice = $("vp");
  if (choice.options.length !== vps.length + 1) {
    const names = ["all", ...vps.map((_, at) => String(at))];
    choice.replaceChildren(...names.map((name) => element("option", {}, name)));
  }
  const chosen = choice.selectedIndex > 0 ? [vps[choice.selectedIndex - 1]] : vps;
  const sum = (of) => {
    const all = [];
    for (const vp of chosen) vp[of].slice(0, 64).forEach((n, at) => (all[at] = (all[at] ?? 0) + n));
    return all;
  };
  histogram($("wake"), sum("wake_latency"), duration);
  histogram($("queue"), sum("queue_lengths"), String);
}

// Profiles.

async function profile() {
  const button = $("profile").querySelector("button");
  const seconds = Number($("seconds").value);
  const kind = $("kind").value;
  button.disabled = true;
  $("profile-status").textContent =
    kind === "stacks" ? "looking …" : `profiling for ${seconds} s …`;
  try {
    const { svg, text, error } = await post("/profile", { space: state.space, kind, seconds });
    $("profile-status").textContent = error ? plain(error) : "done";
    if (error) return;
    // As an image, the picture can neither run scripts nor load anything.
    URL.revokeObjectURL($("flame-picture").src);
    const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    $("flame-picture").src = url;
    $("flame-file").href = url;
    $("flame-text").textContent = text;
    $("flame").hidden = false;
  } catch {
    $("profile-status").textContent = "kumi web does not answer: does it still run?";
  } finally {
    button.disabled = false;
  }
}

async function find() {
  const text = $("find").value;
  const view = detail();
  if (!text || !view) return;
  const from = sought.found === null || sought.text !== text ? state.skip : sought.found + 1;
  const query = new URLSearchParams({ view: JSON.stringify(view), text, from });
  const { found, error } = await answer(await fetch("/find?" + query));
  sought = { text, found: found ?? null, isNew: true };
  if (error || found == null) {
    $("complaint").textContent = error ? plain(error) : "no row contains " + plain(text);
    return;
  }
  change({ skip: Math.floor(found / state.limit) * state.limit });
}

// Controls.

const select = (show) => change({ show, skip: 0 });
const tabs = [...document.querySelectorAll("[role=tab]")];
for (const tab of tabs) {
  tab.onclick = () => select(tab.dataset.show);
  tab.onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: tabs.length - 1 }[event.key];
    if (!by) return;
    const next = tabs[(tabs.indexOf(tab) + by) % tabs.length];
    next.focus();
    next.click();
  };
}
for (const button of document.querySelectorAll("[data-page]")) {
  button.onclick = () => {
    const { skip, limit } = state;
    const [back, end] = [Math.max(0, skip - limit), last(latest.all ?? 0)];
    const to = { first: 0, back, on: skip + limit, last: end };
    change({ skip: to[button.dataset.page] });
  };
}
$("filter").oninput = () => change({ filter: $("filter").value, skip: 0 });
$("limit").onchange = () => change({ limit: Number($("limit").value), skip: 0 });
$("by").onchange = () => change({ by: $("by").value, skip: 0 });
$("vp").onchange = drawLatency;
$("controls").onsubmit = (event) => {
  event.preventDefault();
  find().catch(() => status("lost"));
};
$("profile").onsubmit = (event) => {
  event.preventDefault();
  profile();
};
$("pause").onclick = () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  if (paused) status("paused");
  follow();
};
$("sign-out").onclick = async () => {
  await post("/sign-out", {}).catch(() => {});
  location.assign("/");
};
document.onvisibilitychange = follow;

remembered();
$("filter").value = state.filter;
$("limit").value = String(state.limit);
$("by").value = state.by;
connect();
follow();
