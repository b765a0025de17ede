"""Tests that mutated requests are as hostile as intended."""

import random

from absl.testing import absltest
from google.protobuf import message as message_lib

from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import lm_pb2
from tests.reliability.messages import mutants

_MODEL = '/sax/test/m'
_SEED = lm_pb2.GenerateRequest(model_key=_MODEL, text='1,2')


def _mutator(seed: int = 0) -> mutants.Mutator:
  return mutants.Mutator(
    random.Random(seed), [_MODEL], {_SEED.DESCRIPTOR.full_name: [_SEED]}
  )


class MutantsTest(absltest.TestCase):
  def test_same_seed_gives_the_same_requests(self):
    kind = admin_pb2.PublishRequest.DESCRIPTOR
    first, again = _mutator(7), _mutator(7)
    for _ in range(50):
      self.assertEqual(first.request(kind), again.request(kind))

  def test_mutants_are_invalid_valid_and_mostly_between(self):
    mutator = _mutator()
    malformed = intact = known = 0
    for _ in range(1000):
      data = mutator.request(_SEED.DESCRIPTOR)
      try:
        message = lm_pb2.GenerateRequest.FromString(data)
      except message_lib.DecodeError:
        malformed += 1
        continue
      intact += message == _SEED
      known += message.model_key == _MODEL
    self.assertGreater(malformed, 50)
    self.assertBetween(intact, 50, 500)
    self.assertGreater(known, 300)

  def test_every_field_is_mutated_at_every_depth(self):
    mutator = _mutator()
    reached = set()

    def note(message: message_lib.Message) -> None:
      for field, value in message.ListFields():
        reached.add(field.full_name)
        if field.message_type and not field.is_repeated:
          note(value)

    for _ in range(400):
      data = mutator.request(admin_pb2.JoinRequest.DESCRIPTOR)
      try:
        note(admin_pb2.JoinRequest.FromString(data))
      except message_lib.DecodeError:
        continue
    for kind in (admin_pb2.JoinRequest, admin_pb2.ModelServer):
      for field in kind.DESCRIPTOR.fields:
        self.assertIn(field.full_name, reached)


if __name__ == '__main__':
  absltest.main()
