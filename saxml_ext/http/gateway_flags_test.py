"""Tests the flags that the gateway and `serve` share."""

from absl import flags
from absl.testing import absltest
from absl.testing import flagsaver

from saxml_ext.http import gateway_flags


class GatewayFlagsTest(absltest.TestCase):
  def test_values_are_only_those_that_differ_from_the_defaults(self):
    self.assertEqual(gateway_flags.values(), {})
    changed = {
      'allowed_hosts': ['A.example', 'b.example'],
      'allowed_origins': ['*'],
      'max_body_bytes': 100,
      'queue_secs': 1.5,
      'strict_requests': True,
    }
    with flagsaver.flagsaver(**changed):
      self.assertEqual(
        gateway_flags.values(),
        changed
        | {'allowed_hosts': 'A.example,b.example', 'allowed_origins': '*'},
      )
      self.assertEqual(
        gateway_flags.allowed_hosts(), ['a.example', 'b.example']
      )

  def test_values_can_be_parsed_again(self):
    changed = {'allowed_hosts': ['a', 'b'], 'strict_requests': True}
    with flagsaver.flagsaver(**changed):
      line = [f'--{k}={v}' for k, v in gateway_flags.values().items()]
    with flagsaver.flagsaver():
      flags.FLAGS(['gateway', *line])
      self.assertEqual(gateway_flags.allowed_hosts(), ['a', 'b'])
      self.assertTrue(gateway_flags.limits().strict_requests)


if __name__ == '__main__':
  absltest.main()
