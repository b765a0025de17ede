// Describes models in words, by their entries in the list of /v1/models.
//
// All members but `id` may be missing:
//   max_model_len, family, parameters, format: what the model is.
//   is_chat: false if it was trained to continue texts only.
//   defaults: the values of `temperature`, `use_beam_search` and other fields
//     that requests without these fields get.
//   status: "loading" until it can answer, "failed", or anything else; then
//   status_reason has the server's words, such as "compiled 4 of 11 programs,
//     20 s left".

const UNITS = [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'K']];
const FAMILIES = {
  gptj: 'GPT-J', gpt_neox: 'GPT-NeoX', llama: 'Llama', mistral: 'Mistral',
  opt: 'OPT', phi: 'Phi', qwen2: 'Qwen2', qwen3: 'Qwen3', gemma: 'Gemma',
};
const CHAT_EXAMPLES = [
  'What is the capital of France?',
  'Explain to a ten-year-old why the sky is blue.',
  'Write a Python function that finds the longest word of a text.',
  'Compare cats and dogs as pets in a short table.',
];
const PROMPT_EXAMPLES = [
  'The court said',
  'Once upon a time, in a town by the sea,',
  'The three most important rules of cooking are',
  'Good news:',
];

const number = (value) => value.toLocaleString('en');

// Returns a count with a unit, for example "135 M" for 134,515,008.
function short(value) {
  const [unit, name] = UNITS.find(([unit]) => value >= unit) ?? [1, ''];
  const digits = value / unit;
  return `${digits.toFixed(digits < 10 ? 1 : 0).replace(/\.0$/, '')} ${name}`
      .trim();
}

// Returns what the model is, in a line.
export function facts(model) {
  const {family, parameters, format, max_model_len: length} = model;
  return [
    family && (FAMILIES[family] ?? family),
    parameters && `${short(parameters)} parameters`,
    format,
    length && `context ${number(length)}`,
  ].filter(Boolean).join(' · ');
}

// Returns how the model picks tokens if a request does not say.
export function defaultsText({defaults}) {
  if (!defaults) return 'Empty fields are the model’s own choice.';
  if (defaults.use_beam_search) {
    const beams = defaults.best_of ? ` with ${defaults.best_of} beams` : '';
    return `By default, this model runs a beam search${beams}.`;
  }
  if (!defaults.temperature) {
    return 'By default, this model takes the likeliest token at each step. ' +
        'Set a temperature to sample.';
  }
  const set = ['temperature', 'top_p', 'top_k']
      .filter((name) => defaults[name] !== undefined && defaults[name] !== null)
      .map((name) => `${name.replace('_', ' ')} ${defaults[name]}`);
  return `By default, this model samples with ${set.join(', ')}.`;
}

export function examples(model) {
  return model.is_chat === false ? PROMPT_EXAMPLES : CHAT_EXAMPLES;
}

// Returns the state of a model: its text is '' if it can answer. `part` is how
// much of the work is done, from 0 to 1, if that is known.
export function progress({id, status, status_reason: reason}) {
  if (status === 'failed') {
    return {text: `${id} could not be loaded. ${reason ?? ''}`.trim(), part: 0};
  }
  if (status !== 'loading') return {text: ''};
  const [, done, total] = /(\d+) of (\d+)/.exec(reason ?? '') ?? [];
  return {
    text: `${id} is loading${reason ? `: ${reason}` : ''}. ` +
        'You can write your message already.',
    part: total ? done / total : undefined,
  };
}
