"""Reads articles to summarize, builds their prompts and tokenizes them."""

from collections.abc import Sequence
import dataclasses

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


@dataclasses.dataclass(frozen=True)
class Article:
  """One entry of an evaluation file in the schema of cnn_eval.json."""

  instruction: str
  input: str
  output: str

  @property
  def prompt(self) -> str:
    """The prompt of the GPT-J benchmark."""
    return self.filled(PROMPT_TEMPLATE)

  def filled(self, template: str) -> str:
    """Returns a prompt template with this article in it."""
    return template.format(instruction=self.instruction, input=self.input)


def load_articles(path: str, count: int = 0) -> tuple[Article, ...]:
  """Reads an evaluation file.

  Args:
    path: The path of a JSON file, a list of {"instruction", "input", "output"}.
    count: The number of articles to read from the start; 0 reads all.

  Raises:
    ValueError: The file is not such a list, or has fewer than `count` articles.
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
  return tuple(articles[: count or len(articles)])


def encode_prompts(
  articles: Sequence[Article],
  tokenizer: tokenizers.Tokenizer,
  max_input_length: int,
  template: str = PROMPT_TEMPLATE,
) -> list[np.ndarray]:
  """Returns the token ids of each prompt, int32 [T], T <= max_input_length.

  The end of a longer prompt is cut off, as in the reference. A very long
  article therefore has no response marker. The reference scores were computed
  in the same way.
  """
  encodings = tokenizer.encode_batch([a.filled(template) for a in articles])
  return [
    np.asarray(encoding.ids[:max_input_length], np.int32)
    for encoding in encodings
  ]
