"""Copies or derives the tokenizer files of a checkpoint.

Our servers read tokenizer.json, or else tokenizer.model. GPT2BPEVocabulary of
stock Sax builds the GPT2Tokenizer of transformers instead. In the versions that
Sax pins, that class opens vocab.json and merges.txt, even for models that are
served token ids. Therefore both kinds of files are written. They are copied if
the source has them, and otherwise derived from its tokenizer.json.
"""

import json
import os
import sys

from converters.hf import formats
from converters.hf import gguf_file
from converters.hf import gguf_tokenizer
from converters.hf import rank_tokenizer
from saxml_ext.common import storage
from saxml_ext.pax import errors

VOCAB = 'vocab.json'
MERGES = 'merges.txt'
TOKENIZER = 'tokenizer.json'
SENTENCEPIECE = 'tokenizer.model'
TEKKEN = 'tekken.json'
# Files that are read if the source has them. All but TEKKEN are copied unchanged.
NAMES = (
  TOKENIZER,
  SENTENCEPIECE,
  TEKKEN,
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'chat_template.jinja',
  'generation_config.json',
  VOCAB,
  MERGES,
)
# The tokenizer.json of Gemma 3, one of the largest, has 33 MB.
_MAX_BYTES = 2**28
# The first line of merges.txt, which GPT2Tokenizer skips.
_MERGES_HEADER = '#version: 0.2'


def collect(directory: str) -> dict[str, bytes]:
  """Returns the tokenizer files of a checkpoint by name.

  Args:
    directory: A Hugging Face or PAX directory; a local path or a URL. It may
      also be the path of a GGUF file, whose metadata has the tokenizer.

  Returns:
    The contents of the files in `NAMES` that the directory has. If it has no
    tokenizer.json, that is made of Llama 3's tokenizer.model or of Mistral's
    tekken.json. These two are left out. If vocab.json or merges.txt is missing
    and tokenizer.json is a byte-level BPE, both are derived from it.

  Raises:
    errors.CheckpointError: A file cannot be read, or one that others are made
      of is damaged.
  """
  files = {}
  if os.path.isfile(directory):
    files = gguf_tokenizer.files(directory, gguf_file.GGUFFile(directory))
  for name in () if files else NAMES:
    path = f'{directory.rstrip("/")}/{name}'
    with errors.reading(path):
      if storage.exists(path):
        # A link must not lead to a private file, which others could then read
        # in the new directory.
        files[name] = storage.read_bytes(
          path, _MAX_BYTES, links_within=directory
        )
        formats.check_pointer(path, files[name])
        if name.endswith('.json'):
          _check_object(path, files[name])
  _convert(directory, files)
  if TOKENIZER in files and not {VOCAB, MERGES} <= files.keys():
    files |= _derive(files[TOKENIZER], f'{directory}/{TOKENIZER}')
  return files


def _convert(directory: str, files: dict[str, bytes]) -> None:
  """Replaces files of other formats by tokenizer.json, if that is missing."""
  tekken, made = files.pop(TEKKEN, None), None
  # A SentencePiece model begins with its first piece, field 1.
  if not files.get(SENTENCEPIECE, b'\n').startswith(b'\n'):
    data = files.pop(SENTENCEPIECE)
    if TOKENIZER in files:
      return
    made = rank_tokenizer.from_llama3(f'{directory}/{SENTENCEPIECE}', data)
    if made is None:
      print(
        f'{directory}/{SENTENCEPIECE} is not copied, because it is neither a'
        f' SentencePiece model nor that of Llama 3. Copy {TOKENIZER} of the same'
        ' model from Hugging Face to the new directory.',
        file=sys.stderr,
      )
  elif tekken is not None and not {TOKENIZER, SENTENCEPIECE} & files.keys():
    made = rank_tokenizer.from_tekken(f'{directory}/{TEKKEN}', tekken)
  files |= {**(made or {}), **files}


def write(directory: str, files: dict[str, bytes]) -> None:
  """Writes the files that `collect` returned to a checkpoint directory.

  Args:
    directory: The directory, local or a URL.
    files: The contents of the files by name.

  Raises:
    errors.UnwritableError: The file system or the bucket reports an error.
  """
  for name, data in files.items():
    path = os.path.join(directory, name)
    with errors.writing(path):
      storage.write_bytes(path, data, sole_writer=True)


def _check_object(path: str, data: bytes) -> None:
  """Raises errors.CheckpointError if a file is not a JSON object."""
  try:
    document = json.loads(data)
  except (ValueError, RecursionError):
    document = None
  if not isinstance(document, dict):
    raise errors.CheckpointError(
      f'{path} is not a JSON object. Replace it with the original file of the'
      ' model, or remove it.'
    )


def _derive(data: bytes, where: str) -> dict[str, bytes]:
  """Returns vocab.json and merges.txt, or {} if tokenizer.json is not a BPE.

  Args:
    data: The contents of tokenizer.json.
    where: The path of the file, for messages.
  """
  try:
    document = json.loads(data)
    model = document.get('model') or {}
    if model.get('type') != 'BPE' or not _is_byte_level(document):
      return {}
    # GPT2Tokenizer must also know the ids of added tokens.
    vocab = {
      token['content']: token['id']
      for token in document.get('added_tokens') or ()
    } | model['vocab']
    # Older versions of tokenizers wrote "a b"; newer versions write ["a", "b"].
    merges = [
      pair if isinstance(pair, str) else ' '.join(pair)
      for pair in model['merges']
    ]
    ordered = dict(sorted(vocab.items(), key=lambda item: item[1]))
  except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
    raise errors.CheckpointError(
      f'{where} has another format than save_pretrained writes: {e!r}. Replace'
      ' it with the original file of the model, or remove it. Without it, the'
      ' checkpoint has no tokenizer.'
    ) from e
  return {
    VOCAB: json.dumps(ordered, ensure_ascii=False).encode('utf-8'),
    MERGES: '\n'.join([_MERGES_HEADER, *merges, '']).encode('utf-8'),
  }


def _is_byte_level(document: dict) -> bool:
  """Returns True if merges apply to bytes, like those of GPT-2."""
  before = document.get('pre_tokenizer') or {}
  steps = before.get('pretokenizers') or [before]
  return any(step.get('type') == 'ByteLevel' for step in steps)
