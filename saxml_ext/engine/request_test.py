"""Tests of the options of requests."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib

_ENGINE = config_lib.EngineConfig(
  eos_id=5,
  max_prompt=24,
  max_new_tokens=14,
  min_new_tokens=3,
  temperature=0.5,
  top_p=0.9,
  max_top_k=8,
)
_CHECKS = request_lib.Checks(_ENGINE, 64)
_TOKENS = np.ones(2, np.int32)


def _values(request):
  """Returns the values of all fields in order, with the tokens as a list."""
  tokens, *rest = (
    getattr(request, field.name)
    for field in dataclasses.fields(request_lib.Request)
  )
  return (tokens.tolist(), *rest)


class RequestTest(parameterized.TestCase):
  def test_unset_options_get_the_engines_defaults(self):
    completed = request_lib.settle(request_lib.Request(_TOKENS), _ENGINE)
    expected = request_lib.Request(_TOKENS, 14, 3, (5,), 0.5, 8, 0.9, None)
    search = (True, 4, 1.0, True, 0, None, False)
    self.assertEqual(_values(completed), (*_values(expected)[:8], *search))
    request = request_lib.Request(
      *(_TOKENS, 2, 0, (), 0.0, 7, 0.1, 11, True, 2, 0.5, 'never', 3, 0, True)
    )
    completed = request_lib.settle(request, _ENGINE)
    self.assertEqual(_values(completed), _values(request))

  def test_a_request_may_have_more_fields(self):
    @dataclasses.dataclass(frozen=True)
    class Watched(request_lib.Request):
      on_first_token: object = None

    request = Watched(_TOKENS, top_k=7, on_first_token=print)
    completed = request_lib.settle(request, _ENGINE)
    self.assertEqual(completed.top_k, 7)

  def test_some_token_has_to_end_an_answer(self):
    engine = dataclasses.replace(_ENGINE, eos_id=None)
    with self.assertRaisesRegex(ValueError, 'no stop_ids and .* no eos_id'):
      request_lib.settle(request_lib.Request(_TOKENS), engine)
    request = request_lib.Request(_TOKENS, stop_ids=(7,))
    completed = request_lib.settle(request, engine)
    self.assertEqual(completed.stop_ids, (7,))

  @parameterized.parameters(
    dict(tokens=np.ones(24, int)),
    dict(tokens=np.asarray([0, 63])),
    dict(max_new_tokens=1),
    dict(max_new_tokens=14, min_new_tokens=99),
    dict(stop_ids=()),
    dict(stop_ids=(63,)),
    dict(temperature=0.0),
    dict(top_p=1.0, top_k=8, seed=2**32 - 1),
  )
  def test_the_limits_themselves_are_allowed(self, **request):
    _CHECKS.request(request_lib.Request(**{'tokens': _TOKENS, **request}))

  @parameterized.parameters(
    dict(search='any'), dict(search='sample', max_top_k=0)
  )
  def test_any_top_k_is_allowed_if_the_whole_vocabulary_is_sampled(self, **e):
    checks = request_lib.Checks(dataclasses.replace(_ENGINE, **e), 64)
    for top_k in (-1, 0, 1, 8, 9, 64, 1000, 2**31 - 1):
      checks.request(request_lib.Request(_TOKENS, top_k=top_k))
    for top_k in (-2, 2**31):
      with self.assertRaisesRegex(ValueError, 'between -1 and .* Send 0 or -1'):
        checks.request(request_lib.Request(_TOKENS, top_k=top_k))

  def test_a_limit_of_top_k_names_attributes_that_a_publisher_can_set(self):
    engine = dataclasses.replace(_ENGINE, search='sample')
    checks = request_lib.Checks(engine, 64)
    with self.assertRaisesRegex(
      ValueError,
      'top_k is 50, but must be between 0 and 8. .* TOP_K=8. .*'
      ' MIXED_SEARCH=true, which allows any',
    ):
      checks.request(request_lib.Request(_TOKENS, top_k=50))
    # A greedy request does not use it.
    checks.request(request_lib.Request(_TOKENS, top_k=50, temperature=0.0))

  @parameterized.parameters(
    (dict(tokens=np.zeros(0, np.int32)), 'at least one token'),
    (dict(tokens=np.ones((1, 2), int)), r'shape \(1, 2\)'),
    (dict(tokens=np.ones(25, np.int32)), '25 tokens, above the limit of 24'),
    (dict(tokens=np.asarray([1, 64])), 'from 1 to 64.*0 to 63'),
    (dict(tokens=np.asarray([-1, 5])), 'from -1 to 5.*0 to 63'),
    (dict(max_new_tokens=0), '0, but must be between 1 and 14'),
    (dict(max_new_tokens=15), '15, but must be between 1 and 14'),
    (dict(min_new_tokens=-1), '-1, but must be at least 0'),
    (dict(stop_ids=(1, 2)), '2 stop ids, above .* of 1'),
    (dict(stop_ids=(64,)), '64.*0 to 63'),
    (dict(stop_ids=(-1,)), '-1.*0 to 63'),
    (dict(temperature=-1.0), '-1.0, but must be finite and at least 0'),
    (dict(temperature=float('inf')), 'inf, but must be finite and at least 0'),
    (dict(temperature=float('nan')), 'nan, but must be finite and at least 0'),
    (dict(top_p=0.0), '0.0, but must be above 0.* send temperature 0'),
    (dict(top_p=1.1), '1.1, but must be above 0 and at most 1'),
    (dict(top_k=-1), '-1, but must be between 0 and 8'),
    (dict(top_k=9), '9, but must be between 0 and 8'),
    (dict(seed=-1), '-1, not between 0'),
    (dict(seed=2**32), '4294967296, not between 0'),
  )
  def test_requests_out_of_limits_are_refused(self, request, message):
    request = request_lib.Request(**{'tokens': _TOKENS, **request})
    with self.assertRaisesRegex(ValueError, message):
      _CHECKS.request(request)


if __name__ == '__main__':
  absltest.main()
