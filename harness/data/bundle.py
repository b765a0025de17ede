"""Returns the paths of the models, articles and questions of the harness."""

import os

from harness.rules import rounds
from serve import programs as programs_lib

ROOT = programs_lib.ROOT

_BUNDLED = os.path.join(ROOT, 'harness', 'bundled')
_BERT = os.path.join(ROOT, 'harness', 'bert', 'bundled')
_FOLDERS = {
  rounds.GPTJ: _BUNDLED,
  **dict.fromkeys(rounds.LLAMAS, os.path.join(_BUNDLED, 'llama')),
}

# The serving params of the bundled GPT-J, and the longest prompt that they
# take.
PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
MAX_INPUT_LENGTH = 512

# The same for each model that summarizes.
PARAMS_OF = {
  rounds.GPTJ: PARAMS,
  **dict.fromkeys(rounds.LLAMAS, 'saxml_ext.params.llama.TinyTokenizedFP32'),
}
MAX_INPUT_LENGTH_OF = {
  rounds.GPTJ: MAX_INPUT_LENGTH,
  **dict.fromkeys(rounds.LLAMAS, 1024),
}


def eval_path() -> str:
  """Returns the path of the 512 articles, in the schema of cnn_eval.json."""
  return os.path.join(_BUNDLED, 'eval.json')


def reference_path(benchmark: str = rounds.GPTJ) -> str:
  """Returns the path of the reference's tokens and ROUGE for those articles."""
  return os.path.join(_FOLDERS[benchmark], 'reference.json')


def model_dir(benchmark: str = rounds.GPTJ) -> str:
  """Returns the Hugging Face directory of the model."""
  return os.path.join(_FOLDERS[benchmark], 'model')


def tokenizer_path(benchmark: str = rounds.GPTJ) -> str:
  return os.path.join(model_dir(benchmark), 'tokenizer.json')


def pax_checkpoint(benchmark: str = rounds.GPTJ) -> str | None:
  """Returns the PAX checkpoint that the build made from the model.

  It is None outside of Bazel, because only the build makes it.
  """
  return _built(benchmark, 'pax')


def programs(benchmark: str = rounds.GPTJ) -> str | None:
  """Returns the programs of PARAMS_OF, compiled for the build machine's CPU.

  They are None outside of Bazel, because only the build compiles them.
  """
  return _built(benchmark, 'programs')


def _built(benchmark: str, name: str) -> str | None:
  path = os.path.join(_FOLDERS[benchmark], name)
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
