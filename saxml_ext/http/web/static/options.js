// The settings of requests, as the form shows them.

const NUMBERS = [
  'n', 'max_tokens', 'temperature', 'top_p', 'top_k', 'seed',
];
const OF_BEAMS = ['best_of', 'length_penalty'];
const KEPT = ['kind', 'system', 'search', ...NUMBERS, ...OF_BEAMS];
// The key is not stored with the chats: it ends with the tab.
const KEY = 'playground.key';

const $ = (id) => document.getElementById(id);

function sessionKey(value) {
  try {
    if (value !== undefined) sessionStorage.setItem(KEY, value);
    return sessionStorage.getItem(KEY) ?? '';
  } catch {
    return value ?? '';
  }
}

export class Options {
  // Fills the form; `chats` stores the settings, `onChange` and `onKey` are
  // called after changes.
  constructor(chats, onChange, onKey) {
    const form = $('options');
    const settings = chats.settings();
    for (const name of KEPT) {
      if (settings[name] !== undefined) $(name).value = settings[name];
    }
    if (!$('kind').value) $('kind').value = 'chat';
    if ($('search').selectedIndex < 0) $('search').value = '';
    $('key').value = sessionKey();
    const changed = () => {
      chats.saveSettings(
          Object.fromEntries(KEPT.map((name) => [name, $(name).value])));
      this.#show();
      onChange();
    };
    form.addEventListener('input', changed);
    form.addEventListener('submit', (event) => event.preventDefault());
    // The event comes before the fields are empty.
    form.addEventListener('reset', () => setTimeout(() => {
      $('key').value = sessionKey();
      changed();
    }));
    $('key').addEventListener('change', () => {
      sessionKey($('key').value);
      onKey();
    });
    this.#show();
  }

  get key() { return $('key').value.trim(); }
  get isChat() { return $('kind').value !== 'prompt'; }

  // Shows the values that empty fields stand for.
  showDefaults(defaults = {}) {
    for (const name of [...NUMBERS, ...OF_BEAMS]) {
      const value = defaults[name] ?? (name === 'n' ? 1 : null);
      $(name).placeholder = value === null ? 'model’s own' : String(value);
    }
  }

  // Returns whether all numbers are valid; shows the first one that is not.
  check() {
    const wrong = KEPT.map($).find((field) => !field.checkValidity());
    if (!wrong) return true;
    $('settings').open = true;
    wrong.reportValidity();
    return false;
  }

  // Returns the body of a request for the next answer in a conversation.
  body(model, messages, prompt) {
    const body = {model};
    if (this.isChat) {
      const content = $('system').value;
      const first = content.trim() ? [{role: 'system', content}] : [];
      body.messages = [...first, ...messages, {role: 'user', content: prompt}];
    } else {
      body.prompt = prompt;
    }
    const search = $('search').value;
    if (search) body.use_beam_search = search === 'beams';
    for (const name of [...NUMBERS, ...(search === 'beams' ? OF_BEAMS : [])]) {
      if ($(name).value !== '') body[name] = Number($(name).value);
    }
    return {...body, stream: true, stream_options: {include_usage: true}};
  }

  get path() {
    return this.isChat ? '/v1/chat/completions' : '/v1/completions';
  }

  #show() {
    $('beams').hidden = $('search').value !== 'beams';
    $('system-label').hidden = !this.isChat;
  }
}
