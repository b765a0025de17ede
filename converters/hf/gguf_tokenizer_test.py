"""Tests for gguf_tokenizer, with transformers and SentencePiece as judges."""

import io
import json
import os
import random
import unicodedata

from absl.testing import absltest
from absl.testing import parameterized
import gguf
import sentencepiece
import tokenizers
import transformers

from converters.hf import smollm2
from converters.hf import tokenizer_files
from converters.testing import gguf_files
from saxml_ext.pax import errors

_ODD = (
  *(
    '',
    ' ',
    '   ',
    '\n \n  \n',
    '\t\t',
    '\r\n\r\n',
    '  two  spaces ',
    'a' * 300,
  ),
  *('ÄÖÜ äöü ß naïve café', 'a\u0301 combining \u0301', 'ﬀ ligature', '½ ² Ⅷ'),
  *(
    '😀',
    '👩‍👩‍👧 🇩🇪',
    '日本語のテキスト。',
    '中文字符，测试',
    '한국어 문장',
    'مرحبا بالعالم',
  ),
  *('हिन्दी', 'ก็', '\u00a0nbsp', '\u200bzero', '\x00\x01\x7f', '\ufeffbom'),
  *("don't I'LL we've 'S", '12345 67 8', '3.14e-10', '1,000,000', 'v1.2.3'),
  *(
    'def f(x):\n    return x**2\n',
    '{"a": [1, 2.5e-3]}',
    'http://a.b/c?d=e&f=g',
  ),
  *(
    '<|im_start|>user\nhi<|im_end|>\n',
    'a<|im_end|>b',
    '<|im_end',
    '<s>[INST]',
  ),
  *(
    'hello world',
    'Hello  world!',
    ' hello',
    '   hello',
    'hello ',
    '<unk>',
    '▁',
  ),
)
_POOL = 'ab cdE\n\t.,;!?0129äß日本😀é\u0301  \'"<>|_-'


def _texts() -> list[str]:
  """Returns 200 odd texts."""
  rng = random.Random(1)
  return list(_ODD) + [
    ''.join(rng.choice(_POOL) for _ in range(rng.randint(1, 40)))
    for _ in range(200 - len(_ODD))
  ]


class GGUFTokenizerTest(parameterized.TestCase):
  def write(self, **changes) -> str:
    return gguf_files.write(
      os.path.join(self.create_tempdir().full_path, 'model.gguf'),
      gguf_files.state_dict(tied=True),
      gguf_files.metadata(**changes),
    )

  def tokenizer(self, path: str) -> tokenizers.Tokenizer:
    files = tokenizer_files.collect(path)
    return tokenizers.Tokenizer.from_buffer(files['tokenizer.json'])

  def judge(self, path: str):
    """Returns the tokenizer that transformers makes from a GGUF file."""
    return transformers.AutoTokenizer.from_pretrained(
      os.path.dirname(path), gguf_file=os.path.basename(path)
    )

  def assert_refused(self, message: str, **changes) -> None:
    path = self.write(**changes)
    with self.assertRaisesRegex(errors.CheckpointError, message) as caught:
      tokenizer_files.collect(path)
    self.assertIn(path, str(caught.exception))

  def pieces(
    self, **options
  ) -> tuple[str, sentencepiece.SentencePieceProcessor]:
    """Writes a GGUF file of a SentencePiece model; returns it with its judge."""
    model = io.BytesIO()
    sentences = [*_texts()[1:], 'hello world', 'the sea, the waves'] * 3
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(sentences),
      model_writer=model,
      model_type='bpe',
      vocab_size=700,
      byte_fallback=True,
      normalization_rule_name='identity',
      remove_extra_whitespaces=False,
      allow_whitespace_only_pieces=True,
      minloglevel=2,
      **options,
    )
    judge = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    kinds = [
      gguf.TokenType.BYTE
      if judge.is_byte(i)
      else gguf.TokenType.CONTROL
      if judge.is_control(i)
      else gguf.TokenType.UNKNOWN
      if judge.is_unknown(i)
      else gguf.TokenType.NORMAL
      for i in range(len(judge))
    ]
    tokens = [judge.id_to_piece(i) for i in range(len(judge))]
    tensors = gguf_files.state_dict(tied=True)
    tensors['model.embed_tokens.weight'] = tensors[
      'model.embed_tokens.weight'
    ].repeat(4, 0)[: len(tokens)]
    path = os.path.join(self.create_tempdir().full_path, 'model.gguf')
    values = gguf_files.metadata(
      _vocab_size=len(tokens),
      tokenizer__ggml__model='llama',
      tokenizer__ggml__pre=None,
      tokenizer__ggml__tokens=tokens,
      tokenizer__ggml__scores=[judge.get_score(i) for i in range(len(judge))],
      tokenizer__ggml__token_type=[int(kind) for kind in kinds],
      tokenizer__ggml__merges=None,
      tokenizer__ggml__padding_token_id=None,
    )
    if 'add_dummy_prefix' in options:
      values['tokenizer.ggml.add_space_prefix'] = options['add_dummy_prefix']
    return gguf_files.write(path, tensors, values), judge

  def test_smollm2_has_the_ids_of_its_own_tokenizer(self):
    ours = self.tokenizer(smollm2.path())
    for text, ids in (
      ('Hello world! 123', [19556, 905, 17, 216, 33, 34, 35]),
      ('The capital of France is', [504, 3575, 282, 4649, 314]),
      ('Café déjà vu.', [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30]),
      ('  multiple   spaces', [216, 2701, 256, 5600]),
      ('\n', [198]),
    ):
      self.assertEqual(ours.encode(text).ids, ids)
    judge = self.judge(smollm2.path())
    for text in _texts():
      ids = ours.encode(text).ids
      self.assertEqual(ours.decode(ids, skip_special_tokens=False), text)
      # transformers does not split numbers, which SmolLM2's own tokenizer does.
      if not any(c.isnumeric() for c in text):
        self.assertEqual(ids, judge.encode(text, add_special_tokens=False))

  @parameterized.parameters(
    *('default', 'gpt-2', 'llama-bpe', 'qwen2', 'smaug-bpe', 'tekken', 'gpt-4o')
  )
  def test_splits_match_transformers(self, pre):
    path = self.write(tokenizer__ggml__pre=pre)
    ours, judge = self.tokenizer(path), self.judge(path)
    for text in _texts():
      # transformers makes no normalizer, which Qwen2's own tokenizer has.
      same = unicodedata.normalize('NFC', text) if pre == 'qwen2' else text
      self.assertEqual(
        ours.encode(text, add_special_tokens=False).ids,
        judge.encode(same, add_special_tokens=False),
        text,
      )

  def test_every_split_keeps_the_text(self):
    for pre in 'smollm', 'starcoder', 'llama3', 'falcon3':
      ours = self.tokenizer(self.write(tokenizer__ggml__pre=pre))
      for text in _texts():
        ids = ours.encode(text, add_special_tokens=False).ids
        self.assertEqual(ours.decode(ids, skip_special_tokens=False), text)

  def test_digits_of_smollm_are_single_tokens(self):
    for pre, expected in ('smollm', ['1', '2']), ('gpt-2', ['12']):
      ours = self.tokenizer(self.write(tokenizer__ggml__pre=pre))
      self.assertEqual(ours.encode('12').tokens, expected)

  def test_qwen2_normalizes_texts(self):
    ours = self.tokenizer(self.write(tokenizer__ggml__pre='qwen2'))
    self.assertEqual(ours.encode('e\u0301').ids, ours.encode('é').ids)

  def test_llama3_takes_whole_words_and_begins_texts(self):
    changes = {
      'tokenizer__ggml__tokens': [
        *gguf_files.TOKENS[:-1],
        'world',
      ],
      'tokenizer__ggml__merges': list(gguf_files.MERGES[:-1]),
    }
    llama = self.tokenizer(
      self.write(tokenizer__ggml__pre='llama-bpe', **changes)
    )
    self.assertEqual(llama.encode('world').tokens, ['<|im_start|>', 'world'])
    gpt2 = self.tokenizer(self.write(tokenizer__ggml__pre='gpt-2', **changes))
    self.assertEqual(gpt2.encode('world').tokens, list('world'))

  def test_metadata_decides_whether_texts_begin_with_a_token(self):
    for pre, starts in ('llama-bpe', False), ('smollm', True):
      ours = self.tokenizer(
        self.write(
          tokenizer__ggml__pre=pre, tokenizer__ggml__add_bos_token=starts
        )
      )
      self.assertEqual(ours.encode('x').tokens[0] == '<|im_start|>', starts)

  def test_control_tokens_are_special_and_users_tokens_are_not(self):
    kinds = [3, 4, 3] + [1] * (gguf_files.VOCAB - 3)
    ours = self.tokenizer(self.write(tokenizer__ggml__token_type=kinds))
    ids = ours.encode('<|im_start|>hello<|im_end|>').ids
    self.assertEqual(ids, [1, gguf_files.TOKENS.index('hello'), 2])
    self.assertEqual(ours.decode(ids), '<|im_start|>hello')

  def test_phi3_drops_spaces_after_most_special_tokens(self):
    text = 'A<|user|> \n hi<s> hi'
    for family, expected in (
      ('phi3', ['A', '<|user|>', 'hi', '<s>', '▁hi']),
      ('llama', ['A', '<|user|>', '▁', '\n', '▁hi', '<s>', '▁hi']),
    ):
      tokens = ['<|user|>', '<s>', '</s>', *'A▁\nhi', 'hi', '▁hi']
      tokens += [f'x{i}' for i in range(gguf_files.VOCAB - len(tokens))]
      path = gguf_files.write(
        os.path.join(self.create_tempdir().full_path, 'model.gguf'),
        gguf_files.state_dict(tied=True),
        gguf_files.metadata(
          family,
          tokenizer__ggml__model='llama',
          tokenizer__ggml__tokens=tokens,
          tokenizer__ggml__scores=[-float(i) for i in range(len(tokens))],
          tokenizer__ggml__token_type=[3] * 3 + [1] * (len(tokens) - 3),
          tokenizer__ggml__add_space_prefix=False,
        ),
        family,
      )
      ids = self.tokenizer(path).encode(text, add_special_tokens=False).ids
      self.assertEqual([tokens[i] for i in ids], expected, family)

  def test_files_have_roles_template_and_ends(self):
    files = tokenizer_files.collect(self.write(general__sampling__temp=0.5))
    self.assertEqual(
      json.loads(files['generation_config.json']),
      {
        'bos_token_id': 1,
        'eos_token_id': [2, 0],
        'pad_token_id': 0,
        'do_sample': True,
        'temperature': 0.5,
      },
    )
    config = json.loads(files['tokenizer_config.json'])
    self.assertEqual(config['chat_template'], gguf_files.TEMPLATE)
    self.assertEqual(config['bos_token'], '<|im_start|>')
    self.assertEqual(config['eos_token'], '<|im_end|>')
    self.assertFalse(config['add_bos_token'])
    # For stock Sax, which reads the files of GPT-2.
    self.assertIn('vocab.json', files)
    self.assertIn('merges.txt', files)

  def test_named_templates_are_kept(self):
    files = tokenizer_files.collect(
      self.write(tokenizer__chat_template__tool_use='tools')
    )
    config = json.loads(files['tokenizer_config.json'])
    self.assertEqual(
      config['chat_template'],
      [
        {'name': 'default', 'template': gguf_files.TEMPLATE},
        {'name': 'tool_use', 'template': 'tools'},
      ],
    )

  def test_transformers_reads_the_files(self):
    directory = self.create_tempdir().full_path
    tokenizer_files.write(directory, tokenizer_files.collect(self.write()))
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    self.assertEqual(tokenizer.eos_token_id, 2)
    self.assertEqual(
      tokenizer.apply_chat_template(
        [{'role': 'user', 'content': 'hello'}], tokenize=False
      ),
      'hello',
    )

  def test_other_tokenizers_are_refused_by_name(self):
    for name in 't5', 'bert', 'rwkv':
      self.assert_refused(
        f'tokenizer.ggml.model is {name}. Expected one of gpt2, llama',
        tokenizer__ggml__model=name,
      )
    self.assert_refused(
      'tokenizer.ggml.pre is viking. Expected one of default, gpt-2',
      tokenizer__ggml__pre='viking',
    )

  @parameterized.parameters(
    ('model', None, 'model is None'),
    ('tokens', None, 'tokens is None. Expected a list'),
    ('tokens', ['a', 'a', *gguf_files.TOKENS[2:]], r"0 and \d+ .* text 'a'"),
    ('token_type', [1], r'token_type is \[1\]. Expected a list of \d+'),
    ('merges', None, 'merges is None'),
    ('merges', ['he x'], 'tokenizer is damaged'),
    ('merges', ['hello'], 'tokenizer is damaged'),
    ('add_eos_token', True, 'add_eos_token is True'),
  )
  def test_damaged_tokenizer_is_refused_by_name(self, key, value, message):
    self.assert_refused(message, **{f'tokenizer__ggml__{key}': value})

  @parameterized.parameters({}, {'add_dummy_prefix': False})
  def test_sentencepiece_has_the_ids_of_its_library(self, **options):
    path, judge = self.pieces(**options)
    ours = self.tokenizer(path)
    for text in _texts():
      # SentencePiece knows no control tokens in texts, and cuts texts at NUL.
      if '<' in text or '\0' in text or '▁' in text:
        continue
      ids = ours.encode(text, add_special_tokens=False).ids
      self.assertEqual(ids, judge.encode(text), repr(text))
      self.assertEqual(ours.decode(ids), text)
    self.assertEqual(ours.encode('x').ids[0], 1)
    self.assertEqual(ours.encode('</s>', add_special_tokens=False).ids, [2])


if __name__ == '__main__':
  absltest.main()
