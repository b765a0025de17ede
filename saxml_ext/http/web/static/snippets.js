// Writes a request as commands and programs that send it.

// The openai package passes these in extra_body; the names are vLLM's.
const EXTRA = ['use_beam_search', 'best_of', 'length_penalty', 'top_k'];

// Returns a value as Python writes it.
function python(value, indent = '  ') {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value !== 'object') return JSON.stringify(value);
  const inner = indent + '  ';
  const items = Array.isArray(value) ?
      value.map((item) => python(item, inner)) :
      Object.entries(value).map(([k, v]) => `'${k}': ${python(v, inner)}`);
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  return `${open}\n${items.map((item) => `${inner}${item},\n`).join('')}` +
      `${indent}${close}`;
}

// Returns the command that sends a request; without a body, it is a GET.
export function curlCommand(origin, path, body, hasKey) {
  const key = hasKey ? ' \\\n  -H "Authorization: Bearer $API_KEY"' : '';
  if (!body) return `curl ${origin}${path}${key}`;
  const data = JSON.stringify(body, null, 1).replace(/'/g, "'\\''");
  return `curl -N ${origin}${path}${key} \\\n` +
      `  -H 'Content-Type: application/json' \\\n  -d '${data}'`;
}

function pythonProgram(origin, path, body, hasKey) {
  const extra = {};
  let args = '';
  for (const [name, value] of Object.entries(body)) {
    if (EXTRA.includes(name)) extra[name] = value;
    else args += `  ${name}=${python(value)},\n`;
  }
  if (Object.keys(extra).length) args += `  extra_body=${python(extra)},\n`;
  const isChat = 'messages' in body;
  const call = isChat ? 'chat.completions' : 'completions';
  const text = isChat ? "choice.delta.content or ''" : 'choice.text';
  return `${hasKey ? 'import os\n\n' : ''}import openai\n\n` +
      `client = openai.OpenAI(\n  base_url='${origin}/v1',\n` +
      `  api_key=${hasKey ? "os.environ['API_KEY']" : "'none'"},\n)\n` +
      `for chunk in client.${call}.create(\n${args}):\n` +
      `  for choice in chunk.choices:\n` +
      `    print(${text}, end='', flush=True)\n`;
}

// Returns the request as [language, text] pairs.
export function snippets(origin, path, body, hasKey) {
  return [
    ['curl', curlCommand(origin, path, body, hasKey)],
    ['Python', pythonProgram(origin, path, body, hasKey)],
  ];
}
