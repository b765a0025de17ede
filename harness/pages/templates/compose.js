// Updates the command when the form changes. choices.py has the same rules.
'use strict';

(() => {
  const {program, choices, models} =
      JSON.parse(document.getElementById('table').textContent);
  const composed = document.getElementById('composed');
  const part = (flag) => document.querySelector(`[data-flag="${flag}"]`);
  const field = (flag) => document.getElementById(`flag-${flag}`);

  function valueOf(choice) {
    if (choice.kind === 'many') {
      return [...part(choice.flag).querySelectorAll('input:checked')]
          .map((box) => box.value).join(',');
    }
    const input = field(choice.flag);
    if (choice.kind === 'switch') return input.checked ? '1' : '';
    return input.value.trim();
  }

  const allows = (choice, option, model) =>
      !choice.benchmarks[option] ||
      choice.benchmarks[option].includes(models[model]);

  // Hides options that the model does not support, and selects another one.
  function limit(model) {
    for (const choice of choices.filter((each) => each.kind === 'many')) {
      for (const box of part(choice.flag).querySelectorAll('input')) {
        box.disabled = !allows(choice, box.value, model);
        box.checked = box.checked && !box.disabled;
      }
    }
    for (const choice of choices.filter((each) => each.kind === 'one')) {
      const select = field(choice.flag);
      for (const option of select.options) {
        option.disabled = option.value !== '' &&
            !allows(choice, option.value, model);
        option.hidden = option.disabled;
      }
      if (select.selectedOptions[0].disabled) {
        // Select the last round or the first system that the model supports.
        const left = [...select.options].filter((each) => !each.disabled);
        select.value =
            (choice.flag === 'round' ? left[left.length - 1] : left[0]).value;
      }
    }
  }

  // Quotes a word for the shell, like Python's shlex.quote.
  const quoted = (word) => /^[\w@%+=:,./-]+$/.test(word) ?
      word : `'${word.replace(/'/g, `'"'"'`)}'`;

  function words(values) {
    const found = [`./bazelw run ${program} --`];
    for (const choice of choices) {
      const value = values[choice.flag];
      const apart = choice.systems.length &&
          !choice.systems.includes(values.system);
      part(choice.flag).hidden = Boolean(apart);
      if (!value || apart) continue;
      if (choice.kind === 'switch') {
        found.push(`--${choice.flag}`);
      } else if (choice.kind === 'many' &&
          value.split(',').length === choice.options.length) {
        found.push(`--${choice.flag}=all`);
      } else {
        found.push(quoted(`--${choice.flag}=${value}`));
      }
    }
    return found;
  }

  function remarks(values) {
    const found = [];
    if (!values.scenario) found.push('Choose at least one scenario.');
    if (values.scenario.includes('Server') &&
        values.mode !== 'find_performance' && !values.target_qps) {
      found.push('Without a target, Server gets the rate of ' +
          'find_performance, or of the accuracy run.');
    }
    if (values.execution_mode === 'valid') {
      found.push('Each performance run of the mode valid lasts ten minutes ' +
          'or longer.');
    }
    return found;
  }

  function update() {
    limit(field('model').value);
    const values = Object.fromEntries(
        choices.map((choice) => [choice.flag, valueOf(choice)]));
    composed.textContent = words(values).join(' \\\n    ');
    document.getElementById('copied').textContent = '';
    document.getElementById('remarks').replaceChildren(
        ...remarks(values).map((text) => {
          const item = document.createElement('li');
          item.textContent = text;
          return item;
        }));
  }

  async function copy() {
    const status = document.getElementById('copied');
    try {
      await navigator.clipboard.writeText(composed.textContent);
      status.textContent = ' Copied.';
    } catch {
      // Some browsers deny local files access to the clipboard.
      getSelection().selectAllChildren(composed);
      status.textContent = ' Selected. Press Ctrl+C to copy it.';
    }
  }

  const form = document.getElementById('form');
  form.addEventListener('input', update);
  form.addEventListener('submit', (event) => event.preventDefault());
  document.getElementById('copy').addEventListener('click', copy);
  update();
})();
