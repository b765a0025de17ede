"""Tests of the address log, against recorded sequences."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.admin import watch
from saxml_ext.common.testing import golden


def _as_json(delta: watch.Delta) -> dict[str, object]:
  return {
    'next_seqno': delta.next_seqno,
    'has_fullset': delta.full,
    'values': list(delta.values),
    'changelog': [
      {'addition' if c.added else 'deletion': c.address} for c in delta.changes
    ],
  }


class RecordedSequencesTest(absltest.TestCase):
  def test_every_recorded_answer(self):
    sequences = golden.load('validation.json')['watchable']
    self.assertNotEmpty(sequences)
    for sequence in sequences:
      log = watch.AddressLog()
      answers = iter(sequence['watch_results'])
      for op in sequence['ops']:
        if op['op'] == 'add':
          log.add(op['val'])
        elif op['op'] == 'del':
          log.remove(op['val'])
        elif op['op'] == 'close':
          log.close()
        else:
          answer = next(answers)
          delta = log.read(op['seqno'])
          if 'error' in answer:  # The recorded call blocked until it timed out.
            self.assertIsNone(delta, op)
          else:
            self.assertEqual(_as_json(delta), answer['result'], op)
      self.assertIsNone(next(answers, None))


class AddressLogTest(parameterized.TestCase):
  def test_new_log_has_nothing_to_say(self):
    self.assertIsNone(watch.AddressLog().read(0))

  def test_addresses_are_the_net_effect(self):
    log = watch.AddressLog()
    for address in 'abcab':
      log.add(address)
    log.remove('b')
    self.assertEqual(log.addresses, {'a', 'c'})

  @parameterized.parameters(1, 2, 5)
  def test_a_reader_at_any_pace_ends_with_the_same_set(self, pace: int):
    log = watch.AddressLog()
    seen, seqno = set(), 0
    for i in range(200):
      (log.add if i % 3 else log.remove)(f's{i % 17}')
      if i % pace:
        continue
      delta = log.read(seqno)
      if delta.full:
        seen = set(delta.values)
      for change in delta.changes:
        (seen.add if change.added else seen.discard)(change.address)
      seqno = delta.next_seqno
      self.assertEqual(seen, log.addresses)

  def test_log_stays_small(self):
    log = watch.AddressLog()
    for i in range(10_000):
      log.add(f's{i % 4}')
      log.remove(f's{i % 4}')
    delta = log.read(0)
    self.assertTrue(delta.full)
    self.assertLessEqual(len(delta.changes), 9)

  def test_closed_log_starts_everybody_over(self):
    log = watch.AddressLog()
    log.add('a')
    log.close()
    for seqno in (0, 1, 7):
      self.assertEqual(log.read(seqno), watch.CLOSED)


if __name__ == '__main__':
  absltest.main()
