"""Flags that say which samples are answered, and the task they describe."""

from absl import flags

from harness.data import bundle
from harness.data import summarization
from harness.scenarios import tasks
from saxml_ext.common import user_path

DATASET_PATH = flags.DEFINE_string(
  'dataset_path',
  None,
  'Evaluation file in the schema of cnn_eval.json. Default: the bundled'
  ' articles.',
)
_TOKENIZER_PATH = flags.DEFINE_string(
  'tokenizer_path',
  None,
  "tokenizer.json of the model. Default: the bundled model's.",
)
_REFERENCE_PATH = flags.DEFINE_string(
  'reference_path',
  None,
  'Recorded tokens and ROUGE to compare with. Default: the bundled reference'
  ' when the bundled model answers the bundled articles, else none.',
)
_ROUGE_TOLERANCE = flags.DEFINE_float(
  'rouge_tolerance',
  0.01,
  "Greatest difference from the reference's ROUGE that passes.",
  lower_bound=0,
)
_REQUIRE_IDENTICAL = flags.DEFINE_bool(
  'require_identical',
  None,
  "Pass only if every answer is the reference's, token for token. Default:"
  ' where the name of the serving params says FP32.',
)
_MAX_INPUT_LENGTH = flags.DEFINE_integer(
  'max_input_length',
  bundle.MAX_INPUT_LENGTH,
  'Tokens after which a prompt is cut (GPT-J 6B: 1919).',
  lower_bound=1,
)
_SAMPLE_COUNT = flags.DEFINE_integer(
  'sample_count', 0, 'Samples to use, from the front; 0: all.', lower_bound=0
)


def task(bundled_model: bool) -> tasks.Task:
  """The task that the flags describe, its inputs read.

  Args:
    bundled_model: whether the bundled model answers.

  Raises:
    OSError, ValueError: an input cannot be used.
  """
  reference = user_path.resolve(_REFERENCE_PATH.value)
  if _REFERENCE_PATH.value is None and bundled_model and not DATASET_PATH.value:
    reference = bundle.reference_path()
  return tasks.GPTJTask(
    summarization.Source(
      user_path.resolve(DATASET_PATH.value) or bundle.eval_path(),
      user_path.resolve(_TOKENIZER_PATH.value) or bundle.tokenizer_path(),
      _MAX_INPUT_LENGTH.value,
      _SAMPLE_COUNT.value,
    ),
    tasks.JudgeRule(
      reference or None, _ROUGE_TOLERANCE.value, _REQUIRE_IDENTICAL.value
    ),
  )
