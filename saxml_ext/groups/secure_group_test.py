"""Tests of a group whose log is encrypted and restricted to its own hosts."""

from absl.testing import absltest

from saxml_ext.common.security import access
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs
from saxml_ext.groups import follower as follower_lib
from saxml_ext.groups import group_engine
from saxml_ext.groups.testing import local_group
from saxml_ext.groups.testing import noting_runner
from saxml_ext.protobuf import modelet_pb2

_TIMEOUT = 300
_REQUEST = modelet_pb2.LoadRequest(model_path='a.B', checkpoint_path='/ckpt')


def _prepare(request: modelet_pb2.LoadRequest) -> noting_runner.NotingPrepared:
  del request
  return noting_runner.NotingPrepared({}, False)


class SecureGroupTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.certs = cell_certs.CellCerts(self.create_tempdir().full_path)
    tls.configure(self.certs.server())
    self.addCleanup(tls.configure, None)
    lists = self.create_tempfile(
      content='{"acl/servers": ["spiffe://test/server"]}'
    )
    access.use(access.Access(lists.full_path))
    self.addCleanup(access.use, access.Access())

  def test_hosts_of_the_cell_make_a_group(self):
    group = local_group.LocalGroup([_prepare, _prepare])
    self.addCleanup(group.close)
    self.assertEqual(group.leader.load(_REQUEST).runner.num_slots, 4)
    group.leader.finish()
    for thread in group.threads:
      thread.join(_TIMEOUT)
      self.assertFalse(thread.is_alive())
    self.assertTrue(group.ends.empty())

  def test_other_identities_are_refused(self):
    group = local_group.LocalGroup([_prepare, _prepare])
    self.addCleanup(group.close)
    tls.configure(self.certs.make('alice'))
    ends: list[follower_lib.Ended] = []
    stranger = follower_lib.Follower(
      group.announcement,
      group_engine.Host('x', 1),
      local_group.LIMITS,
      _prepare,
      on_joined=lambda: None,  # May precede the refusal.
      on_end=ends.append,
    )
    self.assertFalse(stranger.run())
    self.assertLen(ends, 1)
    self.assertIn("requires membership in 'acl/servers'", ends[0].reason)
    self.assertIn('alice is not on that list', ends[0].reason)


if __name__ == '__main__':
  absltest.main()
