"""Tests the settings of completion requests."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import templates
from saxml_ext.protobuf import completion_pb2

_SAMPLES = {'temperature': 0.5, 'top_k': 50, 'top_p': 0.9}
_LENGTHS = {'max_tokens': 2048, 'min_tokens': 8}


def _limits(**values):
  return completion_pb2.DescribeResponse(
    **{
      'max_new_tokens': 128,
      'max_model_len': 1024,
      'max_beams': 4,
      'max_samples': 4,
      'vocab_size': 1000,
      **values,
    }
  )


class DefaultsTest(parameterized.TestCase):
  @parameterized.named_parameters(
    ('without_limits', {}, None, {**_SAMPLES, **_LENGTHS}),
    ('limited', {}, _limits(), {**_SAMPLES, **_LENGTHS, 'max_tokens': 128}),
    (
      'few_tokens_of_the_request',
      {'max_tokens': 4},
      _limits(),
      {**_SAMPLES, 'max_tokens': 4, 'min_tokens': 4},
    ),
    (
      'few_tokens_of_the_model',
      {},
      _limits(max_new_tokens=5),
      {**_SAMPLES, 'max_tokens': 5, 'min_tokens': 5},
    ),
    (
      'values_of_the_request',
      {'temperature': 0, 'top_k': -1, 'max_completion_tokens': 9},
      _limits(),
      {'temperature': 0, 'top_k': 0, 'top_p': 0.9}
      | {'max_tokens': 9, 'min_tokens': 8},
    ),
    (
      'beams',
      {'use_beam_search': True, 'best_of': 2},
      _limits(),
      {'use_beam_search': True, 'num_beams': 2}
      | {'max_tokens': 128, 'min_tokens': 8},
    ),
    (
      'model_without_samples',
      {},
      _limits(max_samples=0),
      {'max_tokens': 128, 'min_tokens': 8},
    ),
    (
      'model_with_a_limit_of_top_k',
      {},
      _limits(max_beams=0, max_top_k=40),
      {**_SAMPLES, **_LENGTHS, 'top_k': 40, 'max_tokens': 128},
    ),
    (
      'model_of_any_top_k',
      {},
      _limits(max_top_k=40),
      {**_SAMPLES, **_LENGTHS, 'max_tokens': 128},
    ),
    (
      'whole_context',
      {},
      _limits(max_new_tokens=1024),
      {**_SAMPLES, **_LENGTHS, 'max_tokens': 1024},
    ),
    (
      'several_answers_of_a_whole_context',
      {'n': 2},
      _limits(max_new_tokens=1024),
      {**_SAMPLES, 'min_tokens': 8},
    ),
  )
  def test_defaults_never_make_a_request_fail(self, members, limits, expected):
    request = fields.read({'prompt': 'x', **members}, completions.Request)
    profile = templates.Profile(defaults={**_SAMPLES, **_LENGTHS})
    form = completions.CompletionForm.from_request(request, lambda _: profile)
    settings = form.all_settings(limits)
    self.assertEqual(settings.pop('n'), members.get('n', 1))
    self.assertEqual(settings.pop('stop'), [])
    for name in ('stream', 'echo'):
      settings.pop(name, None)
    self.assertEqual(settings, expected)


if __name__ == '__main__':
  absltest.main()
