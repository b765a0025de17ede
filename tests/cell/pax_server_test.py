"""Tests serving a Pax experiment with paxml's own checkpoint in a cell."""

import subprocess

from absl.testing import absltest
import jax
from jax import numpy as jnp
import numpy as np

from saxml_ext.client import sax
from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common.testing import modules
from saxml_ext.pax import restore
from saxml_ext.protobuf import admin_pb2
from saxml_ext.server.testing import tiny_experiments

# praxis can be imported once the modules above have prepared it.
# isort: split
from praxis import base_layer
from praxis import decoder_hparams
from praxis import py_utils

_CELL = '/sax/test'
_MODEL = _CELL + '/tiny'
_PATH = 'saxml_ext.server.testing.tiny_experiments.Beams'
_TIMEOUT = 800
_PROMPTS = ([5, 6, 7], [17], [40, 41, 9, 30, 8, 22, 13])


def _apply(restored: restore.Restored, method, *args, **kwargs):
  context = base_layer.JaxContext.HParams(do_eval=True)
  with base_layer.JaxContext.new_context(hparams=context):
    return restored.model.apply(
      restored.variables, *args, method=method, **kwargs
    )


def _beams(
  restored: restore.Restored, prompt: list[int]
) -> list[tuple[str, float]]:
  """Returns praxis' own answers to one prompt."""
  hparams = decoder_hparams.BeamSearchHParams(
    fprop_for_prefix=True,
    seqlen=100,
    max_decode_steps=tiny_experiments.Beams.MAX_DECODE_STEPS,
    eos_id=tiny_experiments.EOS_ID,
    beam_size=tiny_experiments.Beams.BEAM_SIZE,
    length_norm_alpha=tiny_experiments.Beams.LENGTH_NORM_ALPHA,
  )

  @jax.jit  # One program compiles faster than one for each operation.
  def decode(ids: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    (_, result, _), _ = _apply(
      restored,
      lambda lm, batch: lm.decode_with_params(hparams, batch),
      py_utils.NestedMap(ids=ids, paddings=jnp.zeros(ids.shape)),
      mutable=[base_layer.DECODE_CACHE],
      rngs={base_layer.RANDOM: jax.random.key(0)},
    )
    return result.output_ids, result.decode_lengths, result.scores

  answers = []
  for ids, length, score in zip(
    *(values[0] for values in decode(np.array([prompt], np.int32)))
  ):
    tokens = np.asarray(ids)[len(prompt) : int(length)].tolist()
    answers.append((','.join(map(str, tokens)), float(score)))
  return answers


class PaxServerTest(absltest.TestCase):
  def start_cell(self, experiments: str) -> None:
    root = self.create_tempdir().full_path
    fs_root = self.create_tempdir().full_path
    config = admin_pb2.Config(fs_root=fs_root, admin_acl='acl/all')
    cell.write_config(root, _CELL, config)
    common = (f'--sax_root={root}', f'--sax_cell={_CELL}')
    for module, *flags in (
      ('saxml_ext.admin.admin_server', '--http_port=-1'),
      ('saxml_ext.server.pax_server', f'--pax_experiments={experiments}'),
    ):
      process = modules.start(
        self, module, '--port=0', *common, *flags, stderr=subprocess.DEVNULL
      )
      self.assertIn('is serving at', process.stdout.readline())
    sax.SetRoot(root)

  def test_published_experiment_generates_and_scores(self):
    self.start_cell(_PATH)
    path = self.create_tempdir().full_path
    tiny_experiments.save(path)
    sax.Publish(_MODEL, _PATH, path, 1)
    sax.WaitForReady(_MODEL, 1, options=sax.AdminOptions(timeout=_TIMEOUT))
    lm = sax.Model(_MODEL).LM()
    restored = restore.restore(tiny_experiments.Beams(), path)
    answers = set()
    for prompt in _PROMPTS:
      expected = _beams(restored, prompt)
      generated = lm.Generate(','.join(map(str, prompt)))
      self.assertEqual([t for t, _ in generated], [t for t, _ in expected])
      np.testing.assert_allclose(
        [s for _, s in generated], [s for _, s in expected], rtol=1e-5
      )
      answers.update(text for text, _ in generated)
    # The prompts have an effect.
    self.assertGreater(len(answers), len(_PROMPTS))

    ids = np.array([_PROMPTS[2]], np.int32)
    logits = _apply(
      restored, lambda m, x, p: m.lm(x, p).logits, ids, np.zeros(ids.shape)
    )
    logprobs = np.asarray(jax.nn.log_softmax(logits[0]))
    expected = sum(logprobs[i - 1, ids[0, i]] for i in range(3, 7))
    prefix, suffix = (','.join(map(str, p)) for p in (ids[0, :3], ids[0, 3:]))
    self.assertAlmostEqual(
      lm.Score(prefix, [suffix])[0], float(expected), places=4
    )

    for text, code in (
      ('word', errors.InvalidArgument),
      (str(tiny_experiments.VOCAB_SIZE), errors.InvalidArgument),
    ):
      with self.assertRaises(code):
        lm.Generate(text)

  def test_wrong_names_are_reported_immediately(self):
    for name, message in (
      ('Beams', 'is not an experiment class'),
      ('a..b', 'is not an experiment class'),
      ('saxml_ext.params.gptj.TinyFP32', 'is the name of serving params'),
    ):
      process = modules.run(
        'saxml_ext.server.pax_server', '--port=0', f'--pax_experiments={name}'
      )
      self.assertEqual(process.returncode, 1)
      self.assertIn(message, process.stderr)


if __name__ == '__main__':
  absltest.main()
