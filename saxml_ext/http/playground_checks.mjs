// Checks the modules of the playground without a browser: node --test.

import assert from 'node:assert/strict';
import test from 'node:test';

const VOID = ['br', 'hr'];

// As much of a browser's document as the modules use.
class FakeNode {
  constructor(tag, text = '') {
    Object.assign(this, {tag, text, attributes: {}, nodes: [], parent: null});
    this.classList = {toggle() {}};
    this.style = {};
  }
  get tagName() { return this.tag.toUpperCase(); }
  get childNodes() { return this.nodes; }
  get firstElementChild() { return this.nodes.find((node) => node.tag) ?? null; }
  get textContent() {
    return this.tag ? this.nodes.map((node) => node.textContent).join('') : this.text;
  }
  set textContent(text) { this.replaceChildren(text); }
  append(...children) {
    for (const child of children) {
      const node = child instanceof FakeNode ? child : new FakeNode('', String(child));
      node.remove();
      node.parent = this;
      this.nodes.push(node);
    }
  }
  replaceChildren(...children) {
    this.nodes = [];
    this.append(...children);
  }
  replaceWith(...children) {
    const {parent} = this;
    const rest = parent.nodes.splice(parent.nodes.indexOf(this));
    parent.append(...children, ...rest.slice(1));
  }
  remove() {
    if (this.parent) this.parent.nodes = this.parent.nodes.filter((n) => n !== this);
  }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener() {}
  querySelector(tag) {
    for (const node of this.nodes) {
      const found = node.tag === tag ? node : node.querySelector(tag);
      if (found) return found;
    }
    return null;
  }
  // The markup of the element, without icons and buttons.
  get markup() {
    if (!this.tag) return this.text.replace(/&/g, '&amp;').replace(/</g, '&lt;');
    if (this.tag === 'button') return '';
    const link = this.href ? ` href="${this.href}" rel="${this.rel}"` : '';
    const inner = this.nodes.map((node) => node.markup).join('');
    return VOID.includes(this.tag) ? `<${this.tag}>` :
        `<${this.tag}${link}>${inner}</${this.tag}>`;
  }
}
globalThis.document = {
  createElement: (tag) => new FakeNode(tag),
  createElementNS: (_, tag) => new FakeNode(tag),
  createTextNode: (text) => new FakeNode('', text),
};

const {render} = await import('./markdown.js');
const {events} = await import('./api.js');
const {Chats, titleOf} = await import('./chats.js');
const models = await import('./models.js');
const {snippets} = await import('./snippets.js');

function html(text, grows = false) {
  const root = new FakeNode('root');
  render(root, text, grows);
  return root.nodes.map((node) => node.markup).join('');
}

const EVERYTHING = `## Title

A **bold** and *soft* line with \`code\`, ~~old~~ and [a page](https://a.example/x_y).

\`\`\`python
print('**not bold**')

print(2)
\`\`\`

1. one
2. two
   - inner *item*

| a | b |
|---|--:|
| 1 | **2** |

> quoted
> twice

---
The end.`;

test('markdown becomes elements', () => {
  assert.equal(html(EVERYTHING),
      '<h4>Title</h4><p>A <strong>bold</strong> and <em>soft</em> line with ' +
      '<code>code</code>, <del>old</del> and <a href="https://a.example/x_y" ' +
      'rel="noopener noreferrer">a page</a>.</p>' +
      '<figure><figcaption><span>python</span></figcaption><pre><code>' +
      "print('**not bold**')\n\nprint(2)</code></pre></figure>" +
      '<ol><li>one</li><li>two<ul><li>inner <em>item</em></li></ul></li></ol>' +
      '<div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr>' +
      '<td>1</td><td><strong>2</strong></td></tr></tbody></table></div>' +
      '<blockquote><p>quoted<br>twice</p></blockquote><hr><p>The end.</p>');
});

for (const [text, wanted] of [
  ['snake_case_name and 2 * 3 * 4', '<p>snake_case_name and 2 * 3 * 4</p>'],
  ['**a *b* c** d', '<p><strong>a <em>b</em> c</strong> d</p>'],
  ['***both***', '<p><strong><em>both</em></strong></p>'],
  ['`` a ` b ``', '<p><code>a ` b</code></p>'],
  ['\\*plain\\*', '<p>*plain*</p>'],
  ['**over\nlines**', '<p><strong>over<br>lines</strong></p>'],
  ['unclosed **bold', '<p>unclosed **bold</p>'],
  ['- a\n\n- b', '<ul><li><p>a</p></li><li><p>b</p></li></ul>'],
  ['* a\ntext\n\nnext', '<ul><li>a<br>text</li></ul><p>next</p>'],
  ['- [x] done', '<ul><li>☑ done</li></ul>'],
  ['a | b', '<p>a | b</p>'],
  ['#hashtag', '<p>#hashtag</p>'],
  ['~~~\nopen', '<figure><figcaption><span>text</span></figcaption>' +
      '<pre><code>open</code></pre></figure>'],
  ['see https://a.example/b_c_(d). Ok', '<p>see <a href="https://a.example/b_c_(d)"' +
      ' rel="noopener noreferrer">https://a.example/b_c_(d)</a>. Ok</p>'],
]) {
  test(`markdown of ${JSON.stringify(text)}`, () => assert.equal(html(text), wanted));
}

test('markup and scripts stay text', () => {
  for (const text of [
    '<img src=x onerror=alert(1)>', '<script>alert(1)</script>',
    '**<b>**', '`<i>`', '# <u>x', '| <b> | c |\n|--|--|\n| <a> | d |',
    '```\n</code><script>\n```', '- <li>', '> <p>',
  ]) {
    assert.doesNotMatch(html(text), /<(img|script|b|i|u|a|li><li)>/, text);
    assert.match(html(text), /&lt;/, text);
  }
});

test('links lead only to http and https', () => {
  for (const address of [
    'javascript:alert(1)', 'JaVaScRiPt:alert(1)', 'data:text/html,x',
    'vbscript:x', 'file:///etc/passwd', '/v1/models', '//a.example/x',
    'java\tscript:alert(1)',
  ]) {
    for (const text of [`[a](${address})`, `![a](${address})`, `<${address}>`]) {
      assert.doesNotMatch(html(text), /href/, text);
    }
  }
});

test('a growing text keeps the elements of its beginning', () => {
  const root = new FakeNode('root');
  let before = [];
  for (let end = 1; end <= EVERYTHING.length; end++) {
    render(root, EVERYTHING.slice(0, end), true);
    before.slice(0, -2).forEach((node, i) => assert.equal(root.nodes[i], node));
    before = root.nodes;
  }
  render(root, EVERYTHING);
  assert.equal(root.nodes.map((node) => node.markup).join(''), html(EVERYTHING));
});

test('a growing text does not show marks whose partner is to come', () => {
  assert.equal(html('a **bo', true), '<p>a <strong>bo</strong></p>');
  assert.equal(html('a `co', true), '<p>a <code>co</code></p>');
  assert.equal(html('```\nx\n``', true).includes('``'), false);
});

test('hostile texts take no long time', () => {
  const begin = performance.now();
  for (const piece of [
    '*', '**a ', '_', '`', '``a', '[', '[a](', '![', '<', '> ', '- ', '\\',
    '|', '|-', '~~', '#', 'h', 'https://', '1. ', '  - a\n', '_a*', '- a\n\n',
  ]) {
    html(piece.repeat(20000 / piece.length), true);
  }
  assert.ok(performance.now() - begin < 20000, performance.now() - begin);
});

test('events may be cut anywhere', async () => {
  const sent = 'data: {"a":"\\u00fc"}\n\n: note\n\ndata: {"b":2}\r\n\r\ndata: [DONE]\n\n';
  for (let cut = 0; cut < sent.length; cut++) {
    const found = [];
    for await (const event of events([sent.slice(0, cut), sent.slice(cut)])) {
      found.push(event);
    }
    assert.deepEqual(found, [{a: 'ü'}, {b: 2}]);
  }
});

class FakeStorage extends Map {
  constructor(most) {
    super();
    this.most = most;
  }
  get length() { return this.size; }
  key(i) { return [...this.keys()][i]; }
  getItem(key) { return this.get(key) ?? null; }
  setItem(key, value) {
    const others = [...this].filter(([name]) => name !== key);
    if (others.reduce((sum, [, text]) => sum + text.length, value.length) > this.most) {
      throw new Error('QuotaExceededError');
    }
    this.set(key, value);
  }
  removeItem(key) { this.delete(key); }
}

function filled(chats, updated, text) {
  const versions = [{answers: [{text}]}];
  return {
    ...chats.create(), title: text.slice(0, 9), updated,
    turns: [{user: text, versions, version: 0}],
  };
}

test('chats survive a reload, newest first', () => {
  const storage = new FakeStorage(1e6);
  const chats = new Chats(storage);
  const [old, recent] = [filled(chats, 1, 'old'), filled(chats, 2, 'recent')];
  [recent, old].forEach((chat) => assert.ok(chats.save(chat)));
  assert.deepEqual(new Chats(storage).list(), [recent, old]);
  chats.remove(old.id);
  assert.deepEqual(new Chats(storage).get(recent.id), recent);
  assert.equal(chats.get(old.id), null);
});

test('the oldest chats make room', () => {
  const chats = new Chats(new FakeStorage(1e9));
  for (let i = 0; i < 130; i++) chats.save(filled(chats, i, `chat ${i}`));
  assert.equal(chats.list().length, 100);
  assert.equal(chats.list().at(-1).title, 'chat 30');
  for (let i = 200; i < 210; i++) chats.save(filled(chats, i, 'x'.repeat(2e5)));
  assert.ok(chats.list().length < 10);
  const full = new Chats(new FakeStorage(3000));
  for (let i = 0; i < 9; i++) assert.ok(full.save(filled(full, i, 'y'.repeat(500))));
  assert.equal(full.list()[0].updated, 8);
  assert.ok(!full.save(filled(full, 9, 'z'.repeat(5000))));
});

test('chats without a storage last as long as the page', () => {
  const chats = new Chats(null);
  assert.equal(chats.isKept, false);
  chats.save(filled(chats, 1, 'a'));
  assert.equal(chats.list().length, 1);
});

test('a damaged storage is ignored', () => {
  const storage = new FakeStorage(1e6);
  const turns = [{user: 1}, {user: 'a', versions: [{}], version: 0},
    {user: 'a', versions: [{answers: [{text: 'b'}], chosen: 7}], version: 0}];
  for (const [i, text] of ['{', 'null', '[]', '{"id":"a"}',
    JSON.stringify({id: 'x', turns})].entries()) {
    storage.setItem(`playground.chat.${i}`, text);
  }
  storage.setItem('playground.settings', '{{');
  const chats = new Chats(storage);
  assert.deepEqual(chats.list().map((chat) => chat.turns), [[]]);
  assert.deepEqual(chats.settings(), {});
});

test('titles are short and in one line', () => {
  assert.equal(titleOf(' a\n b '), 'a b');
  assert.equal(titleOf('x'.repeat(200)).length, 60);
});

test('models are described by what is known of them', () => {
  const model = {
    id: 'm', family: 'llama', parameters: 134515008, format: 'int8',
    max_model_len: 8192, defaults: {temperature: 0.2, top_p: 0.9},
  };
  assert.equal(models.facts(model), 'Llama · 135 M parameters · int8 · context 8,192');
  assert.equal(models.facts({id: 'm', max_model_len: null}), '');
  assert.match(models.defaultsText(model), /samples with temperature 0.2, top p 0.9/);
  assert.match(models.defaultsText({defaults: {}}), /the likeliest token/);
  assert.match(models.defaultsText({}), /own choice/);
});

test('a model that loads shows its progress', () => {
  const reason = 'compiled 4 of 11 programs, 20 s left';
  const {text, part} = models.progress({id: 'm', status: 'loading', status_reason: reason});
  assert.match(text, /^m is loading: compiled 4 of 11 programs, 20 s left\. /);
  assert.equal(part, 4 / 11);
  assert.match(models.progress({id: 'm', status: 'loading'}).text, /^m is loading\. /);
  for (const status of ['loaded', null, undefined]) {
    assert.equal(models.progress({id: 'm', status, status_reason: null}).text, '');
  }
  const failed = {id: 'm', status: 'failed', status_reason: 'Why.'};
  assert.match(models.progress(failed).text, /m could not be loaded. Why\./);
});

test('code sends the same request', () => {
  const body = {model: 'm', messages: [{role: 'user', content: "it's"}], top_k: 3, stream: true};
  const [[, curl], [, python]] = snippets('http://a:1', '/v1/chat/completions', body, true);
  const data = /-d '(.*)'$/s.exec(curl)[1].replace(/'\\''/g, "'");
  assert.deepEqual(JSON.parse(data), body);
  assert.match(curl, /Authorization: Bearer \$API_KEY/);
  assert.match(python, /extra_body=\{\n    'top_k': 3,\n  \},/);
  assert.match(python, /os.environ\['API_KEY'\]/);
});
