"""Tests the commands for models, also against recorded output."""

import io
import os
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import go_flags
from saxml_ext.client.cli import model_commands
from saxml_ext.client.testing import fake_cell
from saxml_ext.client.testing import fake_media
from saxml_ext.client.testing import saxutil_fixture
from saxml_ext.common import errors
from saxml_ext.common.testing import golden
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import lm_pb2


def _item(text: str, prefix_len: int, *scores: float):
  return lm_pb2.GenerateStreamItem(
    text=text, prefix_len=prefix_len, scores=scores
  )


def _message(*items) -> lm_pb2.GenerateStreamResponse:
  return lm_pb2.GenerateStreamResponse(items=items)


class LMCommandsTest(saxutil_fixture.SaxutilTest):
  def setUp(self):
    super().setUp()
    self.server = self.cell.add_server()

  def replay(self, label: str) -> None:
    """Runs a recorded command line and compares its output."""
    row = saxutil_fixture.RECORDED[label]
    argv = [
      f'-proxy={self.server.address}' if arg.startswith('-proxy=') else arg
      for arg in row['argv']
    ]
    self.assertEqual(self.run_saxutil(*argv), (row['rc'], row['stdout']))

  def test_recorded_tables(self):
    replayed = 0
    for label, row in saxutil_fixture.RECORDED.items():
      if 'results' in row:
        self.server.texts[row['argv'][-1]] = [
          (text, float(score)) for text, score in row['results']
        ]
        with self.subTest(label):
          self.replay(label)
          replayed += 1
    self.assertEqual(replayed, 12)

  def test_recorded_terse_output(self):
    self.server.texts['sorting ties'] = [
      ('first', -1.0),
      ('second', -1.0),
      ('third', -0.5),
    ]
    self.replay('terse: score formats')
    self.server.texts['multi line'] = [
      ('line1\nline2 is longer\n\nline4', -1.0),
      ('z', -2.0),
    ]
    self.replay('terse multi line')

  @parameterized.parameters(
    'score: 1', 'embed: short', 'embed: empty', 'embed: long'
  )
  def test_recorded_output(self, label: str):
    self.replay(label)

  @parameterized.parameters(
    'stream + terse', 'stream + n', 'no command', 'flag after args'
  )
  def test_recorded_mistakes(self, label: str):
    self.replay(label)
    self.assertNotEmpty(self.stderr)

  def test_recorded_streams(self):
    self.server.streams['rewrite'] = [
      _message(_item('hello', 0, -1.0)),
      _message(_item('p', 3, -1.0)),
    ]
    self.replay('stream: rewrite')
    self.server.streams['bad prefix'] = [
      _message(_item('a', 0, -1.0)),
      _message(_item('b', 9, -1.0)),
    ]
    self.replay('stream: bad prefix')
    self.server.streams['mid error'] = [
      _message(_item('a', 0, -1.0)),
      errors.Unavailable('mid-stream'),
    ]
    self.replay('stream: mid error')

  def test_empty_stream(self):
    # For an empty stream, the recorded program clears the screen until its
    # deadline. Our program does not copy this.
    self.server.streams['empty'] = []
    self.assertEqual(
      self.check(0, 'lm.generate', '-stream', fake_cell.MODEL, 'empty'),
      'Scores: \n',
    )

  def test_every_recording_is_replayed(self):
    tables = [
      k for k, row in saxutil_fixture.RECORDED.items() if 'results' in row
    ]
    replayed = set(saxutil_fixture.RECORDED) - set(tables)
    self.assertEqual(
      replayed,
      {'terse: score formats', 'terse multi line', 'score: 1'}
      | {'embed: short', 'embed: empty', 'embed: long'}
      | {'stream: rewrite', 'stream: bad prefix', 'stream: mid error'}
      | {'stream: empty', 'stream + terse', 'stream + n'}
      | {'no command', 'flag after args'},
    )

  def test_stream_of_two_samples_with_two_scores(self):
    self.server.streams['x'] = [
      _message(_item('é', 0, -0.5, 1.0), _item('b', 0, -1.0, 2.0)),
      _message(_item('!', 2, -0.25, 3.0), _item('c', 1, -1.0, 4.0)),
    ]
    out = self.check(0, 'lm.generate', '-stream', fake_cell.MODEL, 'x')
    self.assertEndsWith(
      out,
      'é!\n\nbc\n\n'
      'Total Scores[0]: -0.75, -2\n'
      'Total Scores[1]: 4, 6\n'
      '\n'
      'Last Score[0]: -0.25, -1\n'
      'Last Score[1]: 3, 4\n',
    )

  def test_generate_from_stdin_with_extra_inputs(self):
    with mock.patch.object(sys, 'stdin', io.StringIO('from stdin')):
      self.check(
        0,
        'lm.generate',
        '-extra=temperature:0.2,stop:abc',
        fake_cell.MODEL,
        '-',
      )
    request = lm_pb2.GenerateRequest(
      model_key=fake_cell.MODEL, text='from stdin'
    )
    request.extra_inputs.items['temperature'] = 0.2
    request.extra_inputs.strings['stop'] = 'abc'
    self.assertEqual(self.server.requests, [request])

  def test_n(self):
    self.server.texts['x'] = [('a', -3.0), ('b', -1.0), ('c', -2.0)]
    self.assertEqual(
      self.check(0, 'lm.generate', '-terse', '-n=2', fake_cell.MODEL, 'x'),
      'b\nc\n',
    )

  def test_score_of_several_suffixes(self):
    self.assertEqual(
      self.check(0, 'lm.score', fake_cell.MODEL, 'p', 's1', 's2'),
      '+--------+-------+--+\n'
      '| SUFFIX | SCORE |  |\n'
      '+--------+-------+--+\n'
      '| s1     |    -1 |  |\n'
      '| s2     |    -2 |  |\n'
      '+--------+-------+--+\n',
    )

  def test_gradient(self):
    self.assertEqual(
      self.check(0, 'lm.gradient', fake_cell.MODEL, 'p', 's'),
      '+-------+----------+\n'
      '| SCORE |    X     |\n'
      '+-------+----------+\n'
      '|  -3.5 | 0, 0.125 |\n'
      '+-------+----------+\n',
    )

  def test_failure_is_explained(self):
    self.check(1, 'lm.generate', fake_cell.MODEL, 'err:INTERNAL')
    self.assertEqual(self.stderr, 'Error: injected INTERNAL\n')
    self.check(1, 'lm.generate', '-extra=a', fake_cell.MODEL, 'x')
    self.check(1, 'lm.generate', fake_cell.MODEL, 'err:PERMISSION_DENIED')
    self.assertEqual(
      self.stderr,
      'Error: injected PERMISSION_DENIED\n'
      f'Hint: `saxutil getacl {fake_cell.MODEL}` prints the ACL that '
      'must admit you\n',
    )

  def test_failure_of_a_stream_is_printed_once(self):
    self.server.streams['x'] = [errors.Internal('broken')]
    out = self.check(1, 'lm.generate', '-stream', fake_cell.MODEL, 'x')
    self.assertIn('code = Internal desc = broken', out)
    self.assertEmpty(self.stderr)

  def test_model_that_cannot_answer(self):
    self.cell.publish('/sax/test/n', replicas=0)
    self.check(1, 'lm.generate', '/sax/test/n', 'x')
    self.assertStartsWith(
      self.stderr, 'Error: no replica of /sax/test/n can answer: it is pub'
    )


class MediaCommandsTest(saxutil_fixture.SaxutilTest):
  def setUp(self):
    super().setUp()
    self.server = fake_media.FakeMediaServer()
    self.addCleanup(self.server.stop)
    self.cell.admin.add_address(fake_cell.MODEL, self.server.address)
    self.file = self.create_tempfile(content='cat').full_path

  def test_classify(self):
    self.assertEqual(
      self.check(0, 'vm.classify', fake_cell.MODEL, self.file),
      '+--------------+-------+\n'
      '|     TEXT     | SCORE |\n'
      '+--------------+-------+\n'
      '| label of cat |  -0.5 |\n'
      '+--------------+-------+\n',
    )
    self.check(1, 'vm.classify', fake_cell.MODEL, '/no/such/file')
    self.check(2, 'vm.classify', fake_cell.MODEL)

  def test_embed_from_stdin(self):
    stdin = mock.Mock(buffer=io.BytesIO(b'\1\2'))
    with mock.patch.object(sys, 'stdin', stdin):
      out = self.check(0, 'vm.embed', fake_cell.MODEL, '-')
    self.assertIn('| IMAGE | EMBEDDING |\n', out)
    self.assertIn('| -     | 1, 2      |\n', out)

  def test_detect(self):
    self.assertEqual(
      self.check(0, 'vm.detect', fake_cell.MODEL, self.file, 'dog'),
      '+---------+---------+-------+--------+------+-------+------+\n'
      '| CENTERX | CENTERY | WIDTH | HEIGHT | TEXT | SCORE | MASK |\n'
      '+---------+---------+-------+--------+------+-------+------+\n'
      '|     1.5 |       2 |     3 |      4 | dog  |  0.25 | 1,2  |\n'
      '+---------+---------+-------+--------+------+-------+------+\n',
    )

  def test_generate_writes_files(self):
    directory = self.create_tempdir().full_path + '/images'
    out = self.check(0, 'vm.generate', fake_cell.MODEL, 'a dog', directory)
    self.assertIn('/images/0001.PNG', out)
    with open(directory + '/0002.PNG', 'rb') as f:
      self.assertEqual(f.read(), b'a dog 2')
    self.assertEqual(os.stat(directory).st_mode & 0o777, 0o750)
    self.check(1, 'vm.generate', fake_cell.MODEL, 'a dog', self.file)
    stdout = mock.Mock(buffer=io.BytesIO())
    context = command.Context(10)
    with mock.patch.object(sys, 'stdout', stdout):
      command.get('vm.generate').run(
        context,
        go_flags.Parsed(
          {'extra': ''}, frozenset(), [fake_cell.MODEL, 'a dog', '-']
        ),
      )
    self.assertEqual(stdout.buffer.getvalue(), b'a dog 1a dog 2')

  def test_recognize(self):
    out = self.check(
      0, 'am.recognize', '-extra=beam:4', fake_cell.MODEL, self.file
    )
    self.assertIn('| 3 bytes |    -2 |', out)
    [request] = self.server.requests
    self.assertEqual(request.extra_inputs.items['beam'], 4)


class ExtraInputsTest(absltest.TestCase):
  def test_recorded_table(self):
    for row in golden.load('validation.json')['extra_inputs']:
      with self.subTest(row['input']):
        options = sax.ModelOptions()
        if row['ok']:
          model_commands.set_extra_inputs(options, row['input'])
          expected = common_pb2.ExtraInputs.FromString(
            bytes.fromhex(row['extra']['proto_hex'])
          )
          self.assertEqual(options.ToProto(), expected)
          continue
        with self.assertRaises(errors.InvalidArgument) as caught:
          model_commands.set_extra_inputs(options, row['input'])
        self.assertEqual(caught.exception.wire_text(), row['error'])

  def test_numbers_that_float32_cannot_hold_are_texts(self):
    options = sax.ModelOptions()
    model_commands.set_extra_inputs(options, 'a:1e50,b:1_000,c:nan')
    self.assertEqual(dict(options.ToProto().strings), {'a': '1e50'})
    self.assertCountEqual(options.ToProto().items, ['b', 'c'])


if __name__ == '__main__':
  absltest.main()
