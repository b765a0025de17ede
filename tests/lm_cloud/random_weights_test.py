"""Tests params with random weights, which are published in a cell."""

from collections.abc import Sequence
import subprocess
import tempfile

from absl.testing import absltest

from saxml_ext.client import sax
from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common import net
from saxml_ext.common.testing import modules
from saxml_ext.protobuf import admin_pb2

_CELL = '/sax/test'
_MODEL = _CELL + '/m'
_GROUP_CELL = '/sax/group'
_PARAMS = 'saxml.server.pax.lm.params.lm_cloud.'
_TIMEOUT = 600
# Only the depth and the widths differ from the published sizes.
_SMALL = {
  'NUM_LAYERS': 2,
  'MODEL_DIMS': 64,
  'NUM_HEADS': 4,
  'DIMS_PER_HEAD': 16,
  'HIDDEN_DIMS': 256,
  'VOCAB_SIZE': 1024,
  'BATCH_SIZE': 2,
  'INPUT_SEQ_LEN': 32,
  'MAX_DECODE_STEPS': 12,
  # Exact arithmetic and no random choices give the same tokens on any mesh.
  'MODEL_DTYPE': '"float32"',
  'FPROP_DTYPE': '"float32"',
  'EXTRA_INPUTS': '{"temperature": 0.0, "per_example_max_decode_steps": 12}',
}
_PROMPT = 'The mayor of Exeter said on Tuesday that'


class RandomWeightsTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.root = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    sax.SetRoot(cls.root)
    # This instance holds the cleanups that run after the last test.
    started = cls('start_cell')
    cls.addClassCleanup(started.doCleanups)
    started.start_cell(_CELL, [()], devices=4)

  def start_cell(
    self, cell_id: str, servers: Sequence[Sequence[str]], devices: int
  ) -> None:
    """Starts an admin server, and the processes of a model server.

    Args:
      cell_id: The id of the cell.
      servers: The flags of each process.
      devices: The number of devices of each process.
    """
    fs_root = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    config = admin_pb2.Config(fs_root=fs_root, admin_acl='acl/all')
    cell.write_config(self.root, cell_id, config)
    programs = [('saxml_ext.admin.admin_server', '--http_port=-1')]
    programs += [('saxml_ext.server.server', *flags) for flags in servers]
    processes = [
      modules.start(
        self,
        module,
        '--port=0',
        f'--sax_root={self.root}',
        f'--sax_cell={cell_id}',
        *flags,
        stderr=subprocess.DEVNULL,
        JAX_NUM_CPU_DEVICES=str(devices),
      )
      for module, *flags in programs
    ]
    for process in processes:
      self.assertRegex(process.stdout.readline(), 'is serving at|follows as')

  def publish(
    self, model_id: str, params: str, **overrides
  ) -> sax.LanguageModel:
    """Publishes a small model of `params` with random weights; waits for it."""
    chosen = {k: str(v) for k, v in {**_SMALL, **overrides}.items()}
    sax.Publish(model_id, _PARAMS + params, 'None', 1, overrides=chosen)
    sax.WaitForReady(model_id, 1, options=sax.AdminOptions(timeout=_TIMEOUT))
    return sax.Model(model_id).LM()

  def ask(self, lm: sax.LanguageModel) -> tuple[str, str, float]:
    """Returns two texts, and a score rounded so that meshes give equal ones."""
    [(text, _)] = lm.Generate(_PROMPT)
    [(other, _)] = lm.Generate('Two trains')
    [score] = lm.Score(_PROMPT, [' he would resign'])
    self.assertLess(score, 0)
    return text, other, round(score, 3)

  def test_any_mesh_gives_the_same_text(self):
    params = 'LmCloudSpmd175B32Test'
    answers = []
    for mesh in '[1,1,1]', '[1,1,4]', '[1,2,2]':
      lm = self.publish(_MODEL, params, ICI_MESH_SHAPE=mesh)
      answers.append(self.ask(lm))
      sax.Unpublish(_MODEL)
    self.assertEqual(answers, answers[:1] * 3)
    self.assertNotEmpty(answers[0][0].strip())
    # The prompts have an effect.
    self.assertNotEqual(answers[0][0], answers[0][1])

  def test_group_of_two_hosts_gives_the_same_text(self):
    coordinator = f'127.0.0.1:{net.pick_free_port()}'
    self.start_cell(
      _GROUP_CELL,
      [
        (
          f'--coordinator_address={coordinator}',
          '--num_processes=2',
          f'--process_id={index}',
          # On a busy machine, a process may be silent for seconds.
          '--group_silence_secs=60',
        )
        for index in range(2)
      ],
      devices=2,
    )
    answers = []
    for model_id, mesh in (
      (_GROUP_CELL + '/m', '[1,1,4]'),
      (_MODEL, '[1,1,1]'),
    ):
      params = 'LmCloudSpmd175B32Test'
      lm = self.publish(model_id, params, ICI_MESH_SHAPE=mesh)
      answers.append(self.ask(lm))
    self.assertEqual(answers[0], answers[1])
    sax.Unpublish(_MODEL)

  def test_two_samples_of_2b_in_bfloat16(self):
    dtype = dict(MODEL_DTYPE='"bfloat16"', FPROP_DTYPE='"bfloat16"')
    lm = self.publish(_MODEL, 'LmCloudSpmd2BTest', NUM_HEADS='null', **dtype)
    self.assertLen(lm.Generate(_PROMPT), 2)
    sax.Unpublish(_MODEL)

  def test_params_of_users_are_refused(self):
    sax.Publish(_MODEL, _PARAMS + 'LmCloudSpmd2B', 'None', 1)
    self.addCleanup(sax.Unpublish, _MODEL)
    with self.assertRaisesRegex(errors.SaxError, 'only test params'):
      sax.WaitForReady(_MODEL, 1, options=sax.AdminOptions(timeout=_TIMEOUT))


if __name__ == '__main__':
  absltest.main()
