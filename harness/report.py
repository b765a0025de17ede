"""The result of a job: compared with the reference, and told to the user."""

from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import json
import os

import tokenizers

from harness import loadgen_log
from saxml_ext.common import rouge


@dataclasses.dataclass(frozen=True)
class Reference:
  """What the reference implementation answers on the same articles.

  Attributes:
    scores: its ROUGE.
    tokens: its generated tokens by sample index, without EOS and padding.
  """

  scores: rouge.Scores
  tokens: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Our accuracy run beside the reference.

  Attributes:
    ours: its scores.
    reference: the reference's; None if none is known.
    identical: samples whose tokens equal the reference's.
    tolerance: greatest ROUGE difference that passes.
  """

  ours: rouge.Scores
  reference: rouge.Scores | None
  identical: int
  tolerance: float

  @property
  def worst(self) -> float:
    """The greatest difference of the three ROUGE figures."""
    if self.reference is None:
      return 0.0
    return max(
        abs(getattr(self.ours, name) - getattr(self.reference, name))
        for name in rouge.METRICS
    )

  @property
  def passed(self) -> bool:
    # Both sides are rounded to four decimals; so is their difference.
    return round(self.worst, 4) <= self.tolerance

  @property
  def table(self) -> str:
    names = (*rouge.METRICS, 'gen_len', 'gen_num')
    if self.reference is None:
      rows = [('', 'this run')]
      rows += [(name, _figure(getattr(self.ours, name))) for name in names]
      return _table(rows) + '\n(no reference given to compare with)'
    rows = [('', 'this run', 'reference', 'difference')]
    for name in names:
      ours, theirs = getattr(self.ours, name), getattr(self.reference, name)
      difference = _figure(ours - theirs, signed=True)
      rows.append((name, _figure(ours), _figure(theirs), difference))
    return (
        _table(rows)
        + f"\ntokens identical to the reference's: {self.identical} of"
        f' {self.ours.gen_num}'
    )


def load_reference(
    path: str,
    highlights: Sequence[str],
    tokenizer: tokenizers.Tokenizer,
) -> Reference:
  """Reads a recorded reference.

  Args:
    path: JSON object: "tokens" (a list per article), "rouge1", "rouge2",
      "rougeL", "gen_len".
    highlights: of the articles of this run. If these are fewer than the
      reference has, its tokens for them are scored anew.
    tokenizer: the model's.

  Raises:
    ValueError: the file is not such a record, or is for fewer articles.
  """
  with open(path, encoding='utf-8') as file:
    record = json.load(file)
  try:
    tokens = tuple(text_tokens(ids, tokenizer) for ids in record['tokens'])
    recorded = rouge.Scores(
        **{name: float(record[name]) for name in rouge.METRICS},
        gen_len=int(record['gen_len']),
        gen_num=len(tokens),
    )
  except (KeyError, TypeError) as error:
    raise ValueError(f'{path} is not a recorded reference: {error}') from error
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
    ours: rouge.Scores,
    answers: Mapping[int, Sequence[int]],
    reference: Reference | None,
    tolerance: float,
    tokenizer: tokenizers.Tokenizer,
) -> Comparison:
  """Sets a run's scores and answers beside the reference's, if there is one."""
  if reference is None:
    return Comparison(ours, None, 0, tolerance)
  identical = sum(
      text_tokens(tokens, tokenizer) == reference.tokens[index]
      for index, tokens in answers.items()
  )
  return Comparison(ours, reference.scores, identical, tolerance)


def render(
    comparison: Comparison | None, performance: loadgen_log.RunLog | None
) -> str:
  """The report as text; None stands for what was not run."""
  parts = []
  if performance is not None:
    parts.append(performance.summary.rstrip())
  if comparison is not None:
    parts.append(f'Accuracy\n\n{comparison.table}')
    if comparison.reference is not None:
      verdict = 'within' if comparison.passed else 'BEYOND'
      parts.append(
          f'largest ROUGE difference {comparison.worst:.4f}: {verdict} the'
          f' tolerance of {comparison.tolerance}'
      )
  return '\n\n'.join(parts) + '\n'


def write(results_dir: str, scenario: str, text: str) -> str:
  """Writes report.md, the text under a heading, and returns its path."""
  path = os.path.join(results_dir, 'report.md')
  with open(path, 'w', encoding='utf-8') as file:
    file.write(f'# MLPerf {scenario}\n\n```\n{text}```\n')
  return path


def text_tokens(
    tokens: Sequence[int], tokenizer: tokenizers.Tokenizer
) -> tuple[int, ...]:
  """An answer up to its first special token: without EOS and padding.

  The reference pads shorter answers of a batch with EOS, a server does not.
  """
  special = {
      token_id
      for token_id, token in tokenizer.get_added_tokens_decoder().items()
      if token.special
  }
  return tuple(itertools.takewhile(lambda token: token not in special, tokens))


def _figure(value: float | int, signed: bool = False) -> str:
  sign = '+' if signed else ''
  return f'{value:{sign}d}' if isinstance(value, int) else f'{value:{sign}.4f}'


def _table(rows: Sequence[Sequence[str]]) -> str:
  widths = [max(map(len, column)) for column in zip(*rows)]
  return '\n'.join(
      '  '.join(
          cell.ljust(width) if i == 0 else cell.rjust(width)
          for i, (cell, width) in enumerate(zip(row, widths))
      ).rstrip()
      for row in rows
  )
