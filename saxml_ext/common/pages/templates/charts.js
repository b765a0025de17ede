// Draws the figures in the page's JSON, in the page's colors.
'use strict';

const charts = (() => {
  const style = () => getComputedStyle(document.documentElement);

  // Replaces var(--name) with the values of CSS variables.
  function colored(value, css) {
    if (typeof value === 'string') {
      const found = /^var\((--[\w-]+)\)$/.exec(value);
      return found ? css.getPropertyValue(found[1]).trim() : value;
    }
    if (Array.isArray(value)) {
      return typeof value[0] === 'number' || value[0] === null ?
          value : value.map((each) => colored(each, css));
    }
    if (value && typeof value === 'object') {
      return Object.fromEntries(Object.entries(value).map(
          ([key, each]) => [key, colored(each, css)]));
    }
    return value;
  }

  function axis(given, css) {
    const line = css.getPropertyValue('--line').trim();
    return {
      automargin: true,
      gridcolor: css.getPropertyValue('--grid').trim(),
      linecolor: line,
      zerolinecolor: line,
      tickcolor: line,
      ...given,
      title: {standoff: 8, ...(given || {}).title},
    };
  }

  function draw(area, figure) {
    const css = style();
    const layout = colored(figure.layout, css);
    if (layout.height) area.style.height = `${layout.height}px`;
    return Plotly.react(area, colored(figure.data, css), {
      ...layout,
      autosize: true,
      margin: {l: 56, r: 12, t: 28, b: 44, ...layout.margin},
      paper_bgcolor: 'rgba(0,0,0,0)',
      plot_bgcolor: 'rgba(0,0,0,0)',
      font: {
        family: getComputedStyle(document.body).fontFamily,
        size: 12,
        color: css.getPropertyValue('--muted').trim(),
      },
      legend: {orientation: 'h', x: 0, y: 1.02, yanchor: 'bottom'},
      hoverlabel: {namelength: -1},
      modebar: {
        bgcolor: 'rgba(0,0,0,0)',
        color: css.getPropertyValue('--line').trim(),
        activecolor: css.getPropertyValue('--accent').trim(),
      },
      xaxis: axis(layout.xaxis, css),
      yaxis: axis(layout.yaxis, css),
    }, {
      displaylogo: false,
      responsive: true,
      modeBarButtons: [['zoom2d', 'pan2d', 'resetScale2d', 'toImage']],
    });
  }

  const drawn = new Map();

  function show(area, figure) {
    drawn.set(area, {figure, done: draw(area, figure)});
  }

  function again() {
    [...drawn].forEach(([area, {figure}]) => show(area, figure));
  }

  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
  // Paper needs the light colors, even if the screen is dark.
  addEventListener('beforeprint', () => {
    document.documentElement.dataset.print = '';
    again();
  });
  addEventListener('afterprint', () => {
    delete document.documentElement.dataset.print;
    again();
  });

  const carried = document.getElementById('figures');
  if (carried) {
    for (const [name, figure] of Object.entries(JSON.parse(carried.textContent))) {
      show(document.getElementById(`chart-${name}`), figure);
    }
  }

  // Removes the charts and the figure elements that contain them.
  function forget() {
    // Plotly finishes a drawing later. Until then, its area must stay.
    for (const [area, {done}] of drawn) {
      done.then(() => {
        Plotly.purge(area);
        area.closest('figure').remove();
      });
    }
    drawn.clear();
  }

  return {show, forget};
})();
