"""Tests of the choice among replicas."""

import collections

from absl.testing import absltest

from saxml_ext.client.transport import replicas
from saxml_ext.common import grpc_util


def _table() -> replicas.Connections:
  return replicas.Connections(grpc_util.channel)


def _addresses(count: int) -> list[str]:
  return [f'10.0.0.{i}:1' for i in range(count)]


class ReplicasTest(absltest.TestCase):
  def test_busy_replicas_get_less(self):
    table = _table()
    first, second = map(table.get, _addresses(2))
    first.begin()
    for _ in range(20):
      self.assertIs(table.choose(_addresses(2), 37, None), second)

  def test_load_is_spread(self):
    table = _table()
    connections = []
    for _ in range(400):
      connection = table.choose(_addresses(4), 37, None)
      connection.begin()
      connections.append(connection)
    counts = collections.Counter(c.address for c in connections)
    for connection in connections:
      connection.end()
    self.assertLen(counts, 4)
    self.assertLess(max(counts.values()) - min(counts.values()), 10)

  def test_failed_replica_is_avoided_if_there_is_another(self):
    table = _table()
    one, two = _addresses(2)
    for _ in range(20):
      self.assertEqual(table.choose([one, two], 37, one).address, two)
    self.assertEqual(table.choose([one], 37, one).address, one)

  def test_num_conn_limits_the_replicas_used(self):
    table = _table()
    used = {table.choose(_addresses(20), 3, None).address for _ in range(200)}
    self.assertLen(used, 3)

  def test_connections_are_shared_and_forgotten_when_idle(self):
    table = _table()
    connection = table.get('10.0.0.1:1')
    self.assertIs(table.get('10.0.0.1:1'), connection)
    later = connection._last_used + 601
    self.assertTrue(connection.is_idle(later))
    connection.begin()
    self.assertFalse(connection.is_idle(later))
    connection.end()
    self.assertTrue(connection.is_idle(later + 601))


if __name__ == '__main__':
  absltest.main()
