"""Compares an accuracy run with the reference implementation's answers."""

from collections.abc import Mapping, Sequence
import dataclasses
import json

import tokenizers

from harness.data import summarization
from harness.results import judgement
from harness.results import scoring
from saxml_ext.evaluation import rouge


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
    return {name: share * getattr(self.scores, name) for name in rouge.METRICS}


@dataclasses.dataclass(frozen=True)
class Rule:
  """The conditions that an accuracy run must meet to pass.

  Attributes:
    rouge_tolerance: The largest allowed difference from the reference's ROUGE,
      or None if any difference is allowed.
    identical: True if every answer must also match the reference token for
      token. Only a float32 run gives such answers.
    least: The lowest allowed figure, by name.
    note: The source of `least`, or the reason why nothing is required.
  """

  rouge_tolerance: float | None
  identical: bool
  least: Mapping[str, float] = dataclasses.field(default_factory=dict)
  note: str = ''


@dataclasses.dataclass(frozen=True)
class Comparison(judgement.Judgement[rouge.Scores]):
  """The scores of an accuracy run and of the reference.

  Attributes:
    rule: The conditions that the run must meet to pass.
  """

  rule: Rule

  @property
  def worst(self) -> float:
    """The largest difference among the three ROUGE figures."""
    if self.reference is None:
      return 0.0
    return max(
      abs(getattr(self.ours, name) - getattr(self.reference, name))
      for name in rouge.METRICS
    )

  def problems(self) -> list[str]:
    """Returns the reasons why the run fails; empty if it passes.

    The list is also empty if no rule applies to the run.
    """
    problems = []
    for name, least in self.rule.least.items():
      if getattr(self.ours, name) < least:
        problems.append(
          f'{name} is {judgement.figure(getattr(self.ours, name))}; it must be at least'
          f' {least:.4f}, {self.rule.note}'
        )
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
    lines = []
    for name, least in self.rule.least.items():
      figure = getattr(self.ours, name)
      lines.append(
        f'{name} {judgement.figure(figure)} must be at least {least:.4f}:'
        f' {"PASSED" if figure >= least else "FAILED"}'
      )
    lines += [self.rule.note] if self.rule.note else []
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
  path: str, highlights: Sequence[str], tokenizer: tokenizers.Tokenizer
) -> Reference:
  """Reads a recorded reference.

  Args:
    path: The path of a JSON object with "tokens" (one list per article),
      "rouge1", "rouge2", "rougeL" and "gen_len".
    highlights: The highlights of this run's articles. If the reference has more
      articles than that, its answers to these articles are scored again.
    tokenizer: The model's tokenizer.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is not a recorded reference, or has too few articles.
  """
  with open(path, encoding='utf-8') as file:
    record = json.load(file)
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
      f'{path} is not a recorded reference ({error!r}); give a file as'
      ' //bundled/gptj:reference writes it, or an empty --reference_path'
    ) from error
  count = len(highlights)
  if count > len(tokens):
    raise ValueError(
      f'{path} has answers for {len(tokens)} articles, but the run has'
      f' {count}; give the reference of these articles, or an empty'
      ' --reference_path'
    )
  if count == len(tokens):
    return Reference(recorded, tokens)
  tokens = tokens[:count]
  scores = rouge.score_tokens(dict(enumerate(tokens)), highlights, tokenizer)
  return Reference(scores, tokens)


def compare(
  ours: scoring.Scored,
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
