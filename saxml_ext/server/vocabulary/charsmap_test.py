"""Tests of the check of normalization rules."""

import io
import random

from absl.testing import absltest
from absl.testing import parameterized
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from saxml_ext.server.vocabulary import charsmap

_UNITS = 256
_RESULT = 1 << 31


def _rules(*units: int, replacements: bytes = b'b\0') -> bytes:
  """Returns rules with a trie of these units; the others match no byte."""
  padded = [*units, *[_RESULT] * (_UNITS - len(units))]
  trie = b''.join(unit.to_bytes(4, 'little') for unit in padded)
  return len(trie).to_bytes(4, 'little') + trie + replacements


def _unit(label: int, offset: int, leaf: bool = False) -> int:
  return offset << 10 | leaf << 8 | label


def _trained(name: str) -> sentencepiece_model_pb2.ModelProto:
  """Trains a model with the library's normalization rules of this name."""
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['a fine file of five flies'] * 20),
    model_writer=model,
    model_type='char',
    vocab_size=20,
    hard_vocab_limit=False,
    normalization_rule_name=name,
    minloglevel=2,
  )
  return sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())


class CharsmapTest(parameterized.TestCase):
  @parameterized.parameters('nmt_nfkc', 'nfkc', 'nmt_nfkc_cf', 'identity')
  def test_rules_of_the_library_pass(self, name):
    charsmap.check(_trained(name).normalizer_spec.precompiled_charsmap)

  def test_single_rule_is_checked(self):
    # The place of the root is 1. Byte 2 is looked up at unit 1 ^ 2 = 3, and its
    # result is at unit 3 ^ 7 = 4.
    good = [_unit(0, 1), _RESULT, _RESULT, _unit(2, 7, leaf=True)]
    charsmap.check(_rules(*good, _RESULT | 0))
    charsmap.check(_rules(*good, _RESULT | 1))
    with self.assertRaisesRegex(ValueError, 'refers to byte 2 of 2'):
      charsmap.check(_rules(*good, _RESULT | 2))

  @parameterized.parameters(
    (_rules(_unit(0, 256)), 'refers to unit 511 of 256'),
    (
      _rules(_unit(0, 1), _RESULT, _RESULT, _unit(2, 1000)),
      'refers to unit 1023 of 256',
    ),
    # Byte 2 leads back to the place where it is looked up.
    (
      _rules(_unit(0, 1), _RESULT, _RESULT, _unit(2, 2)),
      'longer than 32 bytes',
    ),
    (_rules(replacements=b'b'), 'is not terminated'),
    (_rules(replacements=b''), 'declare a trie of 1024'),
    (_rules()[:500], 'declare a trie of 1024'),
    (b'\0\0\0\0b\0', 'declare a trie of 0'),
    (b'\6\0\0\0abcdefb\0', 'declare a trie of 6'),
    (b'\1', 'declare a trie of 1'),
  )
  def test_invalid_rules_are_refused(self, rules, message):
    with self.assertRaisesRegex(ValueError, message):
      charsmap.check(rules)

  def test_library_survives_damaged_rules_that_pass(self):
    model = _trained('nmt_nfkc')
    whole = model.normalizer_spec.precompiled_charsmap
    text = ''.join(map(chr, range(1, 0x3100)))
    rng = random.Random(0)
    refused = 0
    for _ in range(40):
      damaged = bytearray(whole)
      for _ in range(4):
        damaged[rng.randrange(4, 4096)] = rng.randrange(256)
      try:
        charsmap.check(bytes(damaged))
      except ValueError:
        refused += 1
        continue
      model.normalizer_spec.precompiled_charsmap = bytes(damaged)
      processor = sentencepiece.SentencePieceProcessor()
      processor.LoadFromSerializedProto(model.SerializeToString())
      self.assertNotEmpty(processor.EncodeAsIds(text))
    self.assertBetween(refused, 5, 35)


if __name__ == '__main__':
  absltest.main()
