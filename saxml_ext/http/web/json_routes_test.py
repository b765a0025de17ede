"""Tests the time limits of requests."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.http.protocol import problems
from saxml_ext.http.web import json_routes


class DeadlinesTest(parameterized.TestCase):
  @parameterized.parameters(
    ({}, False, 60),
    ({'x-request-timeout': '2.5'}, True, 2.5),
    ({'x-request-timeout': '1e9'}, True, 60),
    ({'x-envoy-expected-rq-timeout-ms': '1500'}, True, 1.5),
    ({'x-stainless-read-timeout': '3'}, False, 3),
    # For a stream, this header limits only the time between two events.
    ({'x-stainless-read-timeout': '3'}, True, 60),
    ({'x-stainless-read-timeout': '3', 'x-request-timeout': '1'}, False, 1),
  )
  def test_shortest_limit_applies(self, headers, stream, expected):
    self.assertEqual(json_routes.request_seconds(headers, stream, 60), expected)

  @parameterized.parameters('0', '-1', 'nan', '', '1s')
  def test_invalid_time_is_refused(self, value):
    with self.assertRaisesRegex(problems.BadRequest, 'x-request-timeout'):
      json_routes.request_seconds({'x-request-timeout': value}, False, 60)


if __name__ == '__main__':
  absltest.main()
