"""Tests the reports of publish and wait for a model that is not ready."""

import time
from unittest import mock

from absl.testing import absltest

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import go_flags
from saxml_ext.client.cli import listing
from saxml_ext.client.testing import fake_cell
from saxml_ext.client.testing import saxutil_fixture
from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2


class ReadinessTest(saxutil_fixture.SaxutilTest):
  def test_wait(self):
    self.check(1, '--sax_timeout=100ms', 'wait', fake_cell.MODEL)
    self.assertRegex(
      self.stderr,
      f'{fake_cell.MODEL} does not have 1 loaded replicas after 0.* s; MISSING',
    )
    self.assertIn('Hint: the timeout of the command was 0.1 s', self.stderr)
    self.cell.add_server()
    self.check(0, 'wait', fake_cell.MODEL, '1')
    self.assertEmpty(self.stderr)
    self.check(2, 'wait', fake_cell.MODEL, 'one')

  @mock.patch.object(listing, '_REPORT_SECONDS', 0.1)
  def test_wait_goes_on_while_a_replica_is_loading(self):
    published = self.cell.admin.models[fake_cell.MODEL]
    published.modelet_addresses.append('10.0.0.1:1')
    published.replicas.add(address='10.0.0.1:1', status=common_pb2.LOADING)
    self.check(1, '--sax_timeout=500ms', 'wait', fake_cell.MODEL)
    note, error, hint = self.stderr.splitlines()
    self.assertEqual(
      note,
      'Note: 10.0.0.1:1: LOADING. Waiting up to 0.5 s (--sax_timeout)',
    )
    self.assertIn('loaded replicas after 0.', error)
    self.assertIn('s; 10.0.0.1:1: LOADING', error)
    self.assertIn('Set a longer one', hint)

  @mock.patch.object(listing, '_REPORT_SECONDS', 0.1)
  @mock.patch.object(listing, '_LOADING_SECONDS', 3.0)
  def test_loading_outlasts_the_default_timeout(self):
    published = self.cell.admin.models[fake_cell.MODEL]
    published.modelet_addresses.append('10.0.0.1:1')
    published.replicas.add(address='10.0.0.1:1', status=common_pb2.LOADING)
    sax.SetRoot(self.cell.root)
    start = time.monotonic()
    with self.assertRaisesRegex(errors.DeadlineExceeded, 'LOADING'):
      command.get('wait').run(
        command.Context(timeout=1.0, is_given=False),
        go_flags.parse((), [fake_cell.MODEL]),
      )
    self.assertGreater(time.monotonic() - start, 2.5)

  def test_missing_servers_have_reasons(self):
    reason = 'no server can serve p.A; p.B is known'
    self.cell.admin.replicas_of_new.append(admin_pb2.Replica(reason=reason))
    self.check(0, 'publish', '/sax/test/n', 'p.A', '/c', '1')
    note = f'Note: /sax/test/n: {reason}\n'
    self.assertEqual(self.stderr, note)
    self.check(1, '--sax_timeout=1s', 'wait', '/sax/test/n')
    self.assertStartsWith(self.stderr, note)
    self.assertIn(f'; MISSING ({reason})', self.stderr)
    self.assertNotIn('Hint', self.stderr)  # More time would not help.

  def test_likely_mistakes_are_printed(self):
    path = 'saxml_ext.params.gptj.TinyFP32'
    sound = 'BATCH_SIZE=8', 'QUANTIZATION=int8', 'ram=1000'
    self.check(0, 'publish', '/sax/test/a', path, '/c', '1', *sound)
    self.assertEmpty(self.stderr)
    for wrong, message in (
      ('BATCH_SIZ=8', 'has no such attribute. Did you mean BATCH_SIZE?'),
      ('BATCH_SIZE="x"', 'is of type str'),
      ('MIXED_SEARCH=True', 'has no effect: the value is not JSON'),
    ):
      self.check(1, 'publish', '/sax/test/b', path, '/c', '1', wrong)
      self.assertStartsWith(self.stderr, 'Error: override ')
      self.assertIn(message, self.stderr)
    self.assertNotIn('| b ', self.check(0, 'ls', '/sax/test'))
    self.check(0, 'publish', '/sax/test/d', 'other.P', '/c', '1', 'BATCH_SIZ=8')
    self.assertStartsWith(self.stderr, 'Warning: override BATCH_SIZ has no')
    self.check(0, 'publish', '/sax/test/c', path + '3', '/c', '1')
    self.assertIn(f'Did you mean {path} or', self.stderr)
    self.assertIn('| c ', self.check(0, 'ls', '/sax/test'))


if __name__ == '__main__':
  absltest.main()
