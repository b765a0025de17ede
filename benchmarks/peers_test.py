"""Tests every other engine on a tiny model, and the plot."""

import io
import os

from absl.testing import absltest
from rich import console as console_lib

from benchmarks import bench
from benchmarks import contenders
from benchmarks import random_model
from benchmarks import settings as settings_lib
from benchmarks import worker as worker_lib
from saxml_ext.engine import architecture
from saxml_ext.families import hf_config


class PeersTest(absltest.TestCase):
  def test_all_run_and_float32_agrees(self):
    out = self.create_tempdir().full_path
    model = random_model.write(os.path.join(out, 'cache'), 2, 64, 4, 8, 512)
    engines = tuple(c for c in contenders.ALL if 'gptj' in c.families)
    settings = settings_lib.Settings(
      model=model,
      cache=os.path.join(out, 'cache'),
      out=out,
      articles=None,
      tokenizer=None,
      request_set='fixed',
      modes=('beam', 'greedy'),
      engines=engines,
      counts=(4,),
      prompt=32,
      new_tokens=12,
      beams=4,
      slots=4,
      cores=worker_lib.idlest_cores(1),
      rounds=2,
    )
    printed = io.StringIO()
    console = console_lib.Console(file=printed, width=200)
    rows = bench.measure_all(settings, console)
    bench.write(settings, rows, console)
    text = printed.getvalue()
    # Only bfloat16 may be absent, if the processor does not support it. The
    # message must name it.
    absent = [line for line in text.splitlines() if line.startswith('absent')]
    for line in absent:
      self.assertRegex(line, 'ct2_bfloat16: .*bfloat16 compute type')
    missing = {'ct2_bfloat16'} if absent else set()
    for mode in settings.modes:
      self.assertEqual(
        {f'{r["engine"]}_{r["dtype"]}' for r in rows if r['mode'] == mode},
        {c.name for c in engines} - missing,
      )
    notes = {f'{r["engine"]}_{r["dtype"]}': r['note'] for r in rows}
    for name in ('ct2_int8', 'ct2_float32'):
      self.assertRegex(notes[name], '^(MKL|oneDNN) .*batches of')
    for mode in settings.modes:
      for engine in ('ours', 'ct2', 'openvino'):
        self.assertIn(f'{mode}: {engine}_float32 gives 4 of 4', text)
    for engine in ('ours', 'ct2'):
      self.assertIn(f'of the 4 best answers {engine}_float32 has 4 at', text)
    self.assertTrue(os.path.exists(os.path.join(out, 'bench.png')), text)

  def test_llama_in_float32_agrees(self):
    out = self.create_tempdir().full_path
    sizes = hf_config.HFConfig(
      2,
      64,
      4,
      96,
      512,
      num_kv_heads=2,
      rotary_dim=16,
      rotary_base=500000.0,
      rotary_scaling=architecture.RotaryScaling(8.0, 1.0, 4.0, 8192),
    )
    names = 'ours_int8 ours_float32 ct2_int8 ct2_float32 transformers_float32'
    settings = settings_lib.Settings(
      model=random_model.write_sizes(out, 'llama', sizes, 'float32'),
      cache=out,
      out=out,
      articles=None,
      tokenizer=None,
      request_set='fixed',
      modes=('greedy',),
      engines=contenders.choose([*names.split(), 'llama_cpp_q8_0'], 'llama'),
      counts=(1, 4),
      prompt=32,
      new_tokens=12,
      beams=1,
      slots=4,
      cores=worker_lib.idlest_cores(1),
      rounds=1,
      llama_cpp=out,
    )
    printed = io.StringIO()
    console = console_lib.Console(file=printed, width=200)
    rows = bench.measure_all(settings, console)
    self.assertEqual(
      [(f'{r["engine"]}_{r["dtype"]}', r['requests']) for r in rows],
      [(name, count) for name in names.split() for count in (1, 4)],
    )
    for engine in ('ours', 'ct2'):
      self.assertIn(
        f'4 of 4 answers of {engine}_float32 equal', printed.getvalue()
      )
    self.assertIn(
      f'absent: llama_cpp_q8_0: ImportError: --llama_cpp={out} does not have',
      printed.getvalue(),
    )


if __name__ == '__main__':
  absltest.main()
