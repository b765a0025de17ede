import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from huggingface_hub import constants
import ml_dtypes  # noqa: F401 Registers the type name bfloat16 in NumPy.
import numpy as np
import psutil
from safetensors import numpy as safetensors_numpy

from converters.testing import fake_hub
from converters.testing import small_models
from saxml_ext.common.machine import accelerators
from saxml_ext.pax import description
from serve import conversion
from serve import models
from serve import programs
from serve import stored

_TOKENIZER = os.path.join(
  programs.ROOT, 'harness', 'bundled', 'model', 'tokenizer.json'
)
_HUB_ID = 'org/small'


class ModelsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._directory = self.create_tempdir().full_path
    self._cache = os.path.join(self._directory, 'cache')
    self._conversions: list[dict[str, object]] = []

  def _run(self, name: str, program: str, flags) -> None:
    self.assertEqual(name, 'converter')
    self._conversions.append(dict(flags))
    command = programs.command(program, flags)
    subprocess.run(command.argv, env=dict(command.env), check=True)

  def _plan(self, *words: str, **options) -> list[models.Model]:
    return models.find_all(words, models.Options(**options), self._cache)

  def _find(self, word: str, **options) -> models.Model:
    [model] = self._plan(word, **options)
    return model.converted(self._run)

  def _hugging_face(self, name: str = 'small', **changes) -> str:
    path = small_models.save(os.path.join(self._directory, name), **changes)
    with open(_TOKENIZER, encoding='utf-8') as file:
      tokenizer = file.read()
    with open(f'{path}/tokenizer.json', 'w', encoding='utf-8') as file:
      file.write(tokenizer)
    return path

  def _write(self, path: str, text: str) -> None:
    with open(path, 'w', encoding='utf-8') as file:
      file.write(text)

  def _refused(self, message: str, *words: str, **options) -> None:
    with self.assertRaisesRegex(programs.ServeError, message):
      self._plan(*words, **options)

  def _accelerator(self, *kinds: str, platforms: str = '') -> None:
    devices = [accelerators.Accelerator(kind, '1 x it') for kind in kinds]
    for name, value in (
      ('drivable', kinds),
      ('detect', next(iter(devices), None)),
    ):
      self.enter_context(
        mock.patch.object(accelerators, name, return_value=value)
      )
    self.enter_context(
      mock.patch.dict(os.environ, {accelerators.PLATFORMS: platforms})
    )

  def _memory(self, available: int) -> None:
    memory = psutil.virtual_memory()._replace(available=available)
    self.enter_context(
      mock.patch.object(psutil, 'virtual_memory', lambda: memory)
    )

  def test_a_directory_comes_before_a_bundled_model_of_its_name(self):
    path = self._hugging_face('gptj-small')
    start = {'BUILD_WORKING_DIRECTORY': os.path.dirname(path)}
    with mock.patch.dict(os.environ, start):
      [model] = self._plan('gptj-small')
    self.assertEqual(model.job.source.path, path)

  def test_a_missing_default_model_names_a_bundled_one(self):
    with mock.patch.object(models.smollm2, '_PACKAGE', 'no_such_package'):
      self._refused('serve gptj-small')

  @parameterized.parameters(
    ('Qwen2.5-0.5B-Instruct', 'qwen2-5-0-5b-instruct'),
    ('7B model', 'm7b-model'),
    ('\u00fcber_v1', 'm-ber_v1'),
  )
  def test_any_directory_gets_a_name_that_the_cell_accepts(self, name, cell):
    path = self._hugging_face(name)
    [model] = self._plan(path)
    self.assertEqual((model.name, model.public_name), (cell, name))
    self.assertEqual(model.job.name, cell)

  def test_a_comma_in_a_name_is_refused(self):
    self._refused('a,b has a comma', self._hugging_face('a,b'))

  def test_a_hugging_face_model_is_converted_once(self):
    path = self._hugging_face()
    self._write(f'{path}/generation_config.json', '{"temperature": 0.5}')
    model = self._find(path, max_model_len=64, overrides={'TOP_K': '5'})
    self.assertLen(self._conversions, 1)
    self.assertEqual(model.public_name, 'small')
    start = {'BUILD_WORKING_DIRECTORY': os.path.dirname(path)}
    with mock.patch.dict(os.environ, start):
      self.assertEqual(self._find('./small').public_name, 'small')
    self.assertEqual(model.overrides['TOP_K'], '5')
    self.assertTrue(os.path.isdir(model.checkpoint))
    self.assertTrue(os.path.isfile(model.generation_config))
    self.assertEqual(model.chat_template, 'dialogue')
    self.assertIn('has no chat template', ' '.join(model.notes))
    self.assertEqual(self._find(path).checkpoint, model.checkpoint)
    self.assertLen(self._conversions, 1)
    # A PAX directory is served without a conversion, with the same choices.
    pax = os.path.dirname(model.checkpoint)
    self.assertEqual(self._find(pax).params, model.params)
    given = {
      'INPUT_SEQ_LEN': '96',
      'BUCKET_KEYS': '[96]',
      'MAX_DECODE_STEPS': '32',
    }
    same = self._find(pax, params=model.params, overrides=given)
    self.assertEqual(same.overrides, given)
    self.assertLen(self._conversions, 1)

  def test_int8_is_converted_in_one_pass(self):
    model = self._find(self._hugging_face(), quantize=stored.INT8)
    [conversion_flags] = self._conversions
    self.assertEqual(conversion_flags['quantize'], 'int8')
    self.assertStartsWith(model.overrides['QUANTIZATION'], '"int8')
    folders = [e.name for e in os.scandir(self._cache) if e.is_dir()]
    self.assertLen(folders, 1)
    # The variables of this checkpoint show that they are int8.
    pax = os.path.dirname(model.checkpoint)
    again = self._find(pax)
    self.assertStartsWith(again.overrides['QUANTIZATION'], '"int8')
    self._refused('--quantize=none has no effect', pax, quantize=stored.FLOAT)
    self._refused('--quantize=int4 has no effect', pax, quantize=stored.INT4)

  def test_int4_is_quantized_when_it_is_loaded(self):
    path = self._hugging_face()
    self._refused(
      r'sum over 16 numbers, .* of 32. Use --quantize=int8',
      path,
      quantize=stored.INT4,
    )
    self.enter_context(mock.patch.object(models, '_INT4_GROUP', 16))
    [model] = self._plan(path, quantize=stored.INT4)
    self.assertEqual((model.job.dtype, model.job.quantize), ('float32', False))
    self.assertEqual(model.overrides['QUANTIZATION'], '"int4"')
    self.assertIn('int4, because of --quantize=int4', model.notes[0])
    self._accelerator(accelerators.TPU)
    self._refused('Use --quantize=int8, or', path, quantize=stored.INT4)
    self._accelerator()
    self._memory(2**30)
    self._refused('Use a smaller --max_model_len', path, quantize=stored.INT4)

  def test_fp8_is_quantized_when_it_is_loaded_on_a_gpu(self):
    path = self._hugging_face()
    for kinds in (), (accelerators.TPU,):
      self._accelerator(*kinds)
      self._refused('Use --quantize=int8', path, quantize=stored.FP8)
    self._accelerator(accelerators.CUDA)
    [model] = self._plan(path, quantize=stored.FP8)
    self.assertEqual((model.job.dtype, model.job.quantize), ('float32', False))
    self.assertEqual(model.overrides['QUANTIZATION'], '"fp8"')

  @parameterized.parameters(
    ((), 'tpu', '4'),
    ((accelerators.CUDA,), '', '1'),
    ((accelerators.CUDA,), 'cpu', '4'),
    ((accelerators.TPU,), 'tpu,cpu', '1'),
  )
  def test_streams_of_cpus_have_several_tokens_a_message(
    self, kinds, platforms, steps
  ):
    self._accelerator(*kinds, platforms=platforms)
    [model] = self._plan(self._hugging_face())
    self.assertEqual(model.overrides['STREAM_INTERVAL_STEPS'], steps)

  @parameterized.parameters('bfloat16', 'float16', 'float32')
  def test_bfloat16_weights_are_kept(self, stored_type):
    path = self._hugging_face()
    tensors = small_models.state_dict()
    halves = {name: x.astype(stored_type) for name, x in tensors.items()}
    # Files of GPT-J have masks of another type.
    halves['transformer.h.0.attn.bias'] = np.ones((1, 1, 8, 8), np.uint8)
    safetensors_numpy.save_file(halves, f'{path}/model.safetensors')
    [model] = self._plan(path)
    self.assertIn(f'because the weights are {stored_type}', model.notes[0])
    is_half = stored_type == 'bfloat16'
    self.assertEqual(model.job.dtype, 'bfloat16' if is_half else 'float32')
    self.assertEqual('FPROP_DTYPE' in model.overrides, is_half)

  @parameterized.parameters(
    ('Q4_1 and Q6_K', '', True, 'int8, because the weights are Q4_1 and Q6_K'),
    ('Q4_1 and Q6_K', stored.FLOAT, False, 'because of --quantize=none'),
    ('', stored.INT8, True, 'int8, because of --quantize=int8'),
    ('', '', False, 'because the weights are float32'),
  )
  def test_the_number_format_is_the_nearest_to_the_stored_one(
    self, types, quantize, is_int8, note
  ):
    path = self._hugging_face()
    with mock.patch.object(
      conversion.checkpoint.Checkpoint, 'quantization', types
    ):
      [model] = self._plan(path, quantize=quantize)
    self.assertEqual(model.job.quantize, is_int8)
    self.assertEqual('QUANTIZATION' in model.overrides, is_int8)
    self.assertIn(note, model.notes[0])

  def test_a_chat_template_of_the_model_is_used(self):
    path = self._hugging_face()
    config = f'{path}/tokenizer_config.json'
    self._write(config, '{"chat_template": "{{ messages[0].content }}"}')
    model = self._find(path)
    self.assertEqual(model.chat_template, os.path.dirname(model.checkpoint))
    self.assertNotIn('chat template', ' '.join(model.notes))
    [model] = self._plan(path, chat_template='alpaca')
    self.assertEqual(model.chat_template, 'alpaca')
    self._write(config, '{"chat_template": "{% if %}"}')
    self._refused('tokenizer_config.json', path)

  def test_unsupported_models_are_refused(self):
    self._refused('neither a directory nor a GGUF file', '/nowhere/at/all')
    path = self._hugging_face(model_type='mamba')
    self._refused("model_type 'mamba' is not supported. Available: ", path)
    path = self._hugging_face()
    self._refused(
      '--max_model_len=129 is above the 128', path, max_model_len=129
    )
    self._refused('is too short. Set at least 32', path, max_model_len=31)
    self._write(f'{path}/tokenizer.json', '{"model":')
    self._refused('tokenizer.json is not a JSON object', path)
    self._write(f'{path}/tokenizer.json', '{"model": 1}')
    self._refused('tokenizer.json has another format', path)
    os.remove(f'{path}/tokenizer.json')
    self._refused('has neither tokenizer.json nor tokenizer.model', path)

  @parameterized.parameters(
    ({'overrides': {'BATCH_SIZ': '2'}}, 'Did you mean BATCH_SIZE'),
    ({'overrides': {'BATCH_SIZE': '0'}}, 'BATCH_SIZE'),
    ({'overrides': {'BATCH_SIZE': '"many"'}}, 'BATCH_SIZE'),
    ({'overrides': {'INPUT_SEQ_LEN': '4096'}}, '4096'),
    ({'max_model_len': 99999}, 'above the 128 positions'),
    ({'chat_template': '/no/such'}, '--chat_template=/no/such'),
    ({'chat_template': 'chatlm'}, '--chat_template=chatlm'),
    ({'params': 'saxml_ext.params.gptj.AnyGPTK'}, 'Did you mean'),
    ({'params': 'other.Params'}, 'no serving params are named'),
    ({'params': 'saxml_ext.params.gptj.AnyGPTJ'}, '640, above the 128'),
    (
      {
        'params': 'saxml_ext.params.llama.AnyLlama',
        'overrides': {
          'INPUT_SEQ_LEN': '64',
          'BUCKET_KEYS': '[64]',
          'MAX_DECODE_STEPS': '64',
        },
      },
      'is a gptj',
    ),
  )
  def test_a_wrong_option_starts_no_conversion(self, options, message):
    first, last = self._hugging_face('first'), self._hugging_face('last')
    self._refused(message, first, last, **options)
    self.assertFalse(os.path.exists(self._cache))

  def test_wrong_last_model_starts_no_conversion(self):
    first = self._hugging_face('first')
    for message, last in (
      ('neither a directory', '/nowhere'),
      ('mamba', self._hugging_face('last', model_type='mamba')),
      ('Two models have the name first', first),
    ):
      self._refused(message, first, last)
    damaged = self._hugging_face('damaged')
    self._write(f'{damaged}/generation_config.json', '{"temperature": "hot"}')
    self._refused('temperature', first, damaged)
    self._write(f'{damaged}/generation_config.json', '[')
    self._refused('generation_config.json', first, damaged)
    self.assertFalse(os.path.exists(self._cache))

  def test_a_model_on_the_hub_is_checked_before_its_weights_arrive(self):
    path = self._hugging_face()
    files = {f.name: f.read_bytes() for f in pathlib.Path(path).iterdir()}
    cache = os.path.join(self._directory, 'hub')
    with fake_hub.running(_HUB_ID, files) as (url, downloads):
      template = f'{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}'
      for name, value in (
        ('HF_HUB_CACHE', cache),
        ('HF_TOKEN_PATH', os.path.join(cache, 'token')),
        ('ENDPOINT', url),
        ('HUGGINGFACE_CO_URL_TEMPLATE', template),
      ):
        self.enter_context(mock.patch.object(constants, name, value))
      self._refused('above the 128', _HUB_ID, max_model_len=999)
      [model] = self._plan(_HUB_ID)
      self.assertNotIn('model.safetensors', downloads)
      model = model.converted(self._run)
      self.assertEqual(downloads['model.safetensors'], 1)
    self.assertEqual((model.name, model.public_name), ('small', _HUB_ID))
    self.assertTrue(os.path.isdir(model.checkpoint))

  def test_pax_directory_without_sizes_needs_params(self):
    path = os.path.join(self._directory, 'pax')
    os.makedirs(f'{path}/checkpoint_00000000')
    self._refused('Set them with --params', path)
    description.write(
      path,
      description.Description(num_layers=1, max_positions=9, family='mamba'),
    )
    self._refused("pax: the model family 'mamba' is unknown", path)

  def test_the_checks_need_no_jax(self):
    # Its import takes a second of each start.
    code = "import sys, serve.models; sys.exit('jax' in sys.modules)"
    path = {'PYTHONPATH': os.pathsep.join(sys.path)}
    command = [sys.executable, '-c', code]
    self.assertEqual(
      subprocess.run(command, env=os.environ | path, check=False).returncode, 0
    )

  def test_memory_and_disk_are_checked_first(self):
    path, other = self._hugging_face(), self._hugging_face('other')
    [model] = self._plan(path)
    size = model.job.num_bytes
    for free, words in ((size // 2, [path]), (3 * size // 2, [path, other])):
      with mock.patch.object(
        conversion.shutil, 'disk_usage', lambda _, f=free: mock.Mock(free=f)
      ):
        self._refused(r'MiB free\. Free some space', *words)
    needed = int(model.overrides['ram'])
    self.assertEqual(model.overrides['BATCH_SIZE'], '16')
    self._memory(2**30 + needed // 2)
    [smaller] = self._plan(path)
    self.assertLess(int(smaller.overrides['BATCH_SIZE']), 16)
    # The second model gets what the first one leaves.
    self._memory(2**30 + needed + needed // 2)
    first, second = self._plan(path, other)
    self.assertEqual(first.overrides['BATCH_SIZE'], '16')
    self.assertLess(int(second.overrides['BATCH_SIZE']), 16)
    self._memory(2**30)
    # A GPU has its own memory.
    [on_gpu] = self._plan(path, gpu_bytes=needed)
    self.assertEqual(on_gpu.overrides['BATCH_SIZE'], '16')
    self._refused(
      r'needs \d+\.\d MiB of memory .*Use --quantize=int8, a smaller', path
    )

  def test_length_that_fits_is_named(self):
    path = self._hugging_face()
    [model] = self._plan(path)
    margin = models._MARGIN
    weights = model.job.num_bytes
    slot = (int(model.overrides['ram']) / margin - weights) / 16
    free = int(margin * (weights + slot / 2))
    with self.assertRaisesRegex(programs.ServeError, 'a smaller') as error:
      self._plan(path, gpu_bytes=free)
    length = int(
      re.search(r'max_model_len \((\d+) fits\)', str(error.exception))[1]
    )
    self.assertBetween(length, 62, 64)
    self._plan(path, gpu_bytes=free, max_model_len=length)
    self._refused('a smaller', path, gpu_bytes=free, max_model_len=length + 2)


if __name__ == '__main__':
  absltest.main()
