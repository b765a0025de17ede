"""ROUGE of an accuracy log, as the MLPerf GPT-J reference scores it."""

from collections.abc import Mapping, Sequence
import concurrent.futures
import dataclasses
import json
import multiprocessing
import os

import numpy as np
from rouge_score import rouge_scorer
from rouge_score import tokenizers as rouge_tokenizers
import tokenizers

METRICS = ('rouge1', 'rouge2', 'rougeL')

# One pair takes about 5 ms, starting workers about 2 s: below this many pairs
# (10 s of work) one process is as fast.
_PARALLEL_FROM = 2000


@dataclasses.dataclass(frozen=True)
class Scores:
  """Result of an accuracy run.

  Attributes:
    rouge1, rouge2, rougeL: mean F-measure times 100, four decimals.
    gen_len: characters in all predictions together.
    gen_num: number of predictions.
  """

  rouge1: float
  rouge2: float
  rougeL: float
  gen_len: int
  gen_num: int

  @property
  def line(self) -> str:
    """One line that the submission checker's patterns match."""
    return str(dataclasses.asdict(self))


def read_accuracy_log(path: str, dtype: str) -> dict[int, tuple[int, ...]]:
  """Answers of mlperf_log_accuracy.json: sample index -> token ids.

  LoadGen may log a sample more than once; the first answer counts.

  Args:
    path: the log.
    dtype: integer type of the answers' bytes, "int64" or "int32".

  Raises:
    ValueError: the file is not such a log or its bytes are not of that type.
  """
  with open(path, encoding='utf-8') as file:
    try:
      entries = json.load(file)
    except ValueError as error:
      raise ValueError(f'{path} is not a LoadGen log: {error}') from error
  if not entries:
    raise ValueError(
      f'{path} holds no answers; it must come from a run in accuracy mode'
    )
  answers: dict[int, tuple[int, ...]] = {}
  for entry in entries:
    index = int(entry['qsl_idx'])
    if index not in answers:
      answers[index] = _tokens(path, index, entry['data'], dtype)
  return answers


def _tokens(path: str, index: int, text: str, dtype: str) -> tuple[int, ...]:
  data = bytes.fromhex(text)
  if len(data) % np.dtype(dtype).itemsize:
    raise ValueError(
      f'{path}: sample {index} has {len(data)} bytes, no whole number of'
      f' {dtype}; choose the type that the run wrote'
    )
  tokens = np.frombuffer(data, dtype)
  # Ids of the wrong width come out as huge or negative numbers.
  if tokens.size and (tokens.min() < 0 or tokens.max() >= 2**31):
    raise ValueError(
      f'{path}: sample {index} holds the id {tokens.max()} when read as'
      f' {dtype}; choose the type that the run wrote'
    )
  return tuple(int(token) for token in tokens)


def score_tokens(
  answers: Mapping[int, Sequence[int]],
  references: Sequence[str],
  tokenizer: tokenizers.Tokenizer,
) -> Scores:
  """Scores answers against the highlights.

  Args:
    answers: sample index -> generated token ids, without the prompt.
    references: highlights by sample index.
    tokenizer: turns ids to text; special tokens are left out.

  Raises:
    ValueError: no answers, or one for a sample that the data do not have.
  """
  if not answers:
    raise ValueError('there is no answer to score')
  last = max(answers)
  if last >= len(references):
    raise ValueError(
      f'the log answers sample {last}, but the dataset has'
      f' {len(references)} articles; give the dataset of that run'
    )
  order = list(answers)
  texts = tokenizer.decode_batch([list(answers[index]) for index in order])
  return score_texts(texts, [references[index] for index in order])


def score_texts(
  predictions: Sequence[str],
  references: Sequence[str],
  parallel_from: int = _PARALLEL_FROM,
) -> Scores:
  """Scores predictions, each with the reference at the same place.

  The reference program breaks both texts into lines, one per sentence. ROUGE-1,
  -2 and -L do not see line breaks, and a break takes the place of a blank, so
  the figures are the same without.
  """
  predictions = [text.strip() for text in predictions]
  pairs = list(zip(predictions, (text.strip() for text in references)))
  if len(pairs) < parallel_from:
    rows = _score_pairs(pairs)
  else:
    rows = _score_in_parallel(pairs)
  means = np.mean(np.asarray(rows, np.float64), axis=0) * 100
  # Plain floats: numpy's own would print as np.float64(..), which no checker
  # reads.
  named = {name: round(float(mean), 4) for name, mean in zip(METRICS, means)}
  return Scores(
    **named, gen_len=sum(map(len, predictions)), gen_num=len(predictions)
  )


def _score_pairs(pairs: Sequence[tuple[str, str]]) -> list[tuple[float, ...]]:
  tokenizer = rouge_tokenizers.DefaultTokenizer(use_stemmer=True)
  scorer = rouge_scorer.RougeScorer(list(METRICS), tokenizer=tokenizer)
  rows = []
  for prediction, reference in pairs:
    scores = scorer.score(target=reference, prediction=prediction)
    rows.append(tuple(scores[name].fmeasure for name in METRICS))
  return rows


def _score_in_parallel(
  pairs: Sequence[tuple[str, str]],
) -> list[tuple[float, ...]]:
  workers = os.cpu_count() or 1
  size = -(-len(pairs) // workers)
  chunks = [pairs[i : i + size] for i in range(0, len(pairs), size)]
  # Not fork: the harness has gRPC threads by now.
  context = multiprocessing.get_context('spawn')
  with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
    return [row for rows in pool.map(_score_pairs, chunks) for row in rows]
