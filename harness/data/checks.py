"""Checks that files are the official ones, and describes other files."""

import hashlib
import json
import os
from typing import Any

from harness.data import cnn_dailymail
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_CHUNK = 1 << 20
_QUESTIONS = 10570
_WORDS = 30522
_SAMPLE, _SAMPLE_IDS = 'Hello world', [15496, 995]
_END_OF_TEXT, _END_ID = '<|endoftext|>', 50256


def digest(path: str, algorithm: str) -> str:
  """Returns the checksum of a file in hexadecimal.

  Args:
    path: The path of the file.
    algorithm: The name of the algorithm in hashlib: "md5" or "sha256".
  """
  total = hashlib.new(algorithm, usedforsecurity=False)
  with open(path, 'rb') as file:
    while chunk := file.read(_CHUNK):
      total.update(chunk)
  return total.hexdigest()


def articles(path: str, count: int) -> str:
  """Checks a file in the schema of cnn_eval.json and returns a description.

  Raises:
    ValueError: The file has another number of articles, or other instructions.
    OSError: The file cannot be read.
  """
  found = dataset.load_articles(path)
  if len(found) != count:
    raise ValueError(
      f'{path} has {len(found)} articles, but the official file has {count}.'
    )
  for number, article in enumerate(found):
    if article.instruction != cnn_dailymail.INSTRUCTION:
      raise ValueError(
        f'{path}: Entry {number} has the instruction {article.instruction!r},'
        f' but the official file has {cnn_dailymail.INSTRUCTION!r}.'
      )
  return (
    f'{count} articles, SHA-256 {digest(path, "sha256")} (MLCommons publishes'
    ' no checksum)'
  )


def by_md5(path: str, md5: str) -> str:
  """Checks a file by its published MD5 and returns a description.

  Raises:
    ValueError: The file differs from the published one.
    OSError: The file cannot be read.
  """
  found = digest(path, 'md5')
  if found != md5:
    raise ValueError(
      f'{path} has the MD5 {found}, but the official file has {md5}. It is'
      ' another file, or its download is incomplete.'
    )
  return f'MD5 {md5}, as published'


def squad(path: str, md5: str) -> str:
  """Checks dev-v1.1.json of SQuAD and returns a description.

  Raises:
    ValueError: The file differs from the published one.
    OSError: The file cannot be read.
  """
  try:
    return f'{_QUESTIONS} questions, {by_md5(path, md5)}'
  except ValueError as error:
    raise ValueError(f'{error} {_questions(path)}') from error


def _questions(path: str) -> str:
  with open(path, encoding='utf-8') as file:
    try:
      content: Any = json.load(file)
      number = sum(
        len(paragraph['qas'])
        for page in content['data']
        for paragraph in page['paragraphs']
      )
      version = content['version']
    except (KeyError, TypeError, ValueError):
      return 'It is not a file of SQuAD.'
  return (
    f'It has {number} questions of version {version}, but dev-v1.1.json has'
    f' {_QUESTIONS} of version 1.1.'
  )


def vocabulary(path: str, md5: str) -> str:
  """Checks vocab.txt of BERT and returns a description.

  Raises:
    ValueError: The file differs from the published one.
    OSError: The file cannot be read.
  """
  try:
    return f'{_WORDS} words, {by_md5(path, md5)}'
  except ValueError as error:
    with open(path, 'rb') as file:
      lines = sum(1 for _ in file)
    raise ValueError(
      f'{error} It has {lines} words, but the official file has {_WORDS}.'
    ) from error


def gptj_tokenizer(path: str) -> str:
  """Checks that a directory has GPT-J's tokenizer and returns a description.

  Raises:
    ValueError: The directory has another tokenizer.
  """
  tokenizer = tokenizer_lib.load(path)
  # The check encodes a text that becomes two tokens by GPT-2's merges. It also
  # checks the id of the token that ends a text.
  found = tokenizer.encode(_SAMPLE).ids, tokenizer.token_to_id(_END_OF_TEXT)
  if found != (_SAMPLE_IDS, _END_ID):
    raise ValueError(
      f'{path} is not the tokenizer of GPT-J. {_SAMPLE!r} becomes {found[0]}'
      f' instead of {_SAMPLE_IDS}, and {_END_OF_TEXT} is {found[1]} instead of'
      f' {_END_ID}.'
    )
  return f'a GPT-2 tokenizer of {tokenizer.get_vocab_size()} tokens'


def gptj_checkpoint(path: str) -> str:
  """Checks that a directory has a complete GPT-J and returns a description.

  Raises:
    ValueError: The directory has another model, or a file of its weights is
      missing.
    OSError: A file cannot be read.
  """
  with open(os.path.join(path, 'config.json'), encoding='utf-8') as file:
    try:
      config = json.load(file)
      kind, layers = config['model_type'], config['n_layer']
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(
        f'{path}/config.json is not a configuration of GPT-J: {error!r}'
      ) from error
  if (kind, layers) != ('gptj', 28):
    raise ValueError(
      f'{path} has a model of type {kind!r} with {layers} layers. GPT-J 6B has'
      " type 'gptj' and 28 layers."
    )
  names = _weights(path)
  if not names:
    raise ValueError(f'{path} has a config.json but no weight files.')
  missing = [n for n in names if not os.path.exists(os.path.join(path, n))]
  if missing:
    raise ValueError(
      f'{path} lacks {missing[0]}, one of its {len(names)} weight files.'
    )
  size = sum(os.path.getsize(os.path.join(path, name)) for name in names)
  return (
    f'GPT-J of {layers} layers, {size / 1e9:.1f} GB of weights in {len(names)}'
    ' files (only the downloader of MLCommons verifies their checksums)'
  )


def _weights(path: str) -> list[str]:
  for name in ('model.safetensors', 'pytorch_model.bin'):
    index = os.path.join(path, f'{name}.index.json')
    if os.path.exists(index):
      with open(index, encoding='utf-8') as file:
        return sorted(set(json.load(file)['weight_map'].values()))
    if os.path.exists(os.path.join(path, name)):
      return [name]
  return []
