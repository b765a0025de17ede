"""Tests errors from the view of a client of OpenAI's API."""

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.common import errors
from saxml_ext.http.protocol import problems


class ProblemsTest(parameterized.TestCase):
  @parameterized.parameters(
    ('INVALID_ARGUMENT', 400),
    ('UNAUTHENTICATED', 401),
    ('PERMISSION_DENIED', 403),
    ('NOT_FOUND', 404),
    ('RESOURCE_EXHAUSTED', 429),
    ('CANCELLED', 499),
    ('INTERNAL', 500),
    ('UNKNOWN', 500),
    ('UNIMPLEMENTED', 501),
    ('UNAVAILABLE', 503),
    ('FAILED_PRECONDITION', 503),
    ('DEADLINE_EXCEEDED', 504),
  )
  def test_statuses(self, code, status):
    error = errors.SaxError('why')
    error.code = grpc.StatusCode[code]
    problem = problems.from_error(error)
    self.assertEqual((problem.status, problem.message), (status, 'why'))
    headers = problem.headers()
    self.assertEqual('retry-after' in headers, status in (429, 503))
    should_retry = headers.get('x-should-retry')
    self.assertEqual(
      should_retry, 'false' if status in (500, 501, 504) else None
    )

  @parameterized.parameters((0.25, '1', '250'), (1.2, '2', '1200'))
  def test_retry_delay_is_a_header(self, seconds, header, milliseconds):
    error = errors.ResourceExhausted('full', seconds)
    headers = problems.from_error(error).headers()
    self.assertEqual(headers['retry-after'], header)
    self.assertEqual(headers['retry-after-ms'], milliseconds)

  def test_too_large_prompt_is_not_sent_again(self):
    error = errors.ResourceExhausted(
      'SERVER: Received message larger than max (17825812 vs. 16777216)'
    )
    problem = problems.from_error(error)
    self.assertEqual((problem.status, problem.retry_after), (413, None))
    self.assertNotIn('retry-after', problem.headers())

  def test_body(self):
    body = problems.BadRequest('no', param='n').body()
    self.assertEqual(
      body['error'],
      {
        'message': 'no',
        'type': 'invalid_request_error',
        'param': 'n',
        'code': None,
      },
    )


if __name__ == '__main__':
  absltest.main()
