"""Tests the answers of the reference, and the checkpoints that it rejects."""

import json
import os
import shutil

from absl.testing import absltest
import safetensors.torch
import torch
import transformers

from harness.benchmarks import benchmark
from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.data import samples as samples_lib
from harness.data import summarization
from harness.systems.reference import causal_lm

# Articles with short prompts, of different lengths, and short answers.
_SHORT = (12, 25, 38, 19)

_SEARCH = gptj.GPTJ.search.generation


def setUpModule():
  torch.set_num_threads(1)  # More threads only wait for each other.


def _answers(model, prompts, search=_SEARCH) -> list[list[int]]:
  """Returns the answers without their end ids."""
  ends = causal_lm.end_ids(model.config)
  return [
    list(summarization.until_end(ids, ends))
    for ids in causal_lm.answer(model, prompts, search)
  ]


class CausalLMTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    task = summarization.load(
      samples_lib.Samples(
        gptj.BUNDLE.dataset,
        gptj.BUNDLE.tokenizer,
        gptj.BUNDLE.max_input_length,
        max(_SHORT) + 1,
        gptj.GPTJ.name,
      )
    )
    cls.prompts = [task.prompt_ids[index].tolist() for index in _SHORT]
    with open(gptj.BUNDLE.reference, encoding='utf-8') as file:
      tokens = json.load(file)['tokens']
    cls.recorded = [tokens[index] for index in _SHORT]

  def test_answers_are_the_recorded_ones(self):
    model = causal_lm.load(gptj.BUNDLE.model)
    with self.subTest('one at a time'):
      answers = [_answers(model, [prompt])[0] for prompt in self.prompts[:2]]
      self.assertEqual(answers, self.recorded[:2])
    with self.subTest('padded in a batch'):
      self.assertLen(set(map(len, self.prompts)), len(self.prompts))
      self.assertEqual(_answers(model, self.prompts), self.recorded)

  def test_formats_of_16_bits(self):
    for dtype in (torch.bfloat16, torch.float16):
      model = causal_lm.load(gptj.BUNDLE.model, dtype=dtype)
      self.assertEqual(model.dtype, dtype)
      (answers,) = causal_lm.answer(
        model, self.prompts[:1], _SEARCH | {'max_new_tokens': 32}
      )
      self.assertBetween(len(answers), 30, 32)
      self.assertEqual(answers[:4], self.recorded[0][:4])

  def test_prompts_that_the_model_does_not_take(self):
    model = causal_lm.load(gptj.BUNDLE.model)
    for prompt, message in (
      ([], 'has 0 tokens. With .* accepts 1 to 896'),
      ([1] * 897, 'has 897 tokens'),
      ([4096], 'the id 4096, but the ids of the model are below 4096'),
    ):
      with self.assertRaisesRegex(ValueError, message):
        causal_lm.answer(model, [[1, 2], prompt], _SEARCH)

  def test_one_beam_is_greedy(self):
    model = causal_lm.load(gptj.BUNDLE.model)
    search = benchmark.Search(1, 1, 4).generation
    (answers,) = causal_lm.answer(model, self.prompts[:1], search)
    logits = model(torch.tensor([self.prompts[0] + answers[:-1]])).logits
    expected = logits[0, len(self.prompts[0]) - 1 :].argmax(-1)
    self.assertEqual(answers, expected.tolist())

  def test_a_model_without_an_end_id_is_refused(self):
    config = causal_lm.read_config(llama.BUNDLE.model)
    config.eos_token_id = None
    with self.assertRaisesRegex(ValueError, 'no eos_token_id.*Add it'):
      causal_lm.end_ids(config)

  def test_llama_answers_greedily_and_ends_at_any_end_id(self):
    path = llama.BUNDLE.model
    model = causal_lm.load(path)
    ends = causal_lm.end_ids(model.config)
    self.assertLen(ends, 2)
    task = summarization.load(
      samples_lib.Samples(
        gptj.BUNDLE.dataset,
        llama.BUNDLE.tokenizer,
        llama.BUNDLE.max_input_length,
        max(_SHORT) + 1,
        llama.LLAMA.name,
      )
    )
    prompts = [task.prompt_ids[index].tolist() for index in _SHORT]
    with open(llama.BUNDLE.reference, encoding='utf-8') as file:
      tokens = json.load(file)['tokens']
    search = llama.LLAMA.search.generation
    answers = _answers(model, prompts[:1], search)
    self.assertEqual(answers, [tokens[_SHORT[0]]])
    # In a chat, the other end id follows an answer.
    begin, head, end = (
      task.tokenizer.token_to_id(f'<|{name}|>')
      for name in ('begin_of_text', 'start_header_id', 'end_header_id')
    )
    line_ends = task.tokenizer.encode('\n\n', add_special_tokens=False).ids

    def header(role):
      ids = task.tokenizer.encode(role, add_special_tokens=False).ids
      return [head, *ids, end, *line_ends]

    chat = [begin, *header('user'), *prompts[0][1:], ends[1]]
    (answer,) = _answers(model, [chat + header('assistant')], search)
    self.assertNotEmpty(answer)
    self.assertLess(len(answer), 128)

  def _copy(self) -> str:
    path = os.path.join(self.create_tempdir().full_path, 'model')
    shutil.copytree(gptj.BUNDLE.model, path)
    os.chmod(path, 0o755)
    for name in os.listdir(path):
      os.chmod(os.path.join(path, name), 0o644)
    return path

  def _rewrite(self, path: str, **changes) -> None:
    file_path = os.path.join(path, 'config.json')
    with open(file_path, encoding='utf-8') as file:
      config = json.load(file)
    with open(file_path, 'w', encoding='utf-8') as file:
      json.dump({**config, **changes}, file)

  def test_models_of_other_types_are_refused(self):
    with self.assertRaisesRegex(
      ValueError, '/none is not a Hugging Face directory.*--checkpoint'
    ):
      causal_lm.load('/none')
    path = self._copy()
    self._rewrite(path, model_type='bert')
    with self.assertRaisesRegex(
      ValueError, "type 'bert', but the reference runs only gptj or llama here"
    ):
      causal_lm.load(path)
    with self.assertRaisesRegex(
      ValueError, "type 'gptj', but the reference runs only llama here"
    ):
      causal_lm.read_config(gptj.BUNDLE.model, 'llama')

  def test_weights_that_are_not_whole_are_refused(self):
    path = self._copy()
    file_path = os.path.join(path, 'model.safetensors')
    weights = safetensors.torch.load_file(file_path)
    del weights['transformer.h.1.mlp.fc_in.weight']
    safetensors.torch.save_file(weights, file_path, {'format': 'pt'})
    with self.assertRaisesRegex(
      ValueError, 'lacks 1 weights.*h.1.mlp.fc_in.weight'
    ):
      causal_lm.load(path)
    with open(file_path, 'wb') as file:
      file.write(b'cut off')
    with self.assertRaisesRegex(ValueError, 'the weights cannot be read'):
      causal_lm.load(path)
    os.remove(file_path)
    with self.assertRaisesRegex(ValueError, 'the weights cannot be read'):
      causal_lm.load(path)


_CPU = torch.device('cpu')


class MemoryTest(absltest.TestCase):
  def test_weights_are_those_of_the_model(self):
    model = causal_lm.load(gptj.BUNDLE.model, dtype=torch.bfloat16)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    config = causal_lm.read_config(gptj.BUNDLE.model)
    self.assertEqual(causal_lm.weights_bytes(config, torch.bfloat16), size)

  def test_cache_is_that_of_the_model(self):
    model = causal_lm.load(gptj.BUNDLE.model)
    with torch.inference_mode():
      cache = model(torch.zeros((3, 7), dtype=torch.long)).past_key_values
    size = sum(
      array.nbytes
      for layer in cache.layers
      for array in (layer.keys, layer.values)
    )
    estimate = causal_lm.cache_bytes(model.config, torch.float32, 3, 7)
    self.assertEqual(estimate, size)

  def test_shared_keys_and_values_are_cached_once(self):
    model = causal_lm.load(llama.BUNDLE.model)
    with torch.inference_mode():
      cache = model(torch.zeros((1, 5), dtype=torch.long)).past_key_values
    size = sum(
      array.nbytes
      for layer in cache.layers
      for array in (layer.keys, layer.values)
    )
    estimate = causal_lm.cache_bytes(model.config, torch.float32, 1, 5)
    self.assertEqual(estimate, size)

  def test_gptj_6b_has_six_billion_weights(self):
    config = transformers.GPTJConfig()
    billions = causal_lm.weights_bytes(config, torch.bfloat16) / 2e9
    self.assertAlmostEqual(billions, 6.05, places=2)

  def test_model_that_does_not_fit_is_refused(self):
    causal_lm.check_memory({'weights': 1}, _CPU)
    with self.assertRaisesRegex(
      causal_lm.TooLarge,
      r'needs 1048577\.0 GiB of memory on cpu \(weights 1048576\.0 GiB and'
      r' cache 1\.0 GiB\), but only [0-9.]+ GiB are free.*--precision=bfloat16',
    ):
      causal_lm.check_memory({'weights': 2**50, 'cache': 2**30}, _CPU)


if __name__ == '__main__':
  absltest.main()
