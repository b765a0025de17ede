"""Loads the samples of a job and judges the answers, as the flags describe.

The defaults come from the model that answers. Its tokenizer or vocabulary is
next to its checkpoint, and its serving params set the longest prompt.
"""

from collections.abc import Sequence
import filecmp
import os
from typing import TYPE_CHECKING, TypeAlias

from absl import flags
import msgspec

from converters.hf import checkpoint as hf_checkpoint
from converters.hf import hub
from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.data import sentences
from harness.data import summarization
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.results import scoring
from harness.scenarios import load as load_lib
from harness.systems import launch
from harness.systems import served
from saxml_ext.common import files
from saxml_ext.common import user_path
from saxml_ext.evaluation import tokenizer as tokenizer_lib

if TYPE_CHECKING:
  from harness.bert import task as bert_task  # Imports transformers.

# The key of a task's parameters that has the ids that end an answer.
END_IDS = 'end_ids'

_TOKENIZERS = ('tokenizer.json', 'vocab.json')
_VOCABULARIES = ('vocab.txt',)

_REFERENCE_PATH = flags.DEFINE_string(
  'reference_path',
  None,
  'A file of recorded answers and scores to compare with. Default: the bundled'
  ' reference if the bundled model answers the bundled set, else none.',
)
_ROUGE_TOLERANCE = flags.DEFINE_float(
  'rouge_tolerance',
  None,
  "The largest difference from the reference's ROUGE that passes. Default:"
  f' {benchmark_lib.Benchmark.float32_tolerance} in float32. Other formats'
  " must reach 99 % of the reference's ROUGE, and 99.9 % for gptj-99.9.",
  lower_bound=0,
)
_REQUIRE_IDENTICAL = flags.DEFINE_bool(
  'require_identical',
  None,
  "Pass only if every answer equals the reference's, token for token. Default:"
  ' true if the serving params compute in float32.',
)


# The samples of a benchmark, in memory.
Task: TypeAlias = 'SummaryTask | bert_task.BertTask'


class SummaryTask:
  """The summarization of news articles.

  Attributes:
    benchmark: The benchmark.
    sample_count: The number of samples.
    samples: The samples in the format of run.json, for the process of LoadGen.
    inputs: The paths of the files that decide the result, by role.
    parameters: The other settings that decide the result.
  """

  def __init__(
    self,
    samples: run_lib.Samples,
    model: str,
    reference_path: str | None = None,
    rouge_tolerance: float | None = None,
    require_identical: bool | None = None,
    splitter: sentences.Splitter | None = None,
    no_splitter: str = '',
    end_ids: Sequence[int] = (),
  ):
    """Reads the inputs, so that a mistake is reported before anything starts.

    Args:
      samples: The articles.
      model: The submitted name of the model.
      reference_path: The path of the recorded answers; None: there is no
        reference.
      rouge_tolerance: The maximum difference from the reference's ROUGE that
        passes; None: the tolerance of float32, or the share that `model`
        requires.
      require_identical: True if every answer must equal the reference's; None:
        only if the system computes in float32.
      splitter: The splitter of sentences for rougeLsum; None skips rougeLsum.
      no_splitter: The reason if there is no splitter.
      end_ids: The ids that end an answer, for TEST06; empty without that test.

    Raises:
      OSError, ValueError: An input cannot be used.
    """
    self.benchmark = benchmarks.MODELS[model]
    self._task = summarization.load(samples)
    self.sample_count = len(self._task.articles)
    self.samples = msgspec.structs.replace(
      samples, sample_count=self.sample_count
    )
    self._model = model
    self._tolerance = rouge_tolerance
    self._identical = require_identical
    self.inputs = {
      'dataset': samples.dataset_path,
      'tokenizer': samples.tokenizer_path,
    }
    self._split = splitter.split if splitter else None
    self._no_splitter = no_splitter
    if splitter:
      self.inputs['punkt'] = splitter.path
    self._reference = None
    if reference_path:
      self.inputs['reference'] = reference_path
      self._reference = scoring.load_reference(
        reference_path, self._task.highlights, self._task.tokenizer, self._split
      )
    self.parameters = {
      'max_input_length': samples.max_input_length,
      'sample_count': self.sample_count,
      'rouge_tolerance': rouge_tolerance,
      'require_identical': require_identical,
      **({END_IDS: list(end_ids)} if end_ids else {}),
    }

  def judge(
    self, directory: str, exact: bool, other_search: str = ''
  ) -> scoring.Judgement:
    """Scores an accuracy run and writes accuracy.txt beside its logs.

    Args:
      directory: The directory of LoadGen's logs.
      exact: True if the system computes as the reference does (float32). Every
        answer must then equal the reference's.
      other_search: The difference between the system's search and the
        reference's; '' if they are equal.

    Raises:
      OSError, ValueError: The logs cannot be used.
    """
    scored = scoring.score_log(
      os.path.join(directory, loadgen_log.ACCURACY_LOG),
      self._task.highlights,
      self._task.tokenizer,
      self.benchmark.dtype,
      clean_up=tokenizer_lib.cleans_up(self.samples.tokenizer_path),
      split=self._split,
    )
    return scoring.compare(
      scored,
      self._reference,
      self._comparison_rule(exact, other_search),
      self._task.tokenizer,
    )

  def _comparison_rule(self, exact: bool, other_search: str) -> scoring.Rule:
    """Returns the rule that the answers must meet; see `judge`."""
    benchmark, count = self.benchmark, self.benchmark.full_set
    source = self._task.articles[0].source
    official = self.sample_count == count and not source
    least = benchmark.least(self._model) if official else {}
    most = benchmark.most if official else {}
    notes = [f'the published target for {count} articles'] if official else []
    remark = ''
    if not self._split:
      least.pop('rougeLsum', None)
      if 'rougeLsum' in benchmark.reference:
        remark = f'rougeLsum is not checked: {self._no_splitter}'
    alike = self._reference is not None and not other_search
    tolerance = self._tolerance
    if tolerance is None and alike and exact:
      tolerance = benchmark.float32_tolerance
    elif tolerance is None and alike and not official:
      assert self._reference is not None
      share = benchmark.models[self._model]
      least |= self._reference.shares(share)
      notes.append(f"{100 * share:g} % of the reference's figures")
    identical = self._identical
    if identical is None:
      identical = alike and exact
    if not notes and tolerance is None:
      notes.append(
        f'not judged: the reference searches differently ({other_search})'
        if self._reference
        else f'not judged: the official set has {count} samples, this run has'
        f' {self.sample_count}{f" generated by {source}" if source else ""}, and'
        ' there is no recorded reference (--reference_path)'
      )
    return scoring.Rule(
      tolerance, identical, least, '; '.join(notes), most, remark
    )


def task(model: str, system: launch.System) -> Task:
  """Returns the task that the flags describe, with its inputs loaded.

  Args:
    model: The submitted name of the model.
    system: The system that answers.

  Raises:
    OSError, ValueError: An input cannot be used.
    SaxError: The running cell does not report its settings.
  """
  benchmark = benchmarks.MODELS[model]
  bundled = _is_bundled(system) and _is_bundled_set(benchmark.bundle.dataset)
  reference = _reference(benchmark.bundle.reference if bundled else None)
  if not benchmark.summarizes:
    return _questions(model, system, reference)
  for flag in (_ROUGE_TOLERANCE, _REQUIRE_IDENTICAL):
    if flag.value is not None and not reference:
      raise ValueError(
        f'--{flag.name}={flag.value} has no effect without recorded answers to'
        ' compare with. Add --reference_path, or remove it'
      )
  return SummaryTask(
    _articles(benchmark, system),
    model,
    reference,
    _ROUGE_TOLERANCE.value,
    _REQUIRE_IDENTICAL.value,
    *sentences.from_flags(),
    _end_ids(system, benchmark.bundle.pax)
    if load_lib.COMPLIANCE in run_lib.MODE.value
    else (),
  )


def _end_ids(system: launch.System, pax: str | None) -> Sequence[int]:
  """Returns the ids that end an answer, of the params or the checkpoint.

  Raises:
    ValueError: They are unknown.
  """
  path = system.inputs.get('checkpoint', '')
  end_ids: tuple[int, ...] = ()
  if isinstance(system, launch.RunningCell):
    model = served.ask(system.model_path, system.sax_root)
    path, end_ids = model.checkpoint, model.end_ids
  elif isinstance(system, launch.OwnCell | launch.Engine):
    end_ids = served.Served(system.params, system.overrides).end_ids
    if _is_bundled(system):
      path = pax or path
  if not end_ids and path:
    end_ids = hf_checkpoint.end_ids(path)
  if not end_ids:
    raise ValueError(
      f'--mode={load_lib.COMPLIANCE} counts the end ids of answers, but the'
      f' params and the checkpoint {path or "(unknown)"} name none. Publish the'
      ' model with an --override such as STOP_TOKEN_IDS=[128001,128009]'
    )
  return end_ids


def _articles(
  benchmark: benchmark_lib.Benchmark, system: launch.System
) -> run_lib.Samples:
  """Returns the articles that the flags and the model determine."""
  length = run_lib.MAX_INPUT_LENGTH.value
  directory, longest = '', None
  if not (run_lib.TOKENIZER_PATH.value and length):
    directory, longest = _model(benchmark, system)
  most = benchmark.prompt.max_tokens
  return run_lib.fill(
    run_lib.Samples,
    dataset_path=user_path.resolve(run_lib.DATASET_PATH.value)
    or benchmark.bundle.dataset,
    tokenizer_path=_tokenizer() or _beside(directory, _TOKENIZERS),
    max_input_length=length or min(longest or most, most),
    benchmark=benchmark.name,
  )


def _model(
  benchmark: benchmark_lib.Benchmark, system: launch.System
) -> tuple[str, int | None]:
  """Returns a model's directory, and its longest prompt if that is known."""
  if isinstance(system, launch.NetworkSut):
    return '', None
  if isinstance(system, launch.RunningCell):
    model = served.ask(system.model_path, system.sax_root)
    return model.checkpoint, model.max_input_length
  directory = system.inputs['checkpoint']
  if isinstance(system, launch.OwnCell | launch.Engine):
    model = served.Served(system.params, system.overrides)
    return directory, model.max_input_length
  if _is_bundled(system):
    return directory, benchmark.bundle.max_input_length
  path = os.path.join(directory, 'config.json')
  if not os.path.isfile(path):
    return directory, None  # The reference reports the error.
  config = files.read_json(path, dict)
  positions = config.get('n_positions') or config.get('max_position_embeddings')
  return directory, positions and positions - benchmark.search.max_tokens


def _is_bundled(system: launch.System) -> bool:
  """Returns True if the job starts the system, with the bundled model."""
  return system.inputs.get('checkpoint') in {
    benchmark.bundle.model for benchmark in benchmarks.BENCHMARKS.values()
  }


def _is_bundled_set(own: str) -> bool:
  """Returns True if the samples are the bundled ones, also if named by path."""
  path = user_path.resolve(run_lib.DATASET_PATH.value)
  return not path or (
    os.path.isfile(path) and filecmp.cmp(path, own, shallow=False)
  )


def _beside(checkpoint: str, names: tuple[str, ...]) -> str:
  """Returns the first of several files in or above a checkpoint.

  Raises:
    ValueError: No file has one of the names.
  """
  for directory in (checkpoint, os.path.dirname(checkpoint.rstrip('/'))):
    for name in names:
      path = os.path.join(directory, name)
      if directory and os.path.isfile(path):
        return path if path.endswith(names[0]) else directory
  where = f'beside the checkpoint {checkpoint}' if checkpoint else 'known'
  raise ValueError(
    f'no {" or ".join(names)} is {where}, so prompts cannot be made for this'
    ' model. Pass --tokenizer_path'
  )


def _tokenizer() -> str | None:
  """Returns the tokenizer that the flag names; None if the flag is not set.

  Raises:
    ValueError: The tokenizer is on the Hugging Face hub and cannot be fetched.
  """
  name = run_lib.TOKENIZER_PATH.value
  return hub.locate_tokenizer(name) if name else None


def _vocabulary() -> str | None:
  """Returns the vocab.txt that the flag names; None if the flag is not set."""
  path = _tokenizer()
  if path and os.path.isdir(path):
    return os.path.join(path, *_VOCABULARIES)
  return path


def _questions(
  model: str, system: launch.System, reference: str | None
) -> Task:
  # pylint: disable=g-import-not-at-top
  from harness.bert import task as bert_task  # Imports transformers.

  benchmark = benchmarks.MODELS[model]
  return bert_task.BertTask(
    run_lib.Samples(
      user_path.resolve(run_lib.DATASET_PATH.value) or benchmark.bundle.dataset,
      _vocabulary() or _beside(system.inputs['checkpoint'], _VOCABULARIES),
      sample_count=run_lib.SAMPLE_COUNT.value,
      benchmark=benchmark.name,
    ),
    model,
    reference,
  )


def _reference(default: str | None) -> str | None:
  """Returns the recorded reference that the flags select; None without one."""
  if _REFERENCE_PATH.value is None:
    return default
  return user_path.resolve(_REFERENCE_PATH.value) or None
