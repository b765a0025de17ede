"""Tests of the JSON log lines that a program writes."""

import datetime
import json
import subprocess
import sys

from absl.testing import absltest

_PROGRAM = """
import sys
sys.path[:] = sys.argv[1].split('|')
from absl import logging; from saxml_ext.common import program
from saxml_ext.common.telemetry import telemetry_flags, tracing
def main(argv):
  telemetry_flags.start('test')
  logging.warning('a "quoted" %s\\nline', 'text', extra={'fields': {'n': 1}})
  tracing.use_id('r1')
  try:
    1 / 0
  except ZeroDivisionError:
    logging.exception('failed')
program.run(main, argv=sys.argv[1:])
"""


class LogFormatTest(absltest.TestCase):
  def run_program(self, *flags: str) -> list[str]:
    done = subprocess.run(
      [sys.executable, '-c', _PROGRAM, '|'.join(sys.path), *flags],
      capture_output=True,
      text=True,
      check=True,
    )
    return done.stderr.splitlines()

  def test_json_lines_have_the_fields(self):
    first, second = map(json.loads, self.run_program('--log_format=json'))
    self.assertEqual(first['message'], 'a "quoted" text\nline')
    self.assertEqual(first['severity'], 'WARNING')
    self.assertEqual(first['n'], 1)
    self.assertEqual(first['source'], '<string>:8')
    self.assertNotIn('request_id', first)
    when = datetime.datetime.fromisoformat(first['time'])
    self.assertEqual(when.utcoffset(), datetime.timedelta(0))
    self.assertEqual(second['request_id'], 'r1')
    self.assertIn('ZeroDivisionError', second['exception'])

  def test_text_format_is_the_default(self):
    first, *_ = self.run_program()
    self.assertRegex(first, r'^W\d{4} .*\] a "quoted" text$')


if __name__ == '__main__':
  absltest.main()
