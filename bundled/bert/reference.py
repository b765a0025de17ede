"""Answers the bundled questions with the reference and records its answers.

The reference is transformers' BertForQuestionAnswering on PyTorch in float32,
one feature at a time. Others compare against the file that this writes,
without PyTorch:

    bazel run //bundled/bert:reference -- --output=/tmp/reference.json

`//bundled/bert/baselines` prints what its figures are worth.
"""

from collections.abc import Mapping
import json
import time

from absl import flags
import torch
import transformers

from bundled.bert import reference_model
from harness.bert import bert_bundle
from harness.bert import span_scoring
from harness.bert.questions import features as features_lib
from harness.bert.questions import spans
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.evaluation import f1

_MODEL = flags.DEFINE_string(
  'model', bert_bundle.model_dir(), 'HF directory of the model, with vocab.txt.'
)
_VAL_DATA = flags.DEFINE_string(
  'val_data', bert_bundle.squad_path(), 'Questions in the schema of SQuAD v1.1.'
)
_OUTPUT = flags.DEFINE_string(
  'output', None, 'JSON file to write; none: print only.'
)
_COUNT = flags.DEFINE_integer(
  'count', 0, 'Features from the front of the set; 0: all.', lower_bound=0
)


def main(argv: list[str]) -> None:
  del argv
  model_dir = user_path.resolve(_MODEL.value)
  try:
    features = features_lib.load(
      user_path.resolve(_VAL_DATA.value), f'{model_dir}/vocab.txt', _COUNT.value
    )
    model = reference_model.load(model_dir)
  except (OSError, ValueError) as error:
    raise SystemExit(f'reference: {error}') from error
  began = time.monotonic()
  answers = spans.answers(
    features, reference_model.logits(model, features, 'reference')
  )
  seconds = time.monotonic() - began
  scores = f1.score(answers, {q.id: q.answers for q in features.questions})
  if _OUTPUT.value:
    try:
      _write(user_path.resolve(_OUTPUT.value), answers, scores, len(features))
    except OSError as error:
      raise SystemExit(
        f'reference: --output cannot be written: {error}'
      ) from error
  print(scores.line)
  print(
    f'{len(answers)} questions, {len(features)} features in {seconds:.0f} s'
  )


def _write(
  path: str, answers: Mapping[str, str], scores: f1.Scores, features: int
) -> None:
  record = {
    'implementation': f'transformers {transformers.__version__}, torch'
    f' {torch.__version__}, float32, batch 1, not padded',
    'features': features,
    'exact_match': scores.exact_match,
    'f1': scores.f1,
    'answers': answers,
  }
  span_scoring.write_whole(path, json.dumps(record, indent=1) + '\n')


if __name__ == '__main__':
  program.run(main)
