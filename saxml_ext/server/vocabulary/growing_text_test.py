"""Tests that the parts of a growing text form the text of all ids."""

import random

from absl.testing import absltest
from absl.testing import parameterized
import tokenizers

from saxml_ext.params import lm_cloud
from saxml_ext.server.vocabulary import codec
from saxml_ext.server.vocabulary import tokenizer_codec

_TEXTS = (
  'The mayor of Exeter said on Tuesday that 12 homes had burned.',
  '"Na\u00efve" \u65e5\u672c \U0001f600\U0001f469\u200d\U0001f52c\n\ttabs  and  lines ',
  '  two blanks first, caf\u00e9 \ufffd e\u0301 last',
)


def _bundled() -> codec.Codec:
  return codec.load_tokenizer('harness/bundled/model/tokenizer.json', '')


def _small() -> codec.Codec:
  return codec.load_tokenizer(lm_cloud.SMALL_VOCABULARY, '')


def _llama() -> codec.Codec:
  """Returns a codec with byte fallback and the decoder of Llama."""
  decoders = tokenizers.decoders
  return _byte_fallback(
    decoders.Replace('\u2581', ' '),
    decoders.ByteFallback(),
    decoders.Fuse(),
    decoders.Strip(' ', 1, 0),
  )


def _gemma() -> codec.Codec:
  """Returns a codec whose decoder keeps the first blank."""
  decoders = tokenizers.decoders
  return _byte_fallback(
    decoders.Replace('\u2581', ' '), decoders.ByteFallback(), decoders.Fuse()
  )


def _metaspace(scheme: str) -> codec.Codec:
  decoders = tokenizers.decoders
  return _byte_fallback(
    decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)
  )


def _fused_replacement() -> codec.Codec:
  """Returns a codec that replaces texts across tokens."""
  decoders = tokenizers.decoders
  return _byte_fallback(
    decoders.ByteFallback(), decoders.Fuse(), decoders.Replace('es', 'ES')
  )


def _byte_fallback(*parts: tokenizers.decoders.Decoder) -> codec.Codec:
  pieces = ['<unk>', '<s>', '</s>', *(f'<0x{b:02X}>' for b in range(256))]
  pieces += [
    '\u2581',
    '\u2581\u2581',
    '\u2581the',
    'the',
    'e',
    's',
    '\u65e5',
    '.',
  ]
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.BPE(
      vocab={piece: i for i, piece in enumerate(pieces)},
      merges=[],
      unk_token='<unk>',
      byte_fallback=True,
    )
  )
  tokenizer.decoder = tokenizers.decoders.Sequence(list(parts))
  tokenizer.add_special_tokens(['<s>', '</s>'])
  return tokenizer_codec.TokenizerCodec(tokenizer)


def _word_level() -> codec.Codec:
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.WordLevel({'a': 0, 'b': 1}, unk_token='a')
  )
  tokenizer.decoder = tokenizers.decoders.CTC()
  return tokenizer_codec.TokenizerCodec(tokenizer)


_CODECS = {
  'bundled': (_bundled, 4096),
  'small': (_small, 1024),
  'llama': (_llama, 267),
  'gemma': (_gemma, 267),
  'always': (lambda: _metaspace('always'), 267),
  'first': (lambda: _metaspace('first'), 267),
  'never': (lambda: _metaspace('never'), 267),
  'fused': (_fused_replacement, 267),
  'ids': (lambda: codec.IdCodec(50), 50),
  'ctc': (_word_level, 2),
}


class GrowingTextTest(parameterized.TestCase):
  def _parts(self, made: codec.Codec, ids: list[int]) -> list[str]:
    text = made.growing()
    parts = [text.push(i) for i in ids]
    parts.append(text.finish())
    return parts

  @parameterized.parameters(*_CODECS)
  def test_parts_of_any_ids_join_to_their_text(self, name):
    make, size = _CODECS[name]
    made = make()
    rng = random.Random(0)
    for _ in range(300):
      ids = [rng.randrange(size) for _ in range(rng.randrange(12))]
      parts = self._parts(made, ids)
      self.assertEqual(''.join(parts), made.decode(ids), ids)

  @parameterized.parameters(
    *(name for name in _CODECS if name not in ('ids', 'ctc'))
  )
  def test_answer_continues_its_prompt(self, name):
    make, size = _CODECS[name]
    made = make()
    rng = random.Random(3)
    continued = 0
    for _ in range(500):
      ids = [rng.randrange(size) for _ in range(2 + rng.randrange(10))]
      prompt, answer = ids[:2], ids[2:]
      before, whole = made.decode(prompt), made.decode(ids)
      if whole.startswith(before):  # Not if it completes a character.
        continued += 1
        text = made.growing([i for i in prompt if made.piece(i)])
        parts = ''.join(map(text.push, answer)) + text.finish()
        self.assertEqual(parts, whole[len(before) :], str(ids))
    self.assertGreater(continued, 200)

  @parameterized.parameters('bundled', 'small', 'llama', 'gemma', 'first')
  def test_answer_completes_the_last_character_of_its_prompt(self, name):
    made = _CODECS[name][0]()
    ids = made.encode('\U0001f600').tolist()
    text = made.growing(ids[:-1])
    self.assertEqual(text.push(ids[-1]) + text.finish(), '\U0001f600')

  @parameterized.parameters('small', 'llama')
  def test_byte_tokens_with_incomplete_characters_join_to_the_text(self, name):
    make, _ = _CODECS[name]
    made = make()
    rng = random.Random(1)
    # The ids of bytes follow three special ids, and a few words follow the
    # bytes.
    some = [*range(6), *range(3 + 0x80, 3 + 0x100), *range(259, 267)]
    likely = [3 + b for b in '\u65e5\u20ac\U0001f600e\u0301'.encode()]
    for _ in range(500):
      ids = [
        rng.choice(likely if rng.random() < 0.6 else some)
        for _ in range(rng.randrange(16))
      ]
      self.assertEqual(''.join(self._parts(made, ids)), made.decode(ids), ids)

  def test_bpe_bytes_with_incomplete_characters_join_to_the_text(self):
    made = _bundled()
    parts = [i for i in range(4096) if _is_partial(made.piece(i))]
    self.assertGreater(len(parts), 100)
    rng = random.Random(2)
    for _ in range(500):
      ids = [
        rng.choice(parts) if rng.random() < 0.8 else rng.randrange(4096)
        for _ in range(rng.randrange(16))
      ]
      self.assertEqual(''.join(self._parts(made, ids)), made.decode(ids), ids)

  @parameterized.product(name=('bundled', 'small'), text=_TEXTS)
  def test_parts_consist_of_whole_characters(self, name, text):
    made = _CODECS[name][0]()
    ids = made.encode(text).tolist()
    parts = self._parts(made, ids)
    self.assertEqual(''.join(parts), made.decode(ids))
    for i, delta in enumerate(parts):
      if '\ufffd' not in text:
        self.assertNotIn('\ufffd', delta, (i, parts))
    # The text must grow with the ids, not only at the end.
    self.assertGreater(sum(map(bool, parts)), len(ids) // 3)

  @parameterized.parameters(
    'bundled', 'small', 'llama', 'gemma', 'always', 'first', 'never', 'ctc'
  )
  def test_pieces_are_the_bytes_of_a_text(self, name):
    made = _CODECS[name][0]()
    before, *ids = made.encode('the caf\u00e9, \u65e5 \U0001f600').tolist()
    joined = b''.join(map(made.piece, ids)).decode()
    text = made.growing([before])
    self.assertEqual(joined, ''.join(map(text.push, ids)) + text.finish())

  def test_special_tokens_have_no_text(self):
    self.assertEqual(_bundled().piece(4095), b'')
    self.assertEqual(_llama().piece(1), b'')
    self.assertEqual(_small().piece(1), b'')
    self.assertEqual(_bundled().piece(10**6), b'')

  def test_ids_are_separated_by_commas(self):
    self.assertEqual(
      self._parts(codec.IdCodec(99), [12, 7, 9]), ['12', ',7', ',9', '']
    )


def _is_partial(piece: bytes) -> bool:
  try:
    piece.decode()
  except UnicodeDecodeError:
    return True
  return False


if __name__ == '__main__':
  absltest.main()
