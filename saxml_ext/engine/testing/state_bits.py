"""Hashes the bits of an engine's state to compare processes of a group."""

import hashlib

import jax
import numpy as np

from saxml_ext.engine import runner as runner_lib


def digests(runner: runner_lib.Runner) -> dict[str, str]:
  """Returns a hash of each part of the state that this process holds.

  Args:
    runner: An engine that is between two calls.

  Returns:
    A mapping from the name and index of each part to the hash of its bytes. A
    part that several processes hold has the same key in each of them.
  """
  state = {
    'segments': runner._segments,
    'ring': runner._ring,
    'slots': runner._slots,
  }
  return {
    f'{jax.tree_util.keystr(path)} {shard.index}': hashlib.sha256(
      np.asarray(shard.data).tobytes()
    ).hexdigest()
    for path, array in jax.tree_util.tree_leaves_with_path(state)
    for shard in array.addressable_shards
  }
