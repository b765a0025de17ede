'use strict';
// Updates a status page, and shows the values under the pointer. Without this
// script, the page is complete and reloads itself from time to time.
(() => {
  const PERIOD = 1000;
  const note = document.getElementById('live-note');
  let pointer = null;  // Of a plot: its number, and the part of its width.

  const scrolled = (root) =>
      [...root.querySelectorAll('.scroll')].map((e) => e.scrollLeft);

  async function update() {
    const response = await fetch(location.href, {cache: 'no-store'});
    if (!response.ok) throw new Error(response.status);
    const text = await response.text();
    const fresh = new DOMParser().parseFromString(text, 'text/html')
                      .getElementById('live');
    const live = document.getElementById('live');
    if (!fresh || !live) return;
    const positions = scrolled(live);
    live.replaceWith(document.adoptNode(fresh));
    fresh.querySelectorAll('.scroll').forEach((e, i) => {
      e.scrollLeft = positions[i] || 0;
    });
    showValues();
  }

  function showValues() {
    document.querySelectorAll('figure').forEach((figure, number) => {
      const readout = figure.querySelector('.readout');
      const cursor = figure.querySelector('.cursor');
      if (!cursor) return;
      if (!pointer) {
        cursor.setAttribute('visibility', 'hidden');
        readout.textContent = '';
        return;
      }
      const plot = JSON.parse(figure.dataset.plot);
      const last = plot.ages.length - 1;
      const index = Math.round(pointer.part * last);
      const x = plot.left + plot.width * index / last;
      cursor.setAttribute('visibility', 'visible');
      cursor.setAttribute('x1', x);
      cursor.setAttribute('x2', x);
      const values = plot.values.map((series) => series[index])
                         .map((v) => v === null ? '–' : String(v));
      const text = `${values.join(' · ')} ${plot.unit}`.trim();
      readout.textContent = `${text}, ${plot.ages[index]} s ago`;
    });
  }

  document.addEventListener('pointermove', (event) => {
    const svg = event.target.closest && event.target.closest('figure svg');
    if (svg) {
      const plot = JSON.parse(svg.closest('figure').dataset.plot);
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * plot.total;
      const part = (x - plot.left) / plot.width;
      pointer = {part: Math.min(1, Math.max(0, part))};
    } else if (pointer) {
      pointer = null;
    } else {
      return;
    }
    showValues();
  });

  async function run() {
    // Text that a user selects for copying must stay.
    if (!document.hidden && getSelection().isCollapsed) {
      try {
        await update();
        note.textContent = 'live';
        note.className = 'state good';
      } catch (error) {
        note.textContent = 'no answer from the admin server';
        note.className = 'state bad';
      }
    }
    setTimeout(run, PERIOD);
  }
  if (document.getElementById('live')) setTimeout(run, PERIOD);
})();
