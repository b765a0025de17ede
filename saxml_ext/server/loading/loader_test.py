"""Tests of the loader with a random two-layer model."""

import dataclasses
import os
import shutil
import tempfile
import threading
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.common import errors
from saxml_ext.engine import executables
from saxml_ext.engine import jobs
from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax.testing import checkpoints
from saxml_ext.server.lifecycle import cancellation
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.testing import small_model

_TIMEOUT = 600

jax.config.update('jax_num_cpu_devices', 2)


class LoaderTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.directory = small_model.write(
      tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    )
    # The tests share a compilation cache. One slot needs a third of the
    # programs that two slots need.
    cache = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    jax.config.update('jax_compilation_cache_dir', cache)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
    jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)

  def _load(self, checkpoint=None, path=small_model.MODEL_PATH, **overrides):
    if path == small_model.MODEL_PATH:
      overrides = {'BATCH_SIZE': '1', 'MAX_DECODE_STEPS': '4', **overrides}
    return loader.load(
      entry_lib.Spec(path, checkpoint or self.directory, overrides, acls={}),
      self.fail,
    )

  def test_loaded_model_generates_and_scores(self):
    servable = self._load()
    self.addCleanup(servable.close, drain=False)
    self.assertEqual(servable.settings.end_ids, (small_model.EOS_ID,))
    prompt = np.array([1, 2, 3], np.int32)
    request = request_lib.Request(prompt)
    result = servable.scheduler.generate(request).result(_TIMEOUT)
    texts = servable.texts(request, result)
    self.assertLen(texts, 2)
    self.assertGreater(texts[0][1], texts[1][1])
    tokens = servable.codecs.input.encode(texts[0][0])
    self.assertBetween(len(tokens), 2, 4)
    # The search and the scorer use the same model.
    best = result.hypotheses[0]
    logp = servable.scheduler.score(prompt, best.tokens).result(_TIMEOUT)
    self.assertAlmostEqual(logp, best.logprob, places=3)
    closed = []
    dataclasses.replace(servable, on_closed=lambda: closed.append(1)).close(
      drain=True
    )
    self.assertEqual(closed, [1])

  def test_cancelled_load_ends_between_variables_and_programs(self):
    class Unwanted(Exception):
      pass

    def load_until(last: int, steps: int) -> tuple[int, int]:
      """Loads up to a step; returns the numbers of steps and compilations."""
      made = 0

      def check():
        nonlocal made
        made += 1
        if made > last:
          raise Unwanted()

      # Programs of other sizes are not in the cache.
      with executables.counting_compilations() as compiled:
        with cancellation.checking(check):
          try:
            servable = self._load(MAX_DECODE_STEPS=str(steps))
            servable.close(drain=False)
          except Unwanted:
            pass
      return made, len(compiled)

    every, compiled = load_until(1000, steps=5)
    variables = len(checkpoint.Reader(self.directory).specs)
    self.assertGreater(every, variables + 4)
    self.assertEqual(load_until(variables // 2, steps=6)[0], variables // 2 + 1)
    made, few = load_until(variables, steps=7)
    self.assertEqual(made, variables + 1)
    self.assertLess(few, compiled)

  def test_programs_are_compiled_while_the_model_serves(self):
    gate, begun = threading.Event(), threading.Event()
    self.addCleanup(gate.set)
    compile_program = executables.Executables._compile

    def compile_slowly(run, key):
      if key == program_keys.Decode(2):
        begun.set()
        self.assertTrue(gate.wait(_TIMEOUT))
      return compile_program(run, key)

    self.enterContext(
      mock.patch.object(executables.Executables, '_compile', compile_slowly)
    )
    changes = dict(COMPILE_BEHIND='true', BATCH_SIZE='2', BEAM_SIZE='3')
    servable = self._load(**changes)
    self.addCleanup(servable.close, drain=False)
    self.assertTrue(begun.wait(_TIMEOUT))
    ready, total = servable.programs()
    self.assertLess(ready, total)
    request = request_lib.Request(np.array([1, 2, 3], np.int32))
    servable.scheduler.generate(request).result(_TIMEOUT)
    # Two requests need the program.
    pair = [servable.scheduler.generate(request) for _ in range(2)]
    gate.set()
    for future in pair:
      future.result(_TIMEOUT)
    for thread in threading.enumerate():
      if thread.name == 'programs':
        thread.join(_TIMEOUT)
    self.assertEqual(servable.programs(), (total, total))
    # A model like it takes all of them.
    with executables.counting_compilations() as compiled:
      self._load(**changes).close(drain=False)
    self.assertEqual(compiled, [])

  def test_unloaded_model_stops_compiling(self):
    gate, behind, keys = threading.Event(), threading.Event(), []
    compile_program = executables.Executables._compile
    prepare_rest = executables.Executables.prepare_rest

    def compile_slowly(run, key):
      if behind.is_set():
        gate.wait(_TIMEOUT)
      keys.append(key)
      return compile_program(run, key)

    def prepare_slowly(run, *args, **kwargs):
      behind.set()
      prepare_rest(run, *args, **kwargs)

    for name, function in (
      ('_compile', compile_slowly),
      ('prepare_rest', prepare_slowly),
    ):
      self.enterContext(
        mock.patch.object(executables.Executables, name, function)
      )
    self.enterContext(mock.patch.object(jobs, 'cores', lambda: 1))
    servable = self._load(
      COMPILE_BEHIND='true', BATCH_SIZE='16', MAX_DECODE_STEPS='3'
    )
    servable.close(drain=True)
    gate.set()
    for thread in threading.enumerate():
      if thread.name == 'programs':
        thread.join(_TIMEOUT)
    self.assertLess(len(keys), servable.programs()[1])

  def test_params_and_request_control_samples(self):
    servable = self._load(
      USE_BEAM_SEARCH='false',
      NUM_SAMPLES='3',
      TOP_K='10',
      TEMPERATURE='2.0',
      STOP_TOKEN_IDS='[7,8]',
      KV_CACHE_DTYPE='"bfloat16"',
      QUANTIZATION='"int8_weights"',
      PREFILL_CHUNK_LEN='8',
    )
    self.addCleanup(servable.close, drain=False)
    prompt = np.arange(1, 12, dtype=np.int32)

    def answers(**choices):
      request = request_lib.Request(prompt, stop_ids=(7, 8), **choices)
      result = servable.scheduler.generate(request).result(_TIMEOUT)
      return [text for text, _ in servable.texts(request, result)]

    self.assertLen(answers(seed=1), 3)
    self.assertEqual(answers(seed=1), answers(seed=1))
    self.assertGreater(len({*answers(seed=1), *answers(seed=2)}), 3)
    self.assertLen(set(answers(temperature=0.0)), 1)
    with self.assertRaisesRegex(errors.InvalidArgument, 'top_p is 2.0'):
      answers(top_p=2.0)
    self.assertLen(answers(seed=1), 3)  # The engine still works.

  def test_pax_beam_rule_takes_effect_with_its_settings(self):
    prompt = np.array([1, 2, 3], np.int32)

    def best(**overrides):
      servable = self._load(BEAM_RULE='"pax"', **overrides)
      self.addCleanup(servable.close, drain=False)
      result = servable.scheduler.generate(request_lib.Request(prompt))
      return result.result(_TIMEOUT).hypotheses[0]

    alpha = 2.0  # This is not the default.
    hypothesis = best(LENGTH_NORM_ALPHA=str(alpha))
    length = len(hypothesis.tokens)
    self.assertEqual(hypothesis.tokens[-1], small_model.EOS_ID)
    self.assertAlmostEqual(
      hypothesis.score,
      hypothesis.logprob / ((length + 5) / 5) ** alpha,
      places=4,
    )
    with self.assertRaisesRegex(errors.InvalidArgument, 'TOKENS_PER_BEAM=51'):
      best(TOKENS_PER_BEAM='51')

  def test_int8_is_quantized_as_it_is_loaded(self):
    servable = self._load(QUANTIZATION='"int8"')
    self.addCleanup(servable.close, drain=False)
    prompt = np.array([1, 2, 3], np.int32)
    result = servable.scheduler.generate(request_lib.Request(prompt)).result(
      _TIMEOUT
    )
    best = result.hypotheses[0]
    logp = servable.scheduler.score(prompt, best.tokens).result(_TIMEOUT)
    self.assertAlmostEqual(logp, best.logprob, delta=0.05 * abs(logp))
    servable = self._load()
    self.addCleanup(servable.close, drain=False)
    exact = servable.scheduler.score(prompt, best.tokens).result(_TIMEOUT)
    self.assertNotEqual(logp, exact)
    self.assertAlmostEqual(logp, exact, delta=0.1 * abs(exact))

  def test_model_is_split_among_the_devices_of_its_mesh(self):
    answers = []
    for shape in ('[1, 1, 1]', '[1, 1, 2]', '[1, 1, 4]'):  # On 2 devices.
      with self.assertLogs(level='INFO') as logs:
        servable = self._load(ICI_MESH_SHAPE=shape)
      self.addCleanup(servable.close, drain=False)
      prompt = np.array([1, 2, 3], np.int32)
      result = servable.scheduler.generate(request_lib.Request(prompt)).result(
        _TIMEOUT
      )
      answers.append([h.tokens.tolist() for h in result.hypotheses])
      log = '\n'.join(logs.output)
      self.assertEqual('split over devices' in log, shape == '[1, 1, 2]')
      self.assertEqual('runs on one here' in log, shape == '[1, 1, 4]')
    self.assertEqual(answers, answers[:1] * 3)

  def test_fp8_is_refused_without_a_gpu(self):
    with self.assertRaisesRegex(errors.Unimplemented, "CPU.*='int8'"):
      self._load(QUANTIZATION='fp8')

  def test_mesh_that_does_not_divide_the_model_is_refused(self):
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'num_slots is 3, but .* into 2 parts'
    ):
      self._load(ICI_MESH_SHAPE='[1, 2, 1]', BATCH_SIZE='3')

  def test_quantized_checkpoint_is_served(self):
    copy = self.create_tempdir().full_path
    variables = checkpoints.read_variables(self.directory)
    name = 'params.lm.softmax.logits_ffn.linear.w'
    peak = np.abs(variables[name]).max(0)
    codes = np.rint(variables[name] * (np.float32(127) / peak))
    variables[name] = codes.astype(np.int8)
    scale = f'{name}_quantized_scale'
    variables[scale] = peak * np.float32(1 / 127)
    checkpoints.write_checkpoint(copy, variables.items())
    settings = dict(EOS_ID='49', ROTARY_DIM='8')
    request = request_lib.Request(np.arange(1, 9, dtype=np.int32))

    def answers(directory):
      servable = self._load(
        directory, QUANTIZATION='"int8"', QUANTIZE_SOFTMAX='true', **settings
      )
      self.addCleanup(servable.close, drain=False)
      result = servable.scheduler.generate(request).result(_TIMEOUT)
      return [text for text, _ in servable.texts(request, result)]

    self.assertEqual(answers(copy), answers(self.directory))
    # Programs are looked up by the shapes that the weights will have.
    overrides = dict(QUANTIZATION='"int8"', **settings)
    made = loader.plan(
      entry_lib.Spec(small_model.MODEL_PATH, copy, overrides, acls={})
    )
    self.assertEqual(
      jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), made.weights()),
      jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), made._shapes()),
    )
    with self.assertRaisesRegex(errors.InvalidArgument, f'{name} is int8'):
      self._load(copy, **settings)
    del variables[scale]
    alone = self.create_tempdir().full_path
    checkpoints.write_checkpoint(alone, variables.items())
    with self.assertRaisesRegex(errors.InvalidArgument, 'quantized_scale'):
      self._load(alone, QUANTIZATION='"int8"', **settings)

  @parameterized.parameters(
    ('None', 'only test params, such as'),
    ('/no/such/dir', "'/no/such/dir' is not a directory"),
  )
  def test_paths_without_a_checkpoint_are_refused(self, path, message):
    with self.assertRaisesRegex(errors.InvalidArgument, message):
      self._load(path)

  def test_incomplete_checkpoint_is_refused(self):
    copy = os.path.join(self.create_tempdir().full_path, 'copy')
    shutil.copytree(self.directory, copy)
    os.remove(os.path.join(copy, 'checkpoint_00000000/commit_success.txt'))
    with self.assertRaisesRegex(errors.InvalidArgument, 'commit_success.txt'):
      self._load(copy)

  def test_unknown_params_are_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'Did you mean'):
      self._load(path='saxml_ext.server.testing.small_model.Smal')

  def test_checkpoint_of_another_model_is_refused(self):
    name = 'saxml.server.pax.lm.params.gptj.GPTJ'
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'above the 64 positions'
    ):
      self._load(path=name)
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'num_layers=2, but the serving params .* 28'
    ):
      self._load(
        path=name,
        INPUT_SEQ_LEN='16',
        MAX_DECODE_STEPS='8',
        ROTARY_DIM='8',
        TOKENIZED_INPUT='true',
        TOKENIZED_OUTPUT='true',
      )

  def test_missing_settings_are_refused(self):
    directory = small_model.write(
      self.create_tempdir().full_path, describe=False
    )
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'EOS_ID and ROTARY_DIM.*EOS_ID=<number>'
    ):
      self._load(directory)
    with self.assertRaisesRegex(errors.InvalidArgument, 'EOS_ID=50 is not in'):
      self._load(directory, EOS_ID='50', ROTARY_DIM='8')

  def test_start_id_is_in_the_vocabulary(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'SOS_ID=99 is not in'):
      self._load(EOS_PADDING_AND_NO_SOS='false', SOS_ID='99')

  def test_text_model_requires_a_tokenizer(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'tokenizer.json'):
      self._load(TOKENIZED_OUTPUT='false')

  def test_unusable_attributes_are_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'small_model.Small'):
      self._load(BUCKET_KEYS='["a", 16]')


if __name__ == '__main__':
  absltest.main()
