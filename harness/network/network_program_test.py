"""Runs the programs of both sides, with a real LoadGen between them."""

import os
import re
import subprocess

from absl.testing import absltest

from harness.benchmarks import gptj
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.loadgen import settings
from harness.network import client
from harness.rules import rounds
from saxml_ext.client.testing import fake_cell
from saxml_ext.common import files
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import rouge
from saxml_ext.evaluation import tokenizer as tokenizer_lib
from saxml_ext.protobuf import common_pb2
from serve import programs

_TOY = 'harness/network/testing/toy_sut'
_LON = 'harness/network/lon_run'
_SECONDS = 300.0


class ProgramTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = self.create_tempdir().full_path

  def sut(self, node: str, **flags) -> tuple[subprocess.Popen, str]:
    """Starts a system; returns its process and its address."""
    command = programs.command(
      _TOY, {'network': 'sut', 'port': 0, 'node': node} | flags
    )
    process = self.enterContext(
      subprocess.Popen(
        command.argv, env=command.env, stdout=subprocess.PIPE, text=True
      )
    )
    self.addCleanup(process.kill)
    line = process.stdout.readline()
    port = re.search(r':(\d+) is ready', line).group(1)
    return process, f'127.0.0.1:{port}'

  def lon(self, program: str, count: int, **flags) -> list[str]:
    """Returns the command of LoadGen's side for an accuracy run."""
    conf = os.path.join(self.directory, 'user.conf')
    run = settings.RunSettings(
      gptj.GPTJ, rounds.OFFLINE, 'v4.0', count, count, 1, target_qps=1.0
    )
    with open(conf, 'w', encoding='utf-8') as file:
      file.write(run.user_conf)
    self.command = programs.command(
      program,
      {
        'mode': 'accuracy',
        'user_conf': conf,
        'output_dir': self.directory,
        'timeline': os.path.join(self.directory, loadgen_log.TIMELINE),
        'concurrency': 16,
        'silence_secs': 60,
      }
      | flags,
    )
    return list(self.command.argv)

  def run_lon(self, program: str, count: int, **flags) -> run_lib.RunStatus:
    done = subprocess.run(
      self.lon(program, count, **flags),
      env=self.command.env,
      stdout=subprocess.PIPE,
      text=True,
      timeout=_SECONDS,
      check=False,
    )
    statuses = [run_lib.parse(line) for line in done.stdout.splitlines()]
    last = [status for status in statuses if status][-1]
    self.assertEqual(done.returncode, 0 if last.failure is None else 1)
    return last

  def name(self) -> str:
    """Returns the name in LoadGen's log."""
    path = os.path.join(self.directory, 'mlperf_log_detail.txt')
    with open(path, encoding='utf-8') as file:
      return re.search(r'"sut_name", "value": "([^"]*)"', file.read()).group(1)

  def answers(self) -> dict[int, tuple[int, ...]]:
    return rouge.read_accuracy_log(
      os.path.join(self.directory, loadgen_log.ACCURACY_LOG), 'int64'
    )

  def test_two_nodes(self):
    addresses = ','.join(self.sut(node)[1] for node in ('a', 'b'))
    status = self.run_lon(
      _TOY, 40, network='lon', sut_server=addresses, connections=2
    )
    self.assertEqual((status.done, status.failure), (40, None))
    self.assertRegex(self.name(), r'^Network SUT: a on \S+:\d+, b on \S+:\d+$')
    self.assertEqual(
      self.answers(),
      {n: tuple(range(n, -1, -1)) for n in range(40)},
    )
    times = loadgen_log.read_timeline(
      os.path.join(self.directory, loadgen_log.TIMELINE)
    )
    self.assertLen(times, 40)
    self.assertNotIn(None, [sample.first_token for sample in times])

  def test_the_same_program_alone(self):
    status = self.run_lon(_TOY, 40)
    self.assertEqual((status.done, status.failure), (40, None))
    self.assertEqual(self.name(), 'PySUT')
    self.assertLen(self.answers(), 40)

  def test_prompts_of_articles(self):
    status = self.run_lon(
      _LON,
      5,
      sut_server=self.sut('a')[1],
      dataset_path=gptj.BUNDLE.dataset,
      tokenizer_path=gptj.BUNDLE.tokenizer,
      max_input_length=100,
      sample_count=5,
    )
    self.assertEqual((status.done, status.failure), (5, None))
    prompts = dataset.encode_prompts(
      dataset.load_articles(gptj.BUNDLE.dataset, 5),
      tokenizer_lib.load(gptj.BUNDLE.tokenizer),
      100,
    )
    logged = rouge.read_accuracy_log(
      os.path.join(self.directory, loadgen_log.ACCURACY_LOG), 'int32'
    )
    self.assertEqual(
      logged, {n: tuple(ids[::-1]) for n, ids in enumerate(prompts)}
    )

  def run_json(self, system) -> run_lib.RunStatus:
    """Runs LoadGen's side with a run.json."""
    run = run_lib.Run(
      benchmark=gptj.GPTJ.name,
      scenario=rounds.OFFLINE,
      mode=run_lib.ACCURACY,
      user_conf=os.path.join(self.directory, 'user.conf'),
      output_dir=self.directory,
      concurrency=16,
      silence_secs=60.0,
      system=system,
      samples=run_lib.Samples(
        gptj.BUNDLE.dataset, gptj.BUNDLE.tokenizer, 100, 5, gptj.GPTJ.name
      ),
    )
    path = os.path.join(self.directory, run_lib.FILE)
    files.write_json(path, run)
    self.lon(_LON, 5)  # Writes user.conf.
    command = programs.command(_LON, {}, words=[path])
    done = subprocess.run(
      command.argv,
      env=command.env,
      stdout=subprocess.PIPE,
      text=True,
      timeout=_SECONDS,
      check=False,
    )
    statuses = [run_lib.parse(line) for line in done.stdout.splitlines()]
    return [status for status in statuses if status][-1]

  def test_prompts_of_a_run_json(self):
    _, address = self.sut('a')
    status = self.run_json(client.Nodes([address]))
    self.assertEqual((status.done, status.failure), (5, None))
    logged = rouge.read_accuracy_log(
      os.path.join(self.directory, loadgen_log.ACCURACY_LOG), 'int32'
    )
    self.assertLen(logged, 5)

  def test_a_run_json_of_another_program_is_refused(self):
    status = self.run_json({'type': 'runningcell', 'model_path': '/sax/test/m'})
    self.assertRegex(
      status.failure, r"run.json: Invalid value 'runningcell' .*system"
    )

  def run_cell(self, model_status):
    """Runs five samples on a cell whose only server echoes prompts."""
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    server = cell.add_server()
    server.status = model_status
    status = self.run_lon(
      programs.LOADGEN_RUN,
      5,
      network='lon',
      sax_root=cell.root,
      model_path=fake_cell.MODEL,
      dataset_path=gptj.BUNDLE.dataset,
      tokenizer_path=gptj.BUNDLE.tokenizer,
      max_input_length=100,
      sample_count=5,
    )
    return server, status

  def test_a_cell(self):
    server, status = self.run_cell(common_pb2.ModelStatus.LOADED)
    self.assertEqual((status.done, status.failure), (5, None))
    self.assertEqual(
      self.name(),
      f'Network SUT: {fake_cell.MODEL} (p.A from None) on {server.address}',
    )
    self.assertLen(self.answers(), 5)

  def test_a_cell_that_does_not_tell_its_name(self):
    server, status = self.run_cell(common_pb2.ModelStatus.LOADING)
    self.assertRegex(
      status.failure,
      f'did not report its name: .* at {server.address} has not loaded',
    )

  def test_a_system_that_dies_ends_the_run(self):
    process, address = self.sut('a', silent_after=10)
    argv = self.lon(_TOY, 40, network='lon', sut_server=address)
    with subprocess.Popen(
      argv, env=self.command.env, stdout=subprocess.PIPE, text=True
    ) as run:
      for line in run.stdout:
        status = run_lib.parse(line) or run_lib.RunStatus()
        if status.done == 10:
          process.kill()
        if status.failure:
          break
    self.assertEqual(run.returncode, 1)
    self.assertRegex(
      status.failure,
      f'SUT at {address} disconnected with .* unanswered .* repeat the run',
    )
    # The times of answered samples are kept.
    self.assertLen(
      loadgen_log.read_timeline(
        os.path.join(self.directory, loadgen_log.TIMELINE)
      ),
      10,
    )

  def test_no_address(self):
    status = self.run_lon(_TOY, 40, network='lon')
    self.assertRegex(status.failure, '--sut_server is not set. Pass every')


if __name__ == '__main__':
  absltest.main()
