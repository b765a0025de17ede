// Shows Markdown as elements. Text of a model never becomes markup: every piece
// is a text node or one of the elements below, and links are http or https.

import {codeBlock, element} from './elements.js';

// Deeper quotes, lists and emphases are shown as plain text.
const MOST_LEVELS = 6;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const TABLE_LINE = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const LINK = /!?\[([^[\]]{0,1000})\]\(\s{0,9}<?([^\s<>()]{1,2000}(?:\([^\s<>()]{0,200}\)[^\s<>()]{0,2000})?)>?(?:\s{1,9}"[^"]{0,500}")?\s{0,9}\)/y;
const ADDRESS = /https?:\/\/[^\s<>"'`\]]{1,2000}/y;
const MARKS = {
  '**': 'strong', '__': 'strong', '~~': 'del', '*': 'em', '_': 'em',
};
const SPECIAL = /[\\`*_~[!<h]/g;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}_]/u;

// Splits a text into blocks: {kind, source, ...}. `source` is what it depends
// on, so that a block with the same source keeps its element.
export function blocks(text, level = 0) {
  const lines = text.replace(/\r\n?/g, '\n').split('\n');
  const result = [];
  for (let i = 0; i < lines.length;) {
    if (!lines[i].trim()) {
      i++;
      continue;
    }
    const begin = i;
    const [end, block] = nextBlock(lines, i, level);
    i = end;
    result.push({...block, source: lines.slice(begin, end).join('\n')});
  }
  return result;
}

function nextBlock(lines, i, level) {
  const line = lines[i];
  const fence = FENCE.exec(line);
  if (fence) return fencedCode(lines, i, fence);
  const heading = HEADING.exec(line);
  if (heading) {
    return [i + 1, {kind: 'heading', level: heading[1].length, text: heading[2]}];
  }
  if (RULE.test(line)) return [i + 1, {kind: 'rule'}];
  if (level < MOST_LEVELS && QUOTE.test(line)) return quote(lines, i);
  if (level < MOST_LEVELS && ITEM.test(line)) return list(lines, i);
  if (isTable(lines, i)) return table(lines, i);
  let end = i + 1;
  while (end < lines.length && !interrupts(lines, end, level)) end++;
  return [end, {kind: 'paragraph', text: lines.slice(i, end).join('\n')}];
}

// Returns whether a line ends the paragraph above it.
function interrupts(lines, i, level) {
  const line = lines[i];
  return !line.trim() || FENCE.test(line) || HEADING.test(line) ||
      RULE.test(line) || isTable(lines, i) ||
      (level < MOST_LEVELS && (QUOTE.test(line) || ITEM.test(line)));
}

function fencedCode(lines, i, [, marks, language]) {
  const indent = lines[i].search(/\S/);
  const closing = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`);
  let end = i + 1;
  while (end < lines.length && !closing.test(lines[end])) end++;
  const text = lines.slice(i + 1, end)
      .map((line) => line.slice(Math.min(indent, line.search(/\S|$/))));
  // The last line may be the beginning of the closing fence.
  if (end === lines.length && /^ {0,3}(`{1,2}|~{1,2})$/.test(text.at(-1))) {
    text.pop();
  }
  return [end + 1, {kind: 'code', language, text: text.join('\n')}];
}

function quote(lines, i) {
  let end = i;
  while (end < lines.length && QUOTE.test(lines[end])) end++;
  const text = lines.slice(i, end).map((line) => line.replace(QUOTE, ''));
  return [end, {kind: 'quote', text: text.join('\n')}];
}

const width = (space) => space.replace(/\t/g, '    ').length;

// A list ends at a line that is neither indented nor an item of the same kind.
function list(lines, i) {
  const [, space, marker] = ITEM.exec(lines[i]);
  const outer = width(space);
  const ordered = /\d/.test(marker);
  const items = [];
  let loose = false;
  let end = i;
  while (end < lines.length) {
    const line = lines[end];
    const item = ITEM.exec(line);
    if (item && width(item[1]) < outer + 2 && !RULE.test(line)) {
      if (/\d/.test(item[2]) !== ordered) break;
      items.push([line.slice(item[0].length)]);
    } else if (!line.trim()) {
      const next = lines[end + 1] ?? '';
      const more = ITEM.exec(next);
      const goesOn = more ? /\d/.test(more[2]) === ordered ||
          width(more[1]) >= outer + 2 : /^(?: {2}|\t)/.test(next);
      if (!goesOn) break;
      loose ||= !more || width(more[1]) < outer + 2;
      items.at(-1).push('');
    } else if (width(/^[ \t]*/.exec(line)[0]) > outer || !items.at(-1).at(-1) ||
        !interrupts(lines, end, 0)) {
      if (!items.at(-1).at(-1).trim() && !/^[ \t]/.test(line) &&
          items.at(-1).length > 1) break;
      items.at(-1).push(line);
    } else {
      break;
    }
    end++;
  }
  return [end, {
    kind: 'list', ordered, loose, start: parseInt(marker, 10),
    items: items.map(([first, ...rest]) => {
      // The content of an item is indented by the width of its marker.
      const indents = rest.filter((line) => line.trim())
          .map((line) => line.search(/\S/));
      const indent = Math.min(outer + 4, ...indents);
      return [first, ...rest.map((line) => line.slice(indent))].join('\n');
    }),
  }];
}

function isTable(lines, i) {
  return i + 1 < lines.length && lines[i].includes('|') &&
      lines[i + 1].includes('|') && TABLE_LINE.test(lines[i + 1]) &&
      cells(lines[i]).length === cells(lines[i + 1]).length;
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/)
      .map((cell) => cell.trim().replace(/\\\|/g, '|'));
}

function table(lines, i) {
  const head = cells(lines[i]);
  const sides = cells(lines[i + 1]).map((mark) => (mark.startsWith(':') ?
      (mark.endsWith(':') ? 'middle' : '') : (mark.endsWith(':') ? 'end' : '')));
  let end = i + 2;
  while (end < lines.length && lines[end].includes('|')) end++;
  const rows = lines.slice(i + 2, end).map(cells);
  return [end, {kind: 'table', head, sides, rows}];
}

// Appends the elements of a line of text with emphases, code and links.
// In a text that still grows, a mark at the end has its partner yet to come.
export function inline(parent, text, grows = false, level = 0) {
  const missing = new Set();  // The marks that have no partner from here on.
  let plain = '';
  const flush = () => {
    plain.split('\n').forEach((line, i) => {
      if (i) parent.append(element('br'));
      if (line) parent.append(line);
    });
    plain = '';
  };
  const add = (child) => {
    flush();
    parent.append(child);
  };
  let i = 0;
  while (i < text.length) {
    SPECIAL.lastIndex = i;
    const next = SPECIAL.exec(text);
    const stop = next ? next.index : text.length;
    plain += text.slice(i, stop);
    i = stop;
    if (!next) break;
    const [end, child] = special(text, i, missing, grows, level);
    if (child) add(child);
    else plain += text.slice(i, end);
    if (text[i] === '\\' && end === i + 2) plain = plain.slice(0, -2) + text[i + 1];
    i = end;
  }
  flush();
}

// Returns the end of the special character at i, and its element if it has one.
function special(text, i, missing, grows, level) {
  const char = text[i];
  if (char === '\\') return [PUNCTUATION.test(text[i + 1] ?? '') ? i + 2 : i + 1];
  if (char === '`') return codeSpan(text, i, missing, grows);
  if (char === '[' || char === '!') {
    LINK.lastIndex = i;
    const match = LINK.exec(text);
    return match ? [LINK.lastIndex, link(match[2], match[1], level)] : [i + 1];
  }
  if (char === 'h' || char === '<') {
    const begin = i + (char === '<');
    ADDRESS.lastIndex = begin;
    const match = ADDRESS.exec(text);
    if (!match || (char === 'h' && WORD.test(text[i - 1] ?? ''))) return [i + 1];
    const address = match[0].replace(/[.,;:!?*_~)]+$/, (tail) =>
      (tail[0] === ')' && match[0].includes('(') ? ')' : ''));
    const end = begin + address.length;
    const closed = char === '<' && text[end] === '>';
    if (char === '<' && !closed) return [i + 1];
    return [end + closed, link(address, address, MOST_LEVELS)];
  }
  return emphasis(text, i, missing, grows, level);
}

function codeSpan(text, i, missing, grows) {
  let end = i;
  while (text[end] === '`') end++;
  const marks = text.slice(i, end);
  let close = missing.has(marks) ? -1 : text.indexOf(marks, end);
  while (close >= 0 && text[close + marks.length] === '`') {
    while (text[close] === '`') close++;
    close = text.indexOf(marks, close);
  }
  if (close < 0) {
    missing.add(marks);
    if (!grows) return [end];
    close = text.length;
  }
  const code = text.slice(end, close).replace(/\n/g, ' ');
  const trimmed = /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code;
  return [Math.min(text.length, close + marks.length), element('code', trimmed)];
}

function emphasis(text, i, missing, grows, level) {
  const char = text[i];
  let run = i;
  while (text[run] === char) run++;
  const marks = char.repeat(run - i > 1 ? 2 : 1);
  const begin = i + marks.length;
  const opens = MARKS[marks] && level < MOST_LEVELS &&
      (run >= text.length ? grows : !/\s/.test(text[run])) &&
      (char !== '_' || !WORD.test(text[i - 1] ?? ''));
  if (!opens || missing.has(marks)) return [Math.max(begin, run)];
  let close = begin;
  for (;;) {
    close = text.indexOf(marks, close);
    if (close < 0) break;
    let after = close;
    while (text[after] === char) after++;
    const fits = close > begin && !/\s/.test(text[close - 1]) &&
        (marks.length === 2 || after - close !== 2) &&
        (char !== '_' || !WORD.test(text[after] ?? ''));
    if (fits) {
      close = after - marks.length;
      break;
    }
    close = after;
  }
  if (close < 0) {
    missing.add(marks);
    if (!grows) return [begin];
    close = text.length;
  }
  const child = element(MARKS[marks]);
  inline(child, text.slice(begin, close), grows, level + 1);
  return [Math.min(text.length, close + marks.length), child];
}

function link(address, label, level) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    // It has no scheme, so it would lead to this server.
  }
  if (!url || !['http:', 'https:'].includes(url.protocol)) {
    return document.createTextNode(label ? `${label} (${address})` : address);
  }
  const made = element('a');
  made.href = url.href;
  made.target = '_blank';
  made.rel = 'noopener noreferrer';
  if (level < MOST_LEVELS && label) inline(made, label, false, MOST_LEVELS);
  else made.append(label || address);
  return made;
}

function show(block, grows, level) {
  const {kind, text} = block;
  switch (kind) {
    case 'code':
      return codeBlock(block.language, text);
    case 'heading': {
      // The page itself has headings of the first and the second level.
      const made = element(`h${Math.min(6, block.level + 2)}`);
      inline(made, text, grows);
      return made;
    }
    case 'rule':
      return element('hr');
    case 'quote': {
      const made = element('blockquote');
      render(made, text, grows, level + 1);
      return made;
    }
    case 'list':
      return showList(block, grows, level);
    case 'table':
      return showTable(block, grows);
    default: {
      const made = element('p');
      inline(made, text.replace(/^[ \t]+|[ \t]+$/gm, ''), grows);
      return made;
    }
  }
}

function showList({ordered, start, items, loose}, grows, level) {
  const made = element(ordered ? 'ol' : 'ul');
  if (ordered && start !== 1) made.start = start;
  items.forEach((text, i) => {
    const item = element('li');
    const task = /^\[([ xX])\][ \t]+/.exec(text);
    if (task) text = (task[1] === ' ' ? '☐ ' : '☑ ') + text.slice(task[0].length);
    render(item, text, grows && i === items.length - 1, level + 1);
    const first = item.firstElementChild;
    if (!loose && first && first.tagName === 'P') first.replaceWith(...first.childNodes);
    made.append(item);
  });
  return made;
}

function showTable({head, sides, rows}, grows) {
  const line = (tag, texts, last) => {
    const row = element('tr');
    head.forEach((_, i) => {
      const cell = element(sides[i] ? `${tag}.${sides[i]}` : tag);
      inline(cell, texts[i] ?? '', grows && last);
      row.append(cell);
    });
    return row;
  };
  const body = rows.map((row, i) => line('td', row, i === rows.length - 1));
  const made = element('div.table', element('table',
      element('thead', line('th', head, false)), element('tbody', ...body)));
  made.tabIndex = 0;  // A wide table scrolls by keyboard too.
  return made;
}

// Shows a text in an element. If the element shows the beginning of the text
// already, only what differs is replaced, so a growing text does not flicker.
export function render(parent, text, grows = false, level = 0) {
  const wanted = blocks(text, level);
  const before = parent.shownBlocks ?? [];
  parent.shownBlocks = wanted.map((block, i) => {
    const open = grows && i === wanted.length - 1;
    const old = before[i];
    if (old && old.source === block.source && old.open === open) return old;
    if (old && old.kind === 'code' && block.kind === 'code' &&
        old.language === block.language) {
      const code = old.node.querySelector('code');
      if (code.textContent !== block.text) code.textContent = block.text;
      return {...block, open, node: old.node};
    }
    const node = show(block, open, level);
    if (old) old.node.replaceWith(node);
    else parent.append(node);
    return {...block, open, node};
  });
  before.slice(wanted.length).forEach(({node}) => node.remove());
}
