"""Returns the paths of the models, articles and questions of the harness."""

import os

from serve import programs as programs_lib

ROOT = programs_lib.ROOT

_BUNDLED = os.path.join(ROOT, 'harness', 'bundled')
_BERT = os.path.join(ROOT, 'harness', 'bert', 'bundled')

# The serving params of the bundled model, and the longest prompt that they
# take.
PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
MAX_INPUT_LENGTH = 512


def eval_path() -> str:
  """Returns the path of the 512 articles, in the schema of cnn_eval.json."""
  return os.path.join(_BUNDLED, 'eval.json')


def reference_path() -> str:
  """Returns the path of the reference's tokens and ROUGE for those articles."""
  return os.path.join(_BUNDLED, 'reference.json')


def model_dir() -> str:
  """Returns the Hugging Face directory of the model."""
  return os.path.join(_BUNDLED, 'model')


def tokenizer_path() -> str:
  return os.path.join(model_dir(), 'tokenizer.json')


def pax_checkpoint() -> str | None:
  """Returns the PAX checkpoint that the build made from the model.

  It is None outside of Bazel, because only the build makes it.
  """
  return _built('pax')


def programs() -> str | None:
  """Returns the programs of PARAMS, compiled for the CPU of the build machine.

  They are None outside of Bazel, because only the build compiles them.
  """
  return _built('programs')


def _built(name: str) -> str | None:
  path = os.path.join(_BUNDLED, name)
  return path if os.path.isdir(path) else None


def bert_model_dir() -> str:
  """Returns BERT's directory: config.json, model.safetensors and vocab.txt."""
  return os.path.join(_BERT, 'model')


def bert_vocab_path() -> str:
  """Returns the path of BERT's word pieces."""
  return os.path.join(bert_model_dir(), 'vocab.txt')


def bert_squad_path() -> str:
  """Returns the path of the questions, in the schema of SQuAD v1.1."""
  return os.path.join(_BERT, 'squad.json')


def bert_reference_path() -> str:
  """Returns the path of the reference's scored answers to these questions."""
  return os.path.join(_BERT, 'reference.json')
