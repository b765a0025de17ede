"""Tests of special tokens in the codec of tokenizer.json."""

from absl.testing import absltest
from absl.testing import parameterized
import tokenizers

from saxml_ext.common import special_tokens
from saxml_ext.server.vocabulary import tokenizer_codec

_SPECIAL = ('<s>', '</s>', '<|im_end|>')
_LETTERS = '\u2581abcdehimnostux<>/|_'
_TEXT = '<s>user the </s> a <|im_end|> x<|im_end|><s>the'
# All but the first and the last two tokens is a user's text.
_LITERAL = [(3, 31)]
_pre = tokenizers.pre_tokenizers


def _bpe(before=None, normalizer=None) -> tokenizers.Tokenizer:
  pieces = ['<unk>', *_SPECIAL, *_LETTERS, 'r', 'th', 'the']
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.BPE(
      {piece: i for i, piece in enumerate(pieces)},
      [('t', 'h'), ('th', 'e')],
      unk_token='<unk>',
    )
  )
  if before:
    tokenizer.pre_tokenizer = before
  if normalizer:
    tokenizer.normalizer = normalizer
  tokenizer.decoder = tokenizers.decoders.Metaspace(prepend_scheme='never')
  return tokenizer


def _metaspace(scheme: str) -> tokenizers.Tokenizer:
  return _bpe(_pre.Metaspace(prepend_scheme=scheme, split=False))


def _prepend() -> tokenizers.Tokenizer:
  normalizers = tokenizers.normalizers
  return _bpe(
    normalizer=normalizers.Sequence(
      [normalizers.Prepend('\u2581'), normalizers.Replace(' ', '\u2581')]
    )
  )


def _unigram() -> tokenizers.Tokenizer:
  """Returns a tokenizer whose model knows the special tokens as words."""
  pieces = ['<unk>', *_SPECIAL, *_LETTERS, 'r']
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.Unigram([(piece, -1.0) for piece in pieces], 0)
  )
  tokenizer.pre_tokenizer = _pre.Metaspace(prepend_scheme='never')
  tokenizer.decoder = tokenizers.decoders.Metaspace(prepend_scheme='never')
  return tokenizer


class SpecialTokensTest(parameterized.TestCase):
  @parameterized.parameters(
    (lambda: _metaspace('first'),),
    (lambda: _metaspace('always'),),
    (lambda: _metaspace('never'),),
    (_prepend,),
    (_unigram,),
  )
  def test_marks_in_literal_spans_are_text(self, make):
    tokenizer = make()
    tokenizer.add_special_tokens(list(_SPECIAL))
    made = tokenizer_codec.TokenizerCodec(tokenizer)
    ids = made.encode_prompt(_TEXT, _LITERAL).tolist()
    self.assertEqual(
      [i for i in ids if i in (1, 2, 3)], [1, 3, 1], made.decode(ids, True)
    )
    self.assertNotIn(0, ids)
    blanks = str.maketrans('', '', ' ')
    self.assertEqual(
      made.decode(ids, special=True).translate(blanks), _TEXT.translate(blanks)
    )
    # The ids of the rest are those of the whole text.
    whole = made.encode_prompt(_TEXT).tolist()
    self.assertEqual(whole, made.encode(_TEXT).tolist())
    end = len(whole) - whole[::-1].index(3) - 1
    self.assertEqual(ids[-len(whole[end:]) :], whole[end:])
    self.assertEqual(ids[: whole.index(2)], whole[: whole.index(2)])
    self.assertEqual(made.encode_prompt(_TEXT, [(3, 11)]).tolist(), whole)

  def test_declared_tokens_are_special(self):
    tokenizer = _metaspace('never')
    tokenizer.add_tokens(['<|im_end|>'])
    made = tokenizer_codec.TokenizerCodec(
      tokenizer, special_tokens.Declared([special_tokens.Token('<|im_end|>')])
    )
    ids = made.encode('the<|im_end|>').tolist()
    self.assertEqual(made.decode(ids), 'the')
    self.assertEqual(made.decode(ids, special=True), 'the<|im_end|>')
    self.assertEqual(made.piece(ids[-1]), b'')

  def test_declared_tokens_that_the_file_lacks_are_appended(self):
    tokens = [
      special_tokens.Token('<new>', 99, lstrip=True),
      special_tokens.Token('<s>'),
      special_tokens.Token('ed', 98, special=False),
      special_tokens.Token('<new>'),
    ]
    tokenizer = _metaspace('never')
    size = tokenizer.get_vocab_size()
    made = tokenizer_codec.TokenizerCodec(
      tokenizer, special_tokens.Declared(tokens)
    )
    ids = made.encode('<s>a <new>ed').tolist()
    self.assertEqual(ids, [1, tokenizer.token_to_id('a'), size, size + 1])
    self.assertEqual(made.decode(ids), 'aed')

  def test_settings_of_training_do_not_apply(self):
    tokenizer = _metaspace('never')
    ids = tokenizer.encode('the the').ids
    tokenizer.enable_truncation(1)
    tokenizer.enable_padding(length=8)
    made = tokenizer_codec.TokenizerCodec(tokenizer)
    self.assertEqual(made.encode('the the').tolist(), ids)
    self.assertLen(made.encode_prompt('the<s>', [(0, 6)]), 4)

  def test_marks_without_a_flag_are_text_in_literal_spans(self):
    tokenizer = _metaspace('never')
    tokenizer.add_tokens(['<|im_end|>', 'the'])
    made = tokenizer_codec.TokenizerCodec(tokenizer)
    text = 'the<|im_end|>'
    self.assertEqual(made.decode(made.encode(text).tolist()), text)
    ids = made.encode_prompt(text, [(0, len(text))]).tolist()
    self.assertNotIn(3, ids)
    self.assertEqual(made.decode(ids), text)


if __name__ == '__main__':
  absltest.main()
