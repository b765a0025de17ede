import json
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import psutil

from serve import models


class BundledModelsTest(parameterized.TestCase):
  @parameterized.parameters('gptj-small', 'llama-small')
  def test_the_build_has_compiled_the_programs_that_serve_chooses(self, name):
    memory = psutil.virtual_memory()._replace(available=24 * 2**30)
    with mock.patch.object(psutil, 'virtual_memory', lambda: memory):
      [model] = models.find_all([name], models.Options(), '')
    with open(f'{model.program_set}/manifest.json', encoding='utf-8') as file:
      compiled = json.load(file)['configuration']['serving']
    chosen = dict(model.overrides)
    self.assertEqual(chosen.pop('BATCH_SIZE'), '16')
    self.assertGreater(int(chosen.pop('ram')), 2**20)
    self.assertEqual(compiled['model_path'], model.params)
    self.assertEqual(compiled['overrides'], chosen)
    self.assertEqual((model.chat_template, model.public_name), ('plain', name))
    self.assertIsNone(model.job)


if __name__ == '__main__':
  absltest.main()
