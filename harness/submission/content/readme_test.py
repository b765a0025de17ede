from absl.testing import absltest

from harness.results import entry as entry_lib
from harness.submission.content import readme


def _entry(**values) -> entry_lib.Entry:
  known = {
    'benchmark': 'gptj',
    'model': 'gptj-99',
    'scenario': 'Offline',
    'round': 'v4.0',
    'system': 'cell',
    'parameters': {'modes': ['accuracy'], 'system': {'params': 'A|B'}},
    'command': ('./bazelw', 'run', '//harness:offline', '--', '--mode=a b'),
    'began': '2026-11-22T03:00:00+00:00',
    'ended': '2026-11-22T03:10:00+00:00',
    'versions': {'jax': '0.8.1', 'commit': 'b2564d4'},
    'hashes': {'dataset': 'f00d'},
    'accuracy': entry_lib.Accuracy(
      {'rouge1': 42.9865, 'gen_len': 4016878, 'rougeLsum': None}, ''
    ),
    'performance': entry_lib.Performance(
      True, 'samples_per_second', 9.81226, 612.345, 6009
    ),
  }
  return entry_lib.Entry(**(known | values))


class ReadmeTest(absltest.TestCase):
  def test_page_of_a_result(self):
    page = readme.text(
      _entry(), 'four chips', 'my-model', {'weight_data_types': 'int8'}
    )
    self.assertNotIn('rougeLsum', page)
    self.assertStartsWith(page, '# my-model, Offline, on four chips\n')
    for line in (
      "./bazelw run //harness:offline -- '--mode=a b'",
      '| samples per second | 9.81226 |',
      '| seconds | 612.3 |',
      '| rouge1 | 42.9865 |',
      '| gen_len | 4016878 |',
      '| weight data types | int8 |',
      '| system: params | A\\|B |',
      "| modes | ['accuracy'] |",
      '| jax | 0.8.1 |',
      '| dataset | f00d |',
    ):
      self.assertIn(f'\n{line}\n', page)

  def test_latency_is_that_of_the_scenario(self):
    run = entry_lib.Performance(True, 'latency_ns', 1558223587, 59.7, 68)
    entry = _entry(scenario='SingleStream', performance=run)
    self.assertIn(
      '| latency in ns, 90th percentile | 1558223587 |',
      readme.text(entry, 'box', 'gptj-99', {}),
    )

  def test_figures_of_tokens(self):
    run = entry_lib.Performance(
      *(True, 'queries_per_second', 2.5, 600.5, 1500),
      tokens_per_second=160.25,
      first_token_ns={'99.00': 412_000_000},
      per_token_ns={'99.00': 21_000_000},
    )
    page = readme.text(
      _entry(scenario='Interactive', performance=run), 'box', 'llama3.1-8b', {}
    )
    for line in (
      '| tokens per second | 160.25 |',
      '| time to the first token in ns, 99th percentile | 412000000 |',
      '| time per output token in ns, 99th percentile | 21000000 |',
    ):
      self.assertIn(f'\n{line}\n', page)

  def test_command_is_the_repositorys(self):
    entry = _entry(command=('/x/harness/main.py', '--round=v4.0'))
    self.assertIn(
      './bazelw run //harness:main -- --round=v4.0',
      readme.text(entry, 'box', 'gptj-99', {}),
    )

  def test_unknown_values_have_no_section(self):
    page = readme.text(_entry(versions={}, hashes={}), 'box', 'gptj-99', {})
    self.assertNotIn('## Versions', page)
    self.assertNotIn('SHA-256', page)

  def test_page_in_place_of_code(self):
    page = readme.code('gptj-99', [_entry(), _entry(command=('b',))])
    self.assertIn('at commit `b2564d4`.', page)
    self.assertIn(
      "```\n./bazelw run //harness:offline -- '--mode=a b'\nb\n```", page
    )
    self.assertIn(
      'made these results.', readme.code('m', [_entry(versions={})])
    )

  def test_calibration_of_what_was_not_quantized(self):
    page = readme.calibration({'bert-99': 'fp32'})
    self.assertIn('No model was quantized', page)
    self.assertIn('* bert-99: fp32\n', page)


if __name__ == '__main__':
  absltest.main()
