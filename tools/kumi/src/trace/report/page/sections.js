'use strict';
// The sections beside timeline and table. `go` shows a place on the timeline.

// A link to a place on the timeline.
function placeLink(text, run, place, go) {
  const { from, to, lane, micro } = place;
  const parts = [run, from, to, lane ?? '', micro ?? ''];
  return element('a', {
    href: `#at=${parts.join(',')}`,
    click: (event) => {
      event.preventDefault();
      history.replaceState(null, '', event.currentTarget.getAttribute('href'));
      go(place);
    },
  }, text);
}

// The place that an address ends with; null if it has none.
function placeOf(hash) {
  const found = /^#at=(\d+),(\d+),(\d+),(\d*),(\d*)$/.exec(hash);
  if (!found) return null;
  const [run, from, to] = found.slice(1, 4).map(Number);
  const optional = (text) => (text === '' ? null : Number(text));
  return { run, from, to, lane: optional(found[4]), micro: optional(found[5]) };
}

const VERDICTS = {
  holds: ['good', 'The check holds: states never overlap, and priorities were exact.'],
  violated: ['bad', 'The check found violations. They are listed under Findings.'],
  incomplete: ['warn', 'The trace is incomplete, and the check proves nothing: '],
};

function showVerdict(facts) {
  const [kind, text] = VERDICTS[facts.verdict];
  byId('title').textContent = facts.file;
  byId('verdict').className = kind;
  byId('verdict').textContent = text + facts.lacks.join('; ');
  byId('check').textContent = facts.check;
  const note = byId('resolution');
  note.hidden = facts.resolution === 0;
  note.textContent = `The trace is long: times that end within ${timeText(facts.resolution)} are`
    + ' shown as one. Sums and tables are exact.';
}

function showSummary(facts, run, columns) {
  const busy = columns.lanes.reduce((sum, lane) => sum + lane.busy[lane.count], 0);
  showFacts(byId('summary-facts'), [
    ['program', run.name || '?'],
    ['length of the run', timeText(run.end)],
    ['virtual processors', numberText(run.lanes.length)],
    ['busy', percentText(busy, run.end * run.lanes.length)],
    ['microprocesses', numberText(run.micros)],
    ...run.counts.map(([name, n]) => [name, numberText(n)]),
    ['stalls', numberText(run.stalls)],
    ['size of the trace', `${(facts.bytes / 1e6).toFixed(1)} MB`],
    ['made by', `kumi ${facts.version}`],
  ]);
}

function microColumns(micros, run, go) {
  const life = (i) => ({ from: micros.first[i], to: micros.last[i], micro: i });
  const number = (title, column, text) => (
    { title, class: 'number', value: (i) => column[i], cell: (i) => text(column[i]) });
  const mean = (i) => (micros.latencies[i] ? micros.latency[i] / micros.latencies[i] : 0);
  return [
    {
      title: 'Name',
      class: 'name',
      value: (i) => micros.name(i),
      cell: (i) => placeLink(micros.name(i), run, life(i), go),
    },
    number('Level', micros.level, (level) => (level ? String(level - 1) : '-')),
    number('CPU', micros.running, timeText),
    number('Runs', micros.runs, numberText),
    {
      title: 'Mean latency', class: 'number', value: mean, cell: (i) => timeText(mean(i)),
    },
    number('Longest latency', micros.longestLatency, timeText),
    number('Waits', micros.parks, numberText),
    number('Waited', micros.parked, timeText),
    number('Blocks', micros.blocks, numberText),
    number('Outside', micros.outside, timeText),
    number('First seen', micros.first, timeText),
  ];
}

function waitCells(waits, run, go) {
  const longest = waits.at
    ? placeLink(timeText(waits.longest), run, waits.at, go) : timeText(waits.longest);
  return [timeText(waits.total), numberText(waits.count), timeText(waits.total / waits.count),
    longest];
}

const WAIT_COLUMNS = [['Sum', 'number'], ['Waits', 'number'], ['Mean', 'number'],
  ['Longest', 'number']];

// The stacks of a lock's holders and waiters, folded.
function stackCell(lock) {
  const parts = [['Holders', lock.holder_stacks], ['Waiters', lock.waiter_stacks]]
    .filter(([, stacks]) => stacks.length > 0)
    .flatMap(([who, stacks]) => stacks.flatMap(([text, count]) => (
      [element('p', {}, `${who}, in ${numberText(count)} samples:`),
        element('pre', { tabindex: '0', role: 'region', 'aria-label': `Stack: ${who}` }, text)])));
  return parts.length === 0 ? 'none'
    : element('details', {}, element('summary', {}, 'stacks'), ...parts);
}

function showContention(facts, run, nth, go) {
  const { reasons, locks, all_locks: count, lacks_addresses: lacks } = run.contention;
  const members = (all) => (all.length === 0 ? 'unknown'
    : all.map(([name, time, times]) => `${name} (${numberText(times)}, ${timeText(time)})`)
      .join('; '));
  byId('no-locks').hidden = count > 0;
  byId('no-addresses').hidden = !lacks;
  byId('no-stacks').hidden = facts.samples > 0;
  byId('has-stacks').hidden = facts.samples === 0;
  byId('has-stacks').textContent = 'The holder is that at the start of each wait. Stacks are of'
    + ` ${numberText(facts.samples)} samples, so those of long waits are more frequent.`;
  byId('locks').parentElement.hidden = count === 0;
  fillTable(byId('locks'),
    [['Lock'], ...WAIT_COLUMNS, ['Held by', 'members'], ['Waiters', 'members'],
      ['Stacks', 'members']],
    locks.map((lock) => [`${lock.kind} ${lock.address ? `at ${lock.address}` : '(any)'}`,
      ...waitCells(lock.waits, nth, go), members(lock.holders), members(lock.waiters),
      stackCell(lock)]));
  fillTable(byId('reasons'), [['Reason'], ...WAIT_COLUMNS],
    reasons.map(([name, waits]) => [name, ...waitCells(waits, nth, go)]));
}

function showLatency(run) {
  const choices = [['all', run.latency],
    ...run.causes.map(([why, of]) => [`runnable because ${why}`, of]),
    ...run.levels.map(([level, of]) => [`level ${level}`, of])];
  const select = byId('latency-of');
  const show = () => showHistogram(choices[select.selectedIndex][1]);
  select.replaceChildren(...choices.map(([name]) => element('option', {}, name)));
  select.onchange = show;
  show();
}

function showHistogram(of) {
  const percentile = ([part, time]) => [`${part / 100} % within`, timeText(time)];
  showFacts(byId('latency-facts'), [['times', numberText(of.count)], ['mean', timeText(of.mean)],
    ...of.percentiles.map(percentile), ['longest', timeText(of.longest)]]);
  const most = of.bars.reduce((top, [, , count]) => Math.max(top, count), 1);
  const fill = (count) => {
    const bar = element('div', { class: 'fill', 'aria-hidden': 'true' });
    bar.style.width = `${(100 * count) / most}%`;
    return bar;
  };
  fillTable(byId('histogram'),
    [['From', 'number'], ['To', 'number'], ['Times', 'number'], ['', 'bar-cell']],
    of.bars.map(([from, to, count]) => (
      [timeText(from), timeText(to), numberText(count), fill(count)])));
}

function showFindings(facts, run, nth, micros, go) {
  byId('no-findings').hidden = run.findings.length > 0;
  byId('inversions').parentElement.hidden = run.findings.length === 0;
  fillTable(byId('inversions'), [['Where', 'number'], ['Kind'], ['What', 'text']],
    run.findings.map((found) => (
      [placeLink(placeText(found.from, 1000), nth, found, go), found.kind, found.text])));
  const limit = facts.stall * 1e6;
  byId('stalls-note').textContent = `${numberText(run.stalls)} of ${numberText(run.latency.count)}`
    + ` times reached ${facts.stall} ms and count as stalls.`;
  fillTable(byId('stalls'),
    [['Where', 'number'], ['Waited', 'number'], ['Kind'], ['Microprocess', 'name']],
    run.longest.map((place) => [
      placeLink(placeText(place.from, 1000), nth, place, go), timeText(place.to - place.from),
      place.to - place.from >= limit ? 'stall' : 'latency', micros.name(place.micro)]));
}
