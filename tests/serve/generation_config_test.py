"""Serves models with the generation_config.json files that models come with."""

import json
import os
import shutil
import subprocess

from absl.testing import absltest
import openai

from serve import programs
from tests.serve import serving

_TOKENIZER = os.path.join(
  programs.ROOT, 'harness/bundled/llama/model/tokenizer.json'
)
# Settings of published models, by the name of the served directory.
_CONFIGS = {
  'defaults': {'top_k': 50, 'do_sample': True, 'max_length': 20},
  'instruct': {
    'bos_token_id': 1,
    'eos_token_id': [2, 3],
    'pad_token_id': 0,
    'do_sample': True,
    'repetition_penalty': 1.1,
    'temperature': 0.7,
    'top_p': 0.8,
    'top_k': 20,
    'transformers_version': '4.37.0',
  },
  'greedy': {
    'do_sample': False,
    'top_p': 0.0,
    'temperature': 0.0,
    'num_beams': 1,
    'early_stopping': True,
    'length_penalty': 1.0,
  },
  'lengths': {
    'min_new_tokens': 4,
    'max_new_tokens': 6,
    'top_p': 0.95,
    'temperature': 0.6,
    'no_repeat_ngram_size': 3,
  },
}


class GenerationConfigTest(serving.ServeCase):
  def _random_model(self) -> str:
    path = os.path.join(self.cache, 'random')
    command = programs.command(
      'converters/random_hf', {'out': path, 'family': 'llama', 'vocab': 4096}
    )
    subprocess.run(command.argv, env=dict(command.env), check=True)
    shutil.copy(_TOKENIZER, path)
    return path

  def _model(self, weights: str, name: str, config: dict) -> str:
    path = os.path.join(self.cache, name)
    shutil.copytree(weights, path)
    with open(f'{path}/generation_config.json', 'w', encoding='utf-8') as file:
      json.dump(config, file)
    return path

  def test_requests_with_defaults_are_answered(self):
    weights = self._random_model()
    paths = [self._model(weights, *item) for item in _CONFIGS.items()]
    port = self.start(*paths, 'BATCH_SIZE=1', max_model_len=64)
    # What cannot act is printed by the program that the user started.
    for note in (
      'instruct: generation_config.json: repetition_penalty=1.1',
      'lengths: generation_config.json: no_repeat_ngram_size=3',
    ):
      self.assertIn(note, self.text)
    client = openai.OpenAI(
      base_url=f'http://127.0.0.1:{port}/v1', api_key='none', timeout=1500
    )
    messages = [{'role': 'user', 'content': 'Hello'}]
    for name in _CONFIGS:
      for settings in ({}, {'temperature': 0}, {'top_k': -1}, {'stream': True}):
        with self.subTest(name, settings=settings):
          answer = client.post(
            '/chat/completions',
            cast_to=str,
            body={'model': name, 'messages': messages, 'max_tokens': 4}
            | settings,
          )
          self.assertIn(name, answer)
    answer = client.chat.completions.create(model='lengths', messages=messages)
    self.assertBetween(answer.usage.completion_tokens, 4, 6)
    answers = {
      client.chat.completions.create(
        model='greedy', messages=messages, max_tokens=8
      )
      .choices[0]
      .message.content
      for _ in range(2)
    }
    self.assertLen(answers, 1)


if __name__ == '__main__':
  absltest.main()
