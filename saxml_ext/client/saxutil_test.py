"""Tests of the command line, also against recorded output."""

import contextlib
import io
import os
import sys
import threading
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.client import fake_cell
from saxml_ext.client import saxutil
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import golden
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import lm_pb2

_RECORDED = {row['label']: row for row in golden.load('saxutil_tables.json')}


def _item(text: str, prefix_len: int, *scores: float):
  return lm_pb2.GenerateStreamItem(
      text=text, prefix_len=prefix_len, scores=scores
  )


def _message(*items) -> lm_pb2.GenerateStreamResponse:
  return lm_pb2.GenerateStreamResponse(items=items)


class _SaxutilTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)

  def run_saxutil(self, *args: str) -> tuple[int, str]:
    """Runs a command; returns the exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
      code = saxutil.run([f'--sax_root={self.cell.root}', *args])
    self.stderr = err.getvalue()
    return code, out.getvalue()

  def check(self, code: int, *args: str) -> str:
    got, out = self.run_saxutil(*args)
    self.assertEqual(got, code, self.stderr)
    return out


class AdminCommandsTest(_SaxutilTest):

  def test_ls_sax(self):
    cell_files.write_config(self.cell.root, '/sax/other', admin_pb2.Config())
    self.assertEqual(
        self.check(0, 'ls', '/sax'),
        '+---+-------+\n'
        '| # | CELL  |\n'
        '+---+-------+\n'
        '| 0 | other |\n'
        '| 1 | test  |\n'
        '+---+-------+\n',
    )
    self.assertEqual(
        self.check(0, 'ls', '-csv', '/sax'), '# #,Cell\n0,other\n1,test\n'
    )

  def test_ls_cell(self):
    model = self.cell.admin.models[fake_cell.MODEL].model
    model.method_names.extend(['lm.generate', 'lm.score'])
    self.check(0, 'publish', '/sax/test/b', 'p.B', 'None', '1')
    self.assertEqual(
        self.check(0, 'ls', '/sax/test'),
        '+---+----------+\n'
        '| # | MODEL ID |\n'
        '+---+----------+\n'
        '| 0 | b        |\n'
        '| 1 | m        |\n'
        '+---+----------+\n',
    )
    self.assertEqual(
        self.check(0, 'ls', '-csv', '-details', '/sax/test'),
        '# #,Model ID,Methods\n0,b,\n1,m,lm.generate, lm.score\n',
    )

  def test_ls_model(self):
    published = self.cell.admin.models[fake_cell.MODEL]
    published.modelet_addresses.append('10.0.0.1:1')
    published.model.method_names.append('lm.score')
    published.model.acls.items['lm.score'] = 'acl/a'
    self.assertEqual(
        self.check(0, 'ls', fake_cell.MODEL),
        '+-------+------------+-----------------+---------------+'
        '---------------------------+----------+\n'
        '| MODEL | MODEL PATH | CHECKPOINT PATH | # OF REPLICAS |'
        ' (SELECTED) REPLICAADDRESS | METHODS  |\n'
        '+-------+------------+-----------------+---------------+'
        '---------------------------+----------+\n'
        '| m     | p A        | None            |             1 |'
        ' 10.0.0.1:1                | lm.score |\n'.replace('p A', 'p.A')
        + '+-------+------------+-----------------+---------------+'
        '---------------------------+----------+\n'
        '+----------+-------+\n'
        '|  METHOD  |  ACL  |\n'
        '+----------+-------+\n'
        '| lm.score | acl/a |\n'
        '+----------+-------+\n',
    )
    self.assertEqual(
        self.check(0, 'ls', '-csv', '-acls=false', fake_cell.MODEL),
        '# Model,Model Path,Checkpoint Path,# of Replicas,(Selected) '
        'ReplicaAddress,Methods\nm,p.A,None,1,10.0.0.1:1,lm.score\n',
    )
    self.check(1, 'ls', '-acls=false', '-details=false', fake_cell.MODEL)

  def test_ls_failures(self):
    self.check(1, 'ls', '/sax/test/nope')
    self.assertIn('/sax/test/nope not found', self.stderr)
    self.check(1, 'ls', 'nonsense')
    self.check(1, 'ls', '/sax/nope')
    self.assertIn('is not a directory', self.stderr)
    self.assertIn(self.cell.root, self.stderr)
    self.check(2, 'ls')

  def test_publish_and_unpublish(self):
    self.check(
        0,
        *('publish', '/sax/test/n', 'p.B', '/c', '2'),
        *('A=[1, 4]', 'B="x=y"', 'C='),
    )
    self.assertEqual(
        self.cell.admin.models['/sax/test/n'].model,
        admin_pb2.Model(
            model_id='/sax/test/n',
            model_path='p.B',
            checkpoint_path='/c',
            requested_num_replicas=2,
            overrides={'A': '[1, 4]', 'B': '"x=y"', 'C': ''},
        ),
    )
    self.check(1, 'publish', '/sax/test/n', 'p.B', '/c', '2')
    self.check(0, 'unpublish', '/sax/test/n')
    self.check(1, 'unpublish', '/sax/test/n')
    self.check(2, 'publish', '/sax/test/n', 'p.B', '/c', 'two')
    self.check(2, 'publish', '/sax/test/n', 'p.B', '/c', '2', 'A')
    self.check(2, 'publish', '/sax/test/n', 'p.B', '/c')

  def test_update(self):
    model = self.cell.admin.models[fake_cell.MODEL].model
    model.acls.items['lm.score'] = ''
    self.check(0, 'update', '-replicas=0', fake_cell.MODEL)
    self.assertEqual(model.requested_num_replicas, 0)
    self.check(0, 'update_checkpoint', fake_cell.MODEL, '/new')
    self.assertEqual(model.checkpoint_path, '/new')
    # Everything else is sent back as it was listed.
    self.assertEqual(dict(model.overrides), {'BATCH_SIZE': '4'})
    self.assertEqual(dict(model.acls.items), {'lm.score': ''})
    self.check(1, 'update', fake_cell.MODEL)
    self.assertIn('-replicas', self.stderr)

  def test_acls(self):
    cell, model = '/sax/test', fake_cell.MODEL
    self.assertEqual(self.check(0, 'getacl', cell), 'acl/all\n')
    self.assertEqual(
        self.check(0, 'getacl', model), 'No admin ACLs set for model.\n'
    )
    self.assertEqual(
        self.check(0, 'getacl', model, 'all'), 'No ACLs set for model.\n'
    )
    self.check(0, 'setacl', model, 'acl/a')
    self.check(0, 'setacl', model, 'lm.score', 'acl/b')
    self.assertEqual(self.check(0, 'getacl', model), 'acl/a\n')
    self.assertEqual(self.check(0, 'getacl', model, 'all'), 'lm.score: acl/b\n')
    self.assertEqual(self.check(0, 'getacl', model, 'lm.score'), 'acl/b\n')
    self.assertEqual(
        self.check(0, 'getacl', model, 'lm.embed'), 'No ACLs set for method.\n'
    )
    self.check(1, 'setacl', cell, 'acl/a')
    self.check(2, 'setacl', cell, 'lm.score', 'acl/a')
    cell_files.write_config(self.cell.root, cell, admin_pb2.Config())
    self.assertEqual(
        self.check(0, 'getacl', cell), 'No admin ACLs set for cell.\n'
    )

  def test_stats(self):
    self.cell.admin.stats.model_server_type_stats.add(
        chip_type='CHIP_TYPE_CPU',
        chip_topology='CHIP_TOPOLOGY_1',
        num_replicas=2,
    )
    self.assertEqual(
        self.check(0, 'stats', '-csv', '/sax/test'),
        '# Chip,Topology,# of Servers\nCHIP_TYPE_CPU,CHIP_TOPOLOGY_1,2\n',
    )

  def test_wait(self):
    self.check(1, '--sax_timeout=100ms', 'wait', fake_cell.MODEL)
    self.assertIn('no answer within 0.1', self.stderr)
    self.cell.add_server()
    self.check(0, 'wait', fake_cell.MODEL, '1')
    self.check(2, 'wait', fake_cell.MODEL, 'one')

  def test_watch_ends_when_the_model_is_unpublished(self):
    admin = self.cell.admin
    admin.add_address(fake_cell.MODEL, 'x:1')
    admin.add_address(fake_cell.MODEL, 'y:1')
    admin.remove_address(fake_cell.MODEL, 'x:1')
    context = mock.Mock()
    threading.Timer(
        0.3,
        admin.Unpublish,
        [admin_pb2.UnpublishRequest(model_id=fake_cell.MODEL), context],
    ).start()
    self.assertEqual(
        self.check(1, 'watch', fake_cell.MODEL),
        '+ x:1\n+ y:1\n- x:1\nReset\n',
    )


class LMCommandsTest(_SaxutilTest):

  def setUp(self):
    super().setUp()
    self.server = self.cell.add_server()

  def replay(self, label: str) -> None:
    """Runs a recorded command line and compares what it prints."""
    row = _RECORDED[label]
    argv = [
        f'-proxy={self.server.address}' if arg.startswith('-proxy=') else arg
        for arg in row['argv']
    ]
    self.assertEqual(self.run_saxutil(*argv), (row['rc'], row['stdout']))

  def test_recorded_tables(self):
    replayed = 0
    for label, row in _RECORDED.items():
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
        'Last Score[0]: -0.25, -1\n'
        'Total Scores[1]: 4, 6\n'
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
    with self.assertLogs(level='ERROR') as logs:
      self.check(1, 'lm.generate', fake_cell.MODEL, 'err:INTERNAL')
    self.assertIn('INTERNAL: injected INTERNAL', logs.output[0])
    self.assertStartsWith(self.stderr, 'Error: injected INTERNAL\nHint:\n')
    self.check(1, 'lm.generate', '-extra=a', fake_cell.MODEL, 'x')


class HelpTest(_SaxutilTest):

  def test_commands_are_listed(self):
    names = self.check(0, 'commands').split()
    self.assertContainsSubset(['ls', 'publish', 'lm.generate', 'help'], names)
    usage = self.check(0, 'help')
    for name in names:
      self.assertIn(f'\t{name} ', usage)
    recorded = _RECORDED['no command']['stderr']
    added = [name for name in names if f'\t{name} ' not in recorded]
    self.assertEqual(added, ['stats', 'wait'])

  def test_help_of_a_command(self):
    text = self.check(0, 'help', 'lm.generate')
    self.assertEqual(self.check(0, 'lm.generate', '-help'), text)
    self.assertIn('-terse (default "false")', text)
    self.check(2, 'help', 'nope')

  def test_flags(self):
    self.assertIn('-sax_timeout (default "60s")', self.check(0, 'flags'))

  @parameterized.parameters(['nope'], ['-nope', 'ls'], ['ls', '-nope', '/sax'])
  def test_unknown(self, *args: str):
    self.check(2, *args)

  def test_root_is_needed(self):
    with mock.patch.dict(os.environ):
      os.environ.pop('SAX_ROOT', None)
      with (
          mock.patch.object(saxutil.admin_client, 'set_root'),
          mock.patch.object(saxutil.admin_client, '_root', None),
      ):
        self.check(1, 'ls', '/sax')
    self.assertIn('--sax_root', self.stderr)


if __name__ == '__main__':
  absltest.main()
