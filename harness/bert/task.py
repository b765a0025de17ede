"""Loads the questions of a job and judges the answers."""

from collections.abc import Mapping
import dataclasses
import os

from harness.benchmarks import all as benchmarks
from harness.bert import features as features_lib
from harness.bert import span_scoring
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.results import scoring
from saxml_ext.common import files
from saxml_ext.evaluation import f1


@dataclasses.dataclass(frozen=True)
class Reference:
  """The answers of the reference implementation to the same questions.

  Attributes:
    scores: The exact match and F1.
    answers: The texts by question id.
  """

  scores: f1.Scores
  answers: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Judged(scoring.Judgement[f1.Scores]):
  """An accuracy run beside the reference.

  Attributes:
    questions: The number of questions.
    tolerance: The error of float32.
    share: The share of the reference's F1 that passes; None: F1 must be equal
      within the error of float32.
    target: The published target; None: the questions are not the official set.
  """

  questions: int
  tolerance: float
  share: float | None
  target: float | None = None

  @property
  def _least(self) -> list[tuple[float, str]]:
    """The minimum F1 that passes and its source, for each rule that applies."""
    items = []
    if self.target is not None:
      items.append((self.target, 'the published target for the official set'))
    share, reference = self.share, self.reference
    if reference is not None and share is None:
      least = reference.f1 - self.tolerance
      items.append((least, f"the reference's, within {self.tolerance}"))
    elif reference is not None and share is not None:
      least = reference.f1 * share
      items.append((least, f"{100 * share:g} % of the reference's"))
    return items

  def problems(self) -> list[str]:
    return [
      f'F1 is {self.ours.f1:.4f}, but must be at least {least:.4f}, {source}.'
      for least, source in self._least
      if self.ours.f1 < least
    ]

  @property
  def identical_line(self) -> str:
    return (
      f"answers identical to the reference's: {self.identical} of"
      f' {self.questions}'
    )

  @property
  def verdict(self) -> str:
    return (
      '\n'.join(
        f'F1 must be at least {least:.4f}, {source}:'
        f' {"PASSED" if self.ours.f1 >= least else "FAILED"}'
        for least, source in self._least
      )
      or 'not judged: the samples are not the official set, and there is no'
      ' --reference_path'
    )


class BertTask:
  """The features of a set of questions."""

  def __init__(
    self,
    samples: run_lib.Samples,
    model: str,
    reference_path: str | None = None,
  ):
    """Reads the inputs, so that a mistake is reported before anything starts.

    Args:
      samples: The questions in SQuAD v1.1's schema, and the vocab.txt of the
        model. The count is a number of features.
      model: The submitted name of the model.
      reference_path: The path of the reference's answers to all questions;
        None: there is no reference.

    Raises:
      OSError, ValueError: An input cannot be used.
    """
    self.samples = samples
    self.benchmark = benchmarks.MODELS[model]
    self._model = model
    self._reference_path = reference_path
    self._features = features_lib.load(
      samples.dataset_path, samples.tokenizer_path, samples.sample_count
    )
    self._reference = self._read_reference() if reference_path else None
    self.sample_count = len(self._features)
    self.inputs = {
      'dataset': samples.dataset_path,
      'vocabulary': samples.tokenizer_path,
    }
    if reference_path:
      self.inputs['reference'] = reference_path
    self.parameters = {
      'max_examples': samples.sample_count,
      'share': self.benchmark.models[model],
    }

  def judge(
    self, directory: str, exact: bool, other_search: str = ''
  ) -> Judged:
    """Scores an accuracy run and writes accuracy.txt beside its logs.

    Args:
      directory: The directory of LoadGen's logs.
      exact: True if the system computes in float32, as the reference does.
      other_search: An unused argument, because BERT does not search.

    Raises:
      OSError, ValueError: The logs cannot be used.
    """
    scored = span_scoring.score_log(
      os.path.join(directory, loadgen_log.ACCURACY_LOG), self._features
    )
    reference = self._reference
    return Judged(
      ours=scored.scores,
      questions=len(self._features.questions),
      reference=reference.scores if reference else None,
      identical=sum(
        scored.answers.get(q.id) == reference.answers[q.id]
        for q in self._features.questions
      )
      if reference
      else 0,
      tolerance=self.benchmark.float32_tolerance,
      share=None if exact else self.benchmark.models[self._model],
      target=self.benchmark.least(self._model)['f1']
      if self.sample_count == self.benchmark.full_set
      else None,
    )

  def _read_reference(self) -> Reference:
    """Returns the reference's answers to these questions.

    If the reference has more questions, the answers to these are scored again.

    Raises:
      OSError: The file cannot be read.
      ValueError: The file is not a recorded reference, or has other questions.
    """
    assert self._reference_path
    record = files.read_json(self._reference_path)
    try:
      answers = dict(record['answers'])
      scores = f1.Scores(float(record['exact_match']), float(record['f1']))
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(
        f'{self._reference_path} is not a recorded reference ({error!r}). Pass'
        ' a file that //bundled/bert:reference wrote, or an empty'
        ' --reference_path.'
      ) from error
    truths = {q.id: q.answers for q in self._features.questions}
    missing = sorted(set(truths) - set(answers))
    if missing:
      raise ValueError(
        f'{self._reference_path} has no answer to question {missing[0]} of'
        f' {self.samples.dataset_path}. Pass the reference of these questions,'
        ' or an empty --reference_path.'
      )
    if len(truths) < len(answers):
      scores = f1.score(answers, truths)
    return Reference(scores, answers)
