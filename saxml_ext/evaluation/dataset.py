"""Reads articles to summarize, builds their prompts and tokenizes them."""

import array
from collections.abc import Sequence
import dataclasses
from typing import Annotated

import msgspec
import numpy as np
import tokenizers

from saxml_ext.common import files

# The prompt of the MLPerf GPT-J reference. The model was fine-tuned on exactly
# these bytes, so no blank may differ.
PROMPT_TEMPLATE = (
  'Below is an instruction that describes a task, paired with an input that '
  'provides further context. Write a response that appropriately completes '
  'the request.\n\n### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n'
  '### Response:'
)

# The prompt of the MLPerf llama3.1-8b reference. The tokenizer puts its begin
# id before it; the model's chat template is not used.
LLAMA_TEMPLATE = (
  'Summarize the following news article in 128 tokens. Please output the '
  'summary only, without any other text.\n\nArticle:\n{input}\n\nSummary:'
)

# The number of prompts that a tokenizer must encode to the file's token ids.
_COMPARED = 3

_Id = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


@dataclasses.dataclass(frozen=True)
class Article:
  """One entry of an evaluation file in the schema of cnn_eval.json.

  Attributes:
    instruction: The text of GPT-J's instruction. In Llama's files, it is the
      prompt's template, or an object with the template.
    input: The article.
    output: The highlights.
    tok_input: The token ids of the prompt in Llama's files, BOS included.
    source: The program that generated the article; '' if it is real news.
  """

  instruction: str | dict[str, str]
  input: str
  output: str
  tok_input: Annotated[Sequence[_Id], msgspec.Meta(min_length=1)] | None = None
  source: str = ''

  def __post_init__(self):
    if self.tok_input is not None:
      # Four bytes an id instead of a Python object, because a set has millions.
      object.__setattr__(self, 'tok_input', array.array('i', self.tok_input))

  @property
  def prompt(self) -> str:
    """The prompt of the GPT-J benchmark."""
    return self.filled(PROMPT_TEMPLATE)

  def filled(self, template: str) -> str:
    """Returns a prompt template with this article in it.

    Raises:
      ValueError: The template needs an instruction, but it is not a text.
    """
    if template == PROMPT_TEMPLATE and not isinstance(self.instruction, str):
      raise ValueError(
        'the instruction of an article is an object, as in files of'
        ' llama3.1-8b. The prompt of GPT-J needs a text. Use the cnn_eval.json'
        ' of GPT-J.'
      )
    return template.format(instruction=self.instruction, input=self.input)


def load_articles(path: str, count: int = 0) -> tuple[Article, ...]:
  """Reads an evaluation file.

  Args:
    path: The path of a JSON file, a list of {"instruction", "input", "output"}.
      All or none of them have "tok_input".
    count: The number of articles to read from the start; 0 reads all.

  Raises:
    ValueError: The file is not such a list, only some of its articles have
      token ids, or there are fewer than `count`.
    OSError: The file cannot be read.
  """
  articles = files.read_json(path, list[Article])
  if not articles:
    raise ValueError(f'{path} must be a JSON list with at least one article.')
  if count < 0 or count > len(articles):
    raise ValueError(
      f'{path} has {len(articles)} samples, but {count} were requested. Choose'
      f' between 1 and {len(articles)}, or 0 for all.'
    )
  tokenized = [article.tok_input is not None for article in articles]
  if any(tokenized) and not all(tokenized):
    raise ValueError(
      f'{path}: sample {tokenized.index(False)} has no tok_input, but'
      f' {sum(tokenized)} of {len(articles)} samples have it. All samples must'
      ' have it, or none. Write the file again.'
    )
  return tuple(articles[: count or len(articles)])


def encode_prompts(
  articles: Sequence[Article],
  tokenizer: tokenizers.Tokenizer,
  max_input_length: int | None,
  template: str = PROMPT_TEMPLATE,
) -> list[np.ndarray]:
  """Returns the token ids of each prompt, int32 [T], T <= max_input_length.

  The end of a longer prompt is cut off, as in the reference of GPT-J. A very
  long article therefore has no response marker. The reference scores were
  computed in the same way.

  Args:
    articles: The articles. If they have token ids, these are the prompts. All
      of them have, or none.
    tokenizer: The tokenizer of the model.
    max_input_length: The number of tokens after which a prompt is cut; None:
      prompts are never cut.
    template: The template of the prompts of articles without token ids.

  Raises:
    ValueError: The token ids are not those of the tokenizer.
  """
  if articles and articles[0].tok_input is not None:
    check_tokenizer(articles, tokenizer)
    prompts = [np.asarray(a.tok_input, np.int32) for a in articles]
  else:
    encodings = tokenizer.encode_batch([a.filled(template) for a in articles])
    prompts = [np.asarray(encoding.ids, np.int32) for encoding in encodings]
  return [ids[:max_input_length] for ids in prompts]


def check_tokenizer(
  articles: Sequence[Article], tokenizer: tokenizers.Tokenizer
) -> None:
  """Raises ValueError if the articles have token ids of another tokenizer."""
  if not articles or articles[0].tok_input is None:
    return
  size = tokenizer.get_vocab_size()
  remedy = (
    'The file is for another tokenizer. Pass the tokenizer of its model with'
    ' --tokenizer_path, or a file that is made with this tokenizer'
  )
  for index, article in enumerate(articles):
    ids = list(article.tok_input or ())
    if max(ids) >= size:
      raise ValueError(
        f'sample {index}: tok_input has the id {max(ids)}, but the tokenizer'
        f' has only the ids 0 to {size - 1}. {remedy}'
      )
    if index >= _COMPARED:
      continue
    encoded = tokenizer.encode(article.filled(LLAMA_TEMPLATE)).ids
    if ids != encoded:
      raise ValueError(
        f'sample {index}: tok_input has {len(ids)} ids, from'
        f' {ids[:8]} on, but the tokenizer makes {len(encoded)} of the'
        f' prompt, from {encoded[:8]} on. {remedy}'
      )
