"""Converts CNN/DailyMail 3.0.0 to the files that GPT-J and Llama read.

The published scripts load the set from the Hugging Face hub. These functions
read local copies of the files on the hub, in parquet or JSON. They write the
same bytes as the published scripts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import glob
import hashlib
import json
import os
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet
import tokenizers

from harness.benchmarks import gptj
from harness.benchmarks import llama
from saxml_ext.common import files
from saxml_ext.evaluation import dataset

# The instruction of every entry in GPT-J's files. Llama's files have the
# prompt's template instead, and that of the evaluation has it in an object.
INSTRUCTION = 'Summarize the following news article:'
EVAL_COUNT = gptj.GPTJ.full_set
LLAMA_INSTRUCTION = {'llama': dataset.LLAMA_TEMPLATE}
EDGE_COUNT = llama.LLAMA_EDGE.full_set
TRAIN_COUNT = 287113
CALIBRATION_COUNT = 1000
# The hash of language/gpt-j/calibration-list.txt, which is the same in all
# rounds since v3.1.
LIST_SHA256 = '4de1bc2bcf345ba8fc118788455dfaf2e09530fd9ed4daedf2b15661324ad9a7'

# The folders of the files in the cache's folder of data.
FOLDER = 'cnn_dailymail'
LLAMA_FOLDER = 'cnn_dailymail_llama'
EVAL_FILE = 'cnn_eval.json'
EDGE_FILE = f'sample_cnn_eval_{EDGE_COUNT}.json'
CALIBRATION_FILE = 'cnn_dailymail_calibration.json'

VALIDATION = 'validation'
TRAIN = 'train'

_COLUMNS = ('article', 'highlights', 'id')
_HAS_COLUMNS = f'CNN/DailyMail has {", ".join(_COLUMNS)}.'
_ENDINGS = ('.parquet', '.json', '.jsonl')
_ROWS = 2000
# The seed of the edge set in download_cnndm.py of llama3.1-8b.
_EDGE_SEED = 42

Row = Mapping[str, str]


def find(inputs: Sequence[str], split: str) -> list[str]:
  """Returns the files of a split among files and directories.

  Args:
    inputs: The files, or directories that are searched recursively.
    split: The split, VALIDATION or TRAIN. A file belongs to a split if its name
      or the name of its directory begins with the split's name, as on the hub.

  Returns:
    The paths in the order of their names, which is the order of the articles.

  Raises:
    FileNotFoundError: An input is missing.
  """
  ids = set()
  for path in inputs:
    if not os.path.exists(path):
      raise FileNotFoundError(f'{path} does not exist.')
    if not os.path.isdir(path):
      ids.add(path)
    else:
      # The hub's client records its downloads in hidden folders, which glob
      # skips.
      ids.update(glob.glob(os.path.join(path, '**', '*'), recursive=True))
  return sorted(
    path
    for path in ids
    if path.endswith(_ENDINGS)
    and any(part.startswith(split) for part in path.split(os.sep)[-2:])
  )


def rows(path: str) -> Iterator[Row]:
  """Yields the articles of a file in order, with few in memory at a time.

  Args:
    path: The file in parquet, JSON (a list) or JSON lines. It has the fields
      article, highlights and id.

  Raises:
    ValueError: The file has another format, or an article lacks a field.
    OSError: The file cannot be read.
  """
  read = _parquet if path.endswith('.parquet') else _json
  for number, row in enumerate(read(path)):
    for column in _COLUMNS:
      if not isinstance(row, dict) or not isinstance(row.get(column), str):
        raise ValueError(
          f'{path}: Article {number} has no text {column!r}. {_HAS_COLUMNS}'
        )
    yield row


def _parquet(path: str) -> Iterator[Any]:
  try:
    with parquet.ParquetFile(path) as file:
      missing = sorted(set(_COLUMNS) - set(file.schema_arrow.names))
      if missing:
        raise ValueError(f'{path} has no column {missing[0]!r}. {_HAS_COLUMNS}')
      for batch in file.iter_batches(_ROWS, columns=list(_COLUMNS)):
        yield from batch.to_pylist()
  except (pyarrow.ArrowException, OSError) as error:
    raise ValueError(
      f'{path} cannot be read as parquet. Its download may be incomplete.'
      f' {error}'
    ) from error


def _json(path: str) -> Iterator[Any]:
  with open(path, encoding='utf-8') as file:
    try:
      is_list = file.read(1) == '['
      file.seek(0)
      if is_list:
        yield from json.load(file)
      else:
        yield from map(json.loads, file)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
      raise ValueError(
        f'{path} is neither a JSON list nor JSON lines: {error}'
      ) from error


def entry(row: Row) -> dict[str, str]:
  """Returns an article in the format of the published files."""
  return {
    'instruction': INSTRUCTION,
    'input': row['article'],
    'output': row['highlights'],
  }


def evaluation_set(paths: Sequence[str]) -> list[dict[str, str]]:
  """Returns the whole validation split in its order.

  Raises:
    ValueError: The files are not the validation split of version 3.0.0.
    OSError: A file cannot be read.
  """
  entries = [entry(row) for path in paths for row in rows(path)]
  if len(entries) != EVAL_COUNT:
    raise ValueError(
      f'The validation split has {EVAL_COUNT} articles, but'
      f' {", ".join(paths) or "no file"} has {len(entries)}. Pass all'
      ' validation-*.parquet files of version 3.0.0, and no others.'
    )
  if not any(item['input'] != item['input'].lower() for item in entries):
    raise ValueError(
      f'{paths[0]} is in lower case, so it is version 1.0.0 or 2.0.0 of'
      ' CNN/DailyMail. The benchmark requires version 3.0.0.'
    )
  return entries


def edge_set(entries: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
  """Returns the articles of llama3.1-8b-edge among all, in their order.

  The published script shuffles with the `datasets` package, which draws the
  same permutation.
  """
  order = np.random.default_rng(_EDGE_SEED).permutation(len(entries))
  return [entries[index] for index in order[:EDGE_COUNT]]


def with_tokens(
  entries: Iterable[Mapping[str, Any]],
  tokenizer: tokenizers.Tokenizer,
  instruction: str | Mapping[str, str],
) -> Iterator[dict[str, Any]]:
  """Yields entries in the format of Llama's files, one at a time.

  Args:
    entries: The entries. Fields other than the published ones come last.
    tokenizer: The tokenizer of the model, which puts BOS before a prompt.
    instruction: The instruction of each entry.
  """
  for entry in entries:
    prompt = dataset.LLAMA_TEMPLATE.format(input=entry['input'])
    yield {
      'instruction': instruction,
      'input': entry['input'],
      'tok_input': tokenizer.encode(prompt).ids,
      **{k: v for k, v in entry.items() if k not in ('instruction', 'input')},
    }


def calibration_set(
  paths: Sequence[str], ids: Sequence[str]
) -> list[dict[str, str]]:
  """Returns the articles with the ids of the calibration list, in its order.

  Args:
    paths: The files of the train split.
    ids: The ids of the list. Entries of repeated ids are repeated too.

  Raises:
    ValueError: An article is missing.
    OSError: A file cannot be read.
  """
  needed, articles, count = set(ids), {}, 0
  for path in paths:
    for row in rows(path):
      count += 1
      if row['id'] in needed:
        articles[row['id']] = entry(row)
  missing = sorted(needed - set(articles))
  if missing:
    raise ValueError(
      f'{len(missing)} of {len(needed)} articles of the calibration list, such'
      f' as {missing[0]}, are not in {", ".join(paths) or "any file"}. The'
      f' input has {count} of the {TRAIN_COUNT} articles of the train split.'
      ' Pass all train-*.parquet files of version 3.0.0.'
    )
  return [articles[name] for name in ids]


def read_ids(path: str) -> list[str]:
  """Returns the ids of a calibration list.

  Raises:
    ValueError: The file is not the published list.
    OSError: The file cannot be read.
  """
  with open(path, encoding='utf-8') as file:
    ids = file.read().split()
  lines = ''.join(f'{name}\n' for name in ids)
  digest = hashlib.sha256(lines.encode()).hexdigest()
  if digest != LIST_SHA256:
    raise ValueError(
      f'{path} has {len(ids)} ids with the SHA-256 {digest}, but the'
      f' calibration list of the benchmark has {CALIBRATION_COUNT} with'
      f' {LIST_SHA256}. Pass language/gpt-j/calibration-list.txt of a checkout'
      ' of mlcommons/inference.'
    )
  return ids


def write(path: str, entries: Iterable[Mapping[str, Any]]) -> None:
  """Writes a set atomically, with the bytes of the published scripts.

  Raises:
    OSError: The file cannot be written.
  """
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with files.replacing(path) as file:
    before = '['
    for entry in entries:
      # One entry at a time, because formatting a whole set with token ids takes
      # more than a gigabyte.
      text = json.dumps(entry, indent=4, ensure_ascii=False)
      if os.path.basename(path) != CALIBRATION_FILE:
        # The published file is written by simplejson, which escapes these two
        # characters.
        text = text.replace('\u2028', '\\u2028').replace('\u2029', '\\u2029')
      file.write(f'{before}\n{text}'.replace('\n', '\n    '))
      before = ','
    file.write('\n]')
