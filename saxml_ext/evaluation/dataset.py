"""Articles to summarize: read, put into the prompt, turned into token ids."""

from collections.abc import Sequence
import dataclasses
import json

import numpy as np
import tokenizers

from saxml_ext.evaluation import tokenizer as tokenizer_lib

# The prompt of the MLPerf GPT-J reference: the model was fine-tuned on exactly
# these bytes, so not one blank may differ.
PROMPT_TEMPLATE = (
  'Below is an instruction that describes a task, paired with an input that '
  'provides further context. Write a response that appropriately completes '
  'the request.\n\n### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n'
  '### Response:'
)

_FIELDS = ('instruction', 'input', 'output')


@dataclasses.dataclass(frozen=True)
class Article:
  """One entry of an evaluation file in the schema of cnn_eval.json."""

  instruction: str
  input: str
  output: str

  @property
  def prompt(self) -> str:
    return PROMPT_TEMPLATE.format(
      instruction=self.instruction, input=self.input
    )


def load_articles(path: str, count: int = 0) -> tuple[Article, ...]:
  """Reads an evaluation file.

  Args:
    path: a JSON file, a list of {"instruction", "input", "output"}.
    count: how many to take from the front; 0 takes all.

  Raises:
    ValueError: the file is not such a list, or holds fewer than `count`.
    OSError: the file cannot be read.
  """
  with open(path, encoding='utf-8') as file:
    try:
      entries = json.load(file)
    except ValueError as error:
      raise ValueError(f'{path} is not JSON: {error}') from error
  if not isinstance(entries, list) or not entries:
    raise ValueError(f'{path} must hold a JSON list with at least one article')
  if count < 0 or count > len(entries):
    raise ValueError(
      f'{count} samples asked of {path}, which holds {len(entries)}; take'
      f' between 1 and {len(entries)}, or 0 for all'
    )
  return tuple(
    _article(path, index, entry)
    for index, entry in enumerate(entries[: count or len(entries)])
  )


def _article(path: str, index: int, entry: object) -> Article:
  if not isinstance(entry, dict):
    raise ValueError(f'{path}: entry {index} is not a JSON object')
  for field in _FIELDS:
    if not isinstance(entry.get(field), str):
      raise ValueError(
        f'{path}: entry {index} has no text field {field!r}; every entry'
        f' needs {", ".join(_FIELDS)}'
      )
  return Article(**{field: entry[field] for field in _FIELDS})


def load_tokenizer(path: str) -> tokenizers.Tokenizer:
  """Reads a tokenizer.json, or a directory; see tokenizer.load.

  Raises:
    ValueError: the file is missing or not a tokenizer.
  """
  return tokenizer_lib.load(path)


def encode_prompts(
  articles: Sequence[Article],
  tokenizer: tokenizers.Tokenizer,
  max_input_length: int,
) -> list[np.ndarray]:
  """Token ids of each prompt, int32 [T], T <= max_input_length.

  A longer prompt loses its end, as in the reference: the response marker of a
  very long article is cut off, and the reference scores were made that way.
  """
  encodings = tokenizer.encode_batch([article.prompt for article in articles])
  return [
    np.asarray(encoding.ids[:max_input_length], np.int32)
    for encoding in encodings
  ]
