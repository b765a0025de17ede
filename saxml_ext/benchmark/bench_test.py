"""The whole benchmark on a tiny model, with our engine alone."""

import io
import json
import os

from absl.testing import absltest
from rich import console as console_lib

from saxml_ext.benchmark import bench
from saxml_ext.benchmark import contenders
from saxml_ext.benchmark import random_model
from saxml_ext.benchmark import settings as settings_lib
from saxml_ext.benchmark import worker as worker_lib

_COUNTS = (3, 6)
_ROUNDS = 2


class BenchTest(absltest.TestCase):
  def test_rows_hold_what_was_measured(self):
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
        # Its program is not part of this test; where it can be had all the
        # same, it has no such type.
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
      asked = sum(r.max_new for r in requests[: row['requests']])
      self.assertEqual(row['tokens'], asked)
      self.assertEqual(row['rounds'], _ROUNDS)
      least, most = row['tokens_per_cpu_second_extremes']
      self.assertBetween(row['tokens_per_cpu_second'], least, most)
      self.assertGreater(row['wall_seconds'], 0)
      # What is counted as needed must be less than what it took.
      self.assertGreater(row['times_floor'], 1)
      # A process with JAX in it, and no more than the machine has.
      self.assertBetween(row['peak_rss_bytes'], 1 << 26, 1 << 34)
    self.assertEqual(rows[0]['ours_over_this'], 1)
    text = printed.getvalue()
    self.assertIn('absent: ct2_int7', text)
    self.assertIn('ours int8 finds the token likeliest', text)
    # Not where answers of several lengths are searched for.
    self.assertNotIn('ours_int8 gives', text)


if __name__ == '__main__':
  absltest.main()
