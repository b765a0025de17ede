"""Tests a cell with a group of two hosts; each loses the network in turn."""

import os
import time

from absl.testing import absltest

from saxml_ext.protobuf import admin_pb2
from serve import children
from serve import programs
from tests.chaos import evictions
from tests.chaos import load as load_lib
from tests.chaos import processes
from tests.groups import supervised
from tests.hosts import network as network_lib

_MODEL = processes.CELL + '/m'
_PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
_SERVER = 'tests/groups/group_server'
_ADMIN_PORT = 10000
_PORT = 10001
_COORDINATOR_PORT = 10002
# Requests take this many seconds, so some are in flight when a host is lost.
_STEP_SECS = 1.0
_RATE = 10.0
# A host is cut off for this many seconds. The other host is restarted
# meanwhile.
_CUT_SECS = 8.0

_obstacle = ''


class GroupTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    if _obstacle:
      self.skipTest(_obstacle)
    self.dir = self.create_tempdir().full_path
    self.cell = processes.Cell(self.dir)
    self.completed = self.cell.path / 'completed'
    self.group = self.enter_context(children.Children())
    self.net = network_lib.Network()
    self.admin, self.a, self.b, self.alone = map(
      self.net.add_host, ('admin', 'a', 'b', 'alone')
    )

  def test_group_survives_the_loss_of_each_host(self):
    self.start_cell()
    members = [
      self.start_server(
        host,
        {
          'coordinator_address': f'{self.a.address}:{_COORDINATOR_PORT}',
          'num_processes': 2,
          'process_id': process,
        },
      )
      for process, host in enumerate((self.a, self.b))
    ]
    self.start_server(self.alone, {})
    single = {f'{self.alone.address}:{_PORT}'}
    both = single | {f'{self.a.address}:{_PORT}'}
    self.wait_for_addresses(both)
    [model] = self.cell.call('List', admin_pb2.ListRequest()).published_models
    self.assertCountEqual(
      [list(replica.hosts) for replica in model.replicas], [['a', 'b'], []]
    )
    counts = load_lib.Counts(rate=_RATE)
    with load_lib.Load(self.cell.root, _MODEL, counts):
      for lost in (self.a, self.b):
        time.sleep(2 * _STEP_SECS)
        starts = [member.starts for member in members]
        self.net.cut(lost)
        self.wait_for_addresses(single)
        time.sleep(_CUT_SECS)
        self.net.mend(lost)
        self.wait_for_addresses(both)
        # Both processes had to restart.
        for member, before in zip(members, starts, strict=True):
          self.assertGreater(member.starts, before)
      time.sleep(2 * _STEP_SECS)
    counts.count(self.completed)
    print(counts)
    self.assertEqual(counts.lost, [])
    self.assertGreater(counts.requests, 50)
    self.assertGreaterEqual(counts.completed, counts.requests)
    leader, follower = (member.log.read_text() for member in members)
    self.assertIn('group: host b (process 1) is lost', leader)
    self.assertIn('group: host a (process 0) is lost', follower)
    self.assertNotIn(supervised.ENDED_WITH_0, leader + follower)

  def start_cell(self):
    """Starts the admin server and publishes a model with two replicas."""
    self.group.start(
      'admin server',
      self.command(
        self.admin,
        programs.ADMIN_SERVER,
        {'port': _ADMIN_PORT, 'http_port': -1},
      ),
      os.path.join(self.dir, 'admin.log'),
    )
    self.cell.wait_for_leader()
    self.cell.call(
      'Publish',
      admin_pb2.PublishRequest(
        model=admin_pb2.Model(
          model_id=_MODEL,
          model_path=_PARAMS,
          # Engines that answer at once do not read the checkpoint.
          checkpoint_path=self.dir,
          requested_num_replicas=2,
        )
      ),
    )

  def start_server(self, host, flags):
    """Starts a model server on a host, which is restarted if it ends."""
    own = {
      'port': _PORT,
      'step_secs': _STEP_SECS,
      'completed': self.completed,
    }
    command = self.command(None, _SERVER, own | flags)
    return supervised.Supervised(
      self.group, host.name, command, self.dir, host.argv(())
    )

  def command(self, host, program, flags):
    root = {'sax_root': self.cell.root, 'sax_cell': processes.CELL}
    command = programs.command(program, root | flags)
    if host is None:
      return command
    return programs.Command(host.argv(command.argv), command.env)

  def wait_for_addresses(self, expected):
    begin = time.monotonic()
    processes.wait(lambda: evictions.addresses(self.cell, _MODEL) == expected)
    print(
      f'clients are told {sorted(expected)} after'
      f' {time.monotonic() - begin:.1f} s',
      flush=True,
    )


if __name__ == '__main__':
  _obstacle = network_lib.enter()
  absltest.main()
