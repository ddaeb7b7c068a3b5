'use strict';
// The timeline: a row for each virtual processor on a canvas. Each frame looks at about as many
// spans as it has columns of pixels, however many there are: spans below a pixel are summed up by
// the column `busy`.

const AXIS = 24;
const LABEL = 64;
const HUES = [210, 28, 140, 275, 50, 330, 180, 95, 245, 8, 160, 300];
const LISTED = 200;

class Timeline {
  constructor(canvas, parts) {
    this.canvas = canvas;
    this.parts = parts;
    this.wanted = null;
    this.listen();
    new ResizeObserver(() => this.redraw()).observe(canvas.parentElement);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.redraw());
  }

  // Shows a run: its length, lanes, microprocesses and places to mark.
  show(end, lanes, micros, marks) {
    Object.assign(this, { end: Math.max(end, 1), lanes, micros, marks });
    this.row = lanes.length > 128 ? 10 : 28;
    this.selected = null;
    this.mark = null;
    this.canvas.style.height = `${AXIS + lanes.length * this.row}px`;
    this.find('');
    this.view(0, this.end);
    this.tell('Nothing is selected.');
  }

  // Sets what is in sight, in nanoseconds.
  view(from, to) {
    // Numbers of JavaScript have 53 bits: far from the start, closer times are the same one.
    const least = Math.max(20, this.end / 2 ** 40);
    const length = Math.min(Math.max(to - from, least), Math.max(this.end, least));
    this.from = Math.min(Math.max(from, 0), Math.max(this.end - length, 0));
    this.to = this.from + length;
    const step = length / 1000;
    this.parts.range.textContent = `${placeText(this.from, step)} to ${placeText(this.to, step)}`
      + ` (${timeText(length)})`;
    this.redraw();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    const left = (at - this.from) * factor;
    this.view(at - left, at - left + (this.to - this.from) * factor);
  }

  pan(part) {
    const by = (this.to - this.from) * part;
    this.view(this.from + by, this.to + by);
  }

  // Goes to a place and marks it: { from, to, lane, micro }.
  go(place) {
    const length = Math.max(place.to - place.from, 100);
    this.mark = place;
    this.view(place.from - length, place.from + 2 * length);
    const who = place.micro === undefined || place.micro === null ? ''
      : `${this.micros.name(place.micro)}: `;
    const where = place.lane === undefined || place.lane === null ? ''
      : `${this.lanes[place.lane].name}: `;
    this.tell(`${who || where}marked from ${placeText(place.from, 1)} on,`
      + ` for ${timeText(place.to - place.from)}.`);
  }

  tell(text) {
    this.parts.details.textContent = text;
  }

  // Looks for microprocesses by a part of their label.
  find(text) {
    const wanted = text.trim().toLowerCase();
    this.wanted = null;
    this.parts.matches.textContent = '';
    if (wanted) {
      const found = new Uint8Array(this.micros.count + FIRST_MICRO);
      let count = 0;
      for (let i = 0; i < this.micros.count; i++) {
        if (this.micros.name(i).toLowerCase().includes(wanted)) {
          found[i + FIRST_MICRO] = 1;
          count++;
        }
      }
      // before[i]: spans before i that match.
      const before = this.lanes.map((lane) => {
        const sums = new Uint32Array(lane.count + 1);
        for (let i = 0; i < lane.count; i++) sums[i + 1] = sums[i] + found[lane.what[i]];
        return sums;
      });
      const spans = before.reduce((sum, sums) => sum + sums[sums.length - 1], 0);
      this.wanted = { found, before };
      this.parts.matches.textContent = `${numberText(count)} microprocesses,`
        + ` ${numberText(spans)} times on a VP`;
    }
    this.redraw();
  }

  // Selects the next or previous span of the microprocesses that are looked for.
  step(forward) {
    if (!this.wanted) return;
    const at = this.selected ? this.selected.lane.from[this.selected.index]
      : (forward ? this.from - 1 : this.to);
    let best = null;
    this.lanes.forEach((lane, nth) => {
      const sums = this.wanted.before[nth];
      let index;
      if (forward) {
        const later = firstIndex(lane.count, (i) => lane.from[i] > at);
        index = firstIndex(lane.count + 1, (i) => sums[i] > sums[later], later) - 1;
        if (index >= lane.count || sums[lane.count] === sums[later]) return;
      } else {
        const until = firstIndex(lane.count, (i) => lane.from[i] >= at);
        if (sums[until] === 0) return;
        index = firstIndex(until, (i) => sums[i] >= sums[until]) - 1;
      }
      const from = lane.from[index];
      if (!best || (forward ? from < best.lane.from[best.index] : from > best.lane.from[best.index])) {
        best = { lane, index };
      }
    });
    if (!best) {
      this.tell(forward ? 'No later time.' : 'No earlier time.');
      return;
    }
    const [from, to] = [best.lane.from[best.index], best.lane.to[best.index]];
    const half = (this.to - this.from) / 2;
    if (from < this.from || to > this.to) this.view((from + to) / 2 - half, (from + to) / 2 + half);
    this.select(best);
  }

  // Describes a span, and frames it.
  select(hit) {
    this.selected = hit;
    this.redraw();
    if (!hit) {
      this.tell('Nothing is selected.');
      return;
    }
    const { lane, index } = hit;
    const length = lane.to[index] - lane.from[index];
    this.tell(`${lane.name}: ${this.spanText(lane, index)}, from ${placeText(lane.from[index], 1)}`
      + ` on, for ${timeText(length)}.`);
  }

  spanText(lane, index) {
    const what = lane.what[index];
    if (what === IDLE) return 'idle';
    if (what === SEVERAL) {
      const busy = lane.busy[index + 1] - lane.busy[index];
      return `${numberText(lane.counts.get(index))} short times,`
        + ` ${percentText(busy, lane.to[index] - lane.from[index])} busy`;
    }
    return this.micros.name(what - FIRST_MICRO);
  }

  // The span of a lane at a time, if there is one.
  at(nth, time) {
    const lane = this.lanes[nth];
    if (!lane) return null;
    const index = firstIndex(lane.count, (i) => lane.to[i] > time);
    return index < lane.count && lane.from[index] <= time ? { lane, index } : null;
  }

  redraw() {
    if (this.frame || !this.lanes) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
      if (this.parts.box.open) this.list();
    });
  }

  colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    return {
      back: of('--back'), text: of('--text'), quiet: of('--quiet'), line: of('--line'),
      idle: of('--idle'), accent: of('--accent'), bad: of('--bad'), several: of('--quiet'),
      micro: HUES.map((hue) => `hsl(${hue} ${dark ? '45% 42%' : '60% 72%'})`),
    };
  }

  draw() {
    const { canvas } = this;
    const ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const paint = this.colours();
    context.fillStyle = paint.back;
    context.fillRect(0, 0, width, height);
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'middle';
    this.scale = (width - LABEL) / (this.to - this.from);
    this.drawAxis(context, paint, width, height);
    context.save();
    context.beginPath();
    context.rect(LABEL, 0, width - LABEL, height);
    context.clip();
    this.lanes.forEach((lane, nth) => this.drawLane(context, paint, lane, nth));
    this.drawMarks(context, paint, height);
    context.restore();
    context.fillStyle = paint.text;
    if (this.row > 12) {
      this.lanes.forEach((lane, nth) => (
        context.fillText(lane.name, 4, AXIS + (nth + 0.5) * this.row, LABEL - 8)));
    }
  }

  x(time) {
    return LABEL + (time - this.from) * this.scale;
  }

  drawAxis(context, paint, width, height) {
    const about = ((this.to - this.from) * 110) / (width - LABEL);
    const power = 10 ** Math.floor(Math.log10(about));
    const step = power * [1, 2, 5, 10].find((times) => power * times >= about);
    context.fillStyle = paint.quiet;
    context.strokeStyle = paint.line;
    context.lineWidth = 1;
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      context.beginPath();
      context.moveTo(x, AXIS - 6);
      context.lineTo(x, height);
      context.stroke();
      context.fillText(placeText(at, step), x + 3, AXIS / 2);
    }
  }

  drawLane(context, paint, lane, nth) {
    const top = AXIS + nth * this.row + 2;
    const tall = this.row - 4;
    const wanted = this.wanted && { found: this.wanted.found, before: this.wanted.before[nth] };
    let i = firstIndex(lane.count, (at) => lane.to[at] > this.from);
    while (i < lane.count && lane.from[i] < this.to) {
      const left = this.x(lane.from[i]);
      const right = this.x(lane.to[i]);
      if (right - left >= 1.5) {
        this.drawSpan(context, paint, lane, i, { left, right, top, tall }, wanted);
        i++;
        continue;
      }
      // All spans that begin in this column of pixels.
      const pixel = Math.max(Math.floor(left), LABEL);
      const until = this.from + (pixel + 1 - LABEL) / this.scale;
      const next = Math.max(i + 1, firstIndex(lane.count, (at) => lane.from[at] >= until, i + 1));
      const part = Math.min(1, (lane.busy[next] - lane.busy[i]) * this.scale);
      const hit = wanted && wanted.before[next] > wanted.before[i];
      context.globalAlpha = wanted && !hit ? 0.25 : Math.max(0.15, part);
      context.fillStyle = hit ? paint.accent : (part > 0 ? paint.several : paint.idle);
      context.fillRect(pixel, top, 1, tall);
      context.globalAlpha = 1;
      i = next;
    }
  }

  drawSpan(context, paint, lane, i, { left, right, top, tall }, wanted) {
    const what = lane.what[i];
    const micro = what - FIRST_MICRO;
    const hit = wanted && wanted.found[what];
    context.globalAlpha = wanted && !hit ? 0.3 : 1;
    if (what === IDLE) context.fillStyle = paint.idle;
    else if (what === SEVERAL) context.fillStyle = paint.several;
    else context.fillStyle = paint.micro[micro % HUES.length];
    const [x, end] = [Math.max(left, LABEL - 1), Math.min(right, this.canvas.clientWidth + 1)];
    context.fillRect(x, top, Math.max(end - x - 0.5, 1), tall);
    context.globalAlpha = 1;
    const chosen = this.selected && this.selected.lane === lane && this.selected.index === i;
    if (hit || chosen) {
      context.strokeStyle = paint.accent;
      context.lineWidth = chosen ? 3 : 1.5;
      context.strokeRect(x + 1, top + 1, Math.max(end - x - 2, 1), tall - 2);
    }
    if (end - x > 48 && tall > 12) {
      context.save();
      context.beginPath();
      context.rect(x, top, end - x - 4, tall);
      context.clip();
      context.fillStyle = what === SEVERAL ? paint.back : paint.text;
      context.fillText(this.spanText(lane, i), x + 4, top + tall / 2);
      context.restore();
    }
  }

  drawMarks(context, paint, height) {
    context.fillStyle = paint.bad;
    for (const mark of this.marks) {
      if (mark.to < this.from || mark.from > this.to) continue;
      const x = this.x(mark.from);
      context.beginPath();
      context.moveTo(x - 4, AXIS - 8);
      context.lineTo(x + 4, AXIS - 8);
      context.lineTo(x, AXIS);
      context.fill();
    }
    if (!this.mark) return;
    const { from, to, lane } = this.mark;
    const whole = lane === undefined || lane === null;
    const top = whole ? AXIS : AXIS + lane * this.row;
    context.globalAlpha = 0.3;
    context.fillRect(this.x(from), top, Math.max((to - from) * this.scale, 2),
      whole ? height - AXIS : this.row);
    context.globalAlpha = 1;
  }

  // The same as a table: each span if there are few, otherwise each lane.
  list() {
    const parts = this.lanes.map((lane) => {
      const first = firstIndex(lane.count, (i) => lane.to[i] > this.from);
      return [lane, first, firstIndex(lane.count, (i) => lane.from[i] >= this.to, first)];
    });
    const count = parts.reduce((sum, [, first, last]) => sum + last - first, 0);
    if (count > LISTED) {
      fillTable(this.parts.visible, [['VP'], ['Times', 'number'], ['Busy', 'number']],
        parts.map(([lane, first, last]) => [lane.name, numberText(last - first),
          percentText(lane.busy[last] - lane.busy[first], this.to - this.from)]));
      return;
    }
    const rows = parts.flatMap(([lane, first, last]) => Array.from({ length: last - first },
      (_, i) => [lane.name, placeText(lane.from[first + i], 1),
        timeText(lane.to[first + i] - lane.from[first + i]), this.spanText(lane, first + i)]));
    fillTable(this.parts.visible,
      [['VP'], ['From', 'number'], ['For', 'number'], ['What', 'name']], rows);
  }

  listen() {
    const { canvas } = this;
    const time = (event) => this.from + (event.offsetX - LABEL) / this.scale;
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.zoom(1.0015 ** Math.max(-600, Math.min(600, event.deltaY)), time(event));
    }, { passive: false });
    let drag = null;
    canvas.addEventListener('pointerdown', (event) => {
      drag = { x: event.clientX, from: this.from, to: this.to, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!drag) return;
      const by = (drag.x - event.clientX) / this.scale;
      drag.moved = drag.moved || Math.abs(drag.x - event.clientX) > 3;
      if (drag.moved) this.view(drag.from + by, drag.to + by);
    });
    canvas.addEventListener('pointerup', (event) => {
      const clicked = drag && !drag.moved;
      drag = null;
      const nth = Math.floor((event.offsetY - AXIS) / this.row);
      if (clicked) this.select(this.at(nth, time(event)));
    });
    canvas.addEventListener('pointercancel', () => { drag = null; });
    canvas.addEventListener('keydown', (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = this.keys()[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
  }

  keys() {
    const zoomIn = () => this.zoom(0.5);
    const zoomOut = () => this.zoom(2);
    const left = () => this.pan(-0.25);
    const right = () => this.pan(0.25);
    const whole = () => this.view(0, this.end);
    const middle = () => {
      const time = (this.from + this.to) / 2;
      const hits = this.lanes.map((_, nth) => this.at(nth, time)).filter(Boolean);
      this.select(hits.find(({ lane, index }) => lane.what[index] !== IDLE) || hits[0] || null);
    };
    const clear = () => {
      this.mark = null;
      this.select(null);
    };
    return {
      '+': zoomIn, '=': zoomIn, w: zoomIn, ArrowUp: zoomIn, '-': zoomOut, s: zoomOut,
      ArrowDown: zoomOut, ArrowLeft: left, a: left, ArrowRight: right, d: right,
      0: whole, Home: whole, Enter: middle, Escape: clear,
      n: () => this.step(true), p: () => this.step(false),
    };
  }
}
