"""What a benchmark's runs are about: its samples, and who judges the answers."""

from collections.abc import Mapping
import dataclasses
import os
from typing import Protocol

from harness.data import summarization
from harness.loadgen import loadgen_log
from harness.results import comparison as comparison_lib
from harness.results import judgement
from harness.results import scoring
from harness.rules import requirements
from harness.rules import rounds
from saxml_ext.evaluation import tokenizer as tokenizer_lib


class Task(Protocol):
  """A benchmark's samples, in memory."""

  @property
  def benchmark(self) -> str:
    """LoadGen's name of the benchmark."""

  @property
  def sample_count(self) -> int:
    """Samples of the set."""

  @property
  def flags(self) -> Mapping[str, object]:
    """Flags by which a LoadGen program gets the same samples."""

  @property
  def inputs(self) -> Mapping[str, str]:
    """Path by role of the files that decide the result."""

  @property
  def parameters(self) -> Mapping[str, object]:
    """Whatever else of it decides the result."""

  def judge(
    self, directory: str, exact: bool, other_search: str = ''
  ) -> judgement.Judgement:
    """Scores an accuracy run and writes accuracy.txt beside its logs.

    Args:
      directory: of LoadGen's logs.
      exact: whether the system computes as the reference does (float32), so
        that every answer must be the reference's.
      other_search: how its search differs from the reference's; '' if it does
        not.

    Raises:
      OSError, ValueError: the logs cannot be used.
    """


@dataclasses.dataclass(frozen=True)
class JudgeRule:
  """How GPT-J's answers are judged.

  Attributes:
    reference_path: the record; None compares with nothing.
    rouge_tolerance: greatest difference from its ROUGE that passes; None:
      the one of float32, else the share.
    require_identical: whether every answer must be the reference's; None: if
      the system computes in float32.
    share: required share of its ROUGE for other formats than float32.
    targets: least figures by name on the whole official set.
  """

  reference_path: str | None = None
  rouge_tolerance: float | None = None
  require_identical: bool | None = None
  share: float = requirements.SHARES['gptj-99']
  targets: Mapping[str, float] = dataclasses.field(default_factory=dict)


class GPTJTask:
  """News articles to be summarized."""

  benchmark = rounds.GPTJ

  def __init__(self, source: summarization.Source, rule: JudgeRule):
    """Reads the inputs, so that a wrong one is told before anything starts.

    Raises:
      OSError, ValueError: an input cannot be used.
    """
    self._source = source
    self._rule = rule
    self._task = source.load()
    self._reference = None
    if rule.reference_path:
      self._reference = comparison_lib.load_reference(
        rule.reference_path, self._task.highlights, self._task.tokenizer
      )

  @property
  def sample_count(self) -> int:
    return len(self._task.articles)

  @property
  def flags(self) -> Mapping[str, object]:
    return {
      'dataset_path': self._source.dataset_path,
      'tokenizer_path': self._source.tokenizer_path,
      'max_input_length': self._source.max_input_length,
      'sample_count': self.sample_count,
    }

  @property
  def inputs(self) -> Mapping[str, str]:
    paths = {
      'dataset': self._source.dataset_path,
      'tokenizer': self._source.tokenizer_path,
    }
    if self._rule.reference_path:
      paths['reference'] = self._rule.reference_path
    return paths

  @property
  def parameters(self) -> Mapping[str, object]:
    return {
      'max_input_length': self._source.max_input_length,
      'sample_count': self.sample_count,
      'rouge_tolerance': self._rule.rouge_tolerance,
      'require_identical': self._rule.require_identical,
    }

  def judge(
    self, directory: str, exact: bool, other_search: str = ''
  ) -> judgement.Judgement:
    scored = scoring.score_log(
      os.path.join(directory, loadgen_log.ACCURACY_LOG),
      self._task.highlights,
      self._task.tokenizer,
      clean_up=tokenizer_lib.cleans_up(self._source.tokenizer_path),
    )
    return comparison_lib.compare(
      scored,
      self._reference,
      self._comparison_rule(exact, other_search),
      self._task.tokenizer,
    )

  def _comparison_rule(
    self, exact: bool, other_search: str
  ) -> comparison_lib.Rule:
    """Returns what the answers are held to; see `judge`."""
    rule, count = self._rule, rounds.FULL_SET[rounds.GPTJ]
    official = self.sample_count == count
    least = dict(rule.targets) if official else {}
    notes = [f'the published target for {count} articles'] if official else []
    alike = self._reference is not None and not other_search
    tolerance = rule.rouge_tolerance
    if tolerance is None and alike and exact:
      tolerance = requirements.FLOAT32_TOLERANCE[rounds.GPTJ]
    elif tolerance is None and alike and not official:
      assert self._reference is not None
      least |= self._reference.shares(rule.share)
      notes.append(f"{100 * rule.share:g} % of the reference's figures")
    identical = rule.require_identical
    if identical is None:
      identical = alike and exact
    if not notes and tolerance is None:
      notes.append(
        f'not judged: the reference searches otherwise ({other_search})'
        if self._reference
        else f'not judged: {self.sample_count} samples are not the {count} of'
        ' the official set, and no reference is recorded (--reference_path)'
      )
    return comparison_lib.Rule(tolerance, identical, least, '; '.join(notes))
