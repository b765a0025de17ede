"""Tests of wheels and their metadata."""

import base64
import csv
import hashlib
import io
import pathlib
import re
import zipfile

from absl.testing import absltest

from deploy.wheel import build_wheel
from saxml_ext.common import program

_NAME = 'some_thing-1.2-py3-none-linux_x86_64.whl'
_ELF = b'\x7fELF' + bytes(14) + (62).to_bytes(2, 'little')
_FILES = {
  'room/b.py': b'import os, numpy\nfrom room import a\n',
  'room/a.py': b'def f():\n  from grpc import aio\n',
  'room/libkernels.so': _ELF,
}


def _build(files=None, name=_NAME) -> zipfile.ZipFile:
  data = build_wheel.build(
    name,
    files or _FILES,
    'Something.',
    'Text.',
    b'License.',
    {'one': 'room.a', 'two': 'room.b'},
    ['two'],
    ['numpy', 'grpcio>=1', 'jax'],
    {'torch': ['torch==2']},
  )
  return zipfile.ZipFile(io.BytesIO(data))


class BuildWheelTest(absltest.TestCase):
  def test_entries_and_their_record(self):
    wheel = _build()
    info = 'some_thing-1.2.dist-info'
    self.assertEqual(
      wheel.namelist(),
      [
        'room/a.py',
        'room/b.py',
        'room/libkernels.so',
        'some_thing_programs.py',
        'two.py',
        *(
          f'{info}/{name}'
          for name in ('LICENSE', 'METADATA', 'WHEEL', 'entry_points.txt')
        ),
        f'{info}/RECORD',
      ],
    )
    record = list(csv.reader(wheel.read(f'{info}/RECORD').decode().split()))
    self.assertEqual([row[0] for row in record], wheel.namelist())
    for path, digest, size in record[:-1]:
      data = wheel.read(path)
      expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
      self.assertEqual(digest, f'sha256={expected.decode().rstrip("=")}')
      self.assertEqual(size, str(len(data)))
    self.assertEqual(record[-1][1:], ['', ''])

  def test_metadata_requires_imported_packages(self):
    text = _build().read('some_thing-1.2.dist-info/METADATA').decode()
    self.assertIn('Name: some-thing\nVersion: 1.2\n', text)
    requirements = [
      x for x in text.splitlines() if x.startswith('Requires-Dist')
    ]
    self.assertEqual(
      requirements, ['Requires-Dist: numpy', 'Requires-Dist: grpcio>=1']
    )
    files = _FILES | {'room/c.py': b'x = importlib.import_module("torch.nn")'}
    text = _build(files).read('some_thing-1.2.dist-info/METADATA').decode()
    self.assertIn('Requires-Dist: torch==2 ; extra == "torch"\n', text)

  def test_same_bytes_in_any_order(self):
    again = _build(dict(reversed(_FILES.items())))
    self.assertEqual(again.fp.getvalue(), _build().fp.getvalue())
    times = {entry.date_time for entry in again.infolist()}
    self.assertEqual(times, {(1980, 1, 1, 0, 0, 0)})

  def test_metadata_names_the_pythons_that_serve(self):
    text = _build().read('some_thing-1.2.dist-info/METADATA').decode()
    self.assertIn('Requires-Python: >=3.11\n', text)
    for version in ('3.11', '3.12', '3.13'):
      self.assertIn(
        f'Classifier: Programming Language :: Python :: {version}\n', text
      )

  def test_pages_agree_with_the_metadata(self):
    (path,) = pathlib.Path('deploy/wheel').glob('gptj_sax-*.whl')
    with zipfile.ZipFile(path) as wheel:
      (name,) = (n for n in wheel.namelist() if n.endswith('/METADATA'))
      metadata = wheel.read(name).decode()
    head, description = metadata.split('\n\n', 1)
    self.assertIn('Python 3.11\nor newer', description)
    self.assertNotRegex(f'{head}{description[:300]}', 'for GPT-J')
    # The compiled programs are of one version of JAX.
    self.assertRegex(head, r'Requires-Dist: jax==[\d.]+\n')
    self.assertRegex(head, r'Requires-Dist: jaxlib==[\d.]+\n')

  def test_bundled_models_come_with_checkpoint_and_programs(self):
    (path,) = pathlib.Path('deploy/wheel').glob('gptj_sax-*.whl')
    with zipfile.ZipFile(path) as wheel:
      names = wheel.namelist()
    for model in ('harness/bundled', 'harness/bundled/llama'):
      self.assertIn(f'{model}/serve_programs/manifest.json', names)
      self.assertIn(f'{model}/pax/tokenizer.json', names)
    self.assertLess(path.stat().st_size, 60e6)

  def test_directories_become_files(self):
    root = self.create_tempdir()
    root.create_file('set/manifest.json', content='{}')
    root.create_file('set/inner/0.0', content='data')
    root.create_file('a.py', content='x = 1')
    lines = [f'room/set\t{root.full_path}/set', f'a.py\t{root.full_path}/a.py']
    self.assertEqual(
      build_wheel.read_manifest(lines),
      {
        'room/set/manifest.json': b'{}',
        'room/set/inner/0.0': b'data',
        'a.py': b'x = 1',
      },
    )

  def test_pinned_requirements_have_the_version_of_the_lock(self):
    lock = 'jax==0.10.2 \\\n    --hash=x\nnumpy==2.0\n'
    self.assertEqual(
      build_wheel.pin(['jax', 'numpy'], ['jax'], lock), ['jax==0.10.2', 'numpy']
    )
    with self.assertRaisesRegex(ValueError, 'has no jaxlib. Add it to'):
      build_wheel.pin(['jaxlib'], ['jaxlib'], lock)

  def test_import_without_requirement_is_refused(self):
    files = _FILES | {'room/c.py': b'import unheard_of.thing'}
    with self.assertRaisesRegex(
      build_wheel.UnknownImportError, r"\['unheard_of'\]. Add the distribution"
    ):
      _build(files)

  def test_library_of_another_processor_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'libkernels.so .* "x86_64"'):
      _build(name=_NAME.replace('x86_64', 'aarch64'))

  def test_library_with_newer_symbols_is_refused(self):
    for symbol in (b'GLIBC_2.36', b'GLIBCXX_3.4.31'):
      files = _FILES | {'room/libkernels.so': _ELF + b'\0' + symbol + b'\0'}
      with self.assertRaisesRegex(ValueError, f'needs {symbol.decode()}, but'):
        _build(files)
    allowed = b'\0GLIBC_2.35\0GLIBCXX_3.4.30\0'
    _build(_FILES | {'room/libkernels.so': _ELF + allowed})

  def test_version_is_that_of_the_programs(self):
    wheels = sorted(w.name for w in pathlib.Path('deploy/wheel').glob('*.whl'))
    self.assertLen(wheels, 2)
    self.assertStartsWith(wheels[0], f'gptj_sax-{program.VERSION}-py3-none-')
    self.assertEqual(
      wheels[1], f'gptj_sax_client-{program.VERSION}-py3-none-any.whl'
    )

  def test_client_needs_no_jax(self):
    (path,) = pathlib.Path('deploy/wheel').glob('gptj_sax_client-*.whl')
    with zipfile.ZipFile(path) as wheel:
      info = path.name.removesuffix('-py3-none-any.whl') + '.dist-info'
      metadata = wheel.read(f'{info}/METADATA').decode()
      self.assertIn('Purelib: true', wheel.read(f'{info}/WHEEL').decode())
      names = wheel.namelist()
    required = re.findall(r'^Requires-Dist: ([\w-]+)', metadata, re.M)
    self.assertContainsSubset({'grpcio', 'protobuf'}, required)
    self.assertNoCommonElements(
      {'jax', 'numpy', 'transformers', 'uvicorn'}, required
    )
    self.assertIn('sax.py', names)
    own = [n for n in names if '/server/' in n or n.endswith('.so')]
    self.assertEqual(own, [])

  def test_library_in_a_pure_wheel_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'libkernels.so .* for py3-none'):
      _build(name='some_thing-1.2-py3-none-any.whl')

  def test_invalid_wheel_name_is_refused(self):
    with self.assertRaisesRegex(ValueError, '"some_thing.zip" is not the name'):
      _build(name='some_thing.zip')


class ImportsTest(absltest.TestCase):
  def test_requirement_without_a_name(self):
    with self.assertRaisesRegex(ValueError, '"--hash=x" does not begin with'):
      build_wheel.module_of('--hash=x')

  def test_imports_by_name(self):
    sources = [b'importlib.import_module("a.b")\nm.import_module(3)\n']
    self.assertEqual(build_wheel.imported_modules(sources), {'a'})


if __name__ == '__main__':
  absltest.main()
