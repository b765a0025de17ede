"""Tests the whole benchmark on a tiny model, with our engine only."""

import io
import json
import os
from unittest import mock

from absl.testing import absltest
from absl.testing import flagsaver
from rich import console as console_lib

from benchmarks import bench
from benchmarks import bench_flags
from benchmarks import contenders
from benchmarks import random_model
from benchmarks import settings as settings_lib
from benchmarks import worker as worker_lib
from saxml_ext.common import flag_rules
from saxml_ext.families import hf_config

_COUNTS = (3, 6)
_ROUNDS = 2


class BenchTest(absltest.TestCase):
  def test_rows_contain_the_measurements(self):
    out = self.create_tempdir().full_path
    model = random_model.write(os.path.join(out, 'cache'), 1, 32, 2, 8, 128)
    settings = settings_lib.Settings(
      model=model,
      cache=os.path.join(out, 'cache'),
      out=out,
      articles=None,
      tokenizer=None,
      request_set='ragged',
      modes=('beam',),
      engines=(
        contenders.Contender('ours', 'int8'),
        contenders.Contender('ours', 'float32'),
        # The program of CTranslate2 is not part of this test. If it is
        # installed, it has no such type.
        contenders.Contender('ct2', 'int7'),
      ),
      counts=_COUNTS,
      prompt=16,
      new_tokens=0,
      beams=4,
      slots=2,
      cores=worker_lib.idlest_cores(1),
      rounds=_ROUNDS,
    )
    printed = io.StringIO()
    console = console_lib.Console(file=printed, width=200)
    bench.write(settings, bench.measure_all(settings, console), console)
    with open(os.path.join(out, 'bench.json'), encoding='utf-8') as file:
      rows = json.load(file)
    self.assertEqual(
      [(r['engine'], r['dtype'], r['mode'], r['requests']) for r in rows],
      [
        ('ours', dtype, 'beam', count)
        for dtype in ('int8', 'float32')
        for count in _COUNTS
      ],
    )
    requests = settings.requests()
    for row in rows:
      tokens = sum(r.max_new for r in requests[: row['requests']])
      self.assertEqual(row['tokens'], tokens)
      self.assertEqual(row['rounds'], _ROUNDS)
      least, most = row['tokens_per_cpu_second_extremes']
      self.assertBetween(row['tokens_per_cpu_second'], least, most)
      self.assertGreater(row['wall_seconds'], 0)
      # The lower bound must be less than the measured time.
      self.assertGreater(row['times_floor'], 1)
      # The process contains JAX, and it fits into the machine's memory.
      self.assertBetween(row['peak_rss_bytes'], 1 << 26, 1 << 34)
    self.assertEqual(rows[0]['ours_over_this'], 1)
    text = printed.getvalue()
    self.assertIn('absent: ct2_int7', text)
    self.assertIn(
      'ours int8 and its float32 have the same most likely token at', text
    )
    # Answers of several lengths are not compared in beam search.
    self.assertNotIn('ours_int8 gives', text)


class LlamaTest(absltest.TestCase):
  def test_each_number_of_requests_has_a_bound(self):
    out = self.create_tempdir().full_path
    sizes = hf_config.HFConfig(
      1, 64, 4, 96, 128, num_kv_heads=2, rotary_dim=16, tied_embeddings=True
    )
    with flagsaver.flagsaver(
      family='llama',
      engines=['ours_int8'],
      batch=['3', '1'],
      prompt=12,
      new_tokens=3,
      rounds=1,
      layers=1,
      vocab=128,
      out=out,
      cache=os.path.join(out, 'cache'),
    ):
      model = random_model.write_sizes(out, 'llama', sizes, 'bfloat16')
      with mock.patch.object(random_model, 'write_sizes', return_value=model):
        settings = bench_flags.settings_from_flags()
      self.assertEqual(settings.modes, ('greedy',))
      self.assertEqual(settings.sizes.kv_dim, 32)
      printed = io.StringIO()
      console = console_lib.Console(file=printed, width=200)
      rows = bench.measure_all(settings, console)
    self.assertEqual(
      [(r['requests'], r['tokens']) for r in rows], [(1, 3), (3, 9)]
    )
    for row in rows:
      self.assertGreater(row['times_floor'], 1)
      self.assertEqual(row['kv'], 'float32')
    self.assertIn('Llama 1 layers x 64, vocabulary 128', printed.getvalue())
    self.assertIn('load averages after the run', printed.getvalue())

  def test_flags_without_effect_are_refused(self):
    for values, message in (
      ({'engines': ['llama_cpp']}, 'llama_cpp_q8_0 needs --llama_cpp, the dir'),
      ({'engines': ['openvino']}, "--engines has 'openvino'; choose from ours"),
      (
        {'model': '6b'},
        '--model=6b is not of --family=llama. Use .* of 1b, 8b',
      ),
      ({'batch': ['0']}, "--batch has '0'. Use positive numbers"),
    ):
      with flagsaver.flagsaver(family='llama', **values):
        with self.assertRaisesRegex(ValueError, message):
          bench_flags.settings_from_flags()
    for name, value in (('dim', 64), ('modes', ['beam']), ('set', 'ragged')):
      with flagsaver.flagsaver(family='llama', **{name: value}):
        self.assertRegex(
          '\n'.join(flag_rules.problems()), f'--{name}=.* has no effect'
        )


class WidthsTest(absltest.TestCase):
  def test_flags_of_several_widths(self):
    out = self.create_tempdir().full_path
    sizes = {'layers': 1, 'dim': 32, 'heads': 2, 'rotary': 8, 'vocab': 128}
    with flagsaver.flagsaver(beams=['100', '8'], cache=out, **sizes):
      settings = bench_flags.settings_from_flags()
    self.assertEqual(settings.modes, ('beam8', 'beam100'))
    self.assertIn(contenders.REFERENCE, settings.engines)
    self.assertEqual((settings.new_tokens, settings.rounds), (32, 3))
    with flagsaver.flagsaver(beams=['8', 'many']):
      with self.assertRaisesRegex(ValueError, "--beams is '8,many'"):
        bench_flags.settings_from_flags()


class SixBTest(absltest.TestCase):
  def test_6b_runs_a_model_of_another_size(self):
    out = self.create_tempdir().full_path
    with flagsaver.flagsaver(
      model='6b',
      engines=['ours_int8'],
      modes=['greedy'],
      layers=2,
      dim=64,
      heads=2,
      rotary=8,
      vocab=256,
      prompt=12,
      new_tokens=3,
      rounds=1,
      out=out,
      cache=os.path.join(out, 'cache'),
    ):
      settings = bench_flags.settings_from_flags()
    self.assertEqual(settings.config['torch_dtype'], 'bfloat16')
    self.assertEqual(settings.counts, (8,))
    printed = io.StringIO()
    console = console_lib.Console(file=printed, width=200)
    (row,) = bench.measure_all(settings, console)
    self.assertEqual(row['tokens'], 8 * 3)
    # Weights are int8. Keys and values of 8 requests are float32.
    weights = 2 * 12 * 64**2 + 256 * 64
    self.assertBetween(row['step_bytes'], weights, 3 * weights)
    # In a prompt, every position except the first has a previous token.
    self.assertRegex(
      printed.getvalue(),
      r'greedy: ours int8 and float32 have the same most likely token at'
      r' (9\d|100)\.\d\d % of 88 positions',
    )


if __name__ == '__main__':
  absltest.main()
