"""Tests of settings."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.params import gptj
from saxml_ext.params import published
from saxml_ext.params import settings as settings_lib
from saxml_ext.params import template
from saxml_ext.pax import description


def _settings(
  base=gptj.TinyTokenizedFP32, **attributes
) -> settings_lib.Settings:
  return settings_lib.Settings.from_params(
    type(base.__name__, (base,), attributes)
  )


class SettingsTest(parameterized.TestCase):
  def test_slots_and_bound(self):
    settings = _settings(BATCH_SIZE=[1, 2, 8], MAX_LIVE_BATCHES=3)
    self.assertEqual(settings.engine.num_slots, 8)
    self.assertEqual(settings.admission_limit, 24)
    settings = _settings(BATCH_SIZE=1, NUM_CACHE_SLOTS=5, MAX_LIVE_BATCHES=2)
    self.assertEqual(settings.engine.num_slots, 5)
    self.assertEqual(settings.admission_limit, 10)

  def test_prompts_wait_only_for_company_in_their_prefill(self):
    # A prefill has one prompt, unless the mesh splits the slots into parts.
    for mesh, expected in (([1, 1, 4], 0), ([1, 2, 4], 4), ([2, 1, 1], 4)):
      settings = _settings(
        BATCH_WAIT_SECS=4.0, ICI_MESH_SHAPE=mesh, BATCH_SIZE=4
      )
      self.assertEqual(settings.admission_wait, expected, mesh)
    self.assertEqual(_settings(BATCH_WAIT_SECS=None).admission_wait, 0)

  @parameterized.parameters(
    (None, (512,)),
    ([128], (128, 512)),
    ([256, 128, 256, 512], (128, 256, 512)),
  )
  def test_every_prompt_has_a_bucket(self, keys, expected):
    self.assertEqual(
      _settings(BUCKET_KEYS=keys).engine.prompt_buckets, expected
    )

  def test_the_longest_decode_counts(self):
    settings = _settings(MAX_DECODE_STEPS=[16, 20], MIN_DECODE_STEPS=30)
    self.assertEqual(settings.engine.max_new_tokens, 20)
    self.assertEqual(settings.engine.min_new_tokens, 20)

  def test_short_answers_have_no_more_memory_than_steps(self):
    short = _settings(MAX_DECODE_STEPS=8, BEAM_SIZE=100).engine
    self.assertEqual((short.suffix_block, short.num_suffix_blocks), (8, 1))
    self.assertEqual(_settings(MAX_DECODE_STEPS=128).engine.suffix_block, 16)

  def test_default_limit_of_a_request_follows_the_models(self):
    extra = _settings(MAX_DECODE_STEPS=20).extra_inputs['lm.generate']
    self.assertEqual(extra, {'per_example_max_decode_steps': 20})

  def test_start_id(self):
    self.assertIsNone(_settings().sos_id)
    self.assertEqual(
      _settings(EOS_PADDING_AND_NO_SOS=False, SOS_ID=7).sos_id, 7
    )
    self.assertIsNone(
      _settings(EOS_PADDING_AND_NO_SOS=False, PREPEND_SOS=False).sos_id
    )

  def test_the_tokenizer_may_have_the_start_id(self):
    own = dict(EOS_PADDING_AND_NO_SOS=False, SOS_ID=None, TOKENIZED_INPUT=False)
    settings = _settings(**own)
    self.assertIsNone(settings.sos_id)
    self.assertTrue(settings.takes_start)
    for other in (
      {'SOS_ID': 7},
      {'PREPEND_SOS': False},
      {'EOS_PADDING_AND_NO_SOS': True},
      {'TOKENIZED_INPUT': True},
    ):
      self.assertFalse(_settings(**own | other).takes_start, other)

  def test_methods(self):
    self.assertEqual(_settings().methods, ('lm.generate', 'lm.score'))
    self.assertEqual(_settings(GENERATE_ONLY=True).methods, ('lm.generate',))
    self.assertEqual(_settings(SCORE_ONLY=True).methods, ('lm.score',))
    texts = dict(
      TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME='mean',
      TEXT_TO_EMBEDDING_MODEL_METHOD_NAME='encode',
      GRADIENT_WRT_INPUT_TENSOR_NAMES=['embeddings'],
    )
    settings = _settings(**texts)
    self.assertEqual(
      settings.methods, ('lm.embed', 'lm.generate', 'lm.gradient', 'lm.score')
    )
    self.assertEqual(settings.engine.embedding, 'mean')
    self.assertEqual(settings.engine.gradients, ('embeddings',))
    # As in stock Sax, both attributes must be set.
    texts['TEXT_TO_EMBEDDING_MODEL_METHOD_NAME'] = None
    self.assertNotIn('lm.embed', _settings(**texts).methods)
    with self.assertRaisesRegex(errors.Unimplemented, 'have no derivative'):
      _settings(gptj.TinyTokenizedINT8, **texts)

  def test_sampling(self):
    settings = _settings(
      USE_BEAM_SEARCH=False, NUM_SAMPLES=3, TOP_K=7, TEMPERATURE=0.5
    )
    self.assertEqual(settings.engine.search, 'sample')
    self.assertEqual(settings.engine.num_beams, 3)
    self.assertEqual(settings.engine.max_top_k, 7)
    self.assertEqual(settings.engine.temperature, 0.5)

  def test_stop_ids(self):
    self.assertIsNone(_settings().stop_ids)
    self.assertEqual(_settings().engine.max_stop_ids, 1)
    settings = _settings(STOP_TOKEN_IDS=[4, 5])
    self.assertEqual(settings.stop_ids, (4, 5))
    self.assertEqual((settings.end_ids, settings.engine.eos_id), ((4, 5), 4))
    self.assertEqual(_settings(EOS_ID=3, STOP_TOKEN_IDS=[4]).end_ids, (4,))
    # As in stock Sax, an empty list stands for EOS_ID.
    self.assertEqual(_settings(EOS_ID=3, STOP_TOKEN_IDS=[]).end_ids, (3,))
    self.assertEqual(_settings().end_ids, ())
    self.assertEqual(settings.engine.max_stop_ids, 2)
    self.assertEqual(
      _settings(EXTRA_INPUTS={'eos_id': [0, 0, 0]}).engine.max_stop_ids, 3
    )

  def test_number_formats(self):
    self.assertEqual(_settings().engine.kv_dtype, 'float32')
    half = dict(FPROP_DTYPE='bfloat16', MODEL_DTYPE='bfloat16')
    self.assertEqual(_settings(**half).engine.kv_dtype, 'bfloat16')
    self.assertEqual(
      _settings(KV_CACHE_DTYPE='int8', **half).engine.kv_dtype, 'int8'
    )
    self.assertEqual(
      _settings(QUANTIZATION='int8_weights').quantization, 'int8_weights'
    )

  def test_pax_rule(self):
    self.assertEqual(_settings().engine.search, 'beam')
    settings = _settings(
      published.GPTJ, BEAM_RULE='pax', BEAM_SEARCH_EARLY_EXIT=True, BEAM_SIZE=2
    )
    self.assertEqual(settings.engine.search, 'pax')
    self.assertEqual(settings.engine.length_norm_alpha, 0.5)
    self.assertEqual(settings.engine.tokens_per_beam, 4)
    self.assertTrue(settings.engine.early_exit)

  def test_either_search(self):
    for beams in (True, False):
      settings = _settings(
        MIXED_SEARCH=True,
        USE_BEAM_SEARCH=beams,
        BEAM_SIZE=3,
        NUM_SAMPLES=5,
        MAX_LOGPROBS=2,
      )
      engine = settings.engine
      self.assertEqual(engine.search, 'any')
      self.assertEqual(engine.beam_search, beams)
      self.assertEqual((engine.most_beams, engine.most_samples), (3, 5))
      self.assertEqual((engine.rows, engine.max_logprobs), (5, 2))
    with self.assertRaisesRegex(
      errors.Unimplemented, "MIXED_SEARCH with BEAM_RULE='pax'"
    ):
      _settings(MIXED_SEARCH=True, BEAM_RULE='pax')

  def test_tokenizer_is_needed_for_words_only(self):
    self.assertFalse(_settings().needs_tokenizer)
    self.assertTrue(_settings(TOKENIZED_OUTPUT=False).needs_tokenizer)
    self.assertTrue(_settings(gptj.TinyFP32).needs_tokenizer)

  def test_refuses_what_is_not_offered(self):
    with self.assertRaisesRegex(
      errors.Unimplemented, 'TinyTokenizedFP32.SORT_SAMPLES=False is not'
    ):
      _settings(USE_BEAM_SEARCH=False, SORT_SAMPLES=False)

  @parameterized.parameters(
    (dict(BATCH_SIZE=0), 'BATCH_SIZE is 0'),
    (dict(MAX_LIVE_BATCHES=0), 'MAX_LIVE_BATCHES is 0'),
    (dict(MAX_DECODE_STEPS=0), 'MAX_DECODE_STEPS is 0'),
    (dict(BEAM_SIZE=0), 'BEAM_SIZE is 0'),
    (dict(MIXED_SEARCH=True, NUM_SAMPLES=0), 'NUM_SAMPLES is 0'),
    (dict(MAX_LOGPROBS=-1), 'MAX_LOGPROBS is -1'),
    (dict(BATCH_WAIT_SECS=-1.0), 'BATCH_WAIT_SECS is -1.0'),
    (dict(BATCH_WAIT_SECS=float('nan')), 'BATCH_WAIT_SECS is nan'),
    (dict(LENGTH_PENALTY=float('inf')), 'LENGTH_PENALTY is inf'),
    (dict(LENGTH_NORM_ALPHA=float('nan')), 'LENGTH_NORM_ALPHA is nan'),
    (dict(TOKENS_PER_BEAM=0), 'TOKENS_PER_BEAM is 0'),
    (dict(NUM_LAYERS=0), 'NUM_LAYERS is 0'),
    (dict(VOCAB_SIZE=-5), 'VOCAB_SIZE is -5'),
    (dict(ATTEN_LOGIT_CAP=0.0), 'ATTEN_LOGIT_CAP is 0.0'),
    (dict(SOFTMAX_CAP_LOGITS=float('nan')), 'SOFTMAX_CAP_LOGITS is nan'),
    (dict(USE_BEAM_SEARCH=False, NUM_SAMPLES=0), 'NUM_SAMPLES is 0'),
    (dict(USE_BEAM_SEARCH=False, TEMPERATURE=-1.0), 'TEMPERATURE is -1.0'),
    (dict(EXTRA_INPUTS={'eos_id': 5}), 'eos_id in EXTRA_INPUTS is 5'),
    (dict(BUCKET_KEYS=[0, 512]), 'BUCKET_KEYS is .0, 512.*INPUT_SEQ_LEN=512'),
    (dict(BUCKET_KEYS=[1024]), 'BUCKET_KEYS is .1024.*INPUT_SEQ_LEN=512'),
    (dict(MAX_SEQ_LEN=600), '512 plus.*128 is 640, above MAX_SEQ_LEN=600'),
    (dict(MAX_POSITION_EMBEDDINGS=600), 'above MAX_POSITION_EMBEDDINGS=600'),
    (dict(GENERATE_ONLY=True, SCORE_ONLY=True), 'serves no method'),
    (dict(ICI_MESH_SHAPE=[1, 4]), r'ICI_MESH_SHAPE is .1, 4.*three sizes'),
    (dict(ICI_MESH_SHAPE=[1, 0, 4]), r'ICI_MESH_SHAPE is .1, 0, 4.'),
  )
  def test_refuses_values_out_of_range(self, attributes, message):
    with self.assertRaisesRegex(errors.InvalidArgument, message):
      _settings(**attributes)

  def test_checkpoint_completes_unset_params(self):
    settings = _settings()
    self.assertIsNone(settings.engine.eos_id)
    self.assertIsNone(settings.rotary_dim)
    stored = description.Description(4, 1e-3, eos_id=7)
    completed = settings.completed(stored)
    self.assertEqual(completed.engine.eos_id, 7)
    self.assertEqual(completed.engine.pad_id, 7)
    self.assertEqual((completed.rotary_dim, completed.ln_epsilon), (4, 1e-3))
    other = description.Description(6, 1e-4, eos_id=8, stop_ids=[8, 9])
    self.assertEqual(completed.completed(other), completed)
    nothing = description.Description()
    self.assertEqual(settings.completed(nothing), settings)

  def test_a_checkpoint_may_name_several_end_ids(self):
    stored = description.Description(4, 1e-3, eos_id=7, stop_ids=[7, 5, 3])
    completed = _settings().completed(stored)
    self.assertEqual(completed.stop_ids, (7, 5, 3))
    self.assertEqual(completed.engine.eos_id, 7)
    self.assertEqual(completed.engine.max_stop_ids, 3)
    for own in {'EOS_ID': 2}, {'STOP_TOKEN_IDS': [2]}:
      kept = _settings(**own).completed(stored)
      self.assertNotEqual(kept.stop_ids, (7, 5, 3))
      self.assertEqual(kept.engine.max_stop_ids, 1)

  @parameterized.parameters(
    ({}, True),
    ({'KV_CACHE_DTYPE': '"bfloat16"'}, False),
    ({'FPROP_DTYPE': '"bfloat16"', 'MODEL_DTYPE': '"bfloat16"'}, False),
    ({'QUANTIZATION': '"int8_weights"'}, False),
    ({'KV_CACHE_DTYPE': '"float32"', 'QUANTIZATION': '"none"'}, True),
  )
  def test_exact_answers_follow_from_number_formats(self, overrides, exact):
    name = 'saxml_ext.params.gptj.TinyTokenizedFP32'
    settings = settings_lib.published(name, overrides)
    dtypes = {settings.dtype, settings.engine.kv_dtype}
    is_float32 = dtypes == {'float32'} and settings.quantization is None
    self.assertEqual(is_float32, exact)

  def test_a_form_that_is_unusable_names_the_params(self):
    name = 'saxml_ext.params.gptj.TinyTokenizedFP32'
    with self.assertRaisesRegex(errors.InvalidArgument, f'^{name}: '):
      settings_lib.published(name, {'ICI_MESH_SHAPE': '["a", 1, 1]'})

  def test_the_plain_template_samples(self):
    settings = settings_lib.Settings.from_params(template.ServableLMParams)
    self.assertEqual(settings.engine.search, 'sample')
    self.assertEqual(settings.engine.num_beams, 2)
    self.assertEqual(settings.engine.max_top_k, 40)


if __name__ == '__main__':
  absltest.main()
