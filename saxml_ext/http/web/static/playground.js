'use strict';

const $ = (id) => document.getElementById(id);
const NUMBERS = {
  all: ['n', 'max_tokens'],
  samples: ['temperature', 'top_p', 'top_k', 'seed'],
  beams: ['best_of', 'length_penalty'],
};
// What the openai package passes in extra_body, as vLLM named it.
const EXTRA = ['use_beam_search', 'best_of', 'length_penalty', 'top_k'];
let chat = true;
let turns = [];  // Messages of the conversation so far.
let running = null;  // Ends the request that is running.

function element(parent, name, className, text) {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return parent.appendChild(made);
}

function messages() {
  const system = $('system').value;
  const first = system ? [{role: 'system', content: system}] : [];
  return [...first, ...turns, {role: 'user', content: $('text').value}];
}

// The request that the form describes. Empty fields are the model's choice.
function request() {
  const search = $('search').value;
  const body = {model: $('model').value};
  if (chat) body.messages = messages();
  else body.prompt = $('text').value;
  if (search) body.use_beam_search = search === 'beams';
  for (const name of [...NUMBERS.all, ...(NUMBERS[search] || [])]) {
    if ($(name).value !== '') body[name] = Number($(name).value);
  }
  return {...body, stream: true, stream_options: {include_usage: true}};
}

const path = () => chat ? '/v1/chat/completions' : '/v1/completions';

// A value as Python writes it.
function python(value, indent = '  ') {
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value !== 'object') return JSON.stringify(value);
  const inner = indent + '  ';
  const items = Array.isArray(value) ?
      value.map((item) => python(item, inner)) :
      Object.entries(value).map(([k, v]) => `'${k}': ${python(v, inner)}`);
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  return `${open}\n${items.map((item) => `${inner}${item},\n`).join('')}` +
      `${indent}${close}`;
}

function showCode() {
  const body = request();
  const key = $('key').value ? ' -H "Authorization: Bearer $API_KEY"' : '';
  const data = JSON.stringify(body).replace(/'/g, "'\\''");
  $('curl').textContent = `curl -N ${location.origin}${path()}${key} \\\n` +
      `  -H 'Content-Type: application/json' \\\n  -d '${data}'`;
  const extra = {};
  let args = '';
  for (const [name, value] of Object.entries(body)) {
    if (EXTRA.includes(name)) extra[name] = value;
    else args += `  ${name}=${python(value)},\n`;
  }
  if (Object.keys(extra).length) args += `  extra_body=${python(extra)},\n`;
  const call = chat ? 'chat.completions' : 'completions';
  const text = chat ? 'choice.delta.content or \'\'' : 'choice.text';
  $('python').textContent = 'import openai\n\nclient = openai.OpenAI(\n' +
      `  base_url='${location.origin}/v1',\n  api_key=` +
      `${$('key').value ? "os.environ['API_KEY']" : "'none'"},\n)\n` +
      `for chunk in client.${call}.create(\n${args}):\n` +
      `  for choice in chunk.choices:\n    print(${text}, end='', flush=True)`;
  if ($('key').value) $('python').prepend('import os\n');
}

function headers() {
  const key = $('key').value;
  return {
    'Content-Type': 'application/json',
    ...(key && {'Authorization': `Bearer ${key}`}),
  };
}

async function problem(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `${response.status}: ${text.slice(0, 500)}`;
  }
}

async function loadModels() {
  const chosen = $('model').value;
  const response = await fetch('/v1/models', {headers: headers()});
  if (!response.ok) throw new Error(await problem(response));
  const {data} = await response.json();
  $('model').replaceChildren(...data.map((model) => {
    const option = new Option(model.id, model.id);
    option.dataset.length = model.max_model_len || '';
    return option;
  }));
  if (data.some((model) => model.id === chosen)) $('model').value = chosen;
  if (!data.length) throw new Error('No model is published.');
  showLength();
}

function showLength() {
  const option = $('model').selectedOptions[0];
  const length = option && option.dataset.length;
  $('length').textContent =
      length ? `up to ${length} tokens, prompt and answer together` : '';
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      if (part !== 'data: [DONE]') yield JSON.parse(part.slice(6));
    }
  }
}

// One card per answer, in the order of their scores once these are known.
class Answers {
  constructor() {
    this.box = element($('turns'), 'div', '', '');
    this.found = new Map();
  }

  add(choice) {
    if (!this.found.has(choice.index)) {
      const card = element(this.box, 'section', 'card', '');
      this.found.set(choice.index, {
        card,
        note: element(card, 'p', 'note', 'Answer'),
        body: element(card, 'div', 'answer', ''),
      });
    }
    const answer = this.found.get(choice.index);
    const text = choice.delta ? choice.delta.content : choice.text;
    if (text) answer.body.append(text);
    if (choice.finish_reason) answer.reason = choice.finish_reason;
    if (choice.score !== undefined) answer.score = choice.score;
  }

  finish() {
    const sorted = [...this.found.values()]
        .sort((a, b) => (b.score ?? 0) - (a.score ?? 0));
    sorted.forEach((answer, i) => {
      const name = sorted.length > 1 ? `Answer ${i + 1}` : 'Answer';
      const score = answer.score === undefined ?
          '' : ` · score ${answer.score.toFixed(4)}`;
      const reason = answer.reason === 'length' ? ' · cut at the limit' : '';
      answer.note.textContent = name + score + reason;
      this.box.append(answer.card);
    });
    return sorted.length ? sorted[0].body.textContent : '';
  }
}

function fail(text) {
  element(element($('turns'), 'section', 'card', ''), 'div', 'answer bad', text);
}

function showSpeed(begin, first, usage) {
  const now = performance.now();
  const secs = (now - begin) / 1000;
  if (!usage) {
    $('speed').textContent = `${secs.toFixed(1)} s`;
    return;
  }
  const count = usage.completion_tokens;
  $('speed').textContent = `${count} tokens in ${secs.toFixed(2)} s, ` +
      `${(count / secs).toFixed(1)} tokens/s, first after ` +
      `${((first - begin) / 1000).toFixed(2)} s`;
}

async function send(event) {
  event.preventDefault();
  const body = request();
  const asked = $('text').value;
  running = new AbortController();
  $('send').disabled = true;
  $('stop').disabled = false;
  if (!chat) $('turns').replaceChildren();
  const card = element($('turns'), 'section', 'card user', '');
  element(card, 'p', 'note', chat ? 'You' : 'Prompt');
  element(card, 'div', 'answer', asked);
  const answers = new Answers();
  const begin = performance.now();
  let first = 0;
  try {
    const response = await fetch(path(), {
      method: 'POST', headers: headers(), body: JSON.stringify(body),
      signal: running.signal,
    });
    if (!response.ok) throw new Error(await problem(response));
    let usage = null;
    for await (const chunk of events(response)) {
      if (chunk.error) throw new Error(chunk.error.message);
      first ||= performance.now();
      chunk.choices.forEach((choice) => answers.add(choice));
      usage = chunk.usage || usage;
      showSpeed(begin, first, usage);
    }
    if (chat) $('text').value = '';
  } catch (error) {
    if (error.name !== 'AbortError') fail(error.message);
  }
  const text = answers.finish();
  if (chat && text) {
    turns.push({role: 'user', content: asked},
        {role: 'assistant', content: text});
  }
  running = null;
  $('send').disabled = false;
  $('stop').disabled = true;
}

function choose(kind) {
  chat = kind === 'chat';
  $('chat').setAttribute('aria-pressed', chat);
  $('prompt').setAttribute('aria-pressed', !chat);
  $('system-label').hidden = !chat;
  $('text-label').textContent = chat ? 'Message' : 'Prompt';
  clear();
}

function clear() {
  turns = [];
  $('turns').replaceChildren();
  $('speed').textContent = '';
  showCode();
}

$('form').addEventListener('submit', send);
$('form').addEventListener('input', showCode);
$('stop').addEventListener('click', () => running && running.abort());
$('clear').addEventListener('click', clear);
$('chat').addEventListener('click', () => choose('chat'));
$('prompt').addEventListener('click', () => choose('prompt'));
$('model').addEventListener('change', showLength);
$('key').addEventListener('change', start);
$('search').addEventListener('change', () => {
  $('samples').hidden = $('search').value !== 'samples';
  $('beams').hidden = $('search').value !== 'beams';
});
$('text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    $('form').requestSubmit();
  }
});

async function start() {
  $('turns').replaceChildren();
  try {
    await loadModels();
  } catch (error) {
    fail(error.message);
  }
  showCode();
}

start();
