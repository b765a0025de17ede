"""Runs the whole program for a GPU on the CPU, with tiny sizes."""

import contextlib
import io
import json
import os
import threading
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from benchmarks import gpu
from benchmarks.gpu_cases import bpe
from benchmarks.gpu_cases import speed


class GpuTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._out = os.path.join(self.create_tempdir().full_path, 'out.json')

  def _run(self, *argv: str) -> tuple[int, dict]:
    code = gpu.main(['--tiny', '--articles=2', f'--out={self._out}', *argv])
    with open(self._out, encoding='utf-8') as file:
      return code, json.load(file)['results']

  def test_all_kinds_of_cases_have_results(self):
    code, results = self._run(
      '--cases=answers-gptj-float32,answers-llama-float32,rates,peer,'
      'speed-llama-bf16,speed-gptj-int8,speed-llama-fp8',
      '--require=speed-llama-bf16-1=1e-9',
    )
    self.assertEqual(code, 0)
    for model in ('gptj', 'llama'):
      self.assertEqual(results[f'answers-{model}-float32']['equal'], 2)
    for number_format in ('bfloat16', 'int8', 'fp8'):
      rate = results['rates'][f'{number_format}_operations_per_s']
      self.assertGreater(rate, 0)
    self.assertIn('not run: no', results['peer']['note'])
    for name in ('speed-llama-bf16', 'speed-gptj-int8', 'speed-llama-fp8'):
      for batch in (1, 2):
        self.assertGreater(results[f'{name}-{batch}']['share_of_bound'], 0)

  def test_unmet_target_and_late_cases_are_reported(self):
    code, results = self._run('--deadline=0', '--require=speed-gptj-int8-1=0.1')
    self.assertEqual(code, 1)
    self.assertSameElements(results, gpu.CASES)
    self.assertEqual(results['rates']['error'], 'not finished within 0 s')

  def test_run_stops_within_a_case(self):
    ended = threading.Event()
    with (
      mock.patch.object(
        gpu.rates_lib, 'measure', lambda tiny: ended.wait() and {}
      ),
      # The case begins however long JAX takes to start.
      mock.patch.object(gpu.time, 'monotonic', return_value=0.0),
      mock.patch.object(os, '_exit') as leave,
    ):
      _, results = self._run('--cases=rates', '--deadline=0.1')
      leave.assert_called_once_with(1)
      self.assertEqual(results['rates']['error'], 'not finished within 0.1 s')
      ended.set()

  def test_real_sizes_are_refused_on_a_cpu(self):
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
      self.assertEqual(gpu.main(['--cases=rates']), 1)
    self.assertIn('JAX has no GPU', stderr.getvalue())

  @parameterized.parameters('--cases=answers,sped', '--cases=', '--articles=0')
  def test_options_that_measure_nothing_are_refused(self, option):
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
      with self.assertRaises(SystemExit):
        self._run(option)
    self.assertIn(option.split('=')[0], stderr.getvalue())


class ShapeTest(absltest.TestCase):
  def test_sizes_are_those_of_the_models(self):
    shapes = speed.shapes(tiny=False)
    # The embedding is not multiplied.
    self.assertAlmostEqual(shapes['llama'].products / 1e9, 7.5, delta=0.05)
    self.assertAlmostEqual(shapes['gptj'].products / 1e9, 5.84, delta=0.05)
    self.assertEqual(shapes['llama'].token_bytes, 2**17)


class BpeTest(absltest.TestCase):
  def test_merges_and_whole_words_are_applied(self):
    content = {
      'model': {
        'vocab': {'a': 0, 'b': 1, 'c': 2, 'ab': 3, 'Ġ': 4, 'Ġab': 5, '1': 6},
        'merges': [['a', 'b'], ['Ġ', 'ab']],
        'ignore_merges': False,
      },
      'pre_tokenizer': {'type': 'ByteLevel'},
      'post_processor': {'special_tokens': {'<b>': {'ids': [9]}}},
    }
    path = self.create_tempfile(content=json.dumps(content)).full_path
    self.assertEqual(bpe.Tokenizer(path).encode('abc ab1'), [9, 3, 2, 5, 6])


if __name__ == '__main__':
  absltest.main()
