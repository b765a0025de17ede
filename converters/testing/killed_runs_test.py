"""Tests that a conversion survives SIGKILL at random points."""

import os
import random

from absl.testing import absltest

from converters.convert import random_weights
from converters.testing import killed_runs
from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors

_KILLS = 10


class KilledRunsTest(absltest.TestCase):
  def test_ten_kills_and_the_same_bytes(self):
    root = self.create_tempdir().full_path
    base, pax = os.path.join(root, 'hf'), os.path.join(root, 'pax')
    again = os.path.join(root, 'again')
    shape = hf_config.HFConfig(12, 128, 4, 512, 1000, rotary_dim=16)
    random_weights.write(base, shape, 'bin', 3)
    variables = len(layout.variables(shape))

    def command(target):
      return 'convert_gptj_ckpt', f'--base={base}', f'--pax={target}'

    killed_runs.run(*command(pax))
    finished = killed_runs.kill(
      lambda: killed_runs.start(*command(again), '--resume'),
      again,
      variables,
      _KILLS,
      random.Random(0),
      0.05,
    )
    last = killed_runs.run(*command(again), '--resume')
    self.assertLen(finished, _KILLS)
    self.assertEqual(finished, sorted(finished))
    self.assertGreater(finished[-1], finished[0])
    self.assertIn('of an earlier run', last.output)
    self.assertEqual(killed_runs.digests(again), killed_runs.digests(pax))

  def test_killed_one_is_no_checkpoint(self):
    root = self.create_tempdir().full_path
    base, pax = os.path.join(root, 'hf'), os.path.join(root, 'pax')
    shape = hf_config.HFConfig(12, 128, 4, 512, 1000, rotary_dim=16)
    random_weights.write(base, shape)
    with killed_runs.start(
      'convert_gptj_ckpt', f'--base={base}', f'--pax={pax}'
    ) as process:
      while not os.path.isdir(pax) and process.poll() is None:
        pass
      process.kill()
    with self.assertRaisesRegex(errors.CheckpointError, 'no checkpoint_<step>'):
      checkpoint.Reader(pax)


if __name__ == '__main__':
  absltest.main()
