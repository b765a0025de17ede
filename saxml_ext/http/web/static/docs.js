'use strict';

function element(parent, name, className, text) {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return parent.appendChild(made);
}

// A schema in words: its type, its range, its values.
function words(schema) {
  if (schema.oneOf) return schema.oneOf.map(words).join(' or ');
  const parts = [];
  if (schema.enum) {
    const values = schema.enum.map((value) => JSON.stringify(value));
    parts.push('only ' + values.join(' or '));
  } else if (schema.type) {
    parts.push(schema.type === 'array' && schema.items ?
        `array of ${words(schema.items)}` : schema.type);
  }
  const {minimum, maximum} = schema;
  if (minimum !== undefined && maximum !== undefined) {
    parts.push(`${minimum} to ${maximum}`);
  }
  if (schema.maxItems) parts.push(`at most ${schema.maxItems}`);
  if (schema.description) parts.push(schema.description);
  return parts.join(', ');
}

function addFields(card, schema) {
  const table = element(card, 'table', '', '');
  const rows = Object.entries(schema.properties).flatMap(([name, field]) => [
    [name, field],
    ...Object.entries(field.properties || {})
        .map(([inner, of]) => [`${name}.${inner}`, of]),
  ]);
  for (const [name, field] of rows) {
    const row = element(table, 'tr', '', '');
    element(element(row, 'td', '', ''), 'code', '', name);
    const needed = (schema.required || []).includes(name);
    element(row, 'td', '', words(field) + (needed ? ' (required)' : ''));
  }
}

async function show() {
  const response = await fetch('/openapi.json');
  const api = await response.json();
  document.getElementById('about').textContent = api.info.description;
  const main = document.getElementById('routes');
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const card = element(main, 'section', 'card', '');
      element(card, 'h2', '', `${method.toUpperCase()} ${path}`);
      const key = operation.security ? '' : ' Needs no API key.';
      element(card, 'div', '', operation.summary + key);
      if (!operation.requestBody) continue;
      const details = element(card, 'details', '', '');
      element(details, 'summary', '', 'Fields of the request');
      addFields(
          details, operation.requestBody.content['application/json'].schema);
    }
  }
}

show();
