// Worker threads with messages and shared memory, and the thread pool of libuv.
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');
const fs = require('fs');
const zlib = require('zlib');

if (!isMainThread) {
  const counter = new Int32Array(workerData);
  for (let i = 0; i < 10000; i++) Atomics.add(counter, 0, 1);
  // The main thread stores and notifies.
  Atomics.wait(counter, 1, 0);
  parentPort.on('message', (n) => {
    parentPort.postMessage(n * 2);
    parentPort.close();
  });
} else {
  const shared = new SharedArrayBuffer(8);
  const counter = new Int32Array(shared);
  const workers = Array.from({ length: 8 }, () => new Worker(__filename, { workerData: shared }));
  const answers = workers.map((worker, i) => new Promise((resolve, reject) => {
    worker.on('message', resolve);
    worker.on('error', reject);
    worker.postMessage(i);
  }));
  const hash = (i) => new Promise((resolve, reject) => {
    crypto.pbkdf2('a' + i, 'salt', 20000, 32, 'sha256',
      (error, key) => (error ? reject(error) : resolve(key.toString('hex').slice(0, 8))));
  });
  const data = Buffer.alloc(1 << 20, 'kumihimo');
  const packed = () => new Promise((resolve, reject) => {
    zlib.gzip(data, (error, out) => (error ? reject(error) : resolve(out.length)));
  });
  const read = () => fs.promises.readFile(__filename).then((text) => text.length);
  const all = (f) => Promise.all(Array.from({ length: 24 }, (_, i) => f(i)));
  setTimeout(() => {
    Atomics.store(counter, 1, 1);
    Atomics.notify(counter, 1);
  }, 50);
  (async () => {
    console.log((await all(hash)).join(' '));
    console.log((await all(packed)).join(' '));
    console.log(new Set(await all(read)).size);
    console.log((await Promise.all(answers)).join(' '));
    console.log(counter[0]);
  })();
}
