"""Scores accuracy runs, and compares them with a reference if there is one."""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
import operator
import os
from typing import Any, Generic, Protocol, TypeVar

import tokenizers

from harness.data import summarization
from harness.results import figures
from saxml_ext.common import files
from saxml_ext.common.pages import text_columns
from saxml_ext.evaluation import rouge

ACCURACY_FILE = figures.ACCURACY_FILE


class Scores(Protocol):
  """The figures of a run. Implementations are dataclasses."""

  @property
  def line(self) -> str:
    """The line of accuracy.txt with the figures."""


_S = TypeVar('_S', bound=Scores)


@dataclasses.dataclass(frozen=True)
class Judgement(abc.ABC, Generic[_S]):
  """The scores of an accuracy run, and of a reference if there is one.

  Attributes:
    ours: The scores of the run.
    reference: The scores of the reference, or None if there is none.
    identical: The number of answers that are identical to the reference's.
  """

  ours: _S
  reference: _S | None
  identical: int

  @property
  def metrics(self) -> dict[str, float]:
    """The figures of the run, by their name in the reference's evaluation."""
    return _figures(self.ours)

  @property
  def line(self) -> str:
    """The line of accuracy.txt with the figures."""
    return self.ours.line

  @property
  def reference_metrics(self) -> dict[str, float] | None:
    """The figures of the reference, or None without one."""
    return _figures(self.reference) if self.reference else None

  @property
  def passed(self) -> bool:
    """True if there are no problems."""
    return not self.problems()

  @property
  def table(self) -> str:
    """The figures of the run and the reference, and the identical answers."""
    ours = {k: v for k, v in self.metrics.items() if v is not None}
    theirs = self.reference_metrics
    rows: list[tuple[str, ...]]
    if theirs is None:
      rows = [('', 'this run')]
      rows += [(name, figure(value)) for name, value in ours.items()]
      return text_columns.render(rows) + '\n(no reference to compare with)'
    rows = [('', 'this run', 'reference', 'difference')]
    for name, value in ours.items():
      difference = figure(value - theirs[name], signed=True)
      rows.append((name, figure(value), figure(theirs[name]), difference))
    return f'{text_columns.render(rows)}\n{self.identical_line}'

  @property
  @abc.abstractmethod
  def identical_line(self) -> str:
    """A line with the number of answers identical to the reference's."""

  @property
  @abc.abstractmethod
  def verdict(self) -> str:
    """The rule that applies to the run, and the outcome; "" without a rule."""

  @abc.abstractmethod
  def problems(self) -> list[str]:
    """Returns the reasons why the run fails; empty if it passes.

    The list is also empty if no rule applies to the run.
    """


def figure(value: float | int, signed: bool = False) -> str:
  """Returns an integer in full, and a float with four decimals."""
  sign = '+' if signed else ''
  return f'{value:{sign}d}' if isinstance(value, int) else f'{value:{sign}.4f}'


def _figures(scores: Any) -> dict[str, float]:
  return dataclasses.asdict(scores)


@dataclasses.dataclass(frozen=True)
class Scored:
  """A scored accuracy run.

  Attributes:
    scores: The ROUGE scores.
    answers: The token ids that LoadGen logged, by sample index.
  """

  scores: rouge.Scores
  answers: dict[int, tuple[int, ...]]


def score_log(
  log_path: str,
  highlights: Sequence[str],
  tokenizer: tokenizers.Tokenizer,
  dtype: str = 'int64',
  output: str | None = None,
  clean_up: bool = False,
  split: rouge.Split | None = None,
) -> Scored:
  """Scores an accuracy log and writes the line for submissions.

  The reference's evaluation removes special tokens from the texts, so this
  function removes them too. An end id at the end of an answer therefore does
  not change its score.

  Args:
    log_path: The path of mlperf_log_accuracy.json.
    highlights: The highlights, by sample index.
    tokenizer: The model's tokenizer.
    dtype: The type of the ids in the log: "int64", "int32" or "float32".
    output: The output file, or None for accuracy.txt next to the log.
    clean_up: The value of tokenizer.cleans_up for the model's tokenizer.
    split: The function that splits a text into sentences for rougeLsum. None
      skips rougeLsum.

  Raises:
    OSError, ValueError: The log is unusable, or belongs to other articles.
  """
  answers = rouge.read_accuracy_log(log_path, dtype)
  scores = rouge.score_tokens(answers, highlights, tokenizer, clean_up, split)
  path = output or os.path.join(os.path.dirname(log_path), ACCURACY_FILE)
  with open(path, 'w', encoding='utf-8') as file:
    file.write(scores.line + '\n')
  return Scored(scores, answers)


@dataclasses.dataclass(frozen=True)
class Reference:
  """The answers of the reference implementation to the same articles.

  Attributes:
    scores: The ROUGE scores of the reference.
    tokens: The tokens that it generated, by sample index, without EOS and
      padding.
  """

  scores: rouge.Scores
  tokens: tuple[tuple[int, ...], ...]

  def shares(self, share: float) -> dict[str, float]:
    """Returns the given share of each ROUGE figure, by name."""
    return {name: share * value for name, value in self.scores.rouge.items()}


@dataclasses.dataclass(frozen=True)
class Rule:
  """The conditions that an accuracy run must meet to pass.

  Attributes:
    rouge_tolerance: The largest allowed difference from the reference's ROUGE,
      or None if any difference is allowed.
    identical: True if every answer must also match the reference token for
      token. Only a float32 run gives such answers.
    least: The lowest allowed figure, by name.
    note: The source of the bounds, or the reason why nothing is required.
    most: The highest allowed figure, by name.
    remark: A sentence about a figure that is not judged; '' without one.
  """

  rouge_tolerance: float | None
  identical: bool
  least: Mapping[str, float] = dataclasses.field(default_factory=dict)
  note: str = ''
  most: Mapping[str, float] = dataclasses.field(default_factory=dict)
  remark: str = ''


@dataclasses.dataclass(frozen=True)
class Comparison(Judgement[rouge.Scores]):
  """The scores of an accuracy run and of the reference.

  Attributes:
    rule: The conditions that the run must meet to pass.
  """

  rule: Rule

  @property
  def worst(self) -> float:
    """The largest difference among the ROUGE figures."""
    if self.reference is None:
      return 0.0
    theirs = self.reference.rouge
    return max(abs(v - theirs[name]) for name, v in self.ours.rouge.items())

  @property
  def _bounds(self) -> list[tuple[str, str, str, bool]]:
    """The name, figure and bound of each rule, and True if it holds."""
    rows = []
    for words, bounds, holds in (
      ('at least', self.rule.least, operator.ge),
      ('at most', self.rule.most, operator.le),
    ):
      for name, bound in bounds.items():
        value = getattr(self.ours, name)
        text = f'{words} {bound:.4f}'
        rows.append((name, figure(value), text, holds(value, bound)))
    return rows

  def problems(self) -> list[str]:
    """Returns the reasons why the run fails; empty if it passes.

    The list is also empty if no rule applies to the run.
    """
    problems = [
      f'{name} is {value}; it must be {bound}, {self.rule.note}'
      for name, value, bound, holds in self._bounds
      if not holds
    ]
    if self.reference is None:
      return problems
    if not self._within:
      problems.append(
        f'ROUGE differs from the reference by {self.worst:.4f}; the limit is'
        f' {self.rule.rouge_tolerance} (--rouge_tolerance)'
      )
    count = self.reference.gen_num
    if self.rule.identical and self.identical < count:
      problems.append(
        f"{self.identical} of {count} answers are the reference's token for"
        f' token; a float32 run must give all {count} (if the model does not'
        ' compute in float32, --norequire_identical judges it by ROUGE alone)'
      )
    return problems

  @property
  def _within(self) -> bool:
    """True if the ROUGE figures are within the tolerance, or none is set."""
    # Both scores are rounded to four decimals, so their difference is too.
    tolerance = self.rule.rouge_tolerance
    return tolerance is None or round(self.worst, 4) <= tolerance

  @property
  def identical_line(self) -> str:
    assert self.reference is not None
    return (
      f"tokens identical to the reference's: {self.identical} of"
      f' {self.reference.gen_num}'
    )

  @property
  def verdict(self) -> str:
    """The rule that applies to the run, and the outcome."""
    lines = [
      f'{name} {value} must be {bound}: {"PASSED" if holds else "FAILED"}'
      for name, value, bound, holds in self._bounds
    ]
    lines += filter(None, (self.rule.note, self.rule.remark))
    if self.reference is None:
      return '\n'.join(lines)
    if self.rule.rouge_tolerance is not None:
      lines.append(
        f'largest ROUGE difference {self.worst:.4f}:'
        f' {"within" if self._within else "BEYOND"} the tolerance of'
        f' {self.rule.rouge_tolerance}'
      )
    count = self.reference.gen_num
    if self.rule.identical:
      same = self.identical == count
      lines.append(
        "a float32 run: every answer must be the reference's, token for token;"
        f' {self.identical} of {count} are: {"PASSED" if same else "FAILED"}'
      )
    else:
      lines.append(
        'not judged as a float32 run: answers may differ from the reference'
      )
    return '\n'.join(lines)


def load_reference(
  path: str,
  highlights: Sequence[str],
  tokenizer: tokenizers.Tokenizer,
  split: rouge.Split | None = None,
) -> Reference:
  """Reads a recorded reference.

  Args:
    path: The path of a JSON object with "tokens" (one list per article),
      "rouge1", "rouge2", "rougeL" and "gen_len".
    highlights: The highlights of this run's articles. If the reference has more
      articles than that, its answers to these articles are scored again.
    tokenizer: The model's tokenizer.
    split: The function that splits a text into sentences. With it, the answers
      are scored again, because records have no rougeLsum.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is not a recorded reference, or has too few articles.
  """
  record = files.read_json(path)
  ends = summarization.end_ids(tokenizer)
  try:
    tokens = tuple(
      summarization.until_end(ids, ends) for ids in record['tokens']
    )
    recorded = rouge.Scores(
      **{name: float(record[name]) for name in rouge.METRICS},
      gen_len=int(record['gen_len']),
      gen_num=len(tokens),
    )
  except (KeyError, TypeError) as error:
    raise ValueError(
      f'{path} is not a recorded reference ({error!r}). Pass a file that'
      ' //bundled/gptj:reference wrote, or an empty --reference_path'
    ) from error
  count = len(highlights)
  if count > len(tokens):
    raise ValueError(
      f'{path} has answers for {len(tokens)} articles, but the run has'
      f' {count}. Pass the reference of these articles, or an empty'
      ' --reference_path'
    )
  if count == len(tokens) and split is None:
    return Reference(recorded, tokens)
  tokens = tokens[:count]
  scores = rouge.score_tokens(
    dict(enumerate(tokens)), highlights, tokenizer, split=split
  )
  return Reference(scores, tokens)


def compare(
  ours: Scored,
  reference: Reference | None,
  rule: Rule,
  tokenizer: tokenizers.Tokenizer,
) -> Comparison:
  """Compares a run with the reference, if there is one."""
  if reference is None:
    return Comparison(ours.scores, None, 0, rule)
  ends = summarization.end_ids(tokenizer)
  identical = sum(
    summarization.until_end(ours.answers.get(index, ()), ends) == tokens
    for index, tokens in enumerate(reference.tokens)
  )
  return Comparison(ours.scores, reference.scores, identical, rule)
