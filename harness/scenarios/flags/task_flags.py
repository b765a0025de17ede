"""Flags that say which samples are answered, and the task they describe.

What is not given comes with the model that answers: its tokenizer or vocabulary
lies beside its checkpoint, and its serving params say how long a prompt may be.
"""

import json
import os

from absl import flags

from converters.hf import hub
from harness.bert import bert_bundle
from harness.data import bundle
from harness.data import summarization
from harness.loadgen import target as target_lib
from harness.rules import requirements
from harness.rules import rounds
from harness.scenarios import tasks
from harness.scenarios.flags import flag_table
from harness.systems import launch
from harness.systems import served
from saxml_ext.common import user_path

_TOKENIZERS = ('tokenizer.json', 'vocab.json')
_VOCABULARIES = ('vocab.txt',)

DATASET_PATH = flags.DEFINE_string(
  'dataset_path',
  None,
  'GPT-J: articles in the schema of cnn_eval.json. BERT: questions in SQuAD'
  " v1.1's. Default: the bundled ones.",
)
_TOKENIZER_PATH = flags.DEFINE_string(
  'tokenizer_path',
  None,
  'GPT-J: tokenizer.json of the model. BERT: its vocab.txt. Also a directory, or'
  ' the id of a model on the Hugging Face hub. Default: the one beside the'
  ' checkpoint.',
)
_REFERENCE_PATH = flags.DEFINE_string(
  'reference_path',
  None,
  'Recorded answers and scores to compare with. Default: the bundled reference'
  ' when the bundled model answers the bundled set, else none.',
)
_ROUGE_TOLERANCE = flags.DEFINE_float(
  'rouge_tolerance',
  None,
  "Greatest difference from the reference's ROUGE that passes. Default:"
  f' {requirements.FLOAT32_TOLERANCE[rounds.GPTJ]} in float32; other formats must reach 99 % (gptj-99) or'
  " 99.9 % (gptj-99.9) of the reference's ROUGE.",
  lower_bound=0,
)
_REQUIRE_IDENTICAL = flags.DEFINE_bool(
  'require_identical',
  None,
  "Pass only if every answer is the reference's, token for token. Default:"
  ' where the name of the serving params says FP32.',
)
_MAX_INPUT_LENGTH = flags.DEFINE_integer(
  'max_input_length',
  None,
  'Tokens after which a prompt is cut. Default: as many as the model takes, at'
  f' most {requirements.MAX_INPUT_LENGTH}.',
  lower_bound=1,
)
_SAMPLE_COUNT = flags.DEFINE_integer(
  'sample_count', 0, 'Samples to use, from the front; 0: all.', lower_bound=0
)


def task(model: str, kind: str, system: launch.Launcher) -> tasks.Task:
  """Returns the task that the flags describe, its inputs read.

  Args:
    model: The name of the model as it is submitted.
    kind: The system that answers, of flag_table.SYSTEMS.
    system: The same system.

  Raises:
    OSError, ValueError: An input cannot be used.
    SaxError: The running cell does not tell what it serves.
  """
  bundled = not DATASET_PATH.value and _is_bundled(kind, system)
  if kind in flag_table.BERT_SYSTEMS:
    return _bert(model, system, bundled)
  reference = _reference(bundle.reference_path() if bundled else None)
  for flag in (_ROUGE_TOLERANCE, _REQUIRE_IDENTICAL):
    if flag.value is not None and not reference:
      raise ValueError(
        f'--{flag.name}={flag.value} has no effect without recorded answers to'
        ' compare with: give --reference_path, or leave it out'
      )
  return tasks.GPTJTask(
    _source(kind, system),
    tasks.JudgeRule(
      reference,
      _ROUGE_TOLERANCE.value,
      _REQUIRE_IDENTICAL.value,
      requirements.SHARES[model],
      requirements.ACCURACY[model],
    ),
  )


def _source(kind: str, system: launch.Launcher) -> summarization.Source:
  """Returns where the articles come from, by the flags and by the model."""
  directory, longest = '', None
  if kind != flag_table.NETWORK and not (
    _TOKENIZER_PATH.value and _MAX_INPUT_LENGTH.value
  ):
    directory, longest = _model(kind, system)
  return summarization.Source(
    user_path.resolve(DATASET_PATH.value) or bundle.eval_path(),
    _tokenizer() or _beside(directory, _TOKENIZERS),
    _MAX_INPUT_LENGTH.value
    or min(
      longest or requirements.MAX_INPUT_LENGTH, requirements.MAX_INPUT_LENGTH
    ),
    _SAMPLE_COUNT.value,
  )


def _model(kind: str, system: launch.Launcher) -> tuple[str, int | None]:
  """Returns a GPT-J's directory, and its longest prompt if that is known."""
  if kind == flag_table.RUNNING_CELL:
    asked = system.parameters
    model = served.ask(
      target_lib.Target(str(asked['model_id']), str(asked['sax_root']))
    )
    return model.checkpoint, model.max_input_length
  directory = system.inputs['checkpoint']
  if isinstance(system, launch.Served):
    model = served.Served(system.params, system.overrides)
    return directory, model.max_input_length
  if _is_bundled(kind, system):
    return directory, bundle.MAX_INPUT_LENGTH
  config = os.path.join(directory, 'config.json')
  if not os.path.isfile(config):
    return directory, None  # The reference says what it misses.
  with open(config, encoding='utf-8') as file:
    positions = json.load(file).get('n_positions')
  return directory, positions and positions - requirements.MAX_NEW_TOKENS


def _is_bundled(kind: str, system: launch.Launcher) -> bool:
  """Returns True if the job starts the system, with the bundled model."""
  if kind in (flag_table.RUNNING_CELL, flag_table.NETWORK):
    return False
  home = bert_bundle if kind in flag_table.BERT_SYSTEMS else bundle
  return system.inputs['checkpoint'] == home.model_dir()


def _beside(checkpoint: str, names: tuple[str, ...]) -> str:
  """Returns the file of one of the names in or above a checkpoint.

  Raises:
    ValueError: There is none.
  """
  for directory in (checkpoint, os.path.dirname(checkpoint.rstrip('/'))):
    for name in names:
      path = os.path.join(directory, name)
      if directory and os.path.isfile(path):
        return path if path.endswith(names[0]) else directory
  where = f'beside the checkpoint {checkpoint}' if checkpoint else 'known'
  raise ValueError(
    f'no {" or ".join(names)} is {where}, so that prompts cannot be made for'
    ' this model: give --tokenizer_path'
  )


def _tokenizer() -> str | None:
  """Returns the tokenizer that the flag names; None if it names none.

  Raises:
    ValueError: It is on the Hugging Face hub and cannot be fetched.
  """
  name = _TOKENIZER_PATH.value
  return hub.locate_tokenizer(name) if name else None


def _vocabulary() -> str | None:
  """Returns the vocab.txt that the flag names; None if it names none."""
  path = _tokenizer()
  if path and os.path.isdir(path):
    return os.path.join(path, *_VOCABULARIES)
  return path


def _bert(model: str, system: launch.Launcher, bundled: bool) -> tasks.Task:
  # pylint: disable=g-import-not-at-top
  from harness.bert import task as bert_task  # Brings transformers along.

  return bert_task.BertTask(
    user_path.resolve(DATASET_PATH.value) or bert_bundle.squad_path(),
    _vocabulary() or _beside(system.inputs['checkpoint'], _VOCABULARIES),
    _SAMPLE_COUNT.value,
    _reference(bert_bundle.reference_path() if bundled else None),
    requirements.SHARES[model],
    requirements.ACCURACY[model]['f1'],
  )


def _reference(default: str | None) -> str | None:
  """The recorded reference that is asked for; None if there is none."""
  if _REFERENCE_PATH.value is None:
    return default
  return user_path.resolve(_REFERENCE_PATH.value) or None
