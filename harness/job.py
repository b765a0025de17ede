"""A whole benchmark job: a cell, its LoadGen runs, the scores, the report."""

from collections.abc import Mapping
import dataclasses
import os
import tempfile

from harness import bundle
from harness import children
from harness import loadgen_log
from harness import local_cell
from harness import programs
from harness import progress as progress_lib
from harness import report
from harness import run_process
from harness import run_status
from harness import settings
from saxml_ext.common import dataset
from saxml_ext.common import rouge

ACCURACY = 'accuracy'
PERFORMANCE = 'performance'


@dataclasses.dataclass(frozen=True)
class JobConfig:
  """What to run.

  Attributes:
    scenario: LoadGen's scenario name.
    modes: "accuracy", "performance" or both.
    results_dir: where logs and the report go.
    model_path: id of a model of a running cell; None starts a cell.
    sax_root: root of that cell; None with a cell of our own.
    params: serving params to publish in a cell of our own.
    checkpoint: PAX checkpoint for it; None: the bundled model.
    overrides: attribute of the serving params -> value as JSON.
    jax_cache_dir: where its server keeps compiled programs; None: nowhere.
    dataset_path: evaluation file.
    tokenizer_path: tokenizer.json of the model.
    reference_path: recorded reference; None compares with nothing.
    rouge_tolerance: greatest difference from it that passes.
    max_input_length: tokens after which a prompt is cut.
    sample_count: articles to use; 0 uses all.
    min_duration_ms: shortest valid performance run.
    target_qps: expected samples/s; None takes the accuracy run's speed.
    concurrency: most unanswered requests.
    silence_secs: time without any answer that ends a run.
  """

  scenario: str
  modes: tuple[str, ...]
  results_dir: str
  model_path: str | None
  sax_root: str | None
  params: str
  checkpoint: str | None
  overrides: Mapping[str, str]
  jax_cache_dir: str | None
  dataset_path: str
  tokenizer_path: str
  reference_path: str | None
  rouge_tolerance: float
  max_input_length: int
  sample_count: int
  min_duration_ms: int
  target_qps: float | None
  concurrency: int
  silence_secs: float


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What came out of a job; None for what was not run."""

  comparison: report.Comparison | None
  performance: loadgen_log.RunLog | None

  def problems(self) -> list[str]:
    """Why the job did not pass; empty if it did."""
    problems = []
    if self.comparison and not self.comparison.passed:
      problems.append(
          f'ROUGE differs from the reference by {self.comparison.worst:.4f};'
          f' the limit is {self.comparison.tolerance}'
      )
    if self.performance and not self.performance.valid:
      problems.append(
          'LoadGen calls the performance run'
          f" {self.performance.values.get('result_validity')}: see its summary;"
          ' if it was shorter than min_duration, give a --target_qps above the'
          ' speed of this machine'
      )
    return problems


class Job:
  """Runs a JobConfig. Use once."""

  def __init__(self, config: JobConfig, progress: progress_lib.Progress):
    """Reads the inputs, so that a wrong one is told before anything starts.

    Raises:
      OSError, ValueError: an input cannot be used.
    """
    self._config = config
    self._progress = progress
    self._articles = dataset.load_articles(
        config.dataset_path, config.sample_count
    )
    self._highlights = [article.output for article in self._articles]
    self._tokenizer = dataset.load_tokenizer(config.tokenizer_path)
    self._reference = None
    if config.reference_path:
      self._reference = report.load_reference(
          config.reference_path, self._highlights, self._tokenizer
      )
    self._settings = settings.RunSettings(
        scenario=config.scenario,
        sample_count=len(self._articles),
        min_duration_ms=config.min_duration_ms,
        target_qps=config.target_qps
        or settings.target_qps_for_one_pass(
            len(self._articles), config.min_duration_ms
        ),
    )

  def run(self) -> Outcome:
    """Runs it all; nothing that it started is left when it returns or raises.

    Raises:
      children.ChildError, local_cell.CellError, run_process.RunError,
      errors.SaxError: something failed; the text says what.
    """
    comparison = performance = None
    with (
        tempfile.TemporaryDirectory(prefix='sax_cell_') as work_dir,
        children.Children() as group,
    ):
      model_id, sax_root = self._model(group, work_dir)
      if ACCURACY in self._config.modes:
        comparison = self._accuracy(group, model_id, sax_root)
      if PERFORMANCE in self._config.modes:
        performance = self._performance(group, model_id, sax_root)
      self._progress.stage('stopping what was started')
    return Outcome(comparison, performance)

  @property
  def _log_dir(self) -> str:
    return os.path.join(self._config.results_dir, 'logs')

  def _model(self, group: children.Children, work_dir: str) -> tuple[str, str]:
    """Model id and root of the cell to measure, started if need be."""
    config = self._config
    if config.model_path:
      self._progress.stage(f'using {config.model_path} of a running cell')
      return config.model_path, config.sax_root
    checkpoint = config.checkpoint or bundle.pax_checkpoint()
    if checkpoint is None:
      checkpoint = self._convert(group, os.path.join(work_dir, 'pax'))
    cell = local_cell.LocalCell(
        group, work_dir, self._log_dir, config.jax_cache_dir, self._progress
    )
    cell.start()
    model = local_cell.Model(
        'gptj', config.params, checkpoint, config.overrides
    )
    return cell.publish(model), cell.sax_root

  def _convert(self, group: children.Children, target: str) -> str:
    self._progress.stage('converting the bundled model to a PAX checkpoint')
    command = programs.command(
        programs.CONVERTER, {'base': bundle.model_dir(), 'pax': target}
    )
    log = os.path.join(self._log_dir, 'convert_gptj_ckpt.log')
    group.run('converter', command, log)
    return target

  def _accuracy(
      self, group: children.Children, model_id: str, sax_root: str
  ) -> report.Comparison:
    directory = os.path.join(self._config.results_dir, ACCURACY)
    status = self._loadgen(ACCURACY, directory, group, model_id, sax_root)
    if self._config.target_qps is None and status.seconds > 0:
      rate = status.done / status.seconds
      self._settings = dataclasses.replace(
          self._settings, target_qps=settings.target_qps_from_rate(rate)
      )
    self._progress.stage('scoring ROUGE')
    answers = rouge.read_accuracy_log(
        os.path.join(directory, loadgen_log.ACCURACY_LOG), 'int64'
    )
    scores = rouge.score_tokens(answers, self._highlights, self._tokenizer)
    path = os.path.join(directory, 'accuracy.txt')
    with open(path, 'w', encoding='utf-8') as file:
      file.write(scores.line + '\n')
    return report.compare(
        scores,
        answers,
        self._reference,
        self._config.rouge_tolerance,
        self._tokenizer,
    )

  def _performance(
      self, group: children.Children, model_id: str, sax_root: str
  ) -> loadgen_log.RunLog:
    directory = os.path.join(self._config.results_dir, PERFORMANCE, 'run_1')
    self._loadgen(PERFORMANCE, directory, group, model_id, sax_root)
    return loadgen_log.read(directory)

  def _loadgen(
      self,
      mode: str,
      directory: str,
      group: children.Children,
      model_id: str,
      sax_root: str,
  ) -> run_status.RunStatus:
    """One LoadGen run in a process of its own."""
    config = self._config
    loadgen_log.clear(directory)
    user_conf = os.path.join(config.results_dir, 'user.conf')
    with open(user_conf, 'w', encoding='utf-8') as file:
      file.write(self._settings.user_conf)
    command = programs.command(
        programs.LOADGEN_RUN,
        {
            'scenario': config.scenario,
            'mode': mode,
            'user_conf': user_conf,
            'output_dir': directory,
            'model_path': model_id,
            'sax_root': sax_root,
            'dataset_path': config.dataset_path,
            'tokenizer_path': config.tokenizer_path,
            'max_input_length': config.max_input_length,
            'sample_count': len(self._articles),
            'concurrency': config.concurrency,
            'silence_secs': config.silence_secs,
        },
    )
    label = f'{mode} run'
    self._progress.stage(f'{label}: LoadGen {config.scenario}')
    child = group.start_piped(
        label, command, os.path.join(self._log_dir, f'loadgen_{mode}.log')
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
