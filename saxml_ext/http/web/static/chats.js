// Keeps conversations and settings in the browser's storage.

const PREFIX = 'playground.chat.';
const SETTINGS = 'playground.settings';
// Browsers keep about five million characters for all pages of an address.
const MOST_CHATS = 100;
const MOST_CHARACTERS = 2e6;
const TITLE_CHARACTERS = 60;
const PROBE = 'playground.probe';

// Returns the storage of the browser; null if it is turned off or full.
export function browserStorage() {
  try {
    const storage = globalThis.localStorage;
    storage.setItem(PROBE, PROBE);
    storage.removeItem(PROBE);
    return storage;
  } catch {
    return null;
  }
}

// A storage that ends with the page.
class Memory {
  #items = new Map();
  get length() { return this.#items.size; }
  key(i) { return [...this.#items.keys()][i]; }
  getItem(key) { return this.#items.get(key) ?? null; }
  setItem(key, value) { this.#items.set(key, value); }
  removeItem(key) { this.#items.delete(key); }
}

// Returns the title of a conversation that begins with a text.
export function titleOf(text) {
  const line = text.trim().replace(/\s+/g, ' ');
  return line.length <= TITLE_CHARACTERS ? line :
      `${line.slice(0, TITLE_CHARACTERS - 1).trimEnd()}…`;
}

// Returns a chat as the storage should have it; null for anything else.
function checked(value) {
  if (typeof value?.id !== 'string' || !Array.isArray(value.turns)) return null;
  const turns = value.turns.filter((turn) => typeof turn?.user === 'string' &&
      turn.versions?.[turn.version] && turn.versions.every((version) =>
        version?.answers?.[version.chosen ?? 0] &&
        version.answers.every((answer) => typeof answer?.text === 'string')));
  return {
    ...value, turns, title: String(value.title ?? ''),
    updated: Number(value.updated) || 0,
  };
}

// The conversations. One has `id`, `title`, `updated` and `turns`. A turn is a
// message of the user and the versions of its answer; a version has one or more
// answers, and `chosen` is the one with which the conversation goes on.
export class Chats {
  constructor(storage = browserStorage()) {
    this.isKept = storage !== null;
    this.storage = storage ?? new Memory();
  }

  // Returns all conversations, newest first.
  list() {
    const found = [];
    for (const key of this.#keys()) {
      const chat = this.#read(key);
      if (chat) found.push(chat);
    }
    return found.sort((a, b) => b.updated - a.updated);
  }

  get(id) {
    return this.#read(PREFIX + id);
  }

  create() {
    const random = crypto.getRandomValues(new Uint32Array(2));
    const id = [...random].map((part) => part.toString(36)).join('');
    return {id, title: '', updated: Date.now(), turns: []};
  }

  // Stores a conversation; removes the oldest ones if there is no room.
  // Returns whether it could be stored.
  save(chat) {
    const turns = chat.turns.filter((turn) => turn.versions.length);
    const text = JSON.stringify({...chat, turns});
    const others = this.list().filter((other) => other.id !== chat.id);
    let size = text.length;
    others.forEach((other, i) => {
      size += JSON.stringify(other).length;
      if (i >= MOST_CHATS - 1 || size > MOST_CHARACTERS) this.remove(other.id);
    });
    for (;;) {
      try {
        this.storage.setItem(PREFIX + chat.id, text);
        return true;
      } catch {
        const oldest = others.pop();
        if (!oldest) return false;
        this.remove(oldest.id);
      }
    }
  }

  remove(id) {
    this.storage.removeItem(PREFIX + id);
  }

  settings() {
    try {
      return JSON.parse(this.storage.getItem(SETTINGS)) ?? {};
    } catch {
      return {};
    }
  }

  // Stores some settings; the others stay as they are.
  saveSettings(changed) {
    const settings = {...this.settings(), ...changed};
    try {
      this.storage.setItem(SETTINGS, JSON.stringify(settings));
    } catch {
      // The storage is full; the settings end with the page.
    }
  }

  #keys() {
    const keys = [];
    for (let i = 0; i < this.storage.length; i++) {
      const key = this.storage.key(i);
      if (key.startsWith(PREFIX)) keys.push(key);
    }
    return keys;
  }

  #read(key) {
    try {
      return checked(JSON.parse(this.storage.getItem(key)));
    } catch {
      return null;
    }
  }
}
