from absl.testing import absltest

from serve import server_group


class ServerGroupTest(absltest.TestCase):
  def test_one_process_is_no_group(self):
    self.assertEqual(server_group.flags(1), [{}])
    self.assertEqual(server_group.environment(1, {}), {})
    self.assertEqual(server_group.overrides(1, {'A': '1'}, {}), {'A': '1'})

  def test_processes_know_one_coordinator_and_their_ids(self):
    told = server_group.flags(3)
    self.assertEqual([each['process_id'] for each in told], [0, 1, 2])
    self.assertEqual({each['num_processes'] for each in told}, {3})
    [address] = {each['coordinator_address'] for each in told}
    self.assertRegex(address, r'^127\.0\.0\.1:\d+$')

  def test_they_share_no_accelerator(self):
    self.assertEqual(server_group.environment(2, {}), {'JAX_PLATFORMS': 'cpu'})
    self.assertEqual(server_group.environment(2, {'JAX_PLATFORMS': 'cuda'}), {})

  def test_requests_are_split_among_all_devices(self):
    self.assertEqual(
      server_group.overrides(2, {'A': '1'}, {}),
      {'A': '1', 'ICI_MESH_SHAPE': '[1, 2, 1]'},
    )
    four = server_group.overrides(2, {}, {'JAX_NUM_CPU_DEVICES': '2'})
    self.assertEqual(four, {'ICI_MESH_SHAPE': '[1, 4, 1]'})

  def test_the_users_own_mesh_stays(self):
    own = {'ICI_MESH_SHAPE': '[1,2,1]'}
    self.assertEqual(server_group.overrides(2, own, {}), own)

  def test_a_number_of_devices_that_is_none(self):
    for text in ('two', '0', '-1'):
      with self.assertRaisesRegex(ValueError, f'JAX_NUM_CPU_DEVICES={text}: '):
        server_group.overrides(2, {}, {'JAX_NUM_CPU_DEVICES': text})


if __name__ == '__main__':
  absltest.main()
