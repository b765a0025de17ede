// Shows the description of all routes, /openapi.json.

import {codeBlock, element} from './elements.js';
import {curlCommand} from './snippets.js';

const IGNORED = 'Accepted without effect';

// A number of this size or more is the limit of a type.
const HUGE = 2 ** 31 - 1;

const json = (value) => JSON.stringify(value);

// Returns a schema in words: its type, its range, its values.
function words(schema) {
  if (schema.oneOf) return schema.oneOf.map(words).join(' or ');
  const parts = [];
  if (schema.enum) {
    parts.push(schema.enum.filter((v) => v !== null).map(json).join(' or '));
  } else if (schema.type) {
    const items = schema.items && words(schema.items);
    parts.push(schema.type === 'array' && items ? `array of ${items}` : schema.type);
  }
  const {minimum, maximum, maxItems} = schema;
  const [hasLeast, hasMost] = [minimum, maximum]
      .map((limit) => limit !== undefined && Math.abs(limit) < HUGE);
  if (hasLeast && hasMost) parts.push(`${minimum} to ${maximum}`);
  else if (hasLeast) parts.push(`at least ${minimum}`);
  else if (hasMost) parts.push(`at most ${maximum}`);
  if (maxItems && maxItems < 2 ** 20) parts.push(`at most ${maxItems}`);
  return parts.join(', ');
}

// Returns the rows of a table: a field, its type and what it does.
function rows(name, field, isRequired) {
  const text = [field.description, isRequired ? 'Required.' : ''];
  const row = element('tr', element('td', element('code', name)),
      element('td', words(field)),
      element('td', text.filter(Boolean).join(' ')));
  const inner = Object.entries(field.properties ?? {});
  return [row, ...inner.flatMap(([member, part]) =>
    rows(`${name}.${member}`, part, false))];
}

function list(label, names) {
  const codes = names.flatMap((name, i) => [i ? ', ' : ' ', element('code', name)]);
  return names.length ? [element('p', label, ...codes)] : [];
}

// Returns the fields without effect in a few lines instead of a row for each.
function ignored(fields) {
  const any = fields.filter(([, field]) => !field.enum).map(([name]) => name);
  const empty = fields.filter(([, field]) => field.enum?.every((v) => v === null));
  const some = fields.filter(([, field]) => field.enum?.some((v) => v !== null));
  return [
    ...list('Any value:', any),
    ...list('Only a value that changes nothing:', some.map(([name, field]) =>
      `${name}: ${field.enum.filter((v) => v !== null).map(json).join(' or ')}`)),
    ...list('Only null, because this server does not support them:',
        empty.map(([name]) => name)),
  ];
}

function fieldGroups({properties, required = []}) {
  const groups = new Map();
  for (const [name, field] of Object.entries(properties)) {
    const group = field['x-group'] ?? 'Other fields';
    groups.set(group, [...groups.get(group) ?? [], [name, field]]);
  }
  const last = groups.get(IGNORED);
  groups.delete(IGNORED);
  const shown = [...groups].flatMap(([group, fields]) => [
    element('h3', group),
    element('table', ...fields.flatMap(([name, field]) =>
      rows(name, field, required.includes(name)))),
  ]);
  return last ? [...shown, element('h3', IGNORED), ...ignored(last)] : shown;
}

// Returns an answer as it is sent: a stream is an array of events.
function answerText(value) {
  if (!Array.isArray(value)) return JSON.stringify(value, null, 2);
  return [...value.map(json), '[DONE]'].map((event) => `data: ${event}\n`).join('\n');
}

function examples(method, path, operation, model, hasKeys) {
  const requests = operation.requestBody?.content['application/json'].examples ?? {};
  const answers = operation.responses['200'].content?.['application/json'].examples;
  return Object.entries(answers ?? {}).map(([name, {value}]) => {
    const fill = (part) => JSON.parse(JSON.stringify(part).replaceAll('"MODEL"', json(model)));
    const body = requests[name] && fill(requests[name].value);
    const command = curlCommand(
        location.origin, path, body, hasKeys && operation.security);
    return element('div', element('h3', `Example: ${name[0].toLowerCase()}${name.slice(1)}`),
        element('div.examples', codeBlock('curl', command),
            codeBlock('answer', answerText(fill(value)))));
  });
}

function card(method, path, operation, model, hasKeys) {
  const needs = hasKeys && operation.security ? ' Needs an API key.' : '';
  const made = element('section.card',
      element('h2', element('span.method', method.toUpperCase()),
          element('span', path)),
      element('p', operation.summary + needs),
      ...examples(method, path, operation, model, hasKeys));
  made.id = `${method}${path.replace(/\W+/g, '-')}`;
  if (operation.requestBody) {
    const schema = operation.requestBody.content['application/json'].schema;
    const details = element('details', element('summary', 'Fields of the request'),
        ...fieldGroups(schema));
    made.append(details);
  }
  return made;
}

// Returns the name of a model for the examples, and whether keys are needed.
async function firstModel() {
  try {
    const response = await fetch('/v1/models');
    const {data} = await response.json();
    return [data?.[0]?.id ?? 'MODEL', response.status === 401];
  } catch {
    return ['MODEL', false];
  }
}

async function show() {
  const [response, [model, hasKeys]] =
      await Promise.all([fetch('/openapi.json'), firstModel()]);
  const api = await response.json();
  document.getElementById('about').textContent = api.info.description;
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const made = card(method, path, operation, model, hasKeys);
      document.getElementById('routes').append(made);
      const link = element('a', path);
      link.href = `#${made.id}`;
      document.getElementById('contents').append(link);
    }
  }
  const {example} = Object.values(api.paths)[0].post
      .responses.default.content['application/json'];
  document.getElementById('routes').append(element('section.card',
      element('h2', 'Errors'),
      element('p', 'Every error has this form, also as an event of a stream. ' +
          'param names the wrong field.'),
      codeBlock('answer', answerText(example))));
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target) target.scrollIntoView();
}

show();
