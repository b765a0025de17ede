"""Answers the bundled questions with the reference and records its answers.

The reference is transformers' BertForQuestionAnswering on PyTorch in float32,
one feature at a time. Other programs compare their answers with the written
file, without PyTorch:

    bazel run //bundled/bert:reference -- --output=/tmp/reference.json

`//bundled/bert/baselines` prints baselines for its figures.
"""

import json
import time

from absl import flags

from bundled import reference_program
from bundled.bert import reference_model
from harness.benchmarks import bert
from harness.bert import features as features_lib
from harness.bert import span_scoring
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.evaluation import f1

_MODEL = flags.DEFINE_string(
  'model', bert.BUNDLE.model, 'The model directory, with vocab.txt.'
)
_VAL_DATA = flags.DEFINE_string(
  'val_data', bert.BUNDLE.dataset, 'The questions, as in SQuAD v1.1.'
)


def main(argv: list[str]) -> None:
  del argv
  model_dir = user_path.resolve(_MODEL.value)
  try:
    features = features_lib.load(
      user_path.resolve(_VAL_DATA.value),
      f'{model_dir}/vocab.txt',
      reference_program.COUNT.value,
    )
    model = reference_model.load(model_dir)
  except (OSError, ValueError) as error:
    raise SystemExit(f'reference: {error}') from error
  began = time.monotonic()
  answers = span_scoring.answers(
    features, reference_model.logits(model, features, 'reference')
  )
  seconds = time.monotonic() - began
  scores = f1.score(answers, {q.id: q.answers for q in features.questions})
  record = {
    'implementation': f'{reference_program.IMPLEMENTATION}, not padded',
    'features': len(features),
    'exact_match': scores.exact_match,
    'f1': scores.f1,
    'answers': answers,
  }
  reference_program.write(json.dumps(record, indent=1) + '\n')
  print(scores.line)
  print(
    f'{len(answers)} questions, {len(features)} features in {seconds:.0f} s'
  )


if __name__ == '__main__':
  program.run(main)
