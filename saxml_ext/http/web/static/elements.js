// Builds elements. Texts become text nodes, never markup.

const SVG = 'http://www.w3.org/2000/svg';
// Lines on a grid of 24 x 24.
const ICONS = {
  close: 'M6 6 18 18M18 6 6 18',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  done: 'M5 12.5 10 17.5 19 7',
  edit: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  left: 'M15 5 8 12l7 7',
  menu: 'M4 7h16M4 12h16M4 17h16',
  redo: 'M20 5v5h-5M19.5 10A8 8 0 1 0 20 14',
  remove: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  right: 'M9 5l7 7-7 7',
};
const COPIED_MS = 1500;

// Returns a new element: `tag.class.class`, with its text or its children.
export function element(kind, ...children) {
  const [tag, ...classes] = kind.split('.');
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(' ');
  made.append(...children);
  return made;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  const path = document.createElementNS(SVG, 'path');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}

// Returns a button. With an icon, the label is what screen readers say.
export function button(label, onClick, iconName = '') {
  const made = element('button', iconName ? icon(iconName) : label);
  made.type = 'button';
  if (iconName) {
    made.className = 'plain icon';
    made.title = label;
    made.setAttribute('aria-label', label);
  }
  made.addEventListener('click', onClick);
  return made;
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Browsers have no clipboard for pages over HTTP, except on this machine.
  const area = element('textarea.unseen', text);
  const dialog = document.querySelector('dialog[open]');
  (dialog || document.body).append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  if (!copied) throw new Error('The browser refused to copy.');
}

// Returns a button that copies the text that a function returns.
export function copyButton(label, text) {
  const made = button(label, async () => {
    let shown = 'done';
    try {
      await copy(text());
    } catch {
      shown = 'close';
    }
    made.replaceChildren(icon(shown));
    made.title = shown === 'done' ? 'Copied' : 'The browser refused to copy';
    setTimeout(() => {
      made.replaceChildren(icon('copy'));
      made.title = label;
    }, COPIED_MS);
  }, 'copy');
  return made;
}

// Returns a block of code with its language and a button to copy it.
export function codeBlock(language, text) {
  const code = element('code', text);
  code.tabIndex = 0;  // Long lines scroll by keyboard too.
  return element('figure.code',
      element('figcaption', element('span', language || 'text'),
          copyButton('Copy this code', () => code.textContent)),
      element('pre', code));
}
