"""Tests that an abstract model equals the model that a server loads.

The test uses four CPU devices instead of four chips. The steps are those of
`server/loading/loader.py`, from a checkpoint to the arguments of the programs.
"""

import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.aot import abstract_model
from saxml_ext.aot import configuration
from saxml_ext.aot import manifest
from saxml_ext.engine import executables
from saxml_ext.engine import platform_configs
from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import serving
from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.params import gptj  # noqa: F401 Registers or sets up.
from saxml_ext.params import overrides as overrides_lib
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.pax import description
from saxml_ext.pax.testing import checkpoints
from saxml_ext.server.lifecycle import entry
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import stored_model

jax.config.update('jax_num_cpu_devices', 4)

_PARAMS = 'saxml_ext.params.gptj.GPTJTokenizedINT8V5E2x2'
_SHAPE = hf_config.HFConfig(
  num_layers=2, model_dim=64, num_heads=4, hidden_dim=128, vocab_size=50
)
# These are GPT-J's own params, except for sizes that compile within seconds.
_SMALL = {
  'NUM_LAYERS': '2',
  'MODEL_DIMS': '64',
  'NUM_HEADS': '4',
  'DIMS_PER_HEAD': '16',
  'HIDDEN_DIMS': '128',
  'VOCAB_SIZE': '50',
  'ROTARY_DIM': '8',
  'EOS_ID': '49',
  'SOS_ID': '49',
  'INPUT_SEQ_LEN': '16',
  'BUCKET_KEYS': '[16]',
  'MIN_DECODE_STEPS': '2',
  'MAX_DECODE_STEPS': '[8]',
  'NUM_CACHE_SLOTS': '2',
  'BEAM_SIZE': '2',
}


class AbstractModelTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    rng = np.random.default_rng(0)
    cls.checkpoint = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    checkpoints.write_checkpoint(
      cls.checkpoint,
      (
        (v.name, rng.normal(0, 0.2, v.shape).astype(np.float32))
        for v in layout.variables(_SHAPE)
      ),
    )

  def _loaded(
    self, overrides: dict[str, str]
  ) -> tuple[weights_lib.Weights, state.Settings, jax.sharding.Mesh]:
    """Returns the weights, settings and mesh that the server loads."""
    params = overrides_lib.apply(registry.lookup(_PARAMS), overrides)
    settings = stored_model.complete(
      settings_lib.Settings.from_params(params),
      description.read(self.checkpoint),
    )
    stored = stored_model.StoredModel(self.checkpoint)
    model = stored.config(settings)
    mesh = sharding.make_mesh(settings.mesh_shape)
    weights = weights_lib.stack(stored.weights(model, settings, None))
    engine = platform_configs.tiled(settings.engine)
    placed = sharding.shard(mesh, sharding.pad(mesh, weights))
    return placed, state.Settings(model, engine), mesh

  @parameterized.parameters(
    {},
    {'QUANTIZE_SOFTMAX': 'true'},
    {'QUANTIZATION': '"int8_weights"'},
    {'QUANTIZATION': '"none"'},
  )
  def test_arrays_match_the_loaded_model(self, **more):
    overrides = {**_SMALL, **more}
    weights, settings, mesh = self._loaded(overrides)
    made_up = abstract_model.from_params(_PARAMS, overrides, jax.devices())
    self.assertEqual(made_up.settings, settings)
    run = executables.Executables(settings, weights, mesh)
    serving = manifest.Serving(_PARAMS, overrides)
    self.assertEqual(
      configuration.from_executables(made_up.executables(), serving),
      configuration.from_executables(run, serving),
    )
    shapes = made_up.executables().signature(program_keys.EmptyState()).args[0]
    self.assertEqual(jax.tree.structure(shapes), jax.tree.structure(weights))
    for shape, array in zip(jax.tree.leaves(shapes), jax.tree.leaves(weights)):
      self.assertEqual(
        (shape.shape, shape.dtype, shape.sharding),
        (array.shape, array.dtype, array.sharding),
      )

  def test_described_gpu_has_the_programs_of_a_server_on_it(self):
    overrides = {**_SMALL, 'ICI_MESH_SHAPE': '[1, 1, 1]'}
    gpu = mock.NonCallableMock(
      jax.Device, platform='gpu', device_kind='NVIDIA H100 80GB HBM3'
    )
    made_up = abstract_model.from_params(_PARAMS, overrides, [gpu])
    spec = entry.Spec(_PARAMS, self.checkpoint, overrides, acls={})
    with mock.patch.object(jax, 'default_backend', return_value='gpu'):
      plan = loader.plan(spec)
    run = executables.Executables(made_up.settings, made_up.weights)
    configurations = [
      configuration.from_executables(programs, plan.serving)
      for programs in (run, plan.executables())
    ]
    self.assertEqual(*configurations)
    self.assertIsNone(plan.mesh)

  def test_programs_serve_the_loaded_model(self):
    weights, settings, mesh = self._loaded(_SMALL)
    made_up = abstract_model.from_params(
      _PARAMS, _SMALL, jax.devices()
    ).executables()
    compiled = {key: made_up.lower(key).compile() for key in made_up.keys()}
    answers = []
    for ready in (None, lambda key, _: compiled[key]):
      runner = runner_lib.Runner(
        weights, settings.model, settings.engine, mesh, ready
      )
      prompts = [np.array([1, 2, 3]), np.array([4, 5])]
      requests = [request_lib.Request(p.astype(np.int32)) for p in prompts]
      answers.append(serving.tokens(serving.serve(runner, requests)))
    self.assertEqual(*answers)


if __name__ == '__main__':
  absltest.main()
