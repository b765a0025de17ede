"""Compares ways to run a BERT: samples per second and F1, side by side.

bench --model=DIRECTORY --val_data=squad.json --vocab_file=vocab.txt

The ways answer each batch in turn, so that other load on the machine affects
all of them equally.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import os
import sys
import time

from absl import flags
import numpy as np

from harness.benchmarks import bert
from harness.bert import answering
from harness.bert import features as features_lib
from harness.bert import graph
from harness.bert import loadgen_onnxruntime
from harness.bert import loadgen_pytorch
from harness.bert import span_scoring
from harness.loadgen import run as run_lib
from harness.loadgen import system
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.common.pages import text_columns
from saxml_ext.evaluation import f1

# The share of the float32 F1 that a lower precision must keep.
_KEPT = bert.BERT.models['bert-99']


@dataclasses.dataclass(frozen=True)
class Way:
  """A way to run the model.

  Attributes:
    label: The label in the table.
    load: The function that loads the model from (path, device, threads).
    plain: True if it answers like the reference's code, one sample at a time
      and padded to 384 tokens. Otherwise it answers batches that are padded to
      their longest sample.
  """

  label: str
  load: Callable[[str, str, int], answering.Model]
  plain: bool = False


@functools.cache  # Ways with the same graph share it.
def _onnx(precision: str | None) -> Callable[[str, str, int], answering.Model]:
  return lambda path, device, threads: loadgen_onnxruntime.load(
    path, precision, device, threads
  )


def _torch(precision: str) -> Callable[[str, str, int], answering.Model]:
  return lambda path, device, threads: loadgen_pytorch.load(
    path, precision, device, threads
  )


WAYS = {
  'plain': Way('ONNX Runtime float32, plain', _onnx(graph.FLOAT32), plain=True),
  'float32': Way('ONNX Runtime float32', _onnx(graph.FLOAT32)),
  'float16': Way('ONNX Runtime float16', _onnx(graph.FLOAT16)),
  'int8': Way('ONNX Runtime int8', _onnx(graph.INT8)),
  'pytorch': Way('PyTorch float32', _torch('float32')),
  'pytorch_bfloat16': Way('PyTorch bfloat16', _torch('bfloat16')),
}

_WAYS = flags.DEFINE_list(
  'ways',
  'plain,float32,int8,pytorch',
  f'The ways to compare: {", ".join(WAYS)}, or the names of ONNX files of the'
  ' same model. Ratios are relative to the first way. "plain" runs one sample'
  ' at a time, padded to 384 tokens, like the reference. The others pad a'
  ' batch to its longest sample.',
)


@dataclasses.dataclass
class Trial:
  """The result of a way.

  Attributes:
    way: The way to run the model.
    model: The loaded model.
    seconds: The time that it took for all samples.
    logits: The logits by sample index.
  """

  way: Way
  model: answering.Model
  seconds: float = 0.0
  logits: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)


def main(argv: Sequence[str]) -> None:
  del argv
  with program.exit_on('bench'):
    model = run_lib.CHECKPOINT.value
    path = user_path.resolve(model) or bert.BUNDLE.model
    features = answering.features(path, run_lib.fill(run_lib.Samples))
    trials = [_trial(name, path) for name in _WAYS.value]
  if not trials:
    raise SystemExit('bench: --ways is empty. Name at least one way.')
  compare(trials, features, run_lib.BATCH_SIZE.value or answering.BATCH_SIZE)
  print(table(trials, features))


def _trial(name: str, path: str) -> Trial:
  """Returns the trial of a name in --ways, with its model loaded."""
  if name.endswith('.onnx'):
    path = user_path.resolve(name)
    way = Way(os.path.basename(path), _onnx(None))
  elif name in WAYS:
    way = WAYS[name]
  else:
    raise ValueError(
      f'--ways contains {name!r}. Choose from {", ".join(WAYS)}, or name files'
      ' that end in .onnx.'
    )
  return Trial(way, _model(way.load, path))


@functools.cache
def _model(
  load: Callable[[str, str, int], answering.Model], path: str
) -> answering.Model:
  return load(path, run_lib.DEVICE.value, run_lib.THREADS.value)


def compare(
  trials: Sequence[Trial], features: features_lib.FeatureSet, batch_size: int
) -> None:
  """Runs all trials on all features, batch by batch in turn."""
  count = len(features)
  order = system.copies_longest_first(range(count), features.lengths, count)
  batches = [
    order[start : start + batch_size] for start in range(0, count, batch_size)
  ]
  for trial in trials:
    # This untimed answer allocates memory and starts threads.
    _answer(trial, features, batches[0])
    trial.seconds = 0.0
  for number, batch in enumerate(batches):
    # The order rotates, so that no way is always the first on a new batch.
    shift = number % len(trials)
    for trial in [*trials[shift:], *trials[:shift]]:
      _answer(trial, features, batch)
    if sys.stderr.isatty():
      print(f'\r{number + 1}/{len(batches)}', end='\r', file=sys.stderr)


def _answer(
  trial: Trial, features: features_lib.FeatureSet, batch: Sequence[int]
) -> None:
  begin = time.perf_counter()
  if trial.way.plain:
    answers = [
      answer
      for index in batch
      for answer in answering.answer(
        trial.model, features, [index], features_lib.MAX_LENGTH
      )
    ]
  else:
    answers = answering.answer(trial.model, features, batch)
  trial.seconds += time.perf_counter() - begin
  for index, answer in zip(batch, answers, strict=True):
    trial.logits[index] = answer.data


def table(trials: Sequence[Trial], features: features_lib.FeatureSet) -> str:
  """Returns a table of samples/s and F1, with ratios to the first way."""
  truths = {q.id: q.answers for q in features.questions}
  scores = [
    f1.score(span_scoring.answers(features, trial.logits), truths).f1
    for trial in trials
    if all(truths.values())
  ]
  rows = [['', 'samples/s', 'ratio', 'F1', 'kept']]
  for number, trial in enumerate(trials):
    rate = len(features) / trial.seconds
    row = [
      trial.way.label,
      f'{rate:.2f}',
      f'{trials[0].seconds / trial.seconds:.2f}',
      '-',
      '-',
    ]
    if scores:
      row[3] = f'{scores[number]:.3f}'
      if scores[0]:
        row[4] = f'{scores[number] / scores[0]:.2%}'
    rows.append(row)
  return (
    f'{text_columns.render(rows)}\n'
    f'{len(features)} samples of {features.lengths.mean():.0f} tokens. BERT-99'
    f' must keep {_KEPT:.0%} of the F1.'
  )


if __name__ == '__main__':
  answering.keep_flags()
  program.run(main)
