"""Tests of the mapping between errors and status codes."""

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.common import errors


class _RpcError(grpc.RpcError):
  def __init__(
    self,
    code: grpc.StatusCode,
    details: str | None,
    metadata: tuple[tuple[str, str], ...] | None = None,
  ):
    super().__init__()
    self._code, self._details, self._metadata = code, details, metadata

  def code(self) -> grpc.StatusCode:
    return self._code

  def details(self) -> str | None:
    return self._details

  def trailing_metadata(self) -> tuple[tuple[str, str], ...] | None:
    return self._metadata


class ErrorsTest(parameterized.TestCase):
  def test_every_code_but_unknown_and_range_ones_has_a_class(self):
    named = {cls.code for cls in errors.SaxError.__subclasses__()}
    self.assertEqual(
      set(grpc.StatusCode) - named,
      {
        grpc.StatusCode.OK,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.OUT_OF_RANGE,
      },
    )

  def test_from_rpc_error_keeps_code_and_text(self):
    got = errors.from_rpc_error(_RpcError(grpc.StatusCode.NOT_FOUND, 'gone'))
    self.assertIsInstance(got, errors.NotFound)
    self.assertEqual(got.message, 'gone')

  @parameterized.parameters(
    ('x: rpc error: code = NotFound desc = NotFound', errors.NotFound),
    ('x: rpc error: code = Canceled desc = Canceled', errors.Cancelled),
    ('context deadline exceeded', errors.DeadlineExceeded),
    ('something else', errors.SaxError),
    (None, errors.SaxError),
  )
  def test_unknown_is_classified_by_its_text(self, details, expected):
    got = errors.from_rpc_error(_RpcError(grpc.StatusCode.UNKNOWN, details))
    self.assertIs(type(got), expected)

  @parameterized.parameters((0.25, 0.25), (0.0001, 0.001), (None, None))
  def test_retry_after_round_trip(self, sent, expected):
    full = errors.ResourceExhausted('full', retry_after=sent)
    got = errors.from_rpc_error(
      _RpcError(full.code, full.message, full.trailing_metadata())
    )
    self.assertEqual(got.retry_after, expected)

  @parameterized.parameters('-1', 'soon', '', '1.5')
  def test_retry_after_of_another_form_is_none(self, value):
    metadata = (('other', '5'), ('grpc-retry-pushback-ms', value))
    got = errors.from_rpc_error(
      _RpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, 'full', metadata)
    )
    self.assertIsNone(got.retry_after)

  def test_any_exception_becomes_a_response(self):
    own = errors.NotFound('gone')
    self.assertIs(errors.from_exception(own, 'Loading error'), own)
    for error, kind in (
      (ValueError('bad'), errors.InvalidArgument),
      (MemoryError('bad'), errors.Internal),
    ):
      wrapped = errors.from_exception(error, 'Loading error')
      self.assertIsInstance(wrapped, kind)
      name = type(error).__name__
      self.assertEqual(wrapped.message, f'Loading error: {name}: bad')

  def test_wire_text_round_trip(self):
    for cls in errors.SaxError.__subclasses__():
      text = cls('why').wire_text()
      got = errors.from_rpc_error(_RpcError(grpc.StatusCode.UNKNOWN, text))
      self.assertIs(type(got), cls)
      self.assertEqual(got.message, 'why')

  def test_wire_text_matches_upstream(self):
    self.assertEqual(
      errors.AlreadyExists('model {test m} already exists').wire_text(),
      'model {test m} already exists: rpc error: code = AlreadyExists desc = '
      'AlreadyExists',
    )


if __name__ == '__main__':
  absltest.main()
