"""Flags of the programs of a run: which articles, and how they are cut.

What is not given comes with the model: its own tokenizer, and the longest
prompt that it takes.
"""

import os

from absl import flags

from harness.data import bundle
from harness.data import summarization
from saxml_ext.common import user_path

_DATASET_PATH = flags.DEFINE_string(
  'dataset_path',
  bundle.eval_path(),
  'Evaluation file in the schema of cnn_eval.json.',
)
_TOKENIZER_PATH = flags.DEFINE_string(
  'tokenizer_path', None, 'tokenizer.json. Default: the one of --checkpoint.'
)
_MAX_INPUT_LENGTH = flags.DEFINE_integer(
  'max_input_length',
  None,
  'Tokens after which a prompt is cut. Default: what the model is meant for.',
  1,
)
_SAMPLE_COUNT = flags.DEFINE_integer(
  'sample_count', 0, 'Articles to take; 0: all.', 0
)


def max_input_length() -> int | None:
  """Tokens after which the flag wants prompts cut; None where it is not given."""
  return _MAX_INPUT_LENGTH.value


def load(
  model_dir: str, longest: int, usual: int | None = None
) -> summarization.Summarization:
  """Reads the articles that the flags name.

  Args:
    model_dir: where the model's tokenizer.json lies, unless a flag says where.
    longest: most tokens of a prompt that the model takes.
    usual: where prompts are cut unless a flag says where; None: at `longest`.

  Raises:
    OSError, ValueError: a file cannot be used, or a flag asks for too much.
  """
  asked = _MAX_INPUT_LENGTH.value
  if asked is not None and asked > longest:
    raise ValueError(
      f'--max_input_length={asked} is above {longest}, the longest prompt that'
      ' the model takes beside its answer: lower it'
    )
  tokenizer = user_path.resolve(_TOKENIZER_PATH.value)
  return _load(
    tokenizer or os.path.join(model_dir, 'tokenizer.json'),
    asked or usual or longest,
  )


def load_as_given() -> summarization.Summarization:
  """Reads the articles where the flags for both defaults are required."""
  return _load(
    user_path.resolve(_TOKENIZER_PATH.value), _MAX_INPUT_LENGTH.value
  )


def _load(tokenizer: str, longest: int) -> summarization.Summarization:
  return summarization.Source(
    user_path.resolve(_DATASET_PATH.value),
    tokenizer,
    longest,
    _SAMPLE_COUNT.value,
  ).load()
