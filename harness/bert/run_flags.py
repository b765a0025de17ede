"""What the programs that run BERT are told by flags."""

from collections.abc import Callable
import os

from absl import flags

from harness.bert import bert_bundle
from harness.bert.models import answering
from harness.bert.questions import features as features_lib
from harness.loadgen import runner
from saxml_ext.common import user_path

_MODEL = flags.DEFINE_string(
  'model',
  None,
  'A Hugging Face directory of a BertForQuestionAnswering, a file with the'
  ' state_dict of BERT-large, or an ONNX file. Default: the bundled model.',
)
_VAL_DATA = flags.DEFINE_string(
  'val_data',
  None,
  'Questions: SQuAD v1.1 in JSON. Default: the bundled questions.',
)
_VOCAB_FILE = flags.DEFINE_string(
  'vocab_file', None, 'vocab.txt of the model. Default: the one beside it.'
)
_MAX_EXAMPLES = flags.DEFINE_integer(
  'max_examples', 0, 'Samples to take from the front; 0: all.', 0
)
_BATCH_SIZE = flags.DEFINE_integer(
  'batch_size', 8, 'Most samples that are computed together.', 1
)
_THREADS = flags.DEFINE_integer(
  'threads', 0, 'Threads of the CPU; 0: one for each core.', 0
)


def model_path() -> str:
  return user_path.resolve(_MODEL.value) or bert_bundle.model_dir()


def batch_size() -> int:
  return _BATCH_SIZE.value


def threads() -> int:
  return _THREADS.value


def features() -> features_lib.FeatureSet:
  """Reads the set.

  Raises:
    OSError, ValueError: it cannot be used.
  """
  return features_lib.load(
    user_path.resolve(_VAL_DATA.value) or bert_bundle.squad_path(),
    user_path.resolve(_VOCAB_FILE.value) or _vocab_beside(model_path()),
    _MAX_EXAMPLES.value,
  )


def subject(load_model: Callable[[], answering.Model]) -> runner.Subject:
  """What LoadGen's run is about.

  Raises:
    OSError, ValueError: the set or the model cannot be used.
  """
  asked = features()
  return runner.Subject(
    answering.make_system(load_model(), asked, _BATCH_SIZE.value),
    asked.lengths.tolist(),
  )


def _vocab_beside(model: str) -> str:
  directory = model if os.path.isdir(model) else os.path.dirname(model)
  return os.path.join(directory, 'vocab.txt')
