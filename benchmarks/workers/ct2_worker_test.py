"""Tests the library that CTranslate2 uses, and compares its tokens."""

import os
import re

from absl.testing import absltest

from benchmarks import contenders
from benchmarks import random_model
from benchmarks import settings as settings_lib
from benchmarks import worker as worker_lib

# CTranslate2 prints its library when it loads a model. The rate of a trial
# names the library too.
_USED = re.compile(r'Use Intel MKL: (true|false)|trial: (MKL|oneDNN) ')
_EXPECTED = {'MKL': 'true', 'oneDNN': 'false'}


class CT2WorkerTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._out = self.create_tempdir().full_path
    self._settings = settings_lib.Settings(
      model=random_model.write(self._out, 1, 64, 4, 8, 512),
      cache=self._out,
      out=self._out,
      articles=None,
      tokenizer=None,
      request_set='fixed',
      modes=('beam',),
      engines=(),
      counts=(2,),
      prompt=8,
      new_tokens=6,
      beams=4,
      slots=2,
      cores=worker_lib.idlest_cores(1),
      rounds=1,
    )

  def _run(self, engine: str) -> tuple[str, list[list[int]], str]:
    """Returns the settings of an engine, its answers, and its log."""
    contender = contenders.Contender(engine, 'float32')
    log = os.path.join(self._out, f'{engine}.log')
    worker = worker_lib.Worker(contender, self._settings.cores, log)
    self.addCleanup(worker.stop)
    requests = self._settings.requests()
    job = self._settings.job(contender, 'beam', requests)
    note = worker.ask('load', job=job)['note']
    answers = worker.ask('run', count=len(requests))['answers']
    with open(log, encoding='utf-8') as file:
      return note, answers, file.read()

  def test_trials_use_the_library_they_name(self):
    note, answers, log = self._run('ct2')
    lines = [used or tried for used, tried in _USED.findall(log)]
    # Each trial has one line when it loads the model, and one with its rate.
    *trials, chosen = lines
    self.assertEqual(trials, ['true', 'MKL', 'false', 'oneDNN'], log[-4000:])
    self.assertEqual(chosen, _EXPECTED[note.split()[0]])
    self.assertRegex(note, r'ISA \w+, SGEMM by (MKL|DNNL), batches')
    _, ours, _ = self._run('ours')
    self.assertEqual(answers, ours)
    self.assertEqual({len(answer) for answer in answers}, {6})


if __name__ == '__main__':
  absltest.main()
