"""Tests that a process finds its group."""

from http import server as http_server
import threading

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.groups import formation

_LWS = {
  'LWS_LEADER_ADDRESS': 'sax-0.sax.ns',
  'LWS_GROUP_SIZE': '4',
  'LWS_WORKER_INDEX': '2',
}
_GKE = {'TPU_WORKER_HOSTNAMES': 't-0.t,t-1.t', 'TPU_WORKER_ID': '1'}
_FORMATION = formation.Formation


def _find(environment=None, on_tpu=False, **given):
  return formation.find(
    formation.Given(**given), on_tpu=on_tpu, environment=environment or {}
  )


def _metadata(test: absltest.TestCase, **attributes: str) -> dict[str, str]:
  """Serves the metadata of a machine; returns the variable with its address."""

  class Handler(http_server.BaseHTTPRequestHandler):
    def do_GET(self):
      prefix = '/computeMetadata/v1/instance/attributes/'
      name = self.path.removeprefix(prefix).replace('-', '_')
      known = self.headers['Metadata-Flavor'] == 'Google'
      self.send_response(200 if known and name in attributes else 404)
      self.end_headers()
      self.wfile.write(attributes.get(name, 'no such thing').encode())

    def log_message(self, *unused):
      pass

  server = http_server.HTTPServer(('127.0.0.1', 0), Handler)
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  test.addCleanup(server.server_close)
  test.addCleanup(server.shutdown)
  return {'GCE_METADATA_HOST': f'127.0.0.1:{server.server_port}'}


class FormationTest(parameterized.TestCase):
  def test_alone(self):
    self.assertIsNone(_find())
    self.assertIsNone(_find(_LWS, source='none'))
    self.assertIsNone(
      _find(num_processes=1, coordinator_address='a', process_id=0)
    )
    self.assertIsNone(
      _find({**_LWS, 'LWS_GROUP_SIZE': '1', 'LWS_WORKER_INDEX': '0'})
    )
    # Stock Sax's guide starts a single-host server with this flag.
    self.assertIsNone(_find(host_ordinal=0))
    self.assertIsNone(
      _find({'TPU_WORKER_HOSTNAMES': 'localhost', 'TPU_WORKER_ID': '0'})
    )

  def test_flags(self):
    given = {'coordinator_address': '10.0.0.1:99', 'num_processes': 3}
    self.assertEqual(
      _find(_LWS, **given, process_id=2), _FORMATION('10.0.0.1:99', 3, 2)
    )
    formation = _find(**given, host_ordinal=0, source='flags')
    self.assertTrue(formation.leads)
    self.assertEqual(formation.coordinator_host, '10.0.0.1')
    self.assertFalse(_find(**given, process_id=1, host_ordinal=1).leads)

  @parameterized.parameters(
    ('a.b', 'a.b:8482', 'a.b', None),
    ('10.0.0.1:5', '10.0.0.1:5', '10.0.0.1', '10.0.0.1'),
    ('[::1]', '[::1]:8482', '::1', '::1'),
    ('[::1]:5', '[::1]:5', '::1', '::1'),
    ('fd00::7', '[fd00::7]:8482', 'fd00::7', 'fd00::7'),
  )
  def test_addresses(self, address, whole, host, interface):
    formation = _find(
      coordinator_address=address, num_processes=2, process_id=1
    )
    self.assertEqual(formation.coordinator_address, whole)
    self.assertEqual(formation.coordinator_host, host)
    self.assertEqual(formation.interface, interface)

  def test_leader_worker_set(self):
    expected = _FORMATION('sax-0.sax.ns:8482', 4, 2)
    self.assertEqual(_find(_LWS), expected)
    self.assertEqual(_find({**_LWS, **_GKE}), expected)
    self.assertEqual(_find(_LWS, source='lws', process_id=2), expected)

  def test_tpu_slice_on_gke(self):
    self.assertEqual(_find(_GKE), _FORMATION('t-0.t:8482', 2, 1))
    self.assertEqual(
      _find({**_LWS, **_GKE}, source='tpu'), _FORMATION('t-0.t:8482', 2, 1)
    )

  @parameterized.parameters('h0,h1,h2', 'n0:0:h0,n1:1:h1,n2:2:h2')
  def test_tpu_slice_on_compute_engine(self, endpoints):
    where = _metadata(
      self, agent_worker_number='2', worker_network_endpoints=endpoints
    )
    expected = _FORMATION('h0:8482', 3, 2)
    self.assertEqual(_find(where, on_tpu=True), expected)
    self.assertEqual(_find(where, source='tpu'), expected)
    # On other machines, no metadata server is queried.
    self.assertIsNone(_find(where))

  def test_compute_engine_without_a_slice(self):
    where = _metadata(self)
    self.assertIsNone(_find(where, on_tpu=True))
    with self.assertRaisesRegex(errors.InvalidArgument, '--group=tpu, but nei'):
      _find(where, source='tpu')

  def test_metadata_that_cannot_be_read(self):
    with self.assertRaisesRegex(
      errors.FailedPrecondition,
      'agent-worker-number cannot be read from the metadata server '
      '127.0.0.1:1: .*--group=none',
    ):
      _find({'GCE_METADATA_HOST': '127.0.0.1:1'}, on_tpu=True)

  @parameterized.parameters(
    ({}, {'process_id': 1}, 'process 1 of an unknown group'),
    ({}, {'num_processes': 2}, 'needs --coordinator_address and --process_id'),
    ({}, {'source': 'flags'}, 'needs --coordinator_address and --num_proc'),
    ({}, {'source': 'lws'}, 'LWS_LEADER_ADDRESS and LWS_GROUP_SIZE and LWS_W'),
    ({'LWS_GROUP_SIZE': '2'}, {}, 'LWS_LEADER_ADDRESS and LWS_WORKER_INDEX'),
    ({**_LWS, 'LWS_GROUP_SIZE': 'x'}, {}, 'LWS_GROUP_SIZE=x is not a number'),
    ({**_LWS, 'LWS_WORKER_INDEX': '4'}, {}, 'process 4 of 4, but the numbers'),
    (_LWS, {'process_id': 1}, '1 by its flags, but process 2 by'),
    ({}, {'process_id': 1, 'host_ordinal': 2}, 'set the same number'),
    (_LWS, {'source': 'lws', 'num_processes': 2}, '--group=lws cannot be'),
    ({**_GKE, 'TPU_WORKER_ID': '2'}, {}, "TPU_WORKER_ID are 't-0.t,t-1.t'"),
    (
      {**_GKE, 'MEGASCALE_NUM_SLICES': '2'},
      {},
      'MEGASCALE_NUM_SLICES=2, but a',
    ),
    (
      {},
      {'coordinator_address': 'a:b', 'num_processes': 2, 'process_id': 0},
      "'a:b' is not the address of a coordinator. Expected: HOST",
    ),
  )
  def test_contradictions_are_refused(self, environment, given, message):
    with self.assertRaisesRegex(errors.InvalidArgument, message):
      _find(environment, **given)


if __name__ == '__main__':
  absltest.main()
