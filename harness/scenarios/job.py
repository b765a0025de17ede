"""A whole benchmark job: a cell, its LoadGen runs, the scores."""

import dataclasses
import os
import tempfile

from harness import progress as progress_lib
from harness.data import bundle
from harness.loadgen import loadgen_log
from harness.loadgen import run_process
from harness.loadgen import run_status
from harness.loadgen import settings
from harness.results import comparison as comparison_lib
from harness.results import scoring
from harness.scenarios import config as config_lib
from harness.scenarios import outcome
from harness.systems import children
from harness.systems import local_cell
from harness.systems import programs
from harness.systems import served
from harness.systems import target as target_lib

# What a model in a cell of our own is called there.
_MODEL = 'gptj'


class Job:
  """Runs a JobConfig. Use once."""

  def __init__(
    self, config: config_lib.JobConfig, progress: progress_lib.Progress
  ):
    """Reads the inputs, so that a wrong one is told before anything starts.

    Raises:
      OSError, ValueError: an input cannot be used.
    """
    self._config = config
    self._progress = progress
    self._task = config.source.load()
    self._reference = None
    if config.reference_path:
      self._reference = comparison_lib.load_reference(
        config.reference_path, self._task.highlights, self._task.tokenizer
      )
    self._settings = config.run_settings(len(self._task.articles))

  def run(self) -> outcome.Outcome:
    """Runs it all; nothing that it started is left when it returns or raises.

    Raises:
      errors.HarnessError: a process, the cell or a run failed.
      SaxError: the cell refused something.
    """
    comparison = performance = None
    with (
      tempfile.TemporaryDirectory(prefix='sax_cell_') as work_dir,
      children.Children() as group,
    ):
      target = self._target(group, work_dir)
      if config_lib.ACCURACY in self._config.modes:
        comparison = self._accuracy(group, target)
      if config_lib.PERFORMANCE in self._config.modes:
        performance = self._performance(group, target)
      self._progress.stage('stopping what was started')
    return outcome.Outcome(comparison, performance)

  @property
  def _log_dir(self) -> str:
    return os.path.join(self._config.results_dir, 'logs')

  def _target(
    self, group: children.Children, work_dir: str
  ) -> target_lib.Target:
    """The model to measure, in a cell that is started if need be."""
    config = self._config
    if config.target:
      self._progress.stage(f'using {config.target.model_id} of a running cell')
      return config.target
    checkpoint = (
      config.checkpoint
      or bundle.pax_checkpoint()
      or self._convert(group, os.path.join(work_dir, 'pax'))
    )
    cell = local_cell.LocalCell(
      group, work_dir, self._log_dir, config.jax_cache_dir, self._progress
    )
    cell.start()
    return cell.publish(
      local_cell.Model(_MODEL, config.params, checkpoint, config.overrides)
    )

  def _convert(self, group: children.Children, target: str) -> str:
    self._progress.stage('converting the bundled model to a PAX checkpoint')
    command = programs.command(
      programs.CONVERTER, {'base': bundle.model_dir(), 'pax': target}
    )
    log = os.path.join(self._log_dir, 'convert_gptj_ckpt.log')
    group.run('converter', command, log)
    return target

  def _accuracy(
    self, group: children.Children, target: target_lib.Target
  ) -> comparison_lib.Comparison:
    directory = os.path.join(self._config.results_dir, config_lib.ACCURACY)
    status = self._loadgen(config_lib.ACCURACY, directory, group, target)
    if self._config.target_qps is None and status.seconds > 0:
      rate = status.done / status.seconds
      self._settings = dataclasses.replace(
        self._settings, target_qps=settings.target_qps_from_rate(rate)
      )
    self._progress.stage('scoring ROUGE')
    scored = scoring.score_log(
      os.path.join(directory, loadgen_log.ACCURACY_LOG),
      self._task.highlights,
      self._task.tokenizer,
    )
    return comparison_lib.compare(
      scored, self._reference, self._rule(target), self._task.tokenizer
    )

  def _rule(self, target: target_lib.Target) -> comparison_lib.Rule:
    identical = self._config.require_identical
    if identical is None:
      identical = self._reference is not None and served.is_float32(target)
    return comparison_lib.Rule(self._config.rouge_tolerance, identical)

  def _performance(
    self, group: children.Children, target: target_lib.Target
  ) -> loadgen_log.RunLog:
    directory = os.path.join(
      self._config.results_dir, config_lib.PERFORMANCE, 'run_1'
    )
    self._loadgen(config_lib.PERFORMANCE, directory, group, target)
    return loadgen_log.read(directory)

  def _loadgen(
    self,
    mode: str,
    directory: str,
    group: children.Children,
    target: target_lib.Target,
  ) -> run_status.RunStatus:
    """One LoadGen run in a process of its own."""
    loadgen_log.clear(directory)
    label = f'{mode} run'
    self._progress.stage(f'{label}: LoadGen {self._config.scenario}')
    child = group.start_piped(
      label,
      self._command(mode, directory, target),
      os.path.join(self._log_dir, f'loadgen_{mode}.log'),
    )
    status = run_process.follow(group, child, label, self._progress)
    log = loadgen_log.read(directory)
    if log.problems:
      raise run_process.RunError(
        f'LoadGen logged {len(log.problems)} errors in the {label}, the first'
        f' of them: {log.problems[0]} (all in {directory})'
      )
    self._progress.stage(
      f'{label}: {status.done} samples in {status.seconds:.1f} s'
    )
    return status

  def _command(
    self, mode: str, directory: str, target: target_lib.Target
  ) -> programs.Command:
    """How to start a run, whose user.conf is written."""
    config = self._config
    user_conf = os.path.join(config.results_dir, 'user.conf')
    with open(user_conf, 'w', encoding='utf-8') as file:
      file.write(self._settings.user_conf)
    return programs.command(
      programs.LOADGEN_RUN,
      {
        'scenario': config.scenario,
        'mode': mode,
        'user_conf': user_conf,
        'output_dir': directory,
        'model_path': target.model_id,
        'sax_root': target.sax_root,
        'dataset_path': config.source.dataset_path,
        'tokenizer_path': config.source.tokenizer_path,
        'max_input_length': config.source.max_input_length,
        'sample_count': len(self._task.articles),
        'concurrency': config.concurrency,
        'silence_secs': config.silence_secs,
      },
    )
