"""Tests of the special tokens of tokenizers."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.common import special_tokens

_Token = special_tokens.Token


class DeclaredTest(parameterized.TestCase):
  def _declared(self, **files) -> special_tokens.Declared:
    objects = {f'/t/{name}.json': value for name, value in files.items()}
    return special_tokens.declared('/t', lambda path: objects.get(path, {}))

  def test_missing_files_declare_no_tokens(self):
    self.assertEqual(self._declared(), special_tokens.Declared([]))

  def test_decoder_has_flags(self):
    flags = {'content': '<|end|>', 'special': True, 'rstrip': True}
    declared = self._declared(
      tokenizer_config={
        'added_tokens_decoder': {'7': flags, '8': {'content': '  '}},
        'add_bos_token': False,
        'legacy': True,
      },
      # The decoder replaces the older file.
      added_tokens={'<|old|>': 9},
    )
    self.assertEqual(
      declared,
      special_tokens.Declared(
        [_Token('<|end|>', 7, rstrip=True), _Token('  ', 8, special=False)],
        adds_start=False,
        prefixes_all=True,
      ),
    )

  def test_added_tokens_are_special_if_named_or_marks(self):
    declared = self._declared(
      added_tokens={'<|im_end|>': 7, '   ': 8, 'end': 9},
      special_tokens_map={
        'eos_token': {'content': 'end', 'lstrip': False},
        'additional_special_tokens': ['<s>'],
      },
    )
    self.assertEqual(
      [(t.text, t.id, t.special) for t in declared.tokens],
      [
        ('<|im_end|>', 7, True),
        ('   ', 8, False),
        ('end', 9, True),
        ('end', None, True),
        ('<s>', None, True),
      ],
    )

  def test_files_are_merged_like_in_transformers(self):
    config = {'pad_token': '<pad>', 'eos_token': '<a>', 'unk_token': None}
    names = {'eos_token': '<b>', 'bos_token': '<s>'}
    for decoder, expected in (
      ({}, ['<s>', '<b>', '<pad>']),
      ({'added_tokens_decoder': {}}, ['<s>', '<a>', '<pad>']),
    ):
      declared = self._declared(
        tokenizer_config=config | decoder, special_tokens_map=names
      )
      self.assertEqual([t.text for t in declared.tokens], expected)

  @parameterized.parameters(
    ({'added_tokens': {'<a>': 'x'}},),
    ({'added_tokens': {'<a>': None}},),
    ({'tokenizer_config': {'added_tokens_decoder': {'x': {'content': 'a'}}}},),
    ({'tokenizer_config': {'added_tokens_decoder': {'1': {}}}},),
    ({'tokenizer_config': {'added_tokens_decoder': [1]}},),
    ({'special_tokens_map': {'eos_token': 5}},),
    ({'special_tokens_map': {'additional_special_tokens': 5}},),
  )
  def test_malformed_declarations_are_refused(self, files):
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'cannot be read: .*Copy'
    ):
      self._declared(**files)


class SplitterTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.splitter = special_tokens.Splitter(
      [
        _Token('<s>', 1),
        _Token('<s><s>', 2),
        _Token('<l>', 3, lstrip=True, rstrip=True),
        _Token('   ', 4, special=False),
      ]
    )

  def test_longest_tokens_are_split_with_their_blanks(self):
    self.assertEqual(
      self.splitter.split('a<s><s><s> b \n<l>\t c   '),
      (['a', '', ' b', 'c', ''], [2, 1, 3, 4], False),
    )
    self.assertEqual(self.splitter.split(''), ([''], [], False))

  def test_marks_that_overlap_literal_spans_are_text(self):
    text = 'a<s>b<s>'
    whole = (['a', 'b', ''], [1, 1], False)
    for span, expected in (
      ((1, 4), (['a<s>b', ''], [1], True)),
      ((3, 4), (['a<s>b', ''], [1], True)),
      ((0, 2), (['a<s>b', ''], [1], True)),
      ((0, 1), whole),
      ((4, 5), whole),
      ((2, 2), (['a<s>b', ''], [1], True)),
      ((0, 8), (['a<s>b<s>'], [], True)),
    ):
      self.assertEqual(self.splitter.split(text, [span]), expected, span)

  def test_white_space_stays_a_token_in_literal_spans(self):
    self.assertEqual(
      self.splitter.split('a   b', [(0, 5)]), (['a', 'b'], [4], False)
    )

  def test_many_literal_spans_are_split(self):
    text = '<s> ' * 20_000
    spans = [(i, i + 3) for i in range(0, len(text), 8)]
    _, ids, has_literal = self.splitter.split(text, spans)
    self.assertLen(ids, 10_000)
    self.assertTrue(has_literal)


if __name__ == '__main__':
  absltest.main()
