"""Test params with random weights, published in a cell and asked for text."""

import subprocess

from absl.testing import absltest

from saxml_ext.client import sax
from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common.testing import modules
from saxml_ext.engine.testing import fast_compile
from saxml_ext.protobuf import admin_pb2

fast_compile.install()

_CELL = '/sax/test'
_PARAMS = 'saxml.server.pax.lm.params.lm_cloud.'
_TIMEOUT = 600
# Of the published sizes the depth and the widths alone are others.
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
  # The same tokens on any mesh need exact arithmetic, and no chance.
  'MODEL_DTYPE': '"float32"',
  'FPROP_DTYPE': '"float32"',
  'EXTRA_INPUTS': '{"temperature": 0.0, "per_example_max_decode_steps": 12}',
}
_PROMPT = 'The mayor of Exeter said on Tuesday that'


class RandomWeightsTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.started = cls('run')
    cls.addClassCleanup(cls.started.doCleanups)
    cls.started.start_cell()

  def start_cell(self) -> None:
    """An admin server and a model server with four devices."""
    root = self.create_tempdir().full_path
    config = admin_pb2.Config(fs_root=self.create_tempdir().full_path)
    cell.write_config(root, _CELL, config)
    for module, *flags in (
      ('saxml_ext.admin.admin_server', '--http_port=-1'),
      ('saxml_ext.server.server',),
    ):
      process = modules.start(
        self,
        module,
        '--port=0',
        f'--sax_root={root}',
        f'--sax_cell={_CELL}',
        *flags,
        stderr=subprocess.DEVNULL,
        JAX_NUM_CPU_DEVICES='4',
      )
      self.assertIn('is serving at', process.stdout.readline())
    sax.SetRoot(root)

  def publish(self, name: str, params: str, **overrides) -> sax.LanguageModel:
    """A small model of `params` with random weights, ready."""
    model_id = f'{_CELL}/{name}'
    chosen = {k: str(v) for k, v in {**_SMALL, **overrides}.items()}
    sax.Publish(model_id, _PARAMS + params, 'None', 1, overrides=chosen)
    sax.WaitForReady(model_id, 1, options=sax.AdminOptions(timeout=_TIMEOUT))
    return sax.Model(model_id).LM()

  def test_any_mesh_gives_the_same_text(self):
    params = 'LmCloudSpmd175B32Test'
    answers = []
    for mesh in '[1,1,1]', '[1,1,4]', '[1,2,2]':
      lm = self.publish('mesh', params, ICI_MESH_SHAPE=mesh)
      [(text, _)] = lm.Generate(_PROMPT)
      [(other, _)] = lm.Generate('Two trains')
      [score] = lm.Score(_PROMPT, [' he would resign'])
      self.assertNotEqual(text, other)  # prompts do count
      self.assertLess(score, 0)
      answers.append((text, other, round(score, 3)))
      sax.Unpublish(f'{_CELL}/mesh')
    self.assertEqual(answers, answers[:1] * 3)
    self.assertNotEmpty(answers[0][0].strip())

  def test_two_samples_of_2b_in_bfloat16(self):
    dtype = dict(MODEL_DTYPE='"bfloat16"', FPROP_DTYPE='"bfloat16"')
    lm = self.publish('two', 'LmCloudSpmd2BTest', NUM_HEADS='null', **dtype)
    self.assertLen(lm.Generate(_PROMPT), 2)
    sax.Unpublish(f'{_CELL}/two')

  def test_refuses_params_that_are_none_of_tests(self):
    sax.Publish(f'{_CELL}/real', _PARAMS + 'LmCloudSpmd2B', 'None', 1)
    self.addCleanup(sax.Unpublish, f'{_CELL}/real')
    with self.assertRaisesRegex(errors.SaxError, 'but for test params'):
      sax.WaitForReady(
        f'{_CELL}/real', 1, options=sax.AdminOptions(timeout=_TIMEOUT)
      )


if __name__ == '__main__':
  absltest.main()
