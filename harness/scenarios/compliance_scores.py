"""Scores of a compliance test whose answers are not those of the accuracy run.

Systems that compute in another order for each batch answer the same sample a
little differently. Then scores decide: those of the answers that the test logged,
and of the accuracy run's answers to the same samples.
"""

import os
import pathlib
import shutil
import tempfile

from harness.loadgen import loadgen_log
from harness.results import scoring
from harness.scenarios import tasks
from harness.submission.content import compliance


def write(
  task: tasks.Task,
  accuracy_dir: pathlib.Path,
  test_dir: pathlib.Path,
  exact: bool,
) -> bool:
  """Writes both scores beside a test's logs, if they are needed.

  Args:
    task: judges the answers.
    accuracy_dir: LoadGen's logs of the accuracy run.
    test_dir: of the test.
    exact: see tasks.Task.judge.

  Returns:
    Whether they were needed.

  Raises:
    OSError, ValueError: the logs cannot be used.
  """
  for name in compliance.SCORES:
    (test_dir / name).unlink(missing_ok=True)
  accuracy, test = (
    directory / loadgen_log.ACCURACY_LOG
    for directory in (accuracy_dir, test_dir)
  )
  if compliance.verify_accuracy(accuracy, test).passed:
    return False
  for name in compliance.SCORES:
    with tempfile.TemporaryDirectory(prefix='scores_') as scratch:
      log = pathlib.Path(scratch, loadgen_log.ACCURACY_LOG)
      if name == compliance.BASELINE_SCORE:
        compliance.write_baseline(accuracy, test, log)
      else:
        shutil.copyfile(test, log)
      task.judge(scratch, exact)
      shutil.copyfile(
        os.path.join(scratch, scoring.ACCURACY_FILE), test_dir / name
      )
  return True
