"""One official file of a benchmark: where it belongs, how to get and check it."""

from collections.abc import Callable
import dataclasses
import os

from harness.caching import cache as cache_lib


def itself(path: str) -> str | None:
  """`path` if it is a file."""
  return path if os.path.isfile(path) else None


def containing(name: str, path: str) -> str | None:
  """The first directory in and below `path` that holds a file of that name."""
  for folder, folders, files in os.walk(path):
    folders.sort()
    if name in files:
      return folder
  return None


@dataclasses.dataclass(frozen=True)
class Item:
  """An official file or directory.

  Attributes:
    benchmark: "gptj" or "bert".
    name: what it is called here, unique in its benchmark.
    what: in words.
    kind: folder of the cache.
    path: where it belongs in that folder.
    commands: lines of a shell that fetch it; {data} and {models} stand for the
      folders of the cache, {run} for the flag that leads our programs there.
    check: takes the path and says what lies there; raises ValueError if it is
      another thing.
    find: takes the path and returns what is to be used of it, or None.
    md5: its published MD5; '' if none is published.
    optional: whether the benchmark runs without it.
  """

  benchmark: str
  name: str
  what: str
  kind: str
  path: str
  commands: tuple[str, ...]
  check: Callable[[str], str]
  find: Callable[[str], str | None] = itself
  md5: str = ''
  optional: bool = False

  def place(self, cache: cache_lib.Cache) -> str:
    """Where it belongs."""
    return os.path.join(cache.folder(self.kind), self.path)

  def found(self, cache: cache_lib.Cache) -> str | None:
    """Where it lies, None if it does not."""
    return self.find(self.place(cache))

  def instructions(self, cache: cache_lib.Cache) -> list[str]:
    """Commands that fetch it into this cache."""
    default = cache.root == cache_lib.root()
    return [
      command.format(
        data=_quoted(cache.data),
        models=_quoted(cache.models),
        run='' if default else f' --cache_dir={_quoted(cache.root)}',
      )
      for command in self.commands
    ]


def _quoted(path: str) -> str:
  return f"'{path}'" if set(path) & set(' ()&;$') else path
