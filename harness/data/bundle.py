"""Where the model and the articles that come with the harness lie."""

import os

from serve import programs as programs_lib

ROOT = programs_lib.ROOT

_BUNDLED = os.path.join(ROOT, 'harness', 'bundled')
_BERT = os.path.join(ROOT, 'harness', 'bert', 'bundled')

# Serving params under which the bundled model is published, and the longest
# prompt that they take.
PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
MAX_INPUT_LENGTH = 512


def eval_path() -> str:
  """The 512 articles, in the schema of cnn_eval.json."""
  return os.path.join(_BUNDLED, 'eval.json')


def reference_path() -> str:
  """Tokens and ROUGE of the reference implementation on those articles."""
  return os.path.join(_BUNDLED, 'reference.json')


def model_dir() -> str:
  """The model as a Hugging Face directory."""
  return os.path.join(_BUNDLED, 'model')


def tokenizer_path() -> str:
  return os.path.join(model_dir(), 'tokenizer.json')


def pax_checkpoint() -> str | None:
  """The PAX checkpoint that the build made of the model.

  None outside of Bazel, where nothing has built one.
  """
  return _built('pax')


def programs() -> str | None:
  """The programs of PARAMS that the build compiled for its machine's CPU.

  None outside of Bazel, as `pax_checkpoint`.
  """
  return _built('programs')


def _built(name: str) -> str | None:
  path = os.path.join(_BUNDLED, name)
  return path if os.path.isdir(path) else None


def bert_model_dir() -> str:
  """Returns the BERT's HF directory: config.json, model.safetensors, vocab.txt."""
  return os.path.join(_BERT, 'model')


def bert_vocab_path() -> str:
  """Returns the path of the BERT's word pieces."""
  return os.path.join(bert_model_dir(), 'vocab.txt')


def bert_squad_path() -> str:
  """Returns the path of the questions in the schema of SQuAD v1.1."""
  return os.path.join(_BERT, 'squad.json')


def bert_reference_path() -> str:
  """Returns the path of the reference's answers to these questions, scored."""
  return os.path.join(_BERT, 'reference.json')
