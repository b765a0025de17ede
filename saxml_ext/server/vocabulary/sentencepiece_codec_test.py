"""Tests of the SentencePiece codec."""

import io
import random

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from saxml_ext.common import errors
from saxml_ext.common import special_tokens
from saxml_ext.params import lm_cloud
from saxml_ext.server.vocabulary import sentencepiece_codec

_PAD, _EOS, _UNKNOWN = 0, 1, 2
_FIRST_BYTE = 3
_SIZE = 1024
_REFUSED = 'y.model is not a valid SentencePiece model'


def _small() -> bytes:
  with open(lm_cloud.SMALL_VOCABULARY, 'rb') as f:
    return f.read()


def _changed(change) -> bytes:
  model = sentencepiece_model_pb2.ModelProto.FromString(_small())
  change(model)
  return model.SerializeToString()


_MARKS = ('<|im_start|>', '<|im_end|>')
_CHAT = '<|im_start|>user\nThe mayor<|im_end|>\n<|im_end|>'


def _with_added(
  *tokens: special_tokens.Token, prefixes_all: bool = False
) -> sentencepiece_codec.SentencePieceCodec:
  added = [
    special_tokens.Token(mark, _SIZE + i) for i, mark in enumerate(_MARKS)
  ]
  declared = special_tokens.Declared([*added, *tokens], True, prefixes_all)
  return sentencepiece_codec.SentencePieceCodec(_small(), 'y', declared)


def _with_defined_marks() -> sentencepiece_codec.SentencePieceCodec:
  """Returns a model that finds the marks itself."""

  def change(model) -> None:
    for i, mark in enumerate(_MARKS):
      model.pieces[-1 - i].piece = mark
      model.pieces[-1 - i].type = 4

  return sentencepiece_codec.SentencePieceCodec(_changed(change), 'y')


def _without_pieces(model) -> None:
  del model.pieces[:]


def _piece_twice(model) -> None:
  model.pieces[300].piece = model.pieces[301].piece


def _without_unknown(model) -> None:
  model.pieces[_UNKNOWN].type = 3


def _without_a_byte(model) -> None:
  model.pieces[_FIRST_BYTE].type = 1


def _wild_rules(model) -> None:
  model.normalizer_spec.precompiled_charsmap = b'\0\4\0\0' + b'\xff' * 1025


class SentencePieceCodecTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.codec = sentencepiece_codec.SentencePieceCodec(_small(), 'y.model')

  @parameterized.parameters(
    'The mayor of Exeter said on Tuesday that 12 homes had burned.',
    '"Naïve" 日本 😀\n\ttabs and lines',
    'x',
    '',
  )
  def test_round_trip(self, text):
    ids = self.codec.encode(text)
    self.assertEqual(ids.dtype, np.int32)
    self.assertEqual(self.codec.decode(ids.tolist()), text)

  def test_words_are_one_piece_without_added_ids(self):
    ids = self.codec.encode('the')
    self.assertLen(ids, 1)
    self.assertGreater(ids[0], _FIRST_BYTE + 255)

  def test_control_pieces_in_text_are_text(self):
    self.assertNoCommonElements(
      self.codec.encode('<pad> </s> <unk>').tolist(), [_PAD, _EOS, _UNKNOWN]
    )

  def test_answer_has_no_control_pieces_and_no_first_blank(self):
    ids = self.codec.encode('the people of the town').tolist()
    self.assertEqual(
      self.codec.decode([_PAD, *ids[1:], _EOS]), 'people of the town'
    )

  def test_declared_tokens_without_an_id_are_appended(self):
    tokens = [special_tokens.Token(text) for text in ('<a>', _MARKS[0], '<b>')]
    codec = _with_added(*tokens)
    ids = codec.encode_prompt('<b><a><|im_start|>').tolist()
    self.assertEqual(ids, [_SIZE + 3, _SIZE + 2, _SIZE])

  @parameterized.parameters(-1, _SIZE, 31999, 1 << 40)
  def test_missing_ids_are_unknown(self, i):
    the = self.codec.encode('the').tolist()
    self.assertEqual(
      self.codec.decode([*the, i, *the]),
      self.codec.decode([*the, _UNKNOWN, *the]),
    )
    self.assertEqual(self.codec.decode([i]), ' \u2047 ')

  def test_incomplete_character_is_replaced(self):
    first, second = (_FIRST_BYTE + b for b in 'é'.encode())
    self.assertEqual(self.codec.decode([first, second]), 'é')
    self.assertEqual(self.codec.decode([first]), '\ufffd')

  def test_added_tokens_have_one_id(self):
    made = _with_added(special_tokens.Token('<pad>', _PAD))
    ids = made.encode(_CHAT).tolist()
    self.assertEqual(ids[0], _SIZE)
    self.assertEqual(ids.count(_SIZE + 1), 2)
    self.assertEqual(made.decode(ids, special=True), _CHAT)
    self.assertEqual(made.decode(ids), 'user\nThe mayor\n')
    self.assertEqual(made.encode_prompt(_CHAT).tolist(), ids)
    self.assertEqual(made.encode('<pad>x').tolist()[0], _PAD)

  def test_text_after_an_added_token_has_no_blank_unless_legacy(self):
    for legacy, text in (False, '<|im_start|>the'), (True, '<|im_start|> the'):
      made = _with_added(prefixes_all=legacy)
      ids = made.encode('<|im_start|>the').tolist()
      self.assertEqual(made.decode(ids, special=True), text)
      self.assertEqual(made.decode(ids), 'the')

  def test_control_pieces_in_prompts_are_ids(self):
    ids = self.codec.encode_prompt('<pad>the</s>').tolist()
    self.assertEqual([ids[0], ids[-1]], [_PAD, _EOS])
    self.assertEqual(self.codec.decode(ids, special=True), '<pad>the</s>')

  def test_marks_in_literal_spans_are_text(self):
    text = f'<pad>{_CHAT}'
    for made in _with_added(), _with_defined_marks():
      ids = made.encode_prompt(text, [(len(text) - 10, len(text))]).tolist()
      self.assertEqual(ids.count(_PAD), 1)
      marks = [made.encode_prompt(mark).tolist()[-1] for mark in _MARKS]
      self.assertEqual([ids.count(i) for i in marks], [1, 1])
      self.assertEqual(made.decode(ids, special=True), text)
      # Other spans change nothing.
      self.assertEqual(
        made.encode_prompt(text, [(20, 25)]).tolist(),
        made.encode_prompt(text).tolist(),
      )

  def test_models_with_unicode_rules_are_read(self):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(['a fine file of five flies'] * 20),
      model_writer=model,
      model_type='unigram',
      vocab_size=20,
      hard_vocab_limit=False,
      normalization_rule_name='nmt_nfkc',
      minloglevel=2,
    )
    loaded = sentencepiece_codec.SentencePieceCodec(model.getvalue(), 'x')
    # The ligature of f and i becomes two letters.
    self.assertEqual(loaded.decode(loaded.encode('a \ufb01ne')), 'a fine')

  @parameterized.parameters(
    b'', b'hello\n', b'{"model": 1}', b'\0' * 100, b'\xff' * 5000
  )
  def test_invalid_model_is_refused(self, data):
    with self.assertRaisesRegex(errors.InvalidArgument, _REFUSED):
      sentencepiece_codec.SentencePieceCodec(data, 'y.model')

  @parameterized.parameters(
    _without_pieces,
    _piece_twice,
    _without_unknown,
    _without_a_byte,
    _wild_rules,
  )
  def test_hostile_models_are_refused(self, change):
    with self.assertRaisesRegex(errors.InvalidArgument, _REFUSED):
      sentencepiece_codec.SentencePieceCodec(_changed(change), 'y.model')

  def test_oversized_files_are_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, '16777217 bytes'):
      sentencepiece_codec.SentencePieceCodec(b'\n' * ((16 << 20) + 1), 'y')

  def test_damaged_files_are_refused_or_work(self):
    data = _small()
    rng = random.Random(0)
    refused = 0
    for _ in range(100):
      damaged = bytearray(data[: rng.randrange(len(data)) or None])
      for _ in range(rng.randrange(3)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
      try:
        loaded = sentencepiece_codec.SentencePieceCodec(bytes(damaged), 'y')
        loaded.decode(loaded.encode('The mayor of Exeter'))
      except errors.InvalidArgument:
        refused += 1
    self.assertGreater(refused, 90)


if __name__ == '__main__':
  absltest.main()
