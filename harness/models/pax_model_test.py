import os
import subprocess

from absl.testing import absltest

from harness.models import pax_model
from serve import programs


class PaxModelsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._base = os.path.join(self._dir, 'hf')
    self.ran: list[str] = []
    self._run(
      'random', programs.command('converters/random_gptj', {'out': self._base})
    )
    self.ran.clear()
    self._models = pax_model.PaxModels(
      os.path.join(self._dir, 'models'), self._run
    )

  def _run(self, name: str, command: programs.Command) -> None:
    self.ran.append(name)
    subprocess.run(command.argv, env=dict(command.env), check=True)

  def test_made_once(self):
    recipe = pax_model.Recipe(self._base)
    path = self._models.get(recipe)
    self.assertIn('gptj_config.json', os.listdir(path))
    self.assertEqual(self._models.get(recipe), path)
    self.assertEqual(self.ran, ['converter'])
    # The quantizer reads the converted checkpoint of the first call.
    int8 = self._models.get(pax_model.Recipe(self._base, quantize=True))
    self.assertEqual(self.ran, ['converter', 'quantizer'])
    self.assertNotEqual(int8, path)
    self.assertIn('gptj_config.json', os.listdir(int8))
    # These are the quantizer's default variables, which the published params
    # expect.
    scaled = [name for _, names, _ in os.walk(int8) for name in names]
    scaled = [name for name in scaled if name.endswith('_quantized_scale')]
    self.assertNotEmpty(scaled)
    self.assertEmpty([name for name in scaled if 'softmax' in name])
    self.assertEqual(
      self._models.get(pax_model.Recipe(self._base, quantize=True)), int8
    )
    self.assertLen(self.ran, 2)
    other = self._models.get(pax_model.Recipe(self._base, 'bfloat16'))
    self.assertNotEqual(other, path)

  def test_other_weights_are_another_model(self):
    recipe = pax_model.Recipe(self._base)
    path = self._models.get(recipe)
    weights = os.path.join(self._base, 'model.safetensors')
    os.utime(weights, (1, 1))
    self.assertNotEqual(self._models.get(recipe), path)
    self.assertEqual(self.ran, ['converter', 'converter'])

  def test_an_interrupted_run_leaves_no_model(self):
    def fail(name, command):
      raise RuntimeError('killed')

    root = os.path.join(self._dir, 'models')
    with self.assertRaisesRegex(RuntimeError, 'killed'):
      pax_model.PaxModels(root, fail).get(pax_model.Recipe(self._base))
    self._models.get(pax_model.Recipe(self._base))
    self.assertEqual(self.ran, ['converter'])

  def test_another_directory_is_reported(self):
    with self.assertRaisesRegex(FileNotFoundError, 'has no config.json'):
      self._models.get(pax_model.Recipe(self._dir))

  def test_the_bundled_model_is_the_default(self):
    command = programs.command(
      'harness/models/pax_model',
      {'cache_dir': os.path.join(self._dir, 'cache')},
    )
    done = subprocess.run(
      command.argv,
      env=dict(command.env),
      stdout=subprocess.PIPE,
      text=True,
      check=True,
    )
    path = done.stdout.splitlines()[-1]
    self.assertIn('gptj_config.json', os.listdir(path))


if __name__ == '__main__':
  absltest.main()
