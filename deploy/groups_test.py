"""Checks the files in deploy/ that start one model server on several hosts.

The fields of a LeaderWorkerSet come from its custom resource definition,
leaderworkerset.x-k8s.io/v1, release 0.6 or later.
"""

import os
import re

from absl.testing import absltest
import yaml

_HERE = os.path.dirname(__file__)
_GROUPS = ('tpu_group', 'gpu_group')
# jax/_src/clusters/cloud_tpu_cluster.py has this default port.
_COORDINATOR_PORT = 8482

_RESTART_POLICIES = (
  'RecreateGroupOnPodRestart',
  'RecreateGroupAfterStart',
  'None',
)
# Each field has a type, its allowed values, or fields of its own.
_FIELDS = {
  'replicas': int,
  'startupPolicy': ('LeaderCreated', 'LeaderReady'),
  'networkConfig': {'subdomainPolicy': ('Shared', 'UniquePerReplica')},
  'rolloutStrategy': {
    'type': ('RollingUpdate',),
    'rollingUpdateConfiguration': {
      'partition': int,
      'maxUnavailable': int,
      'maxSurge': int,
    },
  },
  'leaderWorkerTemplate': {
    'size': int,
    'restartPolicy': _RESTART_POLICIES,
    'workerTemplate': {
      'metadata': {'labels': dict},
      'spec': {
        'serviceAccountName': str,
        'terminationGracePeriodSeconds': int,
        'nodeSelector': dict,
        'securityContext': {
          'runAsNonRoot': bool,
          'runAsUser': int,
          'fsGroup': int,
          'seccompProfile': dict,
        },
        'containers': list,
        'volumes': list,
      },
    },
  },
}


def _read(name: str) -> str:
  with open(os.path.join(_HERE, name), encoding='utf-8') as f:
    return f.read()


def _manifests(name: str) -> tuple[dict, dict]:
  """Returns the group and its network policy."""
  group, policy = yaml.safe_load_all(_read(f'kubernetes/{name}.yaml'))
  return group, policy


def _wrong(value, expected, path: str) -> list[str]:
  """Returns a message for each field that is unknown or has the wrong type."""
  if isinstance(expected, tuple):
    return (
      [] if value in expected else [f'{path}: {value} is none of {expected}']
    )
  if isinstance(expected, type):
    is_it = type(value) is expected
    return [] if is_it else [f'{path}: {value!r} is no {expected.__name__}']
  unknown = [f'{path}.{field}' for field in value if field not in expected]
  return unknown + [
    text
    for field, content in value.items()
    if field in expected
    for text in _wrong(content, expected[field], f'{path}.{field}')
  ]


class GroupsTest(absltest.TestCase):
  def test_all_fields_exist(self):
    for name in _GROUPS:
      group, policy = _manifests(name)
      self.assertEqual(group['apiVersion'], 'leaderworkerset.x-k8s.io/v1')
      self.assertEqual(group['kind'], 'LeaderWorkerSet')
      # A Service gets this name, so it has only letters, digits and hyphens.
      self.assertRegex(group['metadata']['name'], r'^[a-z][a-z0-9-]{0,62}$')
      self.assertEqual(_wrong(group['spec'], _FIELDS, name), [])
      self.assertEqual(policy['apiVersion'], 'networking.k8s.io/v1')

  def test_hosts_of_a_group_start_and_end_together(self):
    for name in _GROUPS:
      spec = _manifests(name)[0]['spec']
      # The leader waits for its followers, so they must not wait for it.
      self.assertEqual(spec['startupPolicy'], 'LeaderCreated')
      template = spec['leaderWorkerTemplate']
      self.assertEqual(template['restartPolicy'], 'RecreateGroupOnPodRestart')
      self.assertNotIn('leaderTemplate', template)
      (container,) = template['workerTemplate']['spec']['containers']
      self.assertIn('--group=lws', container['args'])
      probe = container['startupProbe']
      self.assertGreaterEqual(
        probe['periodSeconds'] * probe['failureThreshold'], 600
      )

  def test_ports(self):
    for name in _GROUPS:
      group, policy = _manifests(name)
      template = group['spec']['leaderWorkerTemplate']['workerTemplate']
      (container,) = template['spec']['containers']
      line = ' '.join(container['args'])
      ports = {p['name']: p['containerPort'] for p in container['ports']}
      self.assertEqual(
        ports,
        {
          'grpc': int(re.search(r'--port=(\d+)', line)[1]),
          'group': int(re.search(r'--group_port=(\d+)', line)[1]),
          'coordinator': _COORDINATOR_PORT,
        },
      )
      # Clients may reach the server's port. Pods of the group may reach all
      # ports.
      spec, labels = policy['spec'], template['metadata']['labels']
      self.assertEqual(spec['podSelector']['matchLabels'], labels)
      inner, outer = spec['ingress']
      self.assertEqual(
        inner, {'from': [{'podSelector': {'matchLabels': labels}}]}
      )
      self.assertEqual(outer, {'ports': [{'port': ports['grpc']}]})

  def test_hosts_make_up_the_slice(self):
    template = _manifests('tpu_group')[0]['spec']['leaderWorkerTemplate']
    spec = template['workerTemplate']['spec']
    rows, columns = spec['nodeSelector'][
      'cloud.google.com/gke-tpu-topology'
    ].split('x')
    (container,) = spec['containers']
    chips = int(container['resources']['limits']['google.com/tpu'])
    self.assertEqual(template['size'] * chips, int(rows) * int(columns))

  def test_kustomize_finds_the_config_map(self):
    (kustomization,) = yaml.safe_load_all(
      _read('kubernetes/kustomization.yaml')
    )
    (references,) = kustomization['configurations']
    (reference,) = yaml.safe_load(_read(f'kubernetes/{references}'))[
      'nameReference'
    ]
    (field,) = reference['fieldSpecs']
    (name,) = (g['name'] for g in kustomization['configMapGenerator'])
    for manifest in _GROUPS:
      value, _ = _manifests(manifest)
      self.assertEqual(value['kind'], field['kind'])
      for key in field['path'].split('/'):
        value = value[0] if isinstance(value, list) else value
        value = value[key]
      self.assertEqual(value, name)

  def test_unit_is_restarted_with_its_number(self):
    unit = _read('systemd/sax-group@.service')
    self.assertIn('\nRestart=always\n', unit)
    self.assertIn(' --process_id=%i ', unit)
    self.assertIn('\nConflicts=sax-server.service\n', unit)
    address = re.search(
      r'^COORDINATOR_ADDRESS=(\S+):(\d+)$', _read('systemd/group.env'), re.M
    )
    self.assertEqual(int(address[2]), _COORDINATOR_PORT)


if __name__ == '__main__':
  absltest.main()
