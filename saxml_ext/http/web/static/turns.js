// Shows the turns of a conversation.

import {button, copyButton, element} from './elements.js';
import {render} from './markdown.js';

const SCORE_HELP = 'How likely the model finds this answer: the sum of the ' +
    'log-probabilities of its tokens. Beam search divides it by a power of ' +
    'the length. Higher is better.';
const REASONS = {
  length: 'cut at the limit of tokens',
  stopped: 'stopped',
  error: 'ended by an error',
};
const MS = 1000;

const count = (number, noun) =>
  `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;

// Returns the figures of a version: tokens, speed and time to the first token.
export function figures({usage, beginMs, firstMs, endMs, parts}) {
  if (!endMs) return '';
  const total = (endMs - beginMs) / MS;
  const time = `${total.toFixed(total < 10 ? 1 : 0)} s`;
  if (!usage) return time;
  const tokens = usage.completion_tokens;
  const decoding = (endMs - firstMs) / MS;
  // Beams come in few parts, most of the text in the last one.
  const speed = parts > 3 ? (tokens - 1) / decoding : tokens / total;
  const words = [`${count(tokens, 'token')} in ${time}`];
  if (tokens > 1) words.push(`${speed.toFixed(1)} tokens/s`);
  words.push(`first after ${((firstMs - beginMs) / MS).toFixed(2)} s`);
  words.push(`prompt ${count(usage.prompt_tokens, 'token')}`);
  return words.join(' · ');
}

// Shows one turn. `actions` has what its buttons do: edit(text), regenerate(),
// show(version), choose(answer).
export class TurnView {
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.bubble = element('div.text', turn.user);
    this.tools = element('div.tools',
        button('Edit this message', () => this.edit(turn.user), 'edit'),
        copyButton('Copy this message', () => turn.user));
    this.user = element('article.user',
        element('h2.unseen', 'You'), this.bubble, this.tools);
    this.answers = element('div');
    this.node = element('section.turn', this.user, this.answers);
    this.isLast = false;
    this.shown = null;
  }

  // Replaces the message by a box to change it.
  edit(text) {
    const area = element('textarea', text);
    area.setAttribute('aria-label', 'Edit your message');
    area.rows = Math.min(10, text.split('\n').length + 1);
    const close = () => form.replaceWith(this.bubble, this.tools);
    const submit = () => {
      if (area.value.trim()) this.actions.edit(area.value);
    };
    const send = button('Send', submit);
    send.className = 'main';
    const form = element('div.edit', area, element('div.row',
        send, button('Cancel', close),
        element('span.dim', this.isLast ? '' :
            'Sending removes the messages below.')));
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') close();
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        submit();
      }
    });
    this.tools.remove();
    this.bubble.replaceWith(form);
    area.focus();
  }

  // Shows that the answer is awaited, and why if it takes long.
  wait(reason = '') {
    this.shown = null;
    const dots = element('span.dots', element('i'), element('i'), element('i'));
    this.answers.replaceChildren(element('article.answer',
        element('h2.unseen', 'Answer'), dots, element('span.dim', reason)));
  }

  // Shows the chosen version of the answer; `grows` while it is received.
  show(version, grows) {
    if (this.shown !== version) {
      this.shown = version;
      this.cards = [];
      this.answers.replaceChildren();
    }
    version.answers.forEach((answer, i) => {
      if (!answer) return;
      this.cards[i] ??= this.#card(version, i);
      const {body} = this.cards[i];
      const text = answer.text.trimStart();
      if (version.isPlain) body.textContent = text;
      else render(body, text, grows);
    });
    if (!grows) this.#finish(version);
  }

  #card(version, i) {
    const body = element(version.isPlain ? 'div.text' : 'div.markdown');
    const head = element('div.head');
    const foot = element('div.tools');
    const node = element('article.answer',
        element('h2.unseen', 'Answer'), head, body, foot);
    this.answers.append(node);
    return {node, head, body, foot};
  }

  #finish(version) {
    const {answers, chosen = 0} = version;
    answers.forEach((answer, i) => {
      const {node, head, body, foot} = this.cards[i];
      node.classList.toggle('several', answers.length > 1);
      node.classList.toggle('chosen', i === chosen && answers.length > 1);
      head.replaceChildren();
      if (answers.length > 1) {
        head.append(`Answer ${i + 1}`);
        if (answer.score !== undefined) {
          const score = element('abbr', `score ${answer.score.toFixed(3)}`);
          score.title = SCORE_HELP;
          head.append(' · ', score);
        }
        if (this.isLast && !version.isPlain && i !== chosen) {
          head.append(button('Go on with this answer',
              () => this.actions.choose(i)));
        }
      }
      if (!answer.text.trim()) {
        body.replaceChildren(element('span.dim', 'The answer is empty.'));
      }
      const notes = [REASONS[answer.reason], i ? '' : figures(version)];
      foot.replaceChildren(
          copyButton('Copy this answer', () => answer.text.trim()),
          ...(i ? [] : this.#versionTools()),
          element('span.dim', notes.filter(Boolean).join(' · ')));
    });
  }

  #versionTools() {
    if (!this.isLast) return [];
    const {versions, version} = this.turn;
    const made = [button('Regenerate the answer',
        () => this.actions.regenerate(), 'redo')];
    if (versions.length > 1) {
      const step = (label, by, name) => {
        const arrow = button(label, () => this.actions.show(version + by), name);
        arrow.disabled = !versions[version + by];
        return arrow;
      };
      made.push(step('Previous version', -1, 'left'),
          element('span.dim', `${version + 1} of ${versions.length}`),
          step('Next version', 1, 'right'));
    }
    return made;
  }
}
