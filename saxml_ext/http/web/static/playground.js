// The playground: conversations with the models of this page's gateway.

import * as api from './api.js';
import {Chats, titleOf} from './chats.js';
import {button, codeBlock, element, icon} from './elements.js';
import * as models from './models.js';
import {Options} from './options.js';
import {Sidebar} from './sidebar.js';
import {snippets} from './snippets.js';
import {TurnView} from './turns.js';

const $ = (id) => document.getElementById(id);
const POLL_MS = 1500;
// How near to its end a conversation must be to stay there, in pixels.
const NEAR_END = 80;
const WIDE = matchMedia('(min-width: 75rem)');
const PLACEHOLDER = {
  chat: 'Message (Enter sends, Shift+Enter makes a line)',
  prompt: 'Text to continue (Enter sends, Shift+Enter makes a line)',
};

const chats = new Chats();
let chat = chats.create();
let views = [];
let list = [];  // The models.
let isReady = false;  // Whether the model can answer, as far as is known.
let running = null;  // Ends the request that is running.
let polling = 0;

const model = () =>
  list.find(({id}) => id === $('model').value) ?? {id: $('model').value};

// --- Messages to the user.

function notify(text, label = '', action = null) {
  $('notice-text').textContent = text;
  $('notice-action').hidden = !label;
  $('notice-action').textContent = label;
  $('notice-action').onclick = () => {
    $('notice').hidden = true;
    action();
  };
  $('notice').classList.toggle('bad', !label);
  $('notice').hidden = !text;
}

function fail(error) {
  if (error.status === 401) {
    notify(error.message, 'Enter a key', () => {
      $('settings').open = true;
      $('key').focus();
    });
    $('notice').classList.add('bad');
  } else {
    notify(error.message);
  }
}

function showLoading(text, part) {
  $('loading').hidden = !text;
  $('loading-text').textContent = text;
  if (part === undefined) $('loading-bar').removeAttribute('value');
  else $('loading-bar').value = part;
}

// --- The models.

async function loadModels() {
  clearTimeout(polling);
  isReady = false;
  let again = POLL_MS;
  try {
    const answer = await api.models(options.key);
    showModels(answer);
    const {text, part} = models.progress(model());
    isReady = list.length > 0 && !text;
    showLoading(list.length ? text : 'No model is published yet.', part);
    if (isReady) again = 0;
  } catch (error) {
    if (error.isLoading) {
      showLoading(`${error.message} This page tries again.`);
      again = error.retryMs || POLL_MS;
    } else {
      showLoading('');
      fail(error);
      again = 0;
    }
  }
  if (again) polling = setTimeout(loadModels, again);
  showModel();
}

function showModels({data, status_page: statusPage}) {
  const chosen = $('model').value || chat.model || chats.settings().model;
  list = data;
  $('model').replaceChildren(...data.map(({id}) => new Option(id, id)));
  if (data.some(({id}) => id === chosen)) $('model').value = chosen;
  $('status-page').hidden = !/^https?:/.test(statusPage ?? '');
  if (statusPage) $('status-page').href = statusPage;
}

function showModel() {
  const current = model();
  $('facts').textContent = models.facts(current);
  $('facts').title = $('facts').textContent;
  $('defaults').textContent = models.defaultsText(current);
  options.showDefaults(current.defaults);
  showWelcome();
}

// --- The conversation.

function showWelcome() {
  $('welcome').hidden = chat.turns.length > 0;
  if (chat.turns.length) return;
  const current = model();
  $('greeting').textContent =
      current.id ? `Talk to ${current.id.split('/').pop()}` : 'Playground';
  $('intro').textContent = options.isChat ? 'Write a message, or try one of these:' :
      'Write the beginning of a text, or try one of these:';
  const texts = models.examples(options.isChat ? current : {is_chat: false});
  $('examples').replaceChildren(...texts.map((text) => button(text, () => {
    $('text').value = text;
    send();
  })));
}

function show() {
  views = chat.turns.map(viewOf);
  $('turns').replaceChildren(...views.map(({node}) => node));
  refresh();
  toEnd();
}

function viewOf(turn) {
  const view = new TurnView(turn, {
    edit: (text) => edit(turn, text),
    regenerate: () => run(turn),
    show: (version) => pick(turn, {version}),
    choose: (chosen) => {
      turn.versions[turn.version].chosen = chosen;
      pick(turn, {});
    },
  });
  return view;
}

// Shows all turns as they are now, and the list of chats.
function refresh() {
  views.forEach((view, i) => {
    view.isLast = i === views.length - 1;
    const {versions, version} = view.turn;
    if (versions.length) view.show(versions[version], false);
  });
  document.body.classList.toggle('running', running !== null);
  $('send').hidden = running !== null;
  $('stop').hidden = running === null;
  $('text').placeholder = PLACEHOLDER[options.isChat ? 'chat' : 'prompt'];
  sidebar.show(chats.list(), chat.id);
  showWelcome();
}

function pick(turn, change) {
  if (running) return;
  Object.assign(turn, change);
  save();
  refresh();
}

function save() {
  if (!chat.turns.some((turn) => turn.versions.length)) return;
  chat.title ||= titleOf(chat.turns[0].user);
  chat.updated = Date.now();
  if (!chats.save(chat)) {
    notify('The browser has no room for this chat. It ends with this page.');
  }
}

function open(id) {
  stop();
  chat = (id && chats.get(id)) || chats.create();
  if (list.some((entry) => entry.id === chat.model)) {
    $('model').value = chat.model;
    showModel();
  }
  history.replaceState(null, '', chat.turns.length ? `#${chat.id}` : ' ');
  notify('');
  show();
  $('text').focus();
}

// --- Requests.

// Returns the messages of turns. In prompts, only the last text counts.
function messages(turns) {
  return turns.flatMap(({user, versions, version}) => {
    const {answers, chosen = 0} = versions[version];
    return [{role: 'user', content: user},
      {role: 'assistant', content: answers[chosen].text.trim()}];
  });
}

async function send() {
  const text = $('text').value;
  if (running || !text.trim() || !options.check()) return;
  setText('');
  const before = chat.turns;
  await answer([...before, newTurn(text)], () => {
    chat.turns = before;
    show();
    const later = $('text').value;
    setText(later ? `${text}\n${later}` : text);
  });
}

// Sends a changed message in place of the old one and of all after it.
async function edit(old, text) {
  if (running || !options.check()) return;
  const before = chat.turns;
  const i = before.indexOf(old);
  await answer([...before.slice(0, i), newTurn(text)], () => {
    chat.turns = before;
    show();
    views[i].edit(text);
  });
}

const newTurn = (user) => ({user, versions: [], version: 0});

// Answers the last of these turns, or else calls `undo`.
async function answer(turns, undo) {
  const asked = chat;
  chat.turns = turns;
  chat.model = $('model').value;
  show();
  await run(turns.at(-1));
  if (!turns.at(-1).versions.length && chat === asked) undo();
}

// Adds a version of the answer of the last turn.
async function run(turn) {
  if (running || !options.check()) return;
  const mine = running = new AbortController();
  const {signal} = mine;
  const asked = chat;
  const view = views[chat.turns.indexOf(turn)];
  const version = {
    answers: [], model: $('model').value, isPlain: !options.isChat,
    beginMs: performance.now(), firstMs: 0, endMs: 0, parts: 0, usage: null,
  };
  const body = options.body(
      version.model, messages(chat.turns.slice(0, -1)), turn.user);
  notify('');
  refresh();
  view.wait();
  toEnd();
  $('announcer').textContent = 'Waiting for the answer.';
  let frame = 0;
  const draw = () => {
    frame = 0;
    const isAtEnd = nearEnd();
    view.show(version, true);
    if (isAtEnd) toEnd();
    else $('latest').hidden = false;
  };
  let problem = null;
  try {
    const chunks = api.complete(
        options.path, body, options.key, signal, (error) => {
          view.wait(`${error.message} Trying again.`);
          version.beginMs = performance.now();
          if (error.isLoading && isReady) loadModels();
        });
    for await (const chunk of chunks) {
      add(version, chunk);
      if (version.firstMs) frame ||= requestAnimationFrame(draw);
    }
  } catch (error) {
    if (error.name !== 'AbortError') problem = error;
    const reason = problem ? 'error' : 'stopped';
    version.answers.forEach((answer) => { answer.reason ||= reason; });
  }
  cancelAnimationFrame(frame);
  version.endMs = performance.now();
  version.firstMs ||= version.endMs;
  version.answers = version.answers.filter(Boolean);
  if (version.answers.some(({text}) => text) || (version.answers.length && !problem &&
      !signal.aborted)) {
    sortByScore(version);
    turn.version = turn.versions.push(version) - 1;
    $('announcer').textContent = version.answers[0].text;
  }
  running = null;
  if (chat === asked) {
    save();
    history.replaceState(null, '', `#${chat.id}`);
  } else if (turn.versions.length) {
    asked.title ||= titleOf(asked.turns[0].user);
    chats.save(asked);
  }
  const isAtEnd = nearEnd();
  refresh();
  if (isAtEnd) toEnd();
  if (problem && chat === asked) fail(problem);
}

// Adds a chunk of a stream to a version of an answer.
function add(version, {choices = [], usage}) {
  for (const choice of choices) {
    const answer = version.answers[choice.index] ??= {text: ''};
    const text = (choice.delta ? choice.delta.content : choice.text) ?? '';
    if (text) {
      version.firstMs ||= performance.now();
      version.parts++;
    }
    answer.text += text;
    if (choice.finish_reason) answer.reason = choice.finish_reason;
    if (typeof choice.score === 'number') answer.score = choice.score;
  }
  version.usage = usage ?? version.usage;
}

function sortByScore({answers}) {
  if (answers.every(({score}) => score !== undefined)) {
    answers.sort((a, b) => b.score - a.score);
  }
}

function stop() {
  if (running) running.abort();
}

// --- The box, and scrolling.

function setText(text) {
  $('text').value = text;
  fitBox();
}

function fitBox() {
  $('text').style.height = 'auto';
  $('text').style.height = `${$('text').scrollHeight + 2}px`;
}

function nearEnd() {
  const {scrollHeight, scrollTop, clientHeight} = $('scroll');
  return scrollHeight - scrollTop - clientHeight < NEAR_END;
}

function toEnd() {
  $('scroll').scrollTop = $('scroll').scrollHeight;
  $('latest').hidden = true;
}

function showCode() {
  const body = options.body($('model').value,
      messages(chat.turns.filter((turn) => turn.versions.length)),
      $('text').value || 'Hello');
  $('snippets').replaceChildren(
      ...snippets(location.origin, options.path, body, options.key)
          .map(([language, text]) => codeBlock(language, text)));
  $('code-dialog').showModal();
}

// --- Deleting, with a way back.

function remove(removed) {
  removed.forEach(({id}) => chats.remove(id));
  if (removed.some(({id}) => id === chat.id)) open('');
  refresh();
  const what = removed.length === 1 ?
      `“${removed[0].title}” was deleted.` : `${removed.length} chats were deleted.`;
  notify(what, 'Undo', () => {
    removed.forEach((old) => chats.save(old));
    refresh();
  });
}

function rename(id, title) {
  const renamed = id === chat.id ? chat : chats.get(id);
  if (renamed) {
    renamed.title = title;
    chats.save(renamed);
  }
  refresh();
}

const sidebar = new Sidebar({
  create: () => open(''),
  open,
  rename,
  remove: (id) => remove([chats.get(id)].filter(Boolean)),
  removeAll: () => remove(chats.list()),
});
const options = new Options(chats, () => {
  showWelcome();
  $('text').placeholder = PLACEHOLDER[options.isChat ? 'chat' : 'prompt'];
}, loadModels);

$('form').addEventListener('submit', (event) => {
  event.preventDefault();
  send();
});
$('text').addEventListener('input', fitBox);
$('text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  } else if (event.key === 'ArrowUp' && !$('text').value && !running) {
    const last = views.at(-1);
    if (last) last.edit(last.turn.user);
  }
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !event.defaultPrevented) stop();
});
$('stop').addEventListener('click', stop);
$('latest').append(element('span'), icon('left'));
$('latest').addEventListener('click', toEnd);
$('scroll').addEventListener('scroll', () => {
  if (nearEnd()) $('latest').hidden = true;
});
$('notice-close').append(icon('close'));
$('notice-close').addEventListener('click', () => notify(''));
$('code').addEventListener('click', showCode);
$('code-close').append(icon('close'));
$('code-close').addEventListener('click', () => $('code-dialog').close());
$('model').addEventListener('change', () => {
  chats.saveSettings({model: $('model').value});
  loadModels();
});
addEventListener('storage', () => sidebar.show(chats.list(), chat.id));
addEventListener('hashchange', () => open(location.hash.slice(1)));

$('unkept').hidden = chats.isKept;
$('settings').open = WIDE.matches;
open(location.hash.slice(1));
loadModels();
