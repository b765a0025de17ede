"""Compares the files in deploy/ with the programs that they start."""

import os
import re
import shlex
import subprocess

from absl.testing import absltest
import yaml

from serve import programs

_HERE = os.path.dirname(__file__)
_GATEWAY = 'saxml_ext/http/gateway'
_PROGRAMS = {
  os.path.basename(program): program
  for program in (
    programs.ADMIN_CONFIG,
    programs.ADMIN_SERVER,
    programs.MODEL_SERVER,
    _GATEWAY,
  )
}
_DIRECTORY = '/opt/sax'
# The entry points of the images end by running these programs.
_IMAGES = {
  'sax-admin-server': 'admin_server',
  'sax-gateway': 'gateway',
  'sax-model-server': 'server',
}
# These manifests start model servers.
_SERVERS = ('server', 'tpu_group', 'gpu_group')


def _read(name: str) -> str:
  with open(os.path.join(_HERE, name), encoding='utf-8') as f:
    return f.read()


def _manifests(name: str) -> list[dict]:
  return list(yaml.safe_load_all(_read(f'kubernetes/{name}.yaml')))


def _pod(name: str) -> dict:
  spec = _manifests(name)[0]['spec']
  group = spec.get('leaderWorkerTemplate')
  return (group['workerTemplate'] if group else spec['template'])['spec']


def _units() -> dict[str, list[str]]:
  """Returns the command line of each unit."""
  units = {}
  for name in ('sax-admin', 'sax-gateway', 'sax-server', 'sax-group@'):
    unit = _read(f'systemd/{name}.service')
    units[name] = shlex.split(re.search(r'^ExecStart=(.*)', unit, re.M)[1])
  return units


def _containers() -> dict[str, list[str]]:
  """Returns the command line of each container."""
  return {
    f'{name}/{container["name"]}': [_program(container), *container['args']]
    for name in ('admin', 'gateway', *_SERVERS)
    for container in _pod(name)['containers']
  }


def _program(container: dict) -> str:
  """Returns the program of a container, as a path in the form of the units."""
  image = container['image']
  if command := container.get('command'):
    # The shell prepares a file before the image's own entry point.
    shell, option, script, program = command
    assert (shell, option) == ('/bin/sh', '-c'), command
    assert script.endswith(' && exec "$0" "$@"'), command
    assert program == image, command
  return f'{_DIRECTORY}/{_IMAGES[image]}/{_IMAGES[image]}'


def _flags(program: str) -> set[str]:
  command = programs.command(program, {})
  result = subprocess.run(
    [*command.argv, '--helpfull'],
    env=command.env,
    capture_output=True,
    text=True,
    timeout=100,
  ).stdout
  return set(re.findall(r'^ +--(?:\[no\])?(\w+):', result, re.M))


class DeployTest(absltest.TestCase):
  def test_programs_know_their_flags(self):
    known = {name: _flags(program) for name, program in _PROGRAMS.items()}
    lines = {**_units(), **_containers()}
    self.assertLen(lines, 9)
    for where, (path, *arguments) in lines.items():
      with self.subTest(where):
        name = os.path.basename(path)
        self.assertEqual(path, f'{_DIRECTORY}/{name}/{name}')
        self.assertNotEmpty(arguments)
        for argument in arguments:
          flag, equals, value = argument.partition('=')
          self.assertTrue(equals and value, argument)
          self.assertIn(flag.removeprefix('--'), known[name])

  def test_all_programs_are_installed(self):
    script = _read('install.sh')
    for program in {*_PROGRAMS.values()}:
      self.assertIn(f'\n  {program}\n', script)

  def test_variables_are_set(self):
    (kustomization,) = _manifests('kustomization')
    literals = kustomization['configMapGenerator'][0]['literals']
    given = {literal.partition('=')[0] for literal in literals}
    used = re.findall(r'\$\((\w+)\)', str(_containers()))
    # The entry points themselves use the first two.
    self.assertEqual({'SAX_FS_ROOT', 'SAX_ROOT', *used}, given)
    files = _read('systemd/cell.env') + _read('systemd/group.env')
    given = set(re.findall(r'^(\w+)=', files, re.M))
    used = re.findall(r'\$\{(\w+)\}', str(_units()))
    self.assertEqual({*used, 'SAX_ROOT'}, given)

  def test_server_drains_before_it_is_killed(self):
    limits = [
      (
        _units()[name],
        re.search(
          r'^TimeoutStopSec=(\d+)', _read(f'systemd/{name}.service'), re.M
        )[1],
      )
      for name in ('sax-gateway', 'sax-server', 'sax-group@')
    ] + [
      (
        _containers()[f'{name}/{_pod(name)["containers"][0]["name"]}'],
        _pod(name)['terminationGracePeriodSeconds'],
      )
      for name in ('gateway', *_SERVERS)
    ]
    for line, limit in limits:
      (drain,) = re.findall(r'--drain_secs=(\d+)', ' '.join(line))
      self.assertLess(int(drain), int(limit))

  def test_probes_use_the_served_port(self):
    for name in ('admin', *_SERVERS):
      probed = 'tcpSocket' if name == 'admin' else 'grpc'
      (container,) = _pod(name)['containers']
      (served,) = re.findall(r'--port=(\d+)', ' '.join(container['args']))
      port = container['ports'][0]
      self.assertEqual(port['containerPort'], int(served))
      probed_port = container['livenessProbe'][probed]['port']
      self.assertIn(probed_port, (port['name'], port['containerPort']))

  def test_autoscalers_scale_existing_deployments(self):
    manifests = {
      (manifest['kind'], manifest['metadata']['name']): manifest
      for name in ('admin', 'gateway', 'server')
      for manifest in _manifests(name)
    }
    for name in ('gateway', 'server'):
      (scaler,) = _manifests(f'autoscaling/{name}')
      target = scaler['spec']['scaleTargetRef']
      scaled = manifests[target['kind'], target['name']]
      self.assertGreaterEqual(
        scaler['spec']['minReplicas'], scaled['spec']['replicas']
      )

  def test_autoscalers_use_exported_metrics(self):
    (scaler,) = _manifests('autoscaling/server')
    (metric,) = scaler['spec']['metrics']
    (adapter,) = _manifests('autoscaling/adapter')
    (rule,) = adapter['rules']['custom']
    name = metric['pods']['metric']['name']
    self.assertStartsWith(rule['seriesQuery'], f'{name}{{')
    (monitor,) = _manifests('autoscaling/pod_monitor')
    (endpoint,) = monitor['spec']['podMetricsEndpoints']
    (expression,) = monitor['spec']['selector']['matchExpressions']
    for pod in ('gateway', 'server'):
      labels = _manifests(pod)[0]['spec']['template']['metadata']['labels']
      self.assertIn(labels[expression['key']], expression['values'])
      ports = [port['name'] for port in _pod(pod)['containers'][0]['ports']]
      self.assertIn(endpoint['port'], ports)

  def test_containers_gain_no_privileges_and_change_no_file(self):
    for name in ('admin', 'gateway', *_SERVERS):
      pod = _pod(name)
      seccomp = pod['securityContext']['seccompProfile']
      self.assertEqual(seccomp, {'type': 'RuntimeDefault'}, name)
      for container in pod['containers']:
        context = container['securityContext']
        self.assertFalse(context['allowPrivilegeEscalation'], name)
        self.assertTrue(context['readOnlyRootFilesystem'], name)

  def test_admin_server_has_standbys(self):
    self.assertGreater(_manifests('admin')[0]['spec']['replicas'], 1)


if __name__ == '__main__':
  absltest.main()
