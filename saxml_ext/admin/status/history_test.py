"""Tests of the last minutes of a cell, from the reports of its servers."""

import types

from absl.testing import absltest

from saxml_ext.admin.status import history
from saxml_ext.protobuf import modelet_pb2

_Info = modelet_pb2.GetStatusResponse.ModelWithStatus
_Stats = modelet_pb2.GetStatusResponse.MethodStats
_Load = modelet_pb2.GetStatusResponse.Load


class _Server(types.SimpleNamespace):
  """A model server with a new status after some time."""

  def tell(self, seconds: float, **load: int) -> None:
    self.last_seen += seconds
    self.status.models[0].load.CopyFrom(_Load(**load))


def server(address: str, *infos: _Info) -> _Server:
  status = modelet_pb2.GetStatusResponse(models=infos)
  return _Server(address=address, last_seen=100.0, status=status)


class HistoryTest(absltest.TestCase):
  def start(self, *servers: _Server) -> history.History:
    self.servers = list(servers)
    members = types.SimpleNamespace(all=lambda: self.servers)
    self.controller = types.SimpleNamespace(members=members)
    return history.History(lambda: self.controller)

  def test_rates_are_of_counters(self):
    one = server('a:1', _Info(model_key='m'))
    found = self.start(one)
    one.tell(0, answered=10, output_tokens=100, refused=1, slots=8, running=3)
    found.take(0.0)
    self.assertEqual(found.latest('m').answers, 0.0)
    one.tell(2, answered=20, output_tokens=400, refused=2, failed=1, slots=8)
    found.take(1.0)
    latest = found.latest('m')
    self.assertEqual(latest.answers, 5.0)
    self.assertEqual(latest.tokens, 150.0)
    self.assertEqual(latest.errors, 1.0)
    self.assertEqual((latest.slots, latest.running), (8, 0))
    # The model was loaded again, so its counters start at 0.
    one.tell(1, answered=1, output_tokens=7)
    found.take(2.0)
    self.assertEqual(found.latest('m').answers, 0.0)

  def test_servers_of_other_kinds_tell_their_own_rates(self):
    stats = _Stats(
      method='lm.generate',
      successes_per_second=2.5,
      p50_latency_on_success_per_second=0.25,
      pending_reqs=4,
    )
    infos = [_Info(model_key='m', method_stats=[stats])]
    found = self.start(server('a:1', *infos), server('b:1', *infos))
    found.take(0.0)
    self.assertEqual(found.latest('m').answers, 5.0)
    self.assertEqual(found.latest('m').p50, 0.25)
    self.assertIsNone(found.latest('m').p99)
    self.assertEqual(found.latest(server='a:1').queued, 4)
    self.assertEqual(found.latest('other').answers, 0.0)

  def test_keeps_so_much_and_forgets_all_when_another_one_leads(self):
    found = self.start(server('a:1', _Info(model_key='m')))
    for second in range(history.SAMPLES + 5):
      found.take(float(second))
    self.assertLen(found.samples, history.SAMPLES)
    self.controller = None
    found.take(1e3)
    self.assertEmpty(found.samples)
    self.assertEqual(found.latest(), history.Figures())


if __name__ == '__main__':
  absltest.main()
