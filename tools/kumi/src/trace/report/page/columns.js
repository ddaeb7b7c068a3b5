'use strict';
// The columns of microprocesses and spans, in the order in which columns.rs writes them.

const IDLE = 0;
const SEVERAL = 1;
const FIRST_MICRO = 2;

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

class Columns {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  // Reads `count` numbers into `column`. Seven bits a byte, the lowest first.
  read(count, column = new Float64Array(count)) {
    const bytes = this.bytes;
    let at = this.at;
    for (let i = 0; i < count; i++) {
      let byte = bytes[at++];
      let value = byte & 0x7f;
      for (let scale = 128; byte > 0x7f; scale *= 128) {
        byte = bytes[at++];
        value += (byte & 0x7f) * scale;
      }
      column[i] = value;
    }
    if (at > bytes.length) throw new Error('the columns are shorter than stated');
    this.at = at;
    return column;
  }

  take(length) {
    const from = this.at;
    this.at += length;
    return this.bytes.subarray(from, this.at);
  }
}

const MICRO_COLUMNS = ['level', 'runs', 'running', 'latencies', 'latency', 'longestLatency',
  'parks', 'parked', 'blocks', 'outside', 'first', 'last'];

function readMicros(columns, count) {
  const lengths = columns.read(count);
  const ends = new Float64Array(count + 1);
  for (let i = 0; i < count; i++) ends[i + 1] = ends[i] + lengths[i];
  const bytes = columns.take(ends[count]);
  const decoder = new TextDecoder();
  // In a text of ASCII, places are those of the bytes.
  const whole = decoder.decode(bytes);
  const ascii = whole.length === bytes.length;
  const micros = {
    count,
    name: (i) => (ascii ? whole.slice(ends[i], ends[i + 1])
      : decoder.decode(bytes.subarray(ends[i], ends[i + 1]))),
  };
  for (const name of MICRO_COLUMNS) micros[name] = columns.read(count);
  return micros;
}

function readLane(columns, { spans: count, several, name }) {
  const from = columns.read(count);
  const to = columns.read(count);
  const what = columns.read(count, new Uint32Array(count));
  const severalBusy = columns.read(several);
  const severalCount = columns.read(several);
  // busy[i]: time before span i in which a microprocess ran.
  const busy = new Float64Array(count + 1);
  const counts = new Map();
  let at = 0;
  let nth = 0;
  for (let i = 0; i < count; i++) {
    from[i] += at;
    to[i] += from[i];
    at = to[i];
    let ran = to[i] - from[i];
    if (what[i] === IDLE) ran = 0;
    if (what[i] === SEVERAL) {
      counts.set(i, severalCount[nth]);
      ran = severalBusy[nth++];
    }
    busy[i + 1] = busy[i] + ran;
  }
  return { name, count, from, to, what, busy, counts };
}

// Reads the block of the document; it is of no use afterwards.
async function readColumns(facts) {
  const block = document.getElementById('columns');
  const packed = fromBase64(block.textContent);
  block.remove();
  const columns = new Columns(await inflate(packed));
  return facts.runs.map((run) => ({
    micros: readMicros(columns, run.micros),
    lanes: run.lanes.map((lane) => readLane(columns, lane)),
  }));
}

// The first index in 0..count for which `is` holds; it holds for all later ones.
function firstIndex(count, is, low = 0) {
  let high = count;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (is(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
