// Receives the events of all views that pages have, over one connection. A browser opens six
// connections to a server at most, so the tabs share this object in a worker (worker.js).

/** Time in which several changes of views become one change of the connection. */
const SETTLE_MS = 30;

export class Stream {
  /** @type {Map<string, Set<Function>>} receivers by view, which is JSON */
  #receivers = new Map();
  /** @type {Map<string, string>} last results */
  #last = new Map();
  #source = null;
  #open = "";
  #timer = 0;

  /** Delivers the results of `view` to `receive(view, text)`, until it is left. */
  join(view, receive) {
    if (!this.#receivers.has(view)) this.#receivers.set(view, new Set());
    this.#receivers.get(view).add(receive);
    if (this.#last.has(view)) receive(view, this.#last.get(view));
    this.#settle();
  }

  leave(view, receive) {
    const all = this.#receivers.get(view);
    if (!all) return;
    all.delete(receive);
    if (all.size === 0) {
      this.#receivers.delete(view);
      this.#last.delete(view);
    }
    this.#settle();
  }

  /** Connects again after the server has refused or gone. */
  again() {
    this.#open = "";
    this.#settle();
  }

  #settle() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), SETTLE_MS);
  }

  #connect() {
    const views = [...this.#receivers.keys()].sort();
    const query = views.map((view) => "view=" + encodeURIComponent(view)).join("&");
    if (query === this.#open && this.#source?.readyState !== EventSource.CLOSED) return;
    this.#source?.close();
    this.#source = null;
    this.#open = query;
    if (views.length === 0) return;
    const source = new EventSource("/events?" + query);
    this.#source = source;
    source.onopen = () => this.#all("status", "open");
    source.onerror = () => {
      if (source !== this.#source) return;
      this.#all("status", source.readyState === EventSource.CLOSED ? "refused" : "lost");
    };
    source.addEventListener("refused", (event) => {
      source.close();
      this.#all("refused", JSON.parse(event.data).error);
    });
    views.forEach((view, at) => {
      source.addEventListener("view-" + at, (event) => {
        this.#last.set(view, event.data);
        for (const receive of this.#receivers.get(view) ?? []) receive(view, event.data);
      });
    });
  }

  /** Tells every receiver something about the connection. */
  #all(what, value) {
    for (const receive of new Set([...this.#receivers.values()].flatMap((all) => [...all]))) {
      receive(what, value);
    }
  }
}
