"""Computes the ROUGE of an accuracy log like the references of MLPerf."""

from collections.abc import Callable, Collection, Mapping, Sequence
import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os

import numpy as np
import tokenizers

from saxml_ext.common import files
from saxml_ext.evaluation import tokenizer as tokenizer_lib

METRICS = ('rouge1', 'rouge2', 'rougeL')

# Splits a text into sentences.
Split = Callable[[str], Sequence[str]]

# A pair takes about 5 ms, and starting the workers takes about 2 s. Below this
# number of pairs (10 s of work), one process is equally fast.
_PARALLEL_FROM = 2000

# No vocabulary is this large. Ids of a wrong type are larger.
_MAX_ID = 2**24


@dataclasses.dataclass(frozen=True)
class Scores:
  """The scores of an accuracy run.

  Attributes:
    rouge1: The mean ROUGE-1 F-measure times 100, with four decimals.
    rouge2: The mean ROUGE-2 F-measure times 100, with four decimals.
    rougeL: The mean ROUGE-L F-measure times 100, with four decimals.
    gen_len: The number of characters in all predictions together.
    gen_num: The number of predictions.
    rougeLsum: The mean ROUGE-Lsum F-measure times 100, or None if the texts
      were not split into sentences.
  """

  rouge1: float
  rouge2: float
  rougeL: float
  gen_len: int
  gen_num: int
  rougeLsum: float | None = None

  @property
  def rouge(self) -> dict[str, float]:
    """The ROUGE figures that were computed, by name."""
    figures = {name: getattr(self, name) for name in (*METRICS, 'rougeLsum')}
    return {k: v for k, v in figures.items() if v is not None}

  @property
  def line(self) -> str:
    """The line of scores in the reference's format, which the checker parses.

    The format is that of the reference up to v4.1. Since v5.0 the reference
    puts the figures, but not the counts, in quotation marks. The checkers up to
    v5.0 reject these.
    """
    counts = {'gen_len': self.gen_len, 'gen_num': self.gen_num}
    return str(self.rouge | counts)


def read_accuracy_log(path: str, dtype: str) -> dict[int, tuple[int, ...]]:
  """Reads the token ids of mlperf_log_accuracy.json, by sample index.

  LoadGen may log a sample more than once. The first answer counts.

  Args:
    path: The path of the log.
    dtype: The type of the ids, "int64", "int32" or "float32".

  Raises:
    ValueError: The file is not such a log, or its ids have another type.
  """
  entries = files.read_json(path)
  if not entries:
    raise ValueError(
      f'{path} has no answers. It must come from a run in accuracy mode.'
    )
  answers: dict[int, tuple[int, ...]] = {}
  for number, entry in enumerate(entries):
    try:
      index, data = int(entry['qsl_idx']), bytes.fromhex(entry['data'])
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(
        f'{path} is not a LoadGen log: entry {number} lacks qsl_idx or'
        f' hexadecimal data ({error!r}).'
      ) from error
    if index not in answers:
      answers[index] = _tokens(path, index, data, dtype)
  if dtype == 'int32' and _are_halves(answers.values()):
    raise ValueError(
      f'{path}: every second id is 0 when read as int32. Choose the type that'
      ' the run wrote, which is probably int64.'
    )
  return answers


def _tokens(path: str, index: int, data: bytes, dtype: str) -> tuple[int, ...]:
  if len(data) % np.dtype(dtype).itemsize:
    raise ValueError(
      f'{path}: the {len(data)} bytes of sample {index} are not a multiple of'
      f' the size of {dtype}. Choose the type that the run wrote.'
    )
  tokens = np.frombuffer(data, dtype)
  # Ids of another type become huge, negative or fractional numbers.
  usable = (tokens >= 0) & (tokens < _MAX_ID) & (tokens == np.trunc(tokens))
  if not usable.all():
    raise ValueError(
      f'{path}: sample {index} has the id {tokens[~usable][0]} when read as'
      f' {dtype}. Choose the type that the run wrote.'
    )
  return tuple(int(token) for token in tokens)


def _are_halves(answers: Collection[Sequence[int]]) -> bool:
  """Returns True if these are 64-bit ids that were read as 32-bit ids."""
  return any(map(any, answers)) and all(
    len(answer) % 2 == 0 and not any(answer[1::2]) for answer in answers
  )


def score_tokens(
  answers: Mapping[int, Sequence[int]],
  references: Sequence[str],
  tokenizer: tokenizers.Tokenizer,
  clean_up: bool = False,
  split: Split | None = None,
) -> Scores:
  """Scores answers against the highlights.

  Args:
    answers: The generated token ids without the prompt, by sample index.
    references: The highlights, by sample index.
    tokenizer: The tokenizer that decodes the ids. It skips special tokens.
    clean_up: True to remove blanks before punctuation from the answers; see
      tokenizer.cleans_up.
    split: The function that splits a text into sentences for rougeLsum. None
      skips rougeLsum.

  Raises:
    ValueError: There are no answers, the index of an answer is too large, or
      most answers have ids that the tokenizer lacks.
  """
  pairs = texts(answers, references, tokenizer, clean_up).values()
  predictions, highlights = zip(*pairs)
  return score_texts(predictions, highlights, split=split)


def texts(
  answers: Mapping[int, Sequence[int]],
  references: Sequence[str],
  tokenizer: tokenizers.Tokenizer,
  clean_up: bool = False,
) -> dict[int, tuple[str, str]]:
  """Returns (answer, highlights) as text, by sample index.

  The arguments and exceptions are those of `score_tokens`.
  """
  if not answers:
    raise ValueError('there are no answers to score.')
  last = max(answers)
  if last >= len(references):
    raise ValueError(
      f'the log has an answer for sample {last}, but the dataset has only'
      f' {len(references)} articles. Use the dataset of that run.'
    )
  # Some models have more ids than their tokenizer, so a few may be unknown.
  size = tokenizer.get_vocab_size()
  unknown = sum(max(ids, default=0) >= size for ids in answers.values())
  if unknown > len(answers) / 2:
    raise ValueError(
      f'{unknown} of {len(answers)} answers have ids that are not among the'
      f' {size} of the tokenizer. Pass the tokenizer of the model that answered.'
    )
  decoded = tokenizer.decode_batch([list(ids) for ids in answers.values()])
  if clean_up:
    decoded = [tokenizer_lib.clean_up(text) for text in decoded]
  return {
    index: (text, references[index]) for index, text in zip(answers, decoded)
  }


def score_texts(
  predictions: Sequence[str],
  references: Sequence[str],
  parallel_from: int = _PARALLEL_FROM,
  split: Split | None = None,
) -> Scores:
  """Scores each prediction with the reference at the same index.

  The reference program puts each sentence of both texts on its own line.
  ROUGE-1, -2 and -L ignore line breaks, and a break replaces a blank. These
  figures are therefore the same without `split`. gen_len differs if there are
  several blanks between sentences.

  Args:
    predictions: The texts of the model.
    references: The reference texts.
    parallel_from: The number of pairs at which scoring starts to use all cores.
    split: The function that splits a text into sentences for rougeLsum. None
      skips rougeLsum.
  """
  predictions = [_lines(text, split) for text in predictions]
  pairs = list(zip(predictions, (_lines(text, split) for text in references)))
  names = METRICS if split is None else (*METRICS, 'rougeLsum')
  if len(pairs) < parallel_from:
    rows = _score_pairs(names, pairs)
  else:
    rows = _score_in_parallel(names, pairs)
  # NumPy computes the sums and the rounding, as in the reference, so all digits
  # match. The values are converted to plain floats, because NumPy's floats
  # print as np.float64(..) and the checkers cannot parse that.
  figures = {
    name: float(np.round(np.mean(column) * 100, 4))
    for name, column in zip(names, map(list, zip(*rows)))
  }
  return Scores(
    **figures, gen_len=sum(map(len, predictions)), gen_num=len(predictions)
  )


def _lines(text: str, split: Split | None) -> str:
  text = text.strip()
  return text if split is None else '\n'.join(split(text))


def _score_pairs(
  names: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> list[tuple[float, ...]]:
  # It imports nltk and scipy, which takes seconds.
  from rouge_score import rouge_scorer
  from rouge_score import tokenizers as rouge_tokenizers

  tokenizer = rouge_tokenizers.DefaultTokenizer(use_stemmer=True)
  scorer = rouge_scorer.RougeScorer(list(names), tokenizer=tokenizer)
  rows = []
  for prediction, reference in pairs:
    scores = scorer.score(target=reference, prediction=prediction)
    rows.append(tuple(scores[name].fmeasure for name in names))
  return rows


def _score_in_parallel(
  names: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> list[tuple[float, ...]]:
  workers = os.cpu_count() or 1
  size = -(-len(pairs) // workers)
  chunks = [pairs[i : i + size] for i in range(0, len(pairs), size)]
  score = functools.partial(_score_pairs, names)
  # Forking is unsafe, because the harness has already started gRPC threads.
  context = multiprocessing.get_context('spawn')
  with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
    return [row for rows in pool.map(score, chunks) for row in rows]
