"""Where the files of the bundled BERT lie."""

import os

_HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'bundled')


def model_dir() -> str:
  """HF directory: config.json, model.safetensors and vocab.txt."""
  return os.path.join(_HERE, 'model')


def vocab_path() -> str:
  """The model's word pieces."""
  return os.path.join(model_dir(), 'vocab.txt')


def squad_path() -> str:
  """The questions in the schema of SQuAD v1.1."""
  return os.path.join(_HERE, 'squad.json')


def reference_path() -> str:
  """What the reference answers: exact_match, f1 and `answers` by question."""
  return os.path.join(_HERE, 'reference.json')
