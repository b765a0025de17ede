"""Copies upstream Saxml's tree and adds the overlay."""

import hashlib
import pathlib
import re

_ROOT = pathlib.Path(__file__).parents[2]
_OVERLAY = 'third_party/saxml/overlay/'

# The keys are paths in the new tree, and the values are paths in this
# workspace.
FILES = {
  'saxml/gptj_overlay/BUILD': _OVERLAY + 'saxml/gptj_overlay/BUILD.upstream',
  'saxml_ext/BUILD': _OVERLAY + 'saxml_ext/BUILD.upstream',
  **{
    path: _OVERLAY + path
    for path in (
      'saxml/gptj_overlay/gptj.py',
      'saxml/gptj_overlay/servables.py',
    )
  },
  **{
    path: path
    for path in (
      'saxml_ext/common/errors.py',
      'saxml_ext/common/ids.py',
      'saxml_ext/families/gptj_published.py',
      'saxml_ext/families/servable.py',
      'saxml_ext/params/published.py',
      'saxml_ext/params/registry.py',
      'saxml_ext/params/template.py',
    )
  },
}

# This lists the files of the branch mlperf4.0 and the ids of their contents.
MLPERF4_0 = _ROOT / 'third_party/saxml/records/mlperf4.0.tree'

# init_cloud_vm.sh of both releases installs this version of Bazel.
_BAZEL = '6.4.0\n'

# Moving references and their replacements, as regular expressions by file.
_PINS = {
  'requirements.txt': {
    # r1.2.0 takes these two from the newest commits of their repositories,
    # which need a newer Python than the 3.10 of its toolchain. These releases
    # work.
    r'^fiddle @ git\+[^@\s]+$': 'fiddle==0.3.0',
    r'^flax @ git\+[^@\s]+$': 'flax==0.8.1',
    # The head of the branch.
    r'^(praxis @ git\+\S+)@mlperf4\.0$': (
      r'\1@ffdd9b72b40a59f1d4beae3079da811ec4838b22'
    ),
  },
  'WORKSPACE': {
    # The commits of the tags v2.10.1 and v2.11.0.
    r'(pybind11/archive/|"pybind11-)v?2\.10\.1\b': (
      r'\g<1>80dc998efced8ceb2be59756668a7e90e8bef917'
    ),
    r'(tensorflow/archive/|"tensorflow-)(?:refs/tags/v)?2\.11\.0\b': (
      r'\g<1>d5b57ca93e506df258271ea00fc29cf98383a374'
    ),
  },
}

# A requirement or a URL that leads to a git repository.
_GIT = re.compile(
  r'[^\s"\']*(?:\bgit\+|\bgit:|/archive/|ball/|codeload)[^\s"\',]+'
)
_COMMIT = re.compile(r'@[0-9a-f]{40}(?![0-9A-Za-z])|/[0-9a-f]{40}\.')
# Archives with a checksum cannot change.
_ARCHIVE = re.compile(r'^\w+\((?:(?!^\)|sha256)[\s\S])*^\)', re.MULTILINE)


def lay(
  upstream: pathlib.Path, out: pathlib.Path, record: pathlib.Path = MLPERF4_0
) -> None:
  """Copies the recorded files of `upstream` to `out` and adds the overlay.

  The copy fixes what upstream leaves open: the version of Bazel, and references
  that may move. Other lists of requirements than requirements.txt, which Bazel
  does not read, are not copied.

  Args:
    upstream: The checkout of Saxml, which is only read.
    out: The directory to make. Missing parents are made too.
    record: The commit and the ids of all its files, as `testing/record.py` writes
      them.

  Raises:
    FileExistsError: `out` exists, or upstream has a file of the overlay's name.
    ValueError: `upstream` is not the recorded commit, or refers to what may
      change.
  """
  taken = [path for path in FILES if (upstream / path).exists()]
  if taken:
    raise FileExistsError(
      f'{upstream} already has {", ".join(taken)}. Use a clean checkout.'
    )
  if out.exists():
    raise FileExistsError(f'{out} exists. Move it or choose another directory.')
  # All checks are done before anything is written.
  copied = {
    path: (mode, _pinned(path, data))
    for path, (mode, data) in _read(upstream, record).items()
    if path == 'requirements.txt' or not path.startswith('requirements')
  }
  copied['.bazelversion'] = (0o644, _BAZEL.encode())
  for path, source in FILES.items():
    copied[path] = (0o644, (_ROOT / source).read_bytes())
  for path, (mode, data) in copied.items():
    (out / path).parent.mkdir(parents=True, exist_ok=True)
    (out / path).write_bytes(data)
    (out / path).chmod(mode)


def blob_id(data: bytes) -> str:
  """Returns the id by which git knows the contents of a file."""
  return hashlib.sha1(b'blob %d\0' % len(data) + data).hexdigest()


def _read(
  upstream: pathlib.Path, record: pathlib.Path
) -> dict[str, tuple[int, bytes]]:
  """Returns the mode and the contents of each recorded file.

  Raises:
    ValueError: The contents differ from those of the recorded commit.
  """
  first, *lines = record.read_text(encoding='utf-8').splitlines()
  files, wrong = {}, []
  for line in lines:
    facts, path = line.split('\t')
    mode, _, blob = facts.split()
    file = upstream / path
    data = file.read_bytes() if file.is_file() else None
    if data is None or blob_id(data) != blob:
      wrong.append(path)
    else:
      files[path] = (int(mode[-3:], 8), data)
  if wrong:
    shown = ', '.join(wrong[:3]) + (' and others' if len(wrong) > 3 else '')
    raise ValueError(
      f'{upstream} is not {record.stem} of Saxml at commit'
      f' {first.removeprefix("# ")}. {len(wrong)} of {len(lines)} files are'
      f' missing or differ: {shown}. Check out that commit.'
    )
  return files


def _pinned(path: str, data: bytes) -> bytes:
  """Returns the contents of a file with fixed references.

  Raises:
    ValueError: A requirement or an archive is no fixed commit.
  """
  if path not in _PINS:
    return data
  text = data.decode()
  for moving, fixed in _PINS[path].items():
    text = re.sub(moving, fixed, text, flags=re.MULTILINE)
  checked = re.sub(r'(^|\s)#.*', r'\1', text)
  if path == 'WORKSPACE':
    checked = '\n'.join(_ARCHIVE.findall(checked))
  for reference in _GIT.findall(checked):
    if not _COMMIT.search(reference):
      raise ValueError(
        f'{path} refers to {reference}, which may change. Add its commit of 40'
        ' hexadecimal digits to _PINS in third_party/saxml/tree.py.'
      )
  return text.encode()
