from absl.testing import absltest

from harness.results import nodes

_DETECTED = {'number_of_nodes': '1', 'sw_notes': '', 'cooling': 'air'}
_NONE = {'params': 'P', 'overrides': {}}
_LOCAL = {'groups': [['vm', 'vm']]}
_TWO = {'groups': [['a', 'b'], ['c', 'd']]}


class NodesTest(absltest.TestCase):
  def test_without_groups_nothing_is_said(self):
    for served in ({}, _NONE, {'groups': []}):
      self.assertEqual(nodes.text(served), '')
      self.assertEqual(nodes.described(_DETECTED, (), served), _DETECTED)

  def test_processes_of_one_machine_are_one_node(self):
    told = (
      'The model was computed by a group of 2 hosts on one machine (vm, vm).'
    )
    self.assertEqual(nodes.text(_LOCAL), told)
    self.assertEqual(
      nodes.described(_DETECTED, (), _LOCAL), _DETECTED | {'sw_notes': told}
    )

  def test_machines_of_all_groups_are_counted(self):
    told = (
      'The model was computed by a group of 2 hosts (a, b), and by a group of'
      ' 2 hosts (c, d).'
    )
    self.assertEqual(nodes.text(_TWO), told)
    found = nodes.described(_DETECTED | {'sw_notes': 'Tuned'}, (), _TWO)
    self.assertEqual(found['number_of_nodes'], '4')
    self.assertEqual(found['sw_notes'], f'Tuned. {told}')

  def test_what_the_user_says_stays(self):
    own = _DETECTED | {'number_of_nodes': '9', 'sw_notes': 'Mine'}
    found = nodes.described(own, ('number_of_nodes', 'sw_notes'), _TWO)
    self.assertEqual(found, own)


if __name__ == '__main__':
  absltest.main()
