"""Serves a model of each family by one `serve`, in float and in int8.

The weights are random, and transformers writes them. By default only the
families of `_SOME` are served; --all_families serves every family, and a model
of each method of quantization.
"""

import json
import os
from urllib import request

from absl import flags
from absl.testing import absltest
import torch

from converters.quantize import provenance
from converters.quantize import quantization
from converters.testing import gguf_files
from converters.testing import quantized_files
from converters.testing import small_pax
from saxml_ext.families import all as families
from tests.parity import family_models
from tests.serve import serving

_ALL = flags.DEFINE_bool('all_families', False, 'Serve every family.')
# Families whose float and int8 models are served in each run.
_SOME = {'qwen3': 'float', 'olmo2': 'int8', 'gemma': 'int8'}
# Checkpoints whose matrices are quantized, one or two of each method.
_QUANTIZED = (
  *('fp8_block', 'fbgemm_fp8', 'compressed_float_channel'),
  *('compressed_int_channel', 'compressed_packed', 'gptq', 'gptq_v2', 'awq'),
  *('bitsandbytes_nf4', 'bitsandbytes_int8'),
)
_TOKENIZER_CONFIG = {
  'eos_token': '<eos>',
  'chat_template': '{% for m in messages %}{{ m.content }} {% endfor %}',
}
_PROMPT = [5, 40, 23, 8]
_NEW_TOKENS = 8


class FamiliesTest(serving.ServeCase):
  def setUp(self):
    super().setUp()
    torch.set_num_threads(1)
    formats: dict[str, str] = _SOME
    if _ALL.value:
      formats = {
        **dict.fromkeys(families.convertible(), 'float int8'),
        **dict.fromkeys(_QUANTIZED, 'stored'),
      }
    self._models = [
      (name, kind) for name, kinds in formats.items() for kind in kinds.split()
    ]

  def _directory(self, name: str, kind: str) -> str:
    """Returns the directory of a checkpoint with a tokenizer."""
    path = os.path.join(self.cache, f'{name}-{kind}')
    if kind == 'stored':
      tensors, _ = quantized_files.tensors(name)
      config = quantized_files.CASES[name].config
      quantized_files.save(path, tensors, config)
      small_pax.write_tokenizer(path, gguf_files.VOCAB)
    elif kind == 'int8':
      pax = family_models.convert(name)[1]
      quantization.quantize(pax, path, provenance.Record(provenance.Options()))
      small_pax.write_tokenizer(path)
    else:
      # Only the models of each run are converted by `serve`, which takes
      # seconds.
      source = family_models.saved if name in _SOME else family_models.convert
      os.symlink(source(name)[1], path)
      small_pax.write_tokenizer(path)
    with open(f'{path}/tokenizer_config.json', 'w', encoding='utf-8') as file:
      json.dump(_TOKENIZER_CONFIG, file)
    return path

  def _post(self, route: str, **body) -> str:
    call = request.Request(
      f'{self._url}/v1/{route}',
      json.dumps({'max_tokens': _NEW_TOKENS, **body}).encode(),
      {'Content-Type': 'application/json'},
    )
    with request.urlopen(call) as answer:
      return answer.read().decode()

  def _choices(self, **body) -> list[dict]:
    body = {'prompt': _PROMPT, 'return_token_ids': True, **body}
    return json.loads(self._post('completions', **body))['choices']

  def test_families_answer(self):
    directories = [self._directory(*model) for model in self._models]
    self._url = f'http://127.0.0.1:{self.start(*directories, "BATCH_SIZE=1")}'
    for name, kind in self._models:
      with self.subTest(name, kind=kind):
        self._check(name, kind)

  def _check(self, name: str, kind: str) -> None:
    model = f'{name}-{kind}'
    greedy = {'model': model, 'temperature': 0}
    [answer] = self._choices(**greedy, logprobs=2)
    if kind == 'float':
      prompt = torch.tensor([_PROMPT])
      expected = family_models.saved(name)[0].generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=_NEW_TOKENS,
        do_sample=False,
      )
      self.assertEqual(
        answer['token_ids'], expected[0, len(_PROMPT) :].tolist()
      )
    probabilities = answer['logprobs']['token_logprobs']
    self.assertLen(probabilities, len(answer['token_ids']))
    self.assertAlmostEqual(
      sum(probabilities), answer['cumulative_logprob'], places=3
    )
    for tops, logprob in zip(answer['logprobs']['top_logprobs'], probabilities):
      self.assertAlmostEqual(max(tops.values()), logprob, places=5)
    # The stream of the same prompt as a text has the same tokens.
    text = ' '.join(f'w{token}' for token in _PROMPT)
    events = self._post('completions', **greedy, prompt=text, stream=True)
    chunks = [
      json.loads(line.removeprefix('data: '))
      for line in events.splitlines()
      if line.startswith('data: {')
    ]
    pieces = [c['choices'][0]['text'] for c in chunks if c['choices']]
    self.assertEqual(''.join(pieces), answer['text'])
    chat = json.loads(
      self._post(
        'chat/completions',
        **greedy,
        messages=[{'role': 'user', 'content': text}],
      )
    )
    self.assertEqual(chat['choices'][0]['message']['content'], answer['text'])
    beams = self._choices(model=model, use_beam_search=True, best_of=4, n=2)
    self.assertGreater(beams[0]['score'], beams[1]['score'])
    self.assertNotEqual(beams[0]['token_ids'], beams[1]['token_ids'])
    # The probabilities of some quantized models are near 1.
    temperature, seed = (2, 4) if kind == 'stored' else (1, 3)
    sampled = {'model': model, 'temperature': temperature, 'seed': seed, 'n': 2}
    samples = self._choices(**sampled)
    self.assertNotEqual(samples[0]['token_ids'], samples[1]['token_ids'])
    self.assertEqual(self._choices(**sampled), samples)


if __name__ == '__main__':
  absltest.main()
