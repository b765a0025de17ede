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


class PeersTest(absltest.TestCase):
  def test_all_run_and_float32_agrees(self):
    out = self.create_tempdir().full_path
    model = random_model.write(os.path.join(out, 'cache'), 2, 64, 4, 8, 512)
    settings = settings_lib.Settings(
      model=model,
      cache=os.path.join(out, 'cache'),
      out=out,
      articles=None,
      tokenizer=None,
      request_set='fixed',
      modes=('beam', 'greedy'),
      engines=contenders.ALL,
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
        {c.name for c in contenders.ALL} - missing,
      )
    how = {f'{r["engine"]}_{r["dtype"]}': r['note'] for r in rows}
    for name in ('ct2_int8', 'ct2_float32'):
      self.assertRegex(how[name], '^(MKL|oneDNN) .*batches of')
    for mode in settings.modes:
      for engine in ('ours', 'ct2', 'openvino'):
        self.assertIn(f'{mode}: {engine}_float32 gives 4 of 4', text)
    for engine in ('ours', 'ct2'):
      self.assertIn(f'of the 4 best answers {engine}_float32 has 4 at', text)
    self.assertTrue(os.path.exists(os.path.join(out, 'bench.png')), text)


if __name__ == '__main__':
  absltest.main()
