// The list of conversations: open, rename, delete.

import {button, element, icon} from './elements.js';

const $ = (id) => document.getElementById(id);
const PHONE = matchMedia('(max-width: 47.99rem)');

export class Sidebar {
  // `actions` has what the list does: open(id), rename(id, title), remove(id),
  // create(), removeAll().
  constructor(actions) {
    this.actions = actions;
    this.isOpen = false;
    $('menu').append(icon('menu'));
    $('close').append(icon('close'));
    $('menu').addEventListener('click', () => this.toggle(true));
    $('close').addEventListener('click', () => this.toggle(false));
    $('shade').addEventListener('click', () => this.toggle(false));
    $('new').addEventListener('click', () => this.#act(actions.create));
    $('delete-all').addEventListener('click', () => this.#act(actions.removeAll));
    $('sidebar').addEventListener('keydown', (event) => {
      if (event.key === 'Escape') this.toggle(false);
    });
    PHONE.addEventListener('change', () => this.toggle(false));
    this.toggle(false);
  }

  // Shows or hides the list, which is always visible on wide screens.
  toggle(isOpen) {
    const wasOpen = this.isOpen;
    this.isOpen = isOpen && PHONE.matches;
    $('sidebar').classList.toggle('open', this.isOpen);
    $('sidebar').inert = PHONE.matches && !this.isOpen;
    $('shade').hidden = !this.isOpen;
    $('menu').setAttribute('aria-expanded', this.isOpen);
    if (this.isOpen) $('new').focus();
    else if (wasOpen) $('menu').focus();
  }

  show(chats, currentId) {
    $('chats').replaceChildren(
        ...chats.map((chat) => this.#item(chat, chat.id === currentId)));
    $('delete-all').hidden = !chats.length;
  }

  #act(action) {
    this.toggle(false);
    action();
  }

  #item(chat, isCurrent) {
    const open = button(chat.title || 'New chat',
        () => this.#act(() => this.actions.open(chat.id)));
    open.className = 'plain title';
    open.title = chat.title;
    if (isCurrent) open.setAttribute('aria-current', 'true');
    const item = element(isCurrent ? 'li.current' : 'li', open,
        button(`Rename ${chat.title}`, () => this.#rename(item, chat), 'edit'),
        button(`Delete ${chat.title}`, () => this.actions.remove(chat.id),
            'remove'));
    return item;
  }

  #rename(item, chat) {
    const field = element('input');
    field.value = chat.title;
    field.maxLength = 200;
    field.setAttribute('aria-label', 'New title');
    let isDone = false;
    const finish = (isKept) => {
      if (isDone) return;
      isDone = true;
      const title = field.value.trim();
      this.actions.rename(chat.id, isKept && title ? title : chat.title);
    };
    field.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.isComposing) finish(true);
      if (event.key === 'Escape') finish(false);
      event.stopPropagation();
    });
    field.addEventListener('blur', () => finish(true));
    item.replaceChildren(field);
    field.focus();
    field.select();
  }
}
