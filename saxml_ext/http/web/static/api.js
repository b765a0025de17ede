// Sends requests to this page's gateway.

// How long to wait for a server that does not say when it is ready, in ms.
const RETRY_MS = 2000;
// A queue that stays full is an error after this many tries.
const MOST_TRIES = 5;
const UNREACHABLE = 'The server does not answer. It may have been stopped.';

// An error answer. `retryMs` is the time until the next try; 0 if none helps.
export class Problem extends Error {
  constructor(message, status = 0, retryMs = 0, code = '') {
    super(message);
    Object.assign(this, {status, retryMs, code});
  }

  // True while the server or its model starts.
  get isLoading() {
    return [0, 502, 503].includes(this.status);
  }
}

// Returns a message as a sentence. Names of fields and models stay as they are.
function sentence(text) {
  const whole = text.trim().replace(/^[a-z](?=[a-z]* )/, (c) => c.toUpperCase());
  return whole + (/[.!?]$/.test(whole) ? '' : '.');
}

async function problemOf(response) {
  const text = await response.text();
  let error = {};
  try {
    error = JSON.parse(text).error;
  } catch {
    // A proxy answered with a text or a page of its own.
  }
  const {message = `The server answered with status ${response.status}`} = error;
  const millis = Number(response.headers.get('retry-after-ms'));
  const seconds = Number(response.headers.get('retry-after'));
  const helps = response.headers.get('x-should-retry') !== 'false' &&
      [502, 503].includes(response.status);
  const retryMs = millis || 1000 * seconds || (helps ? RETRY_MS : 0);
  return new Problem(sentence(message), response.status, retryMs, error.code);
}

async function request(path, key, options = {}) {
  const headers = key ? {Authorization: `Bearer ${key}`} : {};
  if (options.body) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {...options, headers});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(UNREACHABLE, 0, RETRY_MS);
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

// Returns the list of models, as /v1/models answers it.
export async function models(key) {
  const response = await request('/v1/models', key, {cache: 'no-store'});
  return response.json();
}

// Yields the JSON objects of a stream of server-sent events.
export async function* events(chunks) {
  let rest = '';
  for await (const chunk of chunks) {
    const parts = (rest + chunk).split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split(/\r?\n/)
          .filter((line) => line.startsWith('data:'))
          .map((line) => line.slice(5).trimStart()).join('\n');
      if (data && data !== '[DONE]') yield JSON.parse(data);
    }
  }
}

async function* texts(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    yield value;
  }
}

// Resolves after a time, or as soon as the signal says so.
export function pause(millis, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => reject(new DOMException('stopped', 'AbortError'));
    if (signal.aborted) abort();
    const timer = setTimeout(resolve, millis);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      abort();
    }, {once: true});
  });
}

// Sends a request and yields the chunks of its answer. While the model starts
// or its queue is full, the request is sent again at the time that the server
// names, after a call of `onWait` with the problem.
export async function* complete(path, body, key, signal, onWait) {
  let response;
  for (let tries = 1; !response; tries++) {
    try {
      response = await request(path, key,
          {method: 'POST', body: JSON.stringify(body), signal});
    } catch (error) {
      const again = error.isLoading || (error.status === 429 && tries < MOST_TRIES);
      if (!again || !error.retryMs) throw error;
      onWait(error);
      await pause(error.retryMs, signal);
    }
  }
  try {
    for await (const chunk of events(texts(response))) {
      if (chunk.error) throw new Problem(sentence(chunk.error.message), 500);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof Problem || error.name === 'AbortError') throw error;
    throw new Problem('The connection to the server broke before the end.');
  }
}
