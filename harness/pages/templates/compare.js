// Filters and sorts the table of results, and draws bars for each scenario.
'use strict';

(() => {
  const records = JSON.parse(document.getElementById('records').textContent);
  const table = document.getElementById('results');
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const form = document.getElementById('filters');
  const place = document.getElementById('charts');
  const keys = ['model', 'scenario', 'round', 'division'];
  const mostBars = 24;
  const mostCharts = 16;
  const value = (id) => document.getElementById(id).value;
  // Escape names, because labels of charts can contain HTML.
  const escaped = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');

  function chosen(record) {
    const text = value('filter-text').trim().toLowerCase();
    return keys.every((key) =>
        !value(`filter-${key}`) || record[key] === value(`filter-${key}`)) &&
        [record.system, record.submitter, record.platform]
            .some((name) => name.toLowerCase().includes(text));
  }

  function figureOf(record, key) {
    if (key !== 'per_accelerator') return record[key];
    return record.accelerator_count && !record.unit.startsWith('Latency') ?
        record.result / record.accelerator_count : null;
  }

  // Returns true for latencies, energy and costs.
  function lessIsBetter(key, unit) {
    return key === 'joules_per_sample' || key === 'cost_per_1000' ||
        (key === 'result' && unit.startsWith('Latency'));
  }

  // Returns all of our records, and the best of the others.
  function best(group, key, unit) {
    const sign = lessIsBetter(key, unit) ? 1 : -1;
    const sorted = [...group].sort(
        (a, b) => sign * (figureOf(a, key) - figureOf(b, key)));
    const ours = sorted.filter((each) => each.ours);
    const others = sorted.filter((each) => !each.ours);
    const kept = new Set(
        [...ours, ...others].slice(0, Math.max(mostBars, ours.length)));
    return sorted.filter((each) => kept.has(each)).reverse();
  }

  function label(record) {
    const name = record.system || record.platform;
    const short = name.length > 44 ? `${name.slice(0, 43)}…` : name;
    const who = record.ours ? 
        `${record.platform}, ours, ${record.origin.slice(0, 4)}` :
        record.submitter;
    return escaped(`${short} (${who}, ${record.round}, ${record.division})`);
  }

  function bars(group, key) {
    const side = (ours) => {
      const kept = group.map((each, i) => [each, i])
          .filter(([each]) => each.ours === ours);
      return {
        type: 'bar',
        orientation: 'h',
        name: ours ? 'this harness' : 'published',
        x: kept.map(([each]) => figureOf(each, key)),
        y: kept.map(([, i]) => i),
        text: kept.map(([each]) =>
            figureOf(each, key).toLocaleString(
                'en', {maximumSignificantDigits: 4})),
        textposition: 'auto',
        customdata: kept.map(([each]) => escaped(
            [each.system, each.accelerators, each.remark, each.published]
                .filter(Boolean).join(' · '))),
        hovertemplate: '%{customdata}<br>%{x:.5g}<extra></extra>',
        marker: {color: ours ? 'var(--c1)' : 'var(--muted)'},
      };
    };
    return [side(false), side(true)].filter((trace) => trace.x.length);
  }

  function draw(visible) {
    const key = value('figure');
    const title = document.getElementById('figure').selectedOptions[0].text;
    const groups = new Map();
    for (const record of visible) {
      if (figureOf(record, key) === null) continue;
      const unit = key === 'result' || key === 'per_accelerator' ?
          record.unit : title;
      const name = `${record.model} · ${record.scenario} · ${unit}`;
      if (!groups.has(name)) groups.set(name, {unit, members: []});
      groups.get(name).members.push(record);
    }
    const note = document.getElementById('drawn');
    note.textContent = '';
    for (const [name, {unit, members}] of [...groups].sort().slice(0, mostCharts)) {
      const kept = best(members, key, unit);
      const figure = document.createElement('figure');
      figure.className = 'plot';
      const area = document.createElement('div');
      area.className = 'chart';
      area.style.height = `${110 + 26 * kept.length}px`;
      area.setAttribute('role', 'img');
      area.setAttribute('aria-label', `Bars: ${name}`);
      const caption = document.createElement('figcaption');
      caption.textContent = kept.length < members.length ?
          `${kept.length} of ${members.length} results: ours, and the best.` :
          members.length === 1 ? '1 result.' : `${members.length} results.`;
      const heading = document.createElement('h3');
      heading.textContent = name;
      figure.append(heading, area, caption);
      place.append(figure);
      charts.show(area, {
        data: bars(kept, key),
        layout: {
          barmode: 'overlay',
          bargap: 0.25,
          showlegend: true,
          margin: {t: 28},
          xaxis: {title: {text: unit}, rangemode: 'tozero'},
          yaxis: {
            tickvals: kept.map((_, i) => i),
            ticktext: kept.map(label),
            showgrid: false,
            zeroline: false,
          },
        },
      });
    }
    if (!groups.size) {
      note.textContent = 'None of the chosen results has this figure.';
    } else if (groups.size > mostCharts) {
      note.textContent = `${mostCharts} of ${groups.size} charts are drawn; ` +
          'choose a benchmark or a scenario to see others.';
    }
  }

  function filter() {
    charts.forget();
    const visible = records.filter(chosen);
    const kept = new Set(visible);
    for (const row of rows) {
      row.hidden = !kept.has(records[row.dataset.row]);
    }
    document.getElementById('shown').textContent =
        `${visible.length} of ${records.length} results are shown.`;
    draw(visible);
  }

  function sort(heading) {
    const ascending = heading.getAttribute('aria-sort') !== 'ascending';
    for (const each of table.tHead.rows[0].cells) {
      each.removeAttribute('aria-sort');
    }
    heading.setAttribute('aria-sort', ascending ? 'ascending' : 'descending');
    const of = (row) => records[row.dataset.row][heading.dataset.key];
    rows.sort((one, other) => {
      const [a, b] = [of(one), of(other)];
      // Rows without a figure are at the end in both orders.
      if (a === null || b === null) return (a === null) - (b === null);
      const order = typeof a === 'number' ?
          a - b : String(a).localeCompare(String(b), 'en', {numeric: true});
      return ascending ? order : -order;
    });
    body.append(...rows);
  }

  // A delay avoids redrawing the charts after each typed letter.
  let waiting = 0;
  form.addEventListener('input', (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(filter, event.target.type === 'search' ? 250 : 0);
  });
  form.addEventListener('submit', (event) => event.preventDefault());
  for (const heading of table.tHead.rows[0].cells) {
    heading.addEventListener('click', () => sort(heading));
  }
  filter();
})();
