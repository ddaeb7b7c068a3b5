// The worker that all tabs share: each tells it the views that it shows.

import { Stream } from "./stream.js";

const stream = new Stream();

onconnect = ({ ports: [port] }) => {
  let views = [];
  const receive = (view, text) => port.postMessage([view, text]);
  const show = (wanted) => {
    const before = views;
    views = wanted;
    for (const view of wanted) if (!before.includes(view)) stream.join(view, receive);
    for (const view of before) if (!wanted.includes(view)) stream.leave(view, receive);
  };
  port.onmessage = ({ data }) => {
    if (data.again) stream.again();
    if (data.views) show(data.views);
    // The lock is free when the tab has gone, however that has happened.
    if (data.lock) navigator.locks.request(data.lock, () => show([]));
  };
};
