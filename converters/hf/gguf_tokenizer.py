"""Writes the tokenizer files of Hugging Face from the metadata of a GGUF file.

A byte-level BPE has its merges in the metadata. The name of its split of texts,
`tokenizer.ggml.pre`, stands for the regular expressions that the model's own
tokenizer has. A SentencePiece model has scores, from which the merges follow.
"""

from collections.abc import Callable, Mapping, Sequence
import json
from typing import Any

import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers
from tokenizers import processors

from converters.hf import gguf_config
from converters.hf import gguf_file
from converters.hf import rank_tokenizer
from saxml_ext.pax import errors

_TEMPLATE = 'tokenizer.chat_template'
# The types of tokens: those of merging, and those that are found in a text first.
_NORMAL, _UNKNOWN, _CONTROL, _USER = 1, 2, 3, 4
_BLANK = '\u2581'
_ROLES = {
  'bos_token': 'bos_token_id',
  'eos_token': 'eos_token_id',
  'unk_token': 'unk_token_id',
  'pad_token': 'pad_token_id',
}
# The names of settings in generation_config.json.
_SAMPLING = {
  **{f'general.sampling.{x}': x for x in ('top_k', 'top_p', 'min_p')},
  'general.sampling.temp': 'temperature',
  'general.sampling.penalty_repeat': 'repetition_penalty',
}


def _words(ending: str, digits: str) -> str:
  """Returns the split of GPT-4o and Mistral, before capitals within a word."""
  start, upper, lower = (
    r'[^\r\n\p{L}\p{N}]?',
    r'[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]',
    r'[\p{Ll}\p{Lm}\p{Lo}\p{M}]',
  )
  return (
    f'{start}{upper}*{lower}+{ending}|{start}{upper}+{lower}*{ending}|{digits}'
    r'| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+'
  )


def _split(pattern: str) -> Sequence[pre_tokenizers.PreTokenizer]:
  split = pre_tokenizers.Split(tokenizers.Regex(pattern), 'isolated')
  return split, _bytes(False)


def _bytes(is_split: bool) -> pre_tokenizers.PreTokenizer:
  """Returns the mapping of bytes to characters, after the split of GPT-2."""
  return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=is_split)


_GPT2 = (_bytes(True),)
_DIGITS = (pre_tokenizers.Digits(individual_digits=True), _bytes(True))
_LLAMA3 = _split(rank_tokenizer.LLAMA3)
_QWEN2 = _split(rank_tokenizer.LLAMA3.replace('{1,3}', ''))
_TEKKEN = _split(_words('', r'\p{N}'))
_GPT4O = _split(_words("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r'\p{N}{1,3}'))
_SPLITS: Mapping[str, Sequence[pre_tokenizers.PreTokenizer]] = {
  **dict.fromkeys(('default', 'gpt-2', 'phi-2'), _GPT2),
  **dict.fromkeys(('smollm', 'starcoder', 'refact'), _DIGITS),
  **dict.fromkeys(('llama3', 'llama-v3', 'llama-bpe', 'falcon3'), _LLAMA3),
  **dict.fromkeys(('dbrx', 'smaug-bpe'), _LLAMA3),
  **dict.fromkeys(('qwen2', 'deepseek-r1-qwen', 'megrez'), _QWEN2),
  'tekken': _TEKKEN,
  'gpt-4o': _GPT4O,
}
# The splits whose tokenizers take a word that is a token without merging, and
# begin texts with the start token unless the metadata says otherwise.
_WHOLE_WORDS = ('llama3', 'llama-v3', 'llama-bpe', 'falcon3', 'tekken')
# The special tokens after which Phi-3 keeps spaces, unlike after others.
_PLAIN_TOKENS = ('<unk>', '<s>', '<|endoftext|>')
# Settings that change the ids of a text in ways that are not supported. The
# server adds at most one token, before a text.
_UNSUPPORTED = (
  'add_eos_token',
  'add_sep_token',
  'precompiled_charsmap',
  'remove_extra_whitespaces',
)


def files(path: str, file: gguf_file.GGUFFile) -> dict[str, bytes]:
  """Returns the contents of the tokenizer's files by name.

  The files are tokenizer.json, tokenizer_config.json with the chat template, and
  generation_config.json with the tokens that end an answer.

  Args:
    path: The path of the GGUF file, for messages.
    file: The file.

  Raises:
    errors.CheckpointError: The tokenizer is missing, damaged or not supported.
  """
  vocabulary = _Vocabulary(path, file.metadata)
  kind = vocabulary.get('model')
  if kind not in _MAKERS:
    raise vocabulary.error('model', f'one of {", ".join(_MAKERS)}')
  for key in _UNSUPPORTED:
    if vocabulary.get(key):
      raise vocabulary.error(key, 'no such setting, or false')
  ids = gguf_config.token_ids(path, file)
  try:
    tokenizer, starts = _MAKERS[kind](vocabulary)
    starts = bool(vocabulary.get('add_bos_token', starts))
    vocabulary.add_special(tokenizer, ids['bos_token_id'] if starts else None)
  except errors.CheckpointError:
    raise
  except Exception as e:  # The library raises Exception.
    raise errors.CheckpointError(
      f'{path}: the tokenizer is damaged: {e}. Download the file again.'
    ) from e
  config = {
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'add_bos_token': starts,
    'clean_up_tokenization_spaces': False,
    **{
      role: vocabulary.texts[index]
      for role, key in _ROLES.items()
      if (index := ids[key]) is not None
    },
    **_templates(file.metadata),
  }
  named = {**ids, 'eos_token_id': ids['end_token_ids']}
  generation = {
    key: named[key]
    for key in ('bos_token_id', 'eos_token_id', 'pad_token_id')
    if named[key] not in (None, [])
  }
  sampling = {
    name: file.metadata[key]
    for key, name in _SAMPLING.items()
    if key in file.metadata
  }
  if sampling:
    generation |= {'do_sample': True, **sampling}
  return {
    'tokenizer.json': tokenizer.to_str().encode(),
    'tokenizer_config.json': _json(config),
    'generation_config.json': _json(generation),
  }


def _json(document: Mapping[str, Any]) -> bytes:
  return json.dumps(document, ensure_ascii=False, indent=2).encode()


def _templates(metadata: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the chat templates of a file in the form of tokenizer_config.json."""
  templates = {
    key.removeprefix(_TEMPLATE).removeprefix('.') or 'default': value
    for key, value in metadata.items()
    if key == _TEMPLATE or key.startswith(f'{_TEMPLATE}.')
  }
  if templates.keys() <= {'default'}:
    return {'chat_template': templates['default']} if templates else {}
  named = [{'name': n, 'template': t} for n, t in templates.items()]
  return {'chat_template': named}


class _Vocabulary:
  """The tokens of a file, with typed access to its metadata.

  Attributes:
    texts: The text of each token.
    types: The type of each token, such as _NORMAL.
    ids: The ids by text.
  """

  def __init__(self, path: str, metadata: Mapping[str, Any]):
    self._path = path
    self._metadata = metadata
    # llama.cpp gives tokens without a text the same names.
    self.texts = [
      text or f'[EMPTY_{i}]' for i, text in enumerate(self.list('tokens', str))
    ]
    size = len(self.texts)
    self.ids = {text: i for i, text in enumerate(self.texts)}
    for i, text in enumerate(self.texts):
      if self.ids[text] != i:
        raise errors.CheckpointError(
          f'{path}: tokens {i} and {self.ids[text]} have the same text'
          f' {text[:100]!r}. Expected different texts.'
        )
    self.types = [_NORMAL] * size
    if self.get('token_type') is not None:
      self.types = self.list('token_type', int, size)

  def get(self, key: str, default: Any = None) -> Any:
    """Returns a setting of the tokenizer, or the default if it is missing."""
    return self._metadata.get(gguf_config.TOKENIZER + key, default)

  def list(self, key: str, kind: type, length: int | None = None) -> list:
    """Returns an array, whose length and type of values are checked."""
    values = self.get(key)
    if (
      not isinstance(values, list)
      or not all(type(value) is kind for value in values)
      or length not in (None, len(values))
    ):
      count = '' if length is None else f'{length} '
      raise self.error(key, f'a list of {count}values of type {kind.__name__}')
    return values

  def error(self, key: str, expected: str) -> errors.CheckpointError:
    return errors.CheckpointError(
      f'{self._path}: {gguf_config.TOKENIZER}{key} is'
      f' {str(self.get(key))[:100]}. Expected {expected}.'
    )

  def add_special(
    self, tokenizer: tokenizers.Tokenizer, start: int | None
  ) -> None:
    """Adds the tokens that are not made by merging, and the start token.

    Args:
      tokenizer: The tokenizer.
      start: The token that begins each text; None for none.
    """
    architecture = self._metadata.get('general.architecture')
    strips = (architecture, self.get('model')) == ('phi3', 'llama')
    for kinds, is_special in (((_UNKNOWN, _CONTROL), True), ((_USER,), False)):
      tokenizer.add_tokens(
        [
          tokenizers.AddedToken(
            text,
            normalized=False,
            special=is_special,
            rstrip=strips and text not in _PLAIN_TOKENS,
          )
          for text, kind in zip(self.texts, self.types)
          if kind in kinds
        ]
      )
    if start is not None:
      text = self.texts[start]
      tokenizer.post_processor = processors.TemplateProcessing(
        single=[text, '$A'], special_tokens=[(text, start)]
      )


def _byte_level(vocabulary: _Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
  """Returns a tokenizer, and True if texts begin with the start token."""
  name = vocabulary.get('pre', 'default')
  if name not in _SPLITS:
    raise vocabulary.error('pre', f'one of {", ".join(_SPLITS)}')
  is_whole = name in _WHOLE_WORDS
  # The first character of a token may be a space.
  merges = [
    (merge[: (i := merge.find(' ', 1))], merge[i + 1 :])
    for merge in vocabulary.list('merges', str)
  ]
  tokenizer = tokenizers.Tokenizer(
    models.BPE(vocabulary.ids, merges, ignore_merges=is_whole)
  )
  if _SPLITS[name] is _QWEN2:
    tokenizer.normalizer = normalizers.NFC()
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(_SPLITS[name]))
  tokenizer.decoder = decoders.ByteLevel()
  return tokenizer, is_whole


def _sentencepiece(
  vocabulary: _Vocabulary,
) -> tuple[tokenizers.Tokenizer, bool]:
  """Returns a tokenizer, and True because texts begin with the start token."""
  scores = vocabulary.list('scores', float, len(vocabulary.texts))
  pieces = {
    text: score
    for text, score, kind in zip(vocabulary.texts, scores, vocabulary.types)
    if kind == _NORMAL
  }
  merges = [
    (score, i, text[:i], text[i:])
    for text, score in pieces.items()
    for i in range(1, len(text))
    if text[:i] in pieces and text[i:] in pieces
  ]
  # The best piece is merged first. If it has several parts, a long left part
  # comes first, which prefers the leftmost pair in a run of equal characters.
  merges.sort(key=lambda merge: merge[:2], reverse=True)
  unknown = [
    text
    for text, kind in zip(vocabulary.texts, vocabulary.types)
    if kind == _UNKNOWN
  ]
  tokenizer = tokenizers.Tokenizer(
    models.BPE(
      vocabulary.ids,
      [merge[2:] for merge in merges],
      unk_token=next(iter(unknown), None),
      fuse_unk=True,
      byte_fallback=True,
    )
  )
  has_prefix = vocabulary.get('add_space_prefix', True)
  prepend = [normalizers.Prepend(_BLANK)] if has_prefix else []
  tokenizer.normalizer = normalizers.Sequence(
    [*prepend, normalizers.Replace(' ', _BLANK)]
  )
  strip = [decoders.Strip(' ', 1, 0)] if has_prefix else []
  tokenizer.decoder = decoders.Sequence(
    [
      decoders.Replace(_BLANK, ' '),
      decoders.ByteFallback(),
      decoders.Fuse(),
      *strip,
    ]
  )
  return tokenizer, True


_MAKERS: Mapping[
  str, Callable[[_Vocabulary], tuple[tokenizers.Tokenizer, bool]]
] = {'gpt2': _byte_level, 'llama': _sentencepiece}
