"""Tests of the conversion of engine calls to entries and back."""

import dataclasses

from absl.testing import absltest
import numpy as np

from saxml_ext.common import request_options
from saxml_ext.engine import request as request_lib
from saxml_ext.groups import entries
from saxml_ext.groups.testing import noting_runner
from saxml_ext.protobuf import group_pb2


def _applied(entry: group_pb2.Entry) -> list:
  """Returns the engine calls that a serialized and parsed entry makes."""
  runner = noting_runner.NotingRunner()
  runner.prefill_and_insert({2: request_lib.Request(np.asarray([9]))})
  runner.calls.clear()
  entries.apply(group_pb2.Entry.FromString(entry.SerializeToString()), runner)
  return runner.calls


class EntriesTest(absltest.TestCase):
  def test_every_field_of_a_request_travels(self):
    request = request_lib.Request(
      tokens=np.asarray([0, 5, 50399], np.int32),
      max_new_tokens=0,
      min_new_tokens=3,
      stop_ids=[7],
      temperature=0.1,
      top_k=0,
      top_p=1 / 3,
      seed=2**32 - 1,
      beam_search=False,
      num_beams=2,
      length_penalty=0.0,
      early_stopping=False,
      num_samples=3,
      logprobs=0,
      stream=True,
    )
    (call,) = _applied(entries.admit(1, {0: request}))
    expected = dataclasses.asdict(request) | {
      'tokens': [0, 5, 50399],
      'stop_ids': (7,),
    }
    self.assertEqual(call, ('admit', 0, expected))
    self.assertNotIn(None, call[2].values())

  def test_unset_options_stay_unset(self):
    request = request_lib.Request(np.asarray([1], np.int64))
    (call,) = _applied(entries.admit(1, {3: request}))
    del call[2]['tokens']
    self.assertFalse(call[2].pop('stream'))
    self.assertEqual(set(call[2].values()), {None})

  def test_every_way_to_stop_early_travels(self):
    for value in (None, True, False, 'never'):
      request = request_lib.Request(np.asarray([1]), early_stopping=value)
      (call,) = _applied(entries.admit(1, {3: request}))
      self.assertIs(type(call[2]['early_stopping']), type(value))
      self.assertEqual(call[2]['early_stopping'], value)

  def test_other_calls(self):
    self.assertEqual(_applied(entries.step(1, None)), [('step', None)])
    self.assertEqual(_applied(entries.step(1, 8)), [('step', 8)])
    self.assertEqual(_applied(entries.release(1, 2)), [('release', 2)])
    self.assertEqual(
      _applied(entries.score(1, np.asarray([1, 2]), np.asarray([3]))),
      [('score', [1, 2], [3])],
    )

  def test_entry_that_is_no_call(self):
    with self.assertRaisesRegex(
      ValueError, 'entry 4 is end, not an engine call'
    ):
      _applied(group_pb2.Entry(sequence=4, end=group_pb2.End()))

  def test_seed_is_drawn_once(self):
    request = request_lib.Request(np.asarray([1]))
    seeds = {request_options.with_seed(request).seed for _ in range(20)}
    self.assertGreater(len(seeds), 10)
    self.assertTrue(all(0 <= seed < 2**32 for seed in seeds))
    seeded = dataclasses.replace(request, seed=0)
    self.assertIs(request_options.with_seed(seeded), seeded)


if __name__ == '__main__':
  absltest.main()
