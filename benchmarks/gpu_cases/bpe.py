"""Encodes texts with the tokenizers of the bundled models, without a library.

The program runs on machines with GPUs that have only JAX. The patterns are those
of the two tokenizer.json files, in the syntax of Python. They split ASCII texts
and letters of other languages in the same way.
"""

import functools
import json
import re

_LETTER = r'[^\W\d_]'
_OTHER = r'(?:[^\w\s]|_)'
_GPT2 = re.compile(
  rf"'(?:[sdmt]|ll|ve|re)| ?{_LETTER}+| ?\d+| ?{_OTHER}+|\s+(?!\S)|\s+"
)
_LLAMA3 = re.compile(
  rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:[^\r\n\w]|_)?{_LETTER}+|\d{{1,3}}"
  rf'| ?{_OTHER}+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)


def _byte_letters() -> dict[int, str]:
  """Returns the letter that stands for each byte in the vocabulary."""
  own = [*range(33, 127), *range(161, 173), *range(174, 256)]
  others = [byte for byte in range(256) if byte not in own]
  return {byte: chr(byte) for byte in own} | {
    byte: chr(256 + i) for i, byte in enumerate(others)
  }


_LETTERS = _byte_letters()


class Tokenizer:
  """A byte-level BPE tokenizer that was read from a tokenizer.json."""

  def __init__(self, path: str):
    """Reads the file.

    Args:
      path: The path of the tokenizer.json of a bundled model.
    """
    with open(path, encoding='utf-8') as file:
      content = json.load(file)
    model = content['model']
    self._vocabulary: dict[str, int] = model['vocab']
    self._ranks = {tuple(pair): i for i, pair in enumerate(model['merges'])}
    self._whole_words = model['ignore_merges']
    is_gpt2 = content['pre_tokenizer']['type'] == 'ByteLevel'
    self._pattern = _GPT2 if is_gpt2 else _LLAMA3
    special = content['post_processor']['special_tokens'].values()
    self._begin = [i for entry in special for i in entry['ids']]
    self._word = functools.cache(self._encode_word)

  def encode(self, text: str) -> list[int]:
    """Returns the tokens of a text, after the begin token if there is one."""
    ids = list(self._begin)
    for word in self._pattern.findall(text):
      ids += self._word(word)
    return ids

  def _encode_word(self, word: str) -> list[int]:
    text = ''.join(_LETTERS[byte] for byte in word.encode())
    if self._whole_words and text in self._vocabulary:
      return [self._vocabulary[text]]
    parts = list(text)
    while len(parts) > 1:
      ranks = [
        self._ranks.get(pair, len(self._ranks))
        for pair in zip(parts, parts[1:])
      ]
      at = min(range(len(ranks)), key=ranks.__getitem__)
      if ranks[at] == len(self._ranks):
        break
      parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [self._vocabulary[part] for part in parts]
