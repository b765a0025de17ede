"""Tests of the last minutes of a cell, from the reports of its servers."""

import types
from typing import Any

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
    self.controller: Any = types.SimpleNamespace(members=members)
    return history.History(lambda: self.controller)

  def test_rates_come_from_counters(self):
    one = server('a:1', _Info(model_key='m'))
    kept = self.start(one)
    one.tell(0, answered=10, output_tokens=100, refused=1, slots=8, running=3)
    kept.take(0.0)
    self.assertEqual(kept.latest('m').answers, 0.0)
    one.tell(2, answered=20, output_tokens=400, refused=2, failed=1, slots=8)
    kept.take(1.0)
    latest = kept.latest('m')
    self.assertEqual(latest.answers, 5.0)
    self.assertEqual(latest.tokens, 150.0)
    self.assertEqual(latest.errors, 1.0)
    self.assertEqual((latest.slots, latest.running), (8, 0))
    # The model was loaded again, so its counters start at 0.
    one.tell(1, answered=1, output_tokens=7)
    kept.take(2.0)
    self.assertEqual(kept.latest('m').answers, 0.0)

  def test_stock_servers_report_their_own_rates(self):
    stats = _Stats(
      method='lm.generate',
      successes_per_second=2.5,
      p50_latency_on_success_per_second=0.25,
      pending_reqs=4,
    )
    infos = [_Info(model_key='m', method_stats=[stats])]
    kept = self.start(server('a:1', *infos), server('b:1', *infos))
    kept.take(0.0)
    self.assertEqual(kept.latest('m').answers, 5.0)
    self.assertEqual(kept.latest('m').p50, 0.25)
    self.assertIsNone(kept.latest('m').p99)
    self.assertEqual(kept.latest(server='a:1').queued, 4)
    self.assertEqual(kept.latest('other').answers, 0.0)

  def test_history_is_bounded_and_ends_with_the_leadership(self):
    kept = self.start(server('a:1', _Info(model_key='m')))
    for second in range(history.SAMPLES + 5):
      kept.take(float(second))
    self.assertLen(kept.samples, history.SAMPLES)
    self.controller = None
    kept.take(1e3)
    self.assertEmpty(kept.samples)
    self.assertEqual(kept.latest(), history.Figures())


if __name__ == '__main__':
  absltest.main()
