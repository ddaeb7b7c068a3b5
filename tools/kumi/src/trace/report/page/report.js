'use strict';
// The report: reads the data of the document, and shows one run at a time.

async function main() {
  const facts = JSON.parse(byId('facts').textContent);
  showVerdict(facts);
  const runs = await readColumns(facts);
  const timeline = new Timeline(byId('timeline'), {
    range: byId('range'),
    matches: byId('matches'),
    details: byId('details'),
    box: byId('visible-box'),
    visible: byId('visible'),
  });

  const go = (place) => {
    timeline.go(place);
    byId('timeline-section').scrollIntoView();
    byId('timeline').focus({ preventScroll: true });
  };

  const show = (nth) => {
    const [run, columns] = [facts.runs[nth], runs[nth]];
    const { micros, lanes } = columns;
    byId('run').selectedIndex = nth;
    byId('find').value = '';
    timeline.show(run.end, lanes, micros, run.findings);
    showSummary(facts, run, columns);
    showContention(facts, run, nth, go);
    showLatency(run);
    showFindings(facts, run, nth, micros, go);
    showMicros(micros, nth, go);
  };

  const select = byId('run');
  select.append(...facts.runs.map((run, i) => element('option', {}, `${i + 1}: ${run.name}`)));
  select.addEventListener('change', () => show(select.selectedIndex));
  byId('run-choice').hidden = facts.runs.length < 2;

  const keys = timeline.keys();
  const buttons = {
    'zoom-in': '+', 'zoom-out': '-', 'pan-left': 'a', 'pan-right': 'd', whole: '0',
    next: 'n', previous: 'p',
  };
  for (const [id, key] of Object.entries(buttons)) byId(id).addEventListener('click', keys[key]);
  byId('find').addEventListener('input', () => timeline.find(byId('find').value));
  byId('find').addEventListener('keydown', (event) => {
    if (event.key === 'Enter') timeline.step(!event.shiftKey);
  });
  byId('visible-box').addEventListener('toggle', () => timeline.redraw());

  const follow = () => {
    const place = placeOf(location.hash);
    if (!place || !facts.runs[place.run]) return false;
    show(place.run);
    const { lanes, micros } = runs[place.run];
    if (place.lane >= lanes.length) place.lane = null;
    if (place.micro >= micros.count) place.micro = null;
    go(place);
    return true;
  };
  addEventListener('hashchange', follow);
  if (!follow()) show(0);
  document.body.dataset.state = 'ready';
}

function showMicros(micros, nth, go) {
  const table = new LongTable(byId('micros'), microColumns(micros, nth, go), micros.count);
  const filter = byId('filter');
  const apply = () => {
    const wanted = filter.value.trim().toLowerCase();
    const rows = new Uint32Array(micros.count);
    let count = 0;
    for (let i = 0; i < micros.count; i++) {
      if (!wanted || micros.name(i).toLowerCase().includes(wanted)) rows[count++] = i;
    }
    byId('shown').textContent = `${numberText(count)} of ${numberText(micros.count)}`;
    table.show(rows.subarray(0, count));
  };
  filter.value = '';
  filter.oninput = apply;
  apply();
  // The ones with the most CPU time first.
  table.sortBy(2);
}

main().catch((error) => {
  byId('verdict').className = 'bad';
  byId('verdict').textContent = `The report cannot be shown: ${error.message}`;
  document.body.dataset.state = 'failed';
});
