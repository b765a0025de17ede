"""Tests of the check that all processes have prepared the same model."""

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.groups import agreement
from saxml_ext.groups import group_engine
from saxml_ext.protobuf import group_pb2

_HOSTS = [group_engine.Host('abcdefgh'[i], i) for i in range(8)]


class AgreementTest(absltest.TestCase):
  def test_same_everywhere(self):
    same = {'params': 'p', 'checkpoint': 'c'}
    self.assertIsNone(agreement.problem({host: same for host in _HOSTS}))

  def test_many_hosts_are_counted(self):
    outcomes = {
      host: {'version': '2' if host.process_id == 5 else '1', 'params': 'p'}
      for host in _HOSTS
    }
    problem = agreement.problem(outcomes)
    self.assertIsInstance(problem, errors.FailedPrecondition)
    self.assertEqual(
      problem.message,
      'version differs: host a (process 0), host b (process 1) and 5 more have'
      ' 1, host f (process 5) has 2. All hosts of a group must have the same'
      ' values.',
    )

  def test_all_differences_are_reported(self):
    problem = agreement.problem(
      {_HOSTS[0]: {'x': '1', 'y': '1'}, _HOSTS[1]: {'x': '2', 'y': '2'}}
    )
    self.assertRegex(problem.message, '^x differs: .* has 2; y differs: ')

  def test_error_counts_more_than_a_difference(self):
    problem = agreement.problem(
      {
        _HOSTS[0]: {'x': '1'},
        _HOSTS[1]: errors.NotFound('no file'),
        _HOSTS[2]: {'x': '2'},
      }
    )
    self.assertIsInstance(problem, errors.NotFound)
    self.assertEqual(problem.message, 'host b (process 1): no file')

  def test_failure_travels(self):
    sent = agreement.failure_of(7, errors.InvalidArgument('bad'))
    got = group_pb2.Answer.FromString(sent.SerializeToString())
    self.assertEqual(got.failure.load, 7)
    error = agreement.outcome_of(got)
    self.assertIsInstance(error, errors.InvalidArgument)
    self.assertEqual(error.message, 'bad')


if __name__ == '__main__':
  absltest.main()
