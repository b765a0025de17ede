"""Tests answers that use all of the context that their prompts leave."""

import functools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import platform_configs
from saxml_ext.engine import preparation
from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving

_MODEL = config_lib.ModelConfig(
  num_layers=3,
  model_dim=32,
  num_heads=4,
  num_kv_heads=2,
  head_dim=16,
  hidden_dim=64,
  rotary_dim=16,
  vocab_size=64,
)
_CONTEXT, _RING, _CHUNK = 64, 12, 8
_SHARED = dict(
  eos_id=0,
  num_slots=4,
  min_new_tokens=0,
  search='any',
  num_beams=3,
  beam_search=False,
  max_logprobs=2,
  max_stop_ids=2,
  steps_per_call=5,
)
_SEPARATE = dict(
  max_prompt=40,
  prompt_buckets=(40,),
  max_new_tokens=_CONTEXT,
  decode_widths=(4,),
)
_LONG = dict(
  max_context=_CONTEXT,
  max_prompt=_CONTEXT - 1,
  prefill_chunk=_CHUNK,
  prompt_buckets=(3, _CHUNK),
  max_new_tokens=_RING,
  suffix_block=_RING,
  decode_widths=(1, 4),
)
# No token ends these answers.
_ENDLESS = (0,)


@functools.cache
def _runner(quantization=None, kv_dtype='float32', long=True):
  weights = weights_lib.from_pax(
    random_model.variables(_MODEL, scale=3.0), _MODEL, 'float32', quantization
  )
  if long:
    weights = weights_lib.stack(weights)
  settings = _LONG if long else _SEPARATE
  if long and (quantization, kv_dtype) != (None, 'float32'):
    # Only the first kind has several programs of the same function.
    settings = settings | dict(prompt_buckets=(_CHUNK,), decode_widths=(4,))
  engine = config_lib.EngineConfig(**_SHARED, **settings, kv_dtype=kv_dtype)
  return runner_lib.Runner(weights, _MODEL, engine)


def _prompt(length, seed=1):
  rng = np.random.default_rng(seed)
  return rng.integers(1, _MODEL.vocab_size, length).astype(np.int32)


def _request(length, text=1, **options):
  options = {'temperature': 0.0, **options}
  if not options.get('beam_search'):
    options = {'num_samples': 1, **options}
  return request_lib.Request(_prompt(length, text), **options)


class ContextTest(parameterized.TestCase):
  def _assert_equal_to_separate(self, requests, *kind):
    expected = serving.serve(_runner(*kind, long=False), requests)
    got = serving.serve(_runner(*kind), requests)
    self.assertEqual(serving.tokens(got), serving.tokens(expected))
    # The ring adds sums in another order, which changes their last bits. That
    # can move an activation to the next of its codes. With the 255 codes of
    # "int8", a single one changed an answer by 0.07.
    one, total = (5e-3, 2e-2) if kind[:1] == ('int8_fine',) else (1e-4, 5e-4)
    for some, alone in zip(got, expected):
      for a, b in zip(some.hypotheses, alone.hypotheses):
        self.assertAlmostEqual(a.logprob, b.logprob, delta=total)
        if b.token_logprobs is not None:
          np.testing.assert_allclose(
            a.token_logprobs, b.token_logprobs, atol=one
          )
          np.testing.assert_array_equal(a.alternatives[0], b.alternatives[0])

  @parameterized.parameters(1, 3, 7, 8, 9, 16, 23, 40)
  def test_prompt_of_any_length_is_prefilled_in_chunks(self, length):
    self._assert_equal_to_separate([_request(length, max_new_tokens=4)])

  @parameterized.parameters(
    (None, 'float32'),
    ('int8_fine', 'float32'),
    (None, 'int8'),
    ('int8_fine', 'int8'),
  )
  def test_answers_continue_over_turns_of_the_ring(self, *kind):
    # Requests begin at different rows of the ring, and end in different turns.
    requests = [
      _request(5, 1, max_new_tokens=50, logprobs=2, stop_ids=_ENDLESS),
      _request(11, 2, max_new_tokens=31),
      _request(24, 3, max_new_tokens=3),
      _request(2, 4, max_new_tokens=_RING + 1),
      _request(13, 5, max_new_tokens=40, temperature=1.0, seed=3),
      _request(7, 6, max_new_tokens=_RING),
      _request(30, 7, max_new_tokens=34),
    ]
    self._assert_equal_to_separate(requests, *kind)

  def test_beams_and_samples_run_beside_long_answers(self):
    requests = [
      _request(5, 1, max_new_tokens=50),
      _request(9, 2, max_new_tokens=_RING, beam_search=True, num_beams=3),
      _request(8, 3, max_new_tokens=9, temperature=1.5, seed=5, num_samples=3),
      _request(20, 4, max_new_tokens=44),
      _request(4, 5, max_new_tokens=11, beam_search=True, num_beams=2),
      _request(3, 6, max_new_tokens=12, temperature=0.7, seed=8, num_samples=2),
      _request(6, 7, max_new_tokens=12, beam_search=True, num_beams=1),
    ]
    self._assert_equal_to_separate(requests)

  def test_answer_without_a_limit_ends_with_the_context(self):
    for length in (1, 10, _CONTEXT - 1):
      [result] = serving.serve(_runner(), [_request(length, stop_ids=())])
      [answer] = result.hypotheses
      self.assertLen(answer.tokens, _CONTEXT - length)

  def test_larger_limit_is_that_of_the_context(self):
    request = _request(10, stop_ids=(), max_new_tokens=_CONTEXT)
    _runner().check(request)
    [result] = serving.serve(_runner(), [request])
    self.assertLen(result.hypotheses[0].tokens, _CONTEXT - 10)

  def test_several_rows_have_the_limit_of_the_ring(self):
    for options in (dict(num_samples=2), dict(beam_search=True)):
      [result] = serving.serve(
        _runner(), [_request(10, stop_ids=(), **options)]
      )
      self.assertLen(result.hypotheses[0].tokens, _RING)
      with self.assertRaisesRegex(ValueError, f'at most {_RING} for . beams'):
        _runner().check(_request(10, max_new_tokens=_RING + 1, **options))

  def test_prompt_that_fills_the_context_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'has 64 tokens'):
      _runner().check(_request(_CONTEXT))

  def test_streams_report_all_steps_of_long_answers(self):
    runner = _runner()
    request = _request(9, max_new_tokens=45, stop_ids=_ENDLESS, stream=True)
    runner.prefill_and_insert({2: request})
    lengths, done = [], {}
    while not done:
      done = runner.step()
      lengths += [len(p.rows[0].tokens) for p in runner.progress.values()]
    self.assertEqual(lengths, sorted(lengths))
    self.assertGreater(len(lengths), 8)
    [expected] = serving.serve(_runner(long=False), [request])
    np.testing.assert_array_equal(
      done[2].hypotheses[0].tokens, expected.hypotheses[0].tokens
    )

  def test_same_request_alone_gets_the_same_bits(self):
    request = _request(9, max_new_tokens=40, temperature=1.0, seed=4)
    results = [serving.serve(_runner(), [request])[0] for _ in range(2)]
    self.assertEqual(*[r.hypotheses[0].logprob for r in results])

  def test_first_programs_answer_a_short_request(self):
    weights = weights_lib.stack(
      weights_lib.from_pax(random_model.variables(_MODEL), _MODEL)
    )
    engine = config_lib.EngineConfig(**_SHARED, **_LONG)
    run = preparation.prepare(weights, _MODEL, engine)
    run.prepare(run.first())
    compiled = run.compiled
    runner = runner_lib.Runner.start(run)
    serving.serve(runner, [_request(3, max_new_tokens=5, stream=True)])
    self.assertEqual(run.compiled, compiled)

  def test_no_program_copies_the_cache(self):
    weights = weights_lib.stack(
      weights_lib.from_pax(random_model.variables(_MODEL), _MODEL)
    )
    length = 1 << 13
    engine = config_lib.EngineConfig(
      **_SHARED, **{**_LONG, 'max_context': length, 'max_prompt': length - 1}
    )
    run = preparation.prepare(weights, _MODEL, engine)
    keys = [
      *[key for key in run.first() if 'progress' not in str(key)],
      program_keys.MoveSteps(),
      program_keys.PrefillChunk(1, 0, _CHUNK),
      program_keys.Decode(1),
    ]
    for key in keys:
      with self.subTest(str(key)):
        memory = run.lower(key).compile().memory_analysis()
        self.assertLess(memory.temp_size_in_bytes, length * 64)

  def test_accelerators_keep_separate_limits(self):
    config = config_lib.EngineConfig(**_SHARED, **_LONG)
    other = platform_configs.without_context(config)
    self.assertEqual(other.max_prompt + other.max_new_tokens, _CONTEXT)
    self.assertEqual(other.max_context, 0)
    self.assertEqual(platform_configs.without_context(other), other)

  @parameterized.parameters(
    (dict(max_prompt=_CONTEXT), 'to leave room for an answer'),
    (dict(max_new_tokens=65, suffix_block=65), 'at most max_context'),
    (dict(search='beam'), 'search is .*which max_context'),
    (dict(suffix_block=4), 'suffix_block is 4'),
  )
  def test_settings_that_do_not_fit_are_refused(self, settings, reason):
    with self.assertRaisesRegex(ValueError, reason):
      config_lib.EngineConfig(**{**_SHARED, **_LONG, **settings})


if __name__ == '__main__':
  absltest.main()
