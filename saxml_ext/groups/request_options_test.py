"""Tests that every path of a request handles all request options."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import request_options
from saxml_ext.engine import request as request_lib
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import group_pb2


class RequestOptionsTest(parameterized.TestCase):
  def test_has_every_field_of_the_engines_request(self):
    fields = {f.name for f in dataclasses.fields(request_lib.Request)}
    self.assertEqual(set(request_options.BY_ENGINE), fields - {'tokens'})

  def test_has_every_field_of_a_completion(self):
    fields = set(completion_pb2.CompleteRequest.DESCRIPTOR.fields_by_name)
    unsent = {'model_key', 'text', 'segments', 'token_ids', 'fallback_seed'}
    self.assertEqual(set(request_options.BY_COMPLETION), fields - unsent)

  def test_has_every_field_of_a_groups_request(self):
    fields = set(group_pb2.Request.DESCRIPTOR.fields_by_name)
    self.assertEqual(set(request_options.BY_ENGINE), fields - {'tokens'})

  @parameterized.parameters(completion_pb2, group_pb2)
  def test_early_stopping_has_the_numbers_of_the_messages(self, messages):
    names = [
      f'EARLY_STOPPING_{str(value or "unspecified").upper()}'
      if value is not False
      else 'EARLY_STOPPING_FALSE'
      for value in request_options.EARLY_STOPPING
    ]
    self.assertEqual(messages.EarlyStopping.keys(), names)
    self.assertEqual(messages.EarlyStopping.values(), list(range(len(names))))

  def test_a_number_becomes_one_of_its_kind(self):
    option = request_options.BY_ENGINE['top_k']
    self.assertIs(type(option.convert(3.0)), int)
    for wrong in (2.5, 'a', [1]):
      with self.assertRaisesRegex(ValueError, 'must be a whole number'):
        option.convert(wrong)

  def test_a_seed_is_drawn_for_a_request_that_has_none(self):
    request = request_lib.Request(tokens=None)
    seeds = {request_options.with_seed(request).seed for _ in range(4)}
    self.assertLen(seeds, 4)
    self.assertEqual(
      request_options.with_seed(request, bits=lambda count: count).seed, 32
    )
    own = dataclasses.replace(request, seed=0)
    self.assertIs(request_options.with_seed(own), own)


if __name__ == '__main__':
  absltest.main()
