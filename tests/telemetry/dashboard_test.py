"""Tests that a live scrape has all metrics of the dashboard and the alerts."""

import json
import pathlib
import re
import tempfile
import urllib.request

from absl.testing import absltest
from prometheus_client import parser
import yaml

from saxml_ext.client import sax
from tests.telemetry import one_cell

_FOLDER = pathlib.Path(__file__).parents[2] / 'deploy' / 'grafana'
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# CPUs do not have this metric.
_ELSEWHERE = frozenset({'sax_device_memory_bytes'})
_NAME = re.compile(r'\b((?:sax|grpc|process|vllm)[a-z_]*[:_][a-z_]+)\b')


def names(query: str) -> set[str]:
  """Returns the metrics of a query, without names that are labels."""
  return set(
    _NAME.findall(re.sub(r'(?:by|without) \([^)]*\)', '', _bare(query)))
  )


def _bare(query: str) -> str:
  """Returns a query without its selectors and texts."""
  return re.sub(r'\{[^}]*\}', '', query)


def labels(query: str) -> set[tuple[str, str]]:
  """Returns the metric and label of each selector."""
  return {
    (name, label)
    for name, selector in re.findall(r'([a-z_:]+)\{([^}]*)\}', query)
    for label in re.findall(r'([a-z_]+)(?:=|!)', selector)
  }


class DashboardTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    directory = tempfile.TemporaryDirectory()
    cls.addClassCleanup(directory.cleanup)
    cell = one_cell.OneCell(directory.name)
    cls.addClassCleanup(cell.stop)
    sax.SetRoot(cell.sax_root)
    sax.Publish(one_cell.MODEL, one_cell.PATH, '/ckpt', 1)
    sax.WaitForReady(one_cell.MODEL, 1)
    sax.Model(one_cell.MODEL).LM().Generate('1,2')
    cls.labels: dict[str, set[str]] = {}
    for port in (cell.admin_port, cell.server_port):
      url = f'http://127.0.0.1:{port}/metrics'
      with _OPENER.open(url, timeout=120) as response:
        text = response.read().decode()
      for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
          cls.labels.setdefault(sample.name, set()).update(sample.labels)

  def check(self, query: str) -> None:
    metrics = names(query)
    self.assertNotEmpty(metrics, query)
    self.assertEmpty(metrics - _ELSEWHERE - set(self.labels), query)
    for name, label in labels(query):
      self.assertIn(label, self.labels[name], query)

  def test_dashboard_metrics_exist(self):
    dashboard = json.loads((_FOLDER / 'cell.json').read_text())
    queries = [
      target['expr']
      for panel in dashboard['panels']
      for target in panel.get('targets', ())
    ]
    self.assertGreater(len(queries), 20)
    for query in queries:
      self.check(query)
    positions = [
      (p['gridPos']['x'], p['gridPos']['y']) for p in dashboard['panels']
    ]
    self.assertLen(set(positions), len(positions))

  def test_alert_metrics_exist(self):
    alerts = yaml.safe_load((_FOLDER / 'alerts.yml').read_text())
    rules = [rule for group in alerts['groups'] for rule in group['rules']]
    self.assertNotEmpty(rules)
    for rule in rules:
      self.check(rule['expr'])

  def test_scrape_configs_name_the_rules(self):
    config = yaml.safe_load((_FOLDER / 'prometheus.yml').read_text())
    for name in config['rule_files']:
      self.assertTrue((_FOLDER / name).exists(), name)

  def test_wrong_metric_name_is_detected(self):
    query = 'sum by (grpc_code) (rate(sax_request_total{model="m"}[5m]))'
    self.assertEqual(names(query), {'sax_request_total'})
    with self.assertRaises(AssertionError):
      self.check(query)
    with self.assertRaises(AssertionError):
      self.check('sum(sax_requests_total{modle="m"})')


if __name__ == '__main__':
  absltest.main()
