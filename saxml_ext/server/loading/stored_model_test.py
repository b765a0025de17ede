"""Tests of stored_model: the checks before weights are read, and memory."""

from concurrent import futures
import dataclasses
import multiprocessing
import os
import tempfile
from unittest import mock

from absl.testing import absltest
import jax
import numpy as np

from saxml_ext.common import errors
from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.params import gptj  # noqa: F401 Registers or sets up.
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax import metadata
from saxml_ext.pax.testing import checkpoints
from saxml_ext.server.loading import stored_model
from saxml_ext.server.testing import int8_model
from saxml_ext.server.testing import small_model

_ROTARY_DIM = 8
_MOST_OVER_WEIGHTS = 1.3
# The memory that the first use of tensorstore and JAX needs for any model.
_OF_THE_PROCESS = 96 * 2**20


def _settings(**attributes) -> settings_lib.Settings:
  params = type('Params', (small_model.Small,), attributes)
  return dataclasses.replace(
    settings_lib.Settings.from_params(params),
    rotary_dim=_ROTARY_DIM,
    ln_epsilon=1e-5,
  )


def _load(path: str, **attributes):
  settings = _settings(**attributes)
  stored = stored_model.StoredModel(path)
  return stored.weights(stored.config(settings), settings, device=None)


def _memory_of_load(path: str) -> tuple[int, int]:
  """Returns the bytes of the weights, and the growth of the peak memory."""
  jax.numpy.zeros(8).block_until_ready()
  before = _peak()
  weights = _load(path, QUANTIZATION='int8', QUANTIZE_SOFTMAX=True)
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
  return size, _peak() - before


def _peak() -> int:
  """Returns the peak memory of this process in bytes.

  getrusage is not used, because it includes the process that forked this one.
  """
  with open('/proc/self/status', encoding='ascii') as file:
    [line] = [line for line in file if line.startswith('VmHWM:')]
  return int(line.split()[1]) * 1024


def _gptj_6b(rows: int) -> hf_config.HFConfig:
  return hf_config.HFConfig(
    num_layers=28,
    model_dim=4096,
    num_heads=16,
    hidden_dim=16384,
    vocab_size=rows,
  )


@dataclasses.dataclass
class _Unread:
  """A reader of a checkpoint that has only names and shapes."""

  step_dir: str
  specs: dict[str, metadata.ArraySpec]


class StoredModelTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.directory = small_model.write(
      tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    )

  def _copy(self, *, drop: str = '', **changed: np.ndarray) -> str:
    """Writes a checkpoint with some variables changed or left out.

    Args:
      drop: The end of the names to leave out; '' keeps all.
      **changed: The new values, by the end of the variable's name.
    """
    variables = checkpoints.read_variables(self.directory)
    for end, value in changed.items():
      [name] = [n for n in variables if n.endswith(end)]
      variables[name] = value
    path = self.create_tempdir().full_path
    checkpoints.write_checkpoint(
      path,
      (i for i in variables.items() if not (drop and i[0].endswith(drop))),
    )
    return path

  def _assert_refused_unread(self, path: str, message: str, **attributes):
    with mock.patch.object(checkpoint.Reader, 'read') as read:
      with self.assertRaisesRegex(errors.InvalidArgument, message):
        _load(path, **attributes)
    read.assert_not_called()

  def test_wrong_sizes_are_reported_before_weights_are_read(self):
    self._assert_refused_unread(
      self.directory,
      'has num_layers=2, but the serving params require 28. Publish',
      NUM_LAYERS=28,
    )
    self._assert_refused_unread(
      self.directory, 'has vocab_size=50, .* require 52', VOCAB_SIZE=52
    )

  def test_wrong_shapes_are_reported_before_weights_are_read(self):
    end = 'x_layers_1.ff_layer.ffn_layer2.linear.w'
    path = self._copy(**{end: np.zeros((64, 16), np.float32)})
    self._assert_refused_unread(
      path, rf'{end} has shape \[64, 16\], but .* require \[64, 32\]'
    )

  def test_missing_variables_are_reported_before_weights_are_read(self):
    path = self._copy(drop='x_layers_1.layer_norm.bias')
    self._assert_refused_unread(
      path, "0 variables end in '.*_1.layer_norm.bias'"
    )

  def test_unexpected_int8_is_reported_before_weights_are_read(self):
    end = 'x_layers_0.self_attention.post.w'
    path = self._copy(**{end: np.zeros((32, 2, 16), np.int8)})
    self._assert_refused_unread(path, f'{end} is int8, but .* QUANTIZATION')
    self._assert_refused_unread(
      path, 'its scale .*_quantized_scale is missing', QUANTIZATION='int8'
    )

  def test_one_padding_row_more_or_less_is_served(self):
    for size in (49, 50, 51):
      weights = _load(self.directory, VOCAB_SIZE=size)
      self.assertEqual(weights.embedding.shape, (50, 32))
      self.assertEqual(weights.head_bias.shape, (50,))

  def test_gptj_6b_of_either_size_is_served_under_every_published_name(self):
    names = [n for n in registry.names() if n.startswith('saxml.server.pax')]
    self.assertGreater(len(names), 5)
    for rows in (50400, 50401):
      specs = {
        variable.name: metadata.ArraySpec(variable.shape, 'bfloat16')
        for variable in layout.variables(_gptj_6b(rows))
      }
      with mock.patch.object(
        checkpoint, 'Reader', lambda path, specs=specs: _Unread(path, specs)
      ):
        stored = stored_model.StoredModel('/ckpt')
      for name in names:
        params = registry.lookup(name)
        if params.NUM_LAYERS != 28:
          continue  # These params are for another model.
        settings = dataclasses.replace(
          settings_lib.Settings.from_params(params),
          rotary_dim=64,
          ln_epsilon=1e-5,
        )
        self.assertEqual(stored.config(settings).vocab_size, rows)

  def test_bias_of_the_head_may_be_longer(self):
    # Sax's converter keeps the length of the bias.
    longer = np.arange(52, dtype=np.float32)
    weights = _load(self._copy(**{'logits_ffn.bias.b': longer}))
    np.testing.assert_array_equal(weights.head_bias, longer[:50])

  def test_damaged_variable_is_refused(self):
    path = self._copy()
    state = os.path.join(path, 'checkpoint_00000000', 'state')
    [name] = [n for n in os.listdir(state) if n.endswith('final_ln.bias')]
    for chunk in os.listdir(os.path.join(state, name)):
      if not chunk.startswith('.'):
        with open(os.path.join(state, name, chunk), 'wb') as file:
          file.write(b'nothing')
    with self.assertRaisesRegex(errors.InvalidArgument, 'cannot be read'):
      _load(path)

  def test_load_needs_little_more_memory_than_the_weights(self):
    path = self.create_tempdir().full_path
    int8_model.write(path)
    # A separate process is used, so that no other test has raised the peak
    # before.
    context = multiprocessing.get_context('spawn')
    with futures.ProcessPoolExecutor(1, mp_context=context) as pool:
      weights, grown = pool.submit(_memory_of_load, path).result()
    self.assertGreater(weights, 300e6)
    self.assertGreater(grown, 0.9 * weights)
    self.assertLess(grown, _MOST_OVER_WEIGHTS * weights + _OF_THE_PROCESS)
    print(f'{grown / 1e6:.0f} MB for {weights / 1e6:.0f} MB of weights')


if __name__ == '__main__':
  absltest.main()
