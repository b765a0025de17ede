"""Tests of when a server is taken for dead."""

from absl.testing import absltest

from saxml_ext.admin.modelet import poller
from saxml_ext.admin.modelet import port_check


class LivenessTest(absltest.TestCase):
  def test_refused_for_half_a_second(self):
    live = poller.Liveness()
    self.assertFalse(live.failed(0.0, 0.01, reach=port_check.Reach.REFUSED))
    self.assertFalse(live.failed(0.2, 0.21, reach=port_check.Reach.REFUSED))
    self.assertFalse(live.failed(0.4, 0.41, reach=port_check.Reach.REFUSED))
    self.assertTrue(live.failed(0.6, 0.61, reach=port_check.Reach.REFUSED))

  def test_silent_servers_get_longer(self):
    live = poller.Liveness()
    self.assertFalse(live.failed(0, 10, reach=port_check.Reach.TAKEN))
    self.assertFalse(live.failed(10, 20, reach=port_check.Reach.TAKEN))
    # As other admin servers do: 25 s.
    self.assertFalse(live.failed(20, 24.9, reach=port_check.Reach.TAKEN))
    self.assertTrue(live.failed(20, 25.0, reach=port_check.Reach.TAKEN))

  def test_machine_that_does_not_answer(self):
    live = poller.Liveness()
    self.assertFalse(live.failed(0, 0.6, reach=port_check.Reach.NO_ANSWER))
    self.assertFalse(live.failed(0, 0.9, reach=port_check.Reach.NO_ANSWER))
    self.assertTrue(live.failed(0, 1.3, reach=port_check.Reach.NO_ANSWER))

  def test_busy_server_does_not_count_as_gone_after_a_lost_packet(self):
    live = poller.Liveness()
    self.assertFalse(live.failed(0, 1, reach=port_check.Reach.NO_ANSWER))
    self.assertFalse(live.failed(0, 20, reach=port_check.Reach.TAKEN))
    self.assertFalse(live.failed(0, 21, reach=port_check.Reach.NO_ANSWER))

  def test_one_failure_is_never_enough(self):
    live = poller.Liveness()
    self.assertFalse(live.failed(0, 3600, reach=port_check.Reach.TAKEN))
    live.succeeded()
    self.assertFalse(live.failing)
    self.assertFalse(live.failed(3600, 7200, reach=port_check.Reach.REFUSED))
    self.assertTrue(live.failing)

  def test_success_starts_the_count_anew(self):
    live = poller.Liveness()
    live.failed(0, 1, reach=port_check.Reach.REFUSED)
    live.succeeded()
    self.assertEqual(live.silent_for(5), 0)
    self.assertFalse(live.failed(5, 5.1, reach=port_check.Reach.REFUSED))
    self.assertEqual(live.silent_for(8), 3)


if __name__ == '__main__':
  absltest.main()
