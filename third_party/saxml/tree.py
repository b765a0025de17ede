"""Copies upstream Saxml's tree and adds the overlay."""

from collections.abc import Sequence
import pathlib
import re
import shutil

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

# The overlay imports these files or builds on them.
NEEDED = (
  'WORKSPACE',
  'requirements.txt',
  'saxml/saxml.bzl',
  'saxml/server/build_defs.bzl',
  'saxml/server/model_service_main.py',
  'saxml/server/pax/lm/params/gptj.py',
  'saxml/server/pax/lm/params/template.py',
  'saxml/server/pax/quantization.py',
  'saxml/server/servable_model_registry.py',
)

# r1.2.0 takes these two from the newest commits of their repositories, which
# need a newer Python than the 3.10 of its toolchain. These releases work.
PINS = {'fiddle': '0.3.0', 'flax': '0.8.1'}


def lay(upstream: pathlib.Path, out: pathlib.Path) -> None:
  """Copies `upstream` to `out` and adds the overlay.

  Upstream's requirements are kept, but PINS are set for requirements without a
  version.

  Args:
    upstream: The checkout of Saxml, which is only read.
    out: The directory to make. Missing parents are made too.

  Raises:
    FileExistsError: `out` exists, or upstream has a file of the overlay's name.
    FileNotFoundError: `upstream` lacks files that the overlay builds on.
  """
  missing = [path for path in NEEDED if not (upstream / path).is_file()]
  if missing:
    raise FileNotFoundError(
      f'{upstream} is not a checkout of Saxml that fits the overlay. It lacks '
      + ', '.join(missing)
    )
  taken = [path for path in FILES if (upstream / path).exists()]
  if taken:
    raise FileExistsError(
      f'{upstream} already has {", ".join(taken)}. Use a clean checkout.'
    )
  if out.exists():
    raise FileExistsError(f'{out} exists. Move it or choose another directory.')

  def skip(directory: str, names: Sequence[str]) -> list[str]:
    # Bazel creates these links to its outputs in the checkout.
    at_top = pathlib.Path(directory) == upstream
    return [n for n in names if at_top and n.startswith(('.git', 'bazel-'))]

  shutil.copytree(upstream, out, symlinks=True, ignore=skip)
  for path, source in FILES.items():
    (out / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_ROOT / source, out / path)
  requirements = out / 'requirements.txt'
  requirements.write_text(_pinned(requirements.read_text()))


def _pinned(requirements: str) -> str:
  for package, version in PINS.items():
    from_head = rf'^{package} @ git\+[^@\s]+$'
    requirements = re.sub(
      from_head, f'{package}=={version}', requirements, flags=re.MULTILINE
    )
  return requirements
