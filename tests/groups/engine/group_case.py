"""Starts groups of processes that run a script, and compares their answers."""

from collections.abc import Sequence
import json
import os
import tempfile
from typing import Any

from absl.testing import absltest
import numpy as np

from harness.benchmarks import gptj
from saxml_ext.common import net
from saxml_ext.common.testing import modules
from saxml_ext.engine import config as config_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.pax.testing import checkpoints

_TINY = 'saxml_ext.params.gptj.TinyTokenizedFP32'
# The vocabulary is padded, so that the last device has only padding.
_RANDOM = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  head_dim=16,
  hidden_dim=64,
  rotary_dim=8,
  vocab_size=301,
)
_OVERRIDES = {
  'BATCH_SIZE': 4,
  'INPUT_SEQ_LEN': 24,
  'BUCKET_KEYS': [24],
  'PREFILL_CHUNK_LEN': 16,
  'MIN_DECODE_STEPS': 3,
  'MAX_DECODE_STEPS': 12,
}


def random_case(directory: str, **overrides) -> dict[str, Any]:
  """Returns seven requests for four slots, with prompts of 1 or 2 chunks."""
  rng = np.random.default_rng(7)

  def draw(count: int) -> list[int]:
    return rng.integers(1, 301, count).tolist()

  return {
    'params': _TINY,
    'checkpoint': directory,
    'overrides': {
      **_OVERRIDES,
      'EOS_ID': 0,
      'ROTARY_DIM': _RANDOM.rotary_dim,
      **overrides,
    },
    'requests': [
      {
        'tokens': draw(length),
        'max_new_tokens': 4 + 2 * (length % 5),
        'seed': length,
      }
      for length in (3, 24, 17, 9, 16, 20, 1)
    ],
    'scores': [[draw(5), draw(9)], [draw(20), draw(3)]],
  }


def bundled_case(directory: str, **overrides) -> dict[str, Any]:
  """Returns requests to continue the beginnings of some reference answers."""
  with open(gptj.BUNDLE.reference, encoding='utf-8') as file:
    texts = json.load(file)['tokens']
  return {
    'params': _TINY,
    'checkpoint': directory,
    # Its programs take long to compile, so there are none for chunks.
    'overrides': {**_OVERRIDES, 'PREFILL_CHUNK_LEN': 0, **overrides},
    'requests': [
      {'tokens': texts[i][:length], 'seed': i}
      for i, length in enumerate((24, 9, 17, 21, 12))
    ],
    'scores': [[texts[7][:10], texts[7][10:18]]],
  }


class GroupCase(absltest.TestCase):
  """The base of tests with checkpoints of the random and the bundled model."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    directory = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    checkpoints.write_checkpoint(
      directory, random_model.variables(_RANDOM, scale=3.0).items()
    )
    cls.random_checkpoint = directory
    bundled = gptj.BUNDLE.pax
    assert bundled is not None
    cls.bundled_checkpoint = bundled

  def run_script(
    self, cases: Sequence[dict[str, Any]], processes: int, devices: int = 2
  ) -> list[list[dict[str, Any]]]:
    """Returns the results of each process, with that many devices each."""
    directory = self.create_tempdir().full_path
    script = os.path.join(directory, 'script.json')
    with open(script, 'w', encoding='utf-8') as file:
      json.dump(cases, file)
    coordinator = f'127.0.0.1:{net.pick_free_port()}'
    group = [
      f'--coordinator_address={coordinator}',
      f'--num_processes={processes}',
    ]
    results = [os.path.join(directory, f'{i}.json') for i in range(processes)]
    running = [
      modules.start(
        self,
        'tests.groups.engine.scripted',
        f'--script={script}',
        f'--result={result}',
        f'--process_id={i}',
        *(group if processes > 1 else ()),
        JAX_NUM_CPU_DEVICES=str(devices),
      )
      for i, result in enumerate(results)
    ]
    answers = []
    for process, result in zip(running, results):
      _, stderr = process.communicate(timeout=600)
      self.assertEqual(process.returncode, 0, stderr[-4000:])
      with open(result, encoding='utf-8') as file:
        answers.append(json.load(file))
    return answers

  def alone(
    self, cases: Sequence[dict[str, Any]], devices: int
  ) -> list[dict[str, Any]]:
    """Returns the results of one process without a mesh.

    It also writes the sets of programs that the cases name, for that many
    devices in total. Otherwise, every process of a group would compile all
    programs.
    """
    sets = [
      {**c, 'compile': c['programs'][0]} for c in cases if 'programs' in c
    ]
    script = [*sets, *map(_without_mesh, cases)]
    [results] = self.run_script(script, processes=1, devices=devices)
    return results[len(sets) :]

  def check(
    self,
    answers: Sequence[dict[str, Any]],
    alone: Sequence[dict[str, Any]],
    shares: Sequence[float],
  ) -> None:
    """Compares a group's answers and weight shares with those of `alone`."""
    for i, (got, expected, share) in enumerate(zip(answers, alone, shares)):
      with self.subTest(case=i):
        self.assertNotIn('error', got)
        self.assertEqual(got['tokens'], expected['tokens'])
        self.assertGreater(len({str(t) for t in got['tokens']}), 3)
        # In int8, the last bit may change the rounding of an activation.
        delta = 0.5 if 'QUANTIZATION' in got['identity']['params'] else 1e-3
        for name in ('logprobs', 'scores'):
          for a, b in zip(_flat(got[name]), _flat(expected[name])):
            self.assertAlmostEqual(a, b, delta=delta)
        self.assertAlmostEqual(
          got['own_bytes'] / expected['own_bytes'], share, delta=0.1
        )

  def check_bits(self, group: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Compares the processes' states, bit by bit, after each call.

    Args:
      group: The answers of each process to the same cases.
    """
    compared = 0
    for case, answers in enumerate(zip(*group, strict=True)):
      for call, held in enumerate(
        zip(*(answer['bits'] for answer in answers), strict=True)
      ):
        with self.subTest(case=case, call=call):
          known: dict[str, str] = {}
          for parts in held:
            shared = known.keys() & parts.keys()
            compared += len(shared)
            self.assertEqual(
              {key: parts[key] for key in shared},
              {key: known[key] for key in shared},
            )
            known |= parts
    # Processes that split only the slots share no state.
    self.assertGreater(compared, 0)


def _without_mesh(case: dict[str, Any]) -> dict[str, Any]:
  """Returns the case for one device, which compiles its own programs."""
  overrides = {**case['overrides'], 'ICI_MESH_SHAPE': [1, 1, 1]}
  return {**case, 'overrides': overrides, 'programs': []}


def _flat(values: Any) -> list[float]:
  if not isinstance(values, list):
    return [values]
  return [x for value in values for x in _flat(value)]
