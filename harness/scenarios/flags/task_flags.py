"""Flags that say which samples are answered, and the task they describe."""

from absl import flags

from harness.bert.bundled import bundle as bert_bundle
from harness.data import bundle
from harness.data import summarization
from harness.loadgen import rounds
from harness.scenarios import tasks
from saxml_ext.common import user_path

DATASET_PATH = flags.DEFINE_string(
  'dataset_path',
  None,
  'GPT-J: articles in the schema of cnn_eval.json. BERT: questions in SQuAD'
  " v1.1's. Default: the bundled ones.",
)
_TOKENIZER_PATH = flags.DEFINE_string(
  'tokenizer_path',
  None,
  'GPT-J: tokenizer.json of the model. BERT: its vocab.txt. Default: the'
  " bundled model's.",
)
_REFERENCE_PATH = flags.DEFINE_string(
  'reference_path',
  None,
  'Recorded answers and scores to compare with. Default: the bundled reference'
  ' when the bundled model answers the bundled set, else none.',
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


def task(benchmark: str, model: str, bundled_model: bool) -> tasks.Task:
  """The task that the flags describe, its inputs read.

  Args:
    benchmark: LoadGen's name of it.
    model: as it is submitted.
    bundled_model: whether the bundled model answers.

  Raises:
    OSError, ValueError: an input cannot be used.
  """
  bundled = bundled_model and not DATASET_PATH.value
  if benchmark == rounds.BERT:
    return _bert(model, bundled)
  return tasks.GPTJTask(
    summarization.Source(
      user_path.resolve(DATASET_PATH.value) or bundle.eval_path(),
      user_path.resolve(_TOKENIZER_PATH.value) or bundle.tokenizer_path(),
      _MAX_INPUT_LENGTH.value,
      _SAMPLE_COUNT.value,
    ),
    tasks.JudgeRule(
      _reference(bundle.reference_path() if bundled else None),
      _ROUGE_TOLERANCE.value,
      _REQUIRE_IDENTICAL.value,
    ),
  )


def _bert(model: str, bundled: bool) -> tasks.Task:
  # pylint: disable=g-import-not-at-top
  from harness.bert import task as bert_task  # Brings transformers along.

  return bert_task.BertTask(
    user_path.resolve(DATASET_PATH.value) or bert_bundle.squad_path(),
    user_path.resolve(_TOKENIZER_PATH.value) or bert_bundle.vocab_path(),
    _SAMPLE_COUNT.value,
    _reference(bert_bundle.reference_path() if bundled else None),
    bert_task.SHARES[model],
  )


def _reference(default: str | None) -> str | None:
  """The recorded reference that is asked for; None if there is none."""
  if _REFERENCE_PATH.value is None:
    return default
  return user_path.resolve(_REFERENCE_PATH.value) or None
