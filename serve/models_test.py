import json
import os
import subprocess
from unittest import mock

from absl.testing import absltest
import psutil

from converters.testing import small_models
from saxml_ext.pax import description
from serve import conversion
from serve import models
from serve import programs

_TOKENIZER = os.path.join(
  programs.ROOT, 'harness', 'bundled', 'model', 'tokenizer.json'
)


class ModelsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._directory = self.create_tempdir().full_path
    self._cache = os.path.join(self._directory, 'cache')
    self._ran: list[str] = []

  def _run(self, name: str, program: str, flags) -> None:
    self._ran.append(name)
    command = programs.command(program, flags)
    subprocess.run(command.argv, env=dict(command.env), check=True)

  def _find(self, wanted: str, **options) -> models.Model:
    return models.find(
      wanted, models.Options(**options), self._cache, self._run
    )

  def _hugging_face(self, **changes) -> str:
    path = small_models.save(os.path.join(self._directory, 'small'), **changes)
    with open(_TOKENIZER, encoding='utf-8') as file:
      tokenizer = file.read()
    with open(f'{path}/tokenizer.json', 'w', encoding='utf-8') as file:
      file.write(tokenizer)
    return path

  def _refused(self, message: str, wanted: str, **options) -> None:
    with self.assertRaisesRegex(programs.ServeError, message):
      self._find(wanted, **options)

  def _memory(self, available: int) -> None:
    memory = psutil.virtual_memory()._replace(available=available)
    self.enter_context(
      mock.patch.object(psutil, 'virtual_memory', lambda: memory)
    )

  def test_the_build_has_compiled_what_is_chosen_for_the_bundled_model(self):
    self._memory(24 * 2**30)
    model = self._find('')
    with open(f'{model.program_set}/manifest.json', encoding='utf-8') as file:
      compiled = json.load(file)['configuration']['serving']
    chosen = dict(model.overrides)
    self.assertEqual(chosen.pop('BATCH_SIZE'), '16')
    self.assertGreater(int(chosen.pop('ram')), 2**20)
    self.assertEqual(compiled['model_path'], model.params)
    self.assertEqual(compiled['overrides'], chosen)
    self.assertEqual((model.chat_template, model.notes), ('plain', ()))

  def test_a_hugging_face_model_is_converted_once(self):
    path = self._hugging_face()
    with open(f'{path}/generation_config.json', 'w', encoding='utf-8') as file:
      file.write('{"temperature": 0.5}')
    model = self._find(path, max_model_len=64, overrides={'TOP_K': '5'})
    self.assertEqual(self._ran, ['converter'])
    self.assertEqual(model.public_name, 'small')
    start = {'BUILD_WORKING_DIRECTORY': os.path.dirname(path)}
    with mock.patch.dict(os.environ, start):
      self.assertEqual(self._find('./small').public_name, 'small')
    self.assertEqual(model.overrides['INPUT_SEQ_LEN'], '48')
    self.assertEqual(model.overrides['MAX_DECODE_STEPS'], '16')
    self.assertEqual(model.overrides['TOP_K'], '5')
    self.assertTrue(os.path.isdir(model.checkpoint))
    self.assertTrue(os.path.isfile(model.generation_config))
    self.assertEqual(model.chat_template, 'dialogue')
    self.assertIn('has no chat template', model.notes[0])
    self.assertEqual(self._find(path).checkpoint, model.checkpoint)
    self.assertEqual(self._ran, ['converter'])
    # A PAX directory is served without a conversion, with the same choices.
    pax = os.path.dirname(model.checkpoint)
    self.assertEqual(self._find(pax).params, model.params)
    self.assertEqual(self._find(pax, params=model.params).overrides, {})
    self.assertEqual(self._ran, ['converter'])

  def test_a_quantized_model_leaves_no_floats_behind(self):
    model = self._find(self._hugging_face(), quantize=models.INT8)
    self.assertEqual(self._ran, ['converter', 'quantizer'])
    self.assertEqual(model.overrides['QUANTIZATION'], '"int8"')
    folders = [e.name for e in os.scandir(self._cache) if e.is_dir()]
    self.assertLen(folders, 1)
    # The variables of this checkpoint show that they are int8.
    again = self._find(os.path.dirname(model.checkpoint))
    self.assertEqual(again.overrides['QUANTIZATION'], '"int8"')

  def test_a_chat_template_of_the_model_is_used(self):
    path = self._hugging_face()
    with open(f'{path}/tokenizer_config.json', 'w', encoding='utf-8') as file:
      file.write('{"chat_template": "{{ messages[0].content }}"}')
    model = self._find(path)
    self.assertEqual(model.chat_template, os.path.dirname(model.checkpoint))
    self.assertEqual(model.notes, ())
    self.assertEqual(self._find(path, chat_template='alpaca').notes, ())

  def test_what_cannot_be_served_is_refused(self):
    self._refused('neither a directory nor a model id', '/nowhere/at/all')
    path = self._hugging_face(model_type='mamba')
    self._refused(
      "model_type 'mamba' is not supported. Available: gpt_neox, gptj, llama",
      path,
    )
    path = self._hugging_face()
    self._refused(
      '--max_model_len=129 is above the 128', path, max_model_len=129
    )
    self._refused('is too short. Set at least 32', path, max_model_len=31)
    self._refused('Did you mean BATCH_SIZE', path, overrides={'BATCH_SIZ': '2'})
    os.remove(f'{path}/tokenizer.json')
    self._refused('has neither tokenizer.json nor tokenizer.model', path)

  def test_a_pax_directory_without_sizes_asks_for_params(self):
    path = os.path.join(self._directory, 'pax')
    os.makedirs(f'{path}/checkpoint_00000000')
    self._refused('Set them with --params', path)
    description.write(
      path,
      description.Description(num_layers=1, max_positions=9, family='mamba'),
    )
    self._refused("pax: the model family 'mamba' is unknown", path)

  def test_memory_and_disk_are_checked_first(self):
    path = self._hugging_face()
    model = self._find(path)
    with mock.patch.object(
      conversion.shutil, 'disk_usage', lambda path: mock.Mock(free=100)
    ):
      self._refused(
        'has 0.0 GiB free. Free some space', path, quantize=models.INT8
      )
    self.assertEqual(self._ran, ['converter'])
    slots = model.overrides['BATCH_SIZE']
    self.assertEqual(slots, '16')
    self._memory(2**30 + int(model.overrides['ram']) // 2)
    self.assertLess(int(self._find(path).overrides['BATCH_SIZE']), 16)
    self._memory(2**30)
    self._refused('Use --quantize=int8, a smaller --max_model_len', path)

  def test_two_models_of_one_name_are_refused(self):
    model = self._find(self._hugging_face())
    with self.assertRaisesRegex(
      programs.ServeError, 'Two models have the name'
    ):
      models.check_names([model, model])


if __name__ == '__main__':
  absltest.main()
